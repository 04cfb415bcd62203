//! The default streams of contexts that are not current: no handle means one there.
//!
//! Inside of this crate a [`Stream`] has its context. A library that knows handles only gets a stream that stands for the default
//! stream (`proxy_stream`), or its own default stream waits for the one that is meant (`order_default_stream`).

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::array::device::Device;
use crate::array::stream_handle::StreamHandle;
use crate::driver::context::{Context, context_for};
use crate::driver::functions::driver;
use crate::driver::stream::Stream;
use crate::error::Result;
#[cfg(any(feature = "cudarc", feature = "cuda-core"))]
use crate::order::wait::order;
use crate::order::wait::order_streams;
use crate::process::fork::PerProcess;

/// The legacy default stream of a context: the given one, else the one in which memory of `device` is used now.
///
/// # Errors
///
/// [`ErrorKind::Driver`](crate::error::ErrorKind::Driver) for a device that does not exist.
pub(crate) fn legacy_stream(device: Device, context: Option<Context>) -> Result<Stream> {
    let context = match (context, driver()) {
        (None, Ok(driver)) => Some(context_for(driver, device)?),
        (context, _) => context,
    };
    Ok(Stream::legacy(context, device))
}

/// Makes a default stream of `context` wait for the one with the same name in the context in which memory of `device` is used.
///
/// # Errors
///
/// As [`stream_wait`].
#[cfg(any(feature = "cudarc", feature = "cuda-core"))]
pub(crate) fn order_default_stream(
    stream: StreamHandle,
    context: Option<Context>,
    device: Device,
) -> Result<()> {
    let [to, from] = [context, None].map(|context| Stream::new(stream, context, device));
    if context.is_some() { order(to.into(), from.into()).map(drop) } else { Ok(()) }
}

/// A stream that stands for a default stream of a context.
#[derive(Clone, Copy)]
struct Proxy {
    context: Context,
    default: StreamHandle,
    stream: StreamHandle,
}

static PROXIES: PerProcess<Mutex<Vec<Proxy>>> = PerProcess::new(|_| Mutex::new(Vec::new()));

fn proxies() -> MutexGuard<'static, Vec<Proxy>> {
    PROXIES.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the stream that stands for a default stream of a context. The first call makes it, and it lives as long as the
/// program, as the context does.
#[cfg(feature = "cudarc")]
pub(crate) fn proxy_stream(
    context: Context,
    default: StreamHandle,
    make: impl FnOnce() -> Result<StreamHandle>,
) -> Result<StreamHandle> {
    let mut proxies = proxies();
    let is_wanted = |proxy: &&Proxy| (proxy.context, proxy.default) == (context, default);
    if let Some(proxy) = proxies.iter().find(is_wanted) {
        return Ok(proxy.stream);
    }
    let stream = make()?;
    proxies.push(Proxy { context, default, stream });
    Ok(stream)
}

/// Makes this thread's default stream wait for the work on its proxy stream. Does nothing for any other stream. The legacy
/// default stream needs no wait, because it and a blocking stream wait for each other.
///
/// # Errors
///
/// As [`stream_wait`](crate::cuda::stream_wait()).
pub(crate) fn join_default_stream(stream: StreamHandle, device: Device) -> Result<()> {
    let own = StreamHandle::PerThreadDefault;
    let is_of_this_thread = |proxy: &&Proxy| (proxy.default, proxy.stream) == (own, stream);
    let Some(proxy) = proxies().iter().find(is_of_this_thread).copied() else { return Ok(()) };
    order_streams(own, stream, Some(proxy.context), device).map(drop)
}
