//! Exports: calls `__dlpack__` of the crate's own arrays with arbitrary arguments.
#![expect(unsafe_code, reason = "capsules are looked into, and taken, as consumers do")]

use interop_core::CudaArray;
use interop_core::protocols::dlpack::{
    DLManagedTensorVersioned, DLTensor, Legacy, ManagedTensor, TensorAbi, Versioned,
};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::array::{Array, KINDS};
use super::outcome::{Expected, Kinds, REFUSED, TYPE, judge};
use super::values::Value;
use super::world::World;
use crate::input::Input;

const KEYWORDS: [&str; 5] = ["stream", "max_version", "dl_device", "copy", "copied"];
const READ_ONLY: u64 = 1;
const COPIED: u64 = 2;

/// A call of `__dlpack__`.
#[derive(Debug)]
struct Call {
    kind: i32,
    readonly: bool,
    given: [Option<Value>; KEYWORDS.len()],
    /// Whether the capsule is consumed, or dropped unconsumed.
    taken: bool,
}

/// The expected capsule of a legal call.
#[derive(Debug)]
struct Answer {
    versioned: bool,
    device: i32,
    copied: bool,
}

/// Makes a call and checks its result.
pub(super) fn run(world: &World<'_>, input: &mut Input<'_>) {
    let byte = input.byte();
    let call = Call {
        kind: KINDS[usize::from(byte % 4)],
        readonly: byte & 4 != 0,
        taken: byte & 8 != 0,
        given: std::array::from_fn(|_| {
            let present = input.byte();
            (present % 4 != 0).then(|| Value::read(input))
        }),
    };
    // An unknown keyword is passed only rarely, because the other arguments are not examined then.
    let given = if byte & 0xf0 == 0xf0 { &call.given[..] } else { &call.given[..4] };
    let py = world.py();
    let array = Bound::new(py, Array::new(call.kind, call.readonly)).expect("an array");
    let keywords = PyDict::new(py);
    for (name, value) in KEYWORDS.iter().zip(given) {
        if let Some(value) = value {
            keywords.set_item(name, value.object(world).expect("a value")).expect("a keyword");
        }
    }
    let found = array.call_method("__dlpack__", (), Some(&keywords));
    if let Some((capsule, answer)) = judge(world, found, expected(&call, given.len()), &call) {
        check(&call, &answer, &array, capsule);
    }
    drop(keywords);
    assert_eq!(references(&array), 1, "{call:?}");
    drop(array);
    assert_eq!((interop_core::live_exports(), interop_core::live_allocations()), (0, 0), "{call:?}");
}

/// Returns the result that the standard requires. `None` is the same as no argument.
fn expected(call: &Call, keywords: usize) -> Expected<Answer> {
    let value = |at: usize| call.given[at].as_ref().filter(|value| **value != Value::None);
    let stream = value(0).map(Value::extract_integer).transpose();
    let version = value(1).map(Value::integers).transpose();
    let device = value(2).map(Value::device).transpose();
    let copy = value(3).map_or(Ok(None), |value| match value {
        Value::Bool(copy) => Ok(Some(*copy)),
        _ => Err(TYPE),
    });
    let mut wrong: Kinds = 0;
    let mut note = |kinds: Option<Kinds>| wrong |= kinds.unwrap_or(0);
    note(stream.err());
    note(version.err());
    note(device.err());
    note(copy.err());
    if keywords > 4 && call.given[4].is_some() {
        wrong |= TYPE;
    }
    let (Ok(stream), Ok(version), Ok(device), Ok(copy), 0) = (stream, version, device, copy, wrong) else {
        return Err(wrong);
    };
    decide(call, stream, version.is_some_and(|[major, _]| major >= 1), device, copy).ok_or(REFUSED)
}

/// Returns the expected result for arguments of the right types.
fn decide(
    call: &Call,
    stream: Option<i128>,
    versioned: bool,
    device: Option<[i32; 2]>,
    copy: Option<bool>,
) -> Option<Answer> {
    let own = [call.kind, 0];
    // Only GPUs have ordinals.
    let wanted = device.map_or(own, |[kind, ordinal]| [kind, if kind == 2 { ordinal } else { 0 }]);
    let to_host = wanted == [1, 0];
    let served = match stream {
        None | Some(-1) => true,
        Some(handle) => call.kind != 1 && handle >= 1 && handle <= i128::from(u64::MAX),
    };
    if !served || (wanted != own && !to_host) {
        return None;
    }
    let copied = copy == Some(true) || (to_host && call.kind == 2);
    if copied {
        // Copies of device memory need the driver, which does not exist here.
        let reached = to_host && call.kind != 2;
        return (reached && copy != Some(false)).then_some(Answer { versioned, device: 1, copied });
    }
    let sayable = versioned || !call.readonly;
    sayable.then_some(Answer { versioned, device: wanted[0], copied })
}

/// Checks the contents of the capsule, and then releases it.
fn check(call: &Call, answer: &Answer, array: &Bound<'_, Array>, capsule: Bound<'_, PyAny>) {
    let own = array.get().info().expect("an array").address();
    if answer.versioned {
        let tensor = struct_in::<Versioned>(&capsule);
        // SAFETY: the capsule's name states this form.
        let DLManagedTensorVersioned { version, flags, .. } = unsafe { tensor.read() };
        let readonly = call.readonly && !answer.copied;
        let expected = if readonly { READ_ONLY } else { 0 } | if answer.copied { COPIED } else { 0 };
        assert_eq!((version.major, flags), (1, expected), "{call:?}");
        // SAFETY: as above.
        check_tensor(call, answer, unsafe { &(*tensor).dl_tensor }, own);
        release(call, capsule, tensor);
    } else {
        let tensor = struct_in::<Legacy>(&capsule);
        // SAFETY: as above.
        check_tensor(call, answer, unsafe { &(*tensor).dl_tensor }, own);
        release(call, capsule, tensor);
    }
}

fn check_tensor(call: &Call, answer: &Answer, tensor: &DLTensor, own: usize) {
    assert_eq!((tensor.device.device_type.0, tensor.device.device_id), (answer.device, 0), "{call:?}");
    assert_eq!((tensor.data.addr() != own, tensor.byte_offset), (answer.copied, 0), "{call:?}");
    for (list, expected) in [(tensor.shape, [3, 4]), (tensor.strides, [4, 1])] {
        // SAFETY: the array has two axes.
        assert_eq!(unsafe { list.cast::<[i64; 2]>().read() }, expected, "{call:?}");
    }
}

/// Returns the struct in a capsule of this form.
fn struct_in<A: TensorAbi>(capsule: &Bound<'_, PyAny>) -> *mut A {
    // SAFETY: `capsule` is a live object, and the name ends with a zero.
    let pointer = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), A::CAPSULE_NAME.as_ptr()) };
    assert!(!pointer.is_null(), "a capsule of another form");
    pointer.cast()
}

/// Releases the capsule as a consumer does.
fn release<A: TensorAbi>(call: &Call, capsule: Bound<'_, PyAny>, tensor: *mut A) {
    if call.taken {
        // SAFETY: this is a capsule, and the name is static.
        unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), A::USED_CAPSULE_NAME.as_ptr()) };
        // SAFETY: the struct was taken out of its capsule, and it is released once.
        drop(unsafe { ManagedTensor::<A>::from_raw(tensor) });
    }
    drop(capsule);
}

/// Returns the reference count of an object.
pub(super) fn references<T>(object: &Bound<'_, T>) -> isize {
    // SAFETY: the object is live.
    unsafe { ffi::Py_REFCNT(object.as_ptr()) }
}
