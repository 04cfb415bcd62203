//! Proxy streams for per-thread default streams, which have no handle while another context is current.

use std::sync::{Mutex, PoisonError};

use crate::array::device::Device;
use crate::array::stream::StreamHandle;
use crate::cuda::context::Context;
use crate::cuda::stream_wait::stream_wait_in;
use crate::error::Result;
use crate::process::fork::PerProcess;

/// The proxy streams, each with the context of the default streams that it stands for.
static PROXIES: PerProcess<Mutex<Vec<(StreamHandle, Context)>>> = PerProcess::new(|_| Mutex::new(Vec::new()));

/// Registers a stream as the proxy of the per-thread default streams of its context. The stream lives as long as the
/// program.
///
/// The legacy default stream needs no registration, because it and a blocking stream wait for each other.
#[cfg(feature = "cudarc")]
pub(crate) fn register_proxy(stream: StreamHandle, context: Context) {
    PROXIES.get().lock().unwrap_or_else(PoisonError::into_inner).push((stream, context));
}

/// Makes this thread's default stream wait for the work on its proxy stream. Does nothing for any other stream.
///
/// # Errors
///
/// As [`stream_wait`](crate::cuda::stream_wait::stream_wait).
pub(crate) fn join_default_stream(stream: StreamHandle, device: Device) -> Result<()> {
    let known = PROXIES.get().lock().unwrap_or_else(PoisonError::into_inner);
    let context = known.iter().find(|(of, _)| *of == stream).map(|(_, context)| *context);
    drop(known);
    let Some(context) = context else { return Ok(()) };
    stream_wait_in(StreamHandle::PerThreadDefault, stream, device, Some(context)).map(|_| ())
}
