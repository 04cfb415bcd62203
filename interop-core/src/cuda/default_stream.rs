//! Streams that stand in for default streams of threads: those have no name where another context is current.

use std::sync::{Mutex, PoisonError};

use crate::array::device::Device;
use crate::array::stream::StreamHandle;
use crate::cuda::context::Context;
use crate::cuda::stream_wait::stream_wait_in;
use crate::error::Result;
use crate::process::fork::PerProcess;

/// The streams, each with the context of the default streams that it stands in for.
static PROXIES: PerProcess<Mutex<Vec<(StreamHandle, Context)>>> = PerProcess::new(|_| Mutex::new(Vec::new()));

/// Lets a stream, which lives as long as the program, stand in for the per-thread default streams of its context. The
/// legacy default stream needs nobody to say so: a blocking stream and it wait for each other.
#[cfg(feature = "cudarc")]
pub(crate) fn register_proxy(stream: StreamHandle, context: Context) {
    PROXIES.get().lock().unwrap_or_else(PoisonError::into_inner).push((stream, context));
}

/// Makes this thread's default stream wait for what was ordered before the stream that stands in for it. Of any other stream
/// there is nothing to be done.
///
/// # Errors
///
/// As [`stream_wait`](crate::cuda::stream_wait::order()).
pub(crate) fn join_default_stream(stream: StreamHandle, device: Device) -> Result<()> {
    let known = PROXIES.get().lock().unwrap_or_else(PoisonError::into_inner);
    let context = known.iter().find(|(of, _)| *of == stream).map(|(_, context)| *context);
    drop(known);
    let Some(context) = context else { return Ok(()) };
    stream_wait_in(StreamHandle::PerThreadDefault, stream, device, Some(context)).map(|_| ())
}
