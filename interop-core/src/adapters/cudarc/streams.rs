//! Streams of `cudarc`: how they are named where another context is current, and as fields.

use std::sync::{Arc, Mutex, PoisonError};

use ::cudarc::driver::result::stream;
use ::cudarc::driver::{CudaContext, CudaStream};

use crate::adapters::cudarc::context::{captured, context, failed};
use crate::array::device::Device;
use crate::array::stream::StreamHandle;
use crate::cuda;
use crate::derive::fields::stream::{AsStream, FromStream};
use crate::error::Result;
use crate::memory::copy_to_cuda::ordinal_of;
use crate::process::fork::PerProcess;

/// How a stream is named on this thread beside memory of `device`: a default stream by the stand-in of its context where
/// the name would be that of another context's.
pub(crate) fn named(stream: &CudaStream, device: Device) -> StreamHandle {
    let (handle, context) = (stream.as_stream(), stream.context());
    let is_own = || handle_of(context).is_none_or(|own| cuda::has_default_streams(own, device));
    if matches!(handle, StreamHandle::Raw(_)) || is_own() {
        return handle;
    }
    let Ok(other) = proxy_stream(context, handle) else { return handle };
    if handle == StreamHandle::PerThreadDefault {
        // Unlike the legacy default stream it goes its own way, so the stand-in is told to come after it; and it after the
        // stand-in, where that was told to come after others (`cuda::join_default_stream`).
        let _entered = current(context);
        context.record_err(cuda::stream_wait(other, handle, device_of(context)).map_err(|_| captured()));
    }
    other
}

/// A blocking stream of a context for a default stream: it and the legacy default stream wait for each other, and it has a
/// name that says whose it is. It is kept until the end of the program, and the context with it.
pub(crate) fn proxy_stream(context: &Arc<CudaContext>, default: StreamHandle) -> Result<StreamHandle> {
    type Kept = Vec<(Arc<CudaContext>, StreamHandle, StreamHandle)>;
    static STREAMS: PerProcess<Mutex<Kept>> = PerProcess::new(|_| Mutex::new(Kept::new()));
    let mut kept = STREAMS.get().lock().unwrap_or_else(PoisonError::into_inner);
    let known = kept.iter().find(|(of, name, _)| of.cu_ctx() == context.cu_ctx() && *name == default);
    if let Some((_, _, stream)) = known {
        return Ok(*stream);
    }
    let _entered = current(context);
    let created = stream::create(stream::StreamKind::Default);
    let allowed = "a context that can have one more stream";
    let created = created.map_err(|error| failed("cuStreamCreate", error, allowed))?;
    // SAFETY: just made, and never destroyed.
    let handle = unsafe { StreamHandle::from_raw(created as usize) };
    if let (StreamHandle::PerThreadDefault, Some(own)) = (default, handle_of(context)) {
        cuda::register_proxy(handle, own);
    }
    kept.push((context.clone(), default, handle));
    Ok(handle)
}

fn handle_of(context: &CudaContext) -> Option<cuda::Context> {
    // SAFETY: a context that `cudarc` keeps.
    unsafe { cuda::Context::from_raw(context.cu_ctx() as usize) }
}

/// Makes a context current as long as the guard lives, where `cudarc` would make it current for good.
pub(crate) fn current(context: &CudaContext) -> Option<impl Drop> {
    cuda::enter_context(handle_of(context)?)
}

pub(crate) fn device_of(context: &CudaContext) -> Device {
    // The driver counts devices with an `int`.
    Device::cuda(i32::try_from(context.ordinal()).unwrap_or(i32::MAX))
}

impl AsStream for CudaStream {
    fn as_stream(&self) -> StreamHandle {
        // SAFETY: the stream of a field, which exports keep with the struct.
        unsafe { StreamHandle::from_raw(self.cu_stream() as usize) }
    }

    fn as_stream_on(&self, device: Device) -> Option<StreamHandle> {
        Some(named(self, device))
    }
}

/// The stream is borrowed: as with a [`StreamHandle`], whoever named it keeps it as long as the struct is in use.
impl FromStream for Arc<CudaStream> {
    fn from_stream(stream: StreamHandle, device: Device) -> Result<Self> {
        let ordinal = ordinal_of(stream, device)?;
        let context = context(ordinal)?;
        if let (StreamHandle::LegacyDefault | StreamHandle::PerThreadDefault, Some(own)) =
            (stream, handle_of(&context))
        {
            cuda::wait_for_default_streams(stream, device, own)?;
        }
        Ok(match stream {
            StreamHandle::NothingPending | StreamHandle::LegacyDefault => context.default_stream(),
            StreamHandle::PerThreadDefault => context.per_thread_stream(),
            // SAFETY: a stream of the context (`ordinal_of`), live as everybody promises who names one; it is not destroyed.
            StreamHandle::Raw(raw) => unsafe {
                context.wrap_borrowed_stream(core::ptr::with_exposed_provenance_mut(raw.get()))
            },
        })
    }
}
