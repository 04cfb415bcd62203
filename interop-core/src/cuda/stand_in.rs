//! Streams that stand in for default streams of threads: those have no name where another context is current.

use std::sync::{Mutex, PoisonError};

use super::context::Context;
use super::order::order_in;
use crate::device::Device;
use crate::error::Result;
use crate::fork::PerProcess;
use crate::stream::StreamHandle;

/// The streams, each with the context of the default streams that it stands in for.
static STAND_INS: PerProcess<Mutex<Vec<(StreamHandle, Context)>>> =
    PerProcess::new(|_| Mutex::new(Vec::new()));

/// Lets a stream, which lives as long as the program, stand in for the per-thread default streams of its context. The
/// legacy default stream needs nobody to say so: a blocking stream and it wait for each other.
#[cfg(feature = "cudarc")]
pub(crate) fn stands_in(stream: StreamHandle, context: Context) {
    STAND_INS.get().lock().unwrap_or_else(PoisonError::into_inner).push((stream, context));
}

/// Makes this thread's default stream wait for what was ordered before the stream that stands in for it. Of any other stream
/// there is nothing to be done.
///
/// # Errors
///
/// As [`order`](super::order()).
pub(crate) fn bring_back(stream: StreamHandle, device: Device) -> Result<()> {
    let known = STAND_INS.get().lock().unwrap_or_else(PoisonError::into_inner);
    let context = known.iter().find(|(of, _)| *of == stream).map(|(_, context)| *context);
    drop(known);
    let Some(context) = context else { return Ok(()) };
    order_in(stream, StreamHandle::PerThreadDefault, device, Some(context))
}
