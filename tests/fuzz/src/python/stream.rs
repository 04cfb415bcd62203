//! Streams, as Python callers pass them.
#![expect(unsafe_code, reason = "a number is said to be a stream")]

use interop_core::StreamHandle;
use interop_core::python::extract_stream;

use super::outcome::{Expected, REFUSED, judge};
use super::values::Value;
use super::world::World;
use crate::input::Input;

/// Reads a stream.
pub(super) fn run(world: &World<'_>, input: &mut Input<'_>) {
    let value = Value::read(input);
    let object = value.object(world).expect("a value");
    if let Some((found, expected)) = judge(world, extract_stream(&object), expected(&value), &value) {
        assert_eq!(found, expected, "{value:?}");
    }
}

fn raw(handle: usize) -> StreamHandle {
    // SAFETY: no driver is loaded, so nothing uses the handle.
    unsafe { StreamHandle::from_raw(handle) }
}

fn expected(value: &Value) -> Expected<StreamHandle> {
    if let Value::Stream(answer) = value {
        return match answer.integers() {
            Ok([0, handle]) => usize::try_from(handle).map(raw).map_err(|_| REFUSED),
            Ok(_) => Err(REFUSED),
            // The version may be wrong too, and is checked first.
            Err(kinds) => Err(kinds | REFUSED),
        };
    }
    match value.extract_integer()? {
        -1 => Ok(StreamHandle::NothingPending),
        1 => Ok(StreamHandle::LegacyDefault),
        2 => Ok(StreamHandle::PerThreadDefault),
        handle => usize::try_from(handle).ok().filter(|handle| *handle > 0).map(raw).ok_or(REFUSED),
    }
}
