//! Streams of `cudarc` as fields, and their handles when another context is current.

use core::mem::forget;
use std::sync::Arc;

use ::cudarc::driver::result::stream;
use ::cudarc::driver::{CudaContext, CudaStream};

use crate::adapters::cudarc::context::{captured, context};
use crate::adapters::failed;
use crate::array::device::Device;
use crate::array::stream_handle::StreamHandle;
use crate::cuda;
use crate::derive::fields::stream::{AsStream, FromStream};
use crate::error::Result;
use crate::memory::copy::transfer::ordinal_of;
use crate::order::default_streams::order_default_stream;
use crate::order::default_streams::proxy_stream;

/// The handle of a stream that is valid on this thread and for memory of `device`. A default stream is replaced by a
/// blocking stream of its context if the handle would mean another context's default stream.
pub(crate) fn handle_on(stream: &CudaStream, device: Device) -> StreamHandle {
    let (handle, context) = (stream.as_stream(), stream.context());
    let is_unambiguous = || {
        driver_context(context)
            .is_none_or(|context_handle| crate::driver::context::has_default_streams(context_handle, device))
    };
    if matches!(handle, StreamHandle::Raw(_)) || is_unambiguous() {
        return handle;
    }
    let Ok(proxy) = blocking_proxy(context, handle) else { return handle };
    if handle == StreamHandle::PerThreadDefault {
        // The per-thread default stream does not synchronize with blocking streams, so the replacement waits for it
        // here. `join_default_stream` makes it wait for the replacement.
        let _entered = current(context);
        context.record_err(cuda::stream_wait(proxy, handle, device_of(context)).map_err(|_| captured()));
    }
    proxy
}

/// Returns a blocking stream of a context that replaces one of its default streams. It synchronizes with the legacy
/// default stream, and its handle identifies the context. It is kept until the program ends, and so is the context.
pub(crate) fn blocking_proxy(context: &Arc<CudaContext>, default: StreamHandle) -> Result<StreamHandle> {
    let Some(handle) = driver_context(context) else { return Ok(default) };
    proxy_stream(handle, default, || {
        let _entered = current(context);
        let created = stream::create(stream::StreamKind::Default);
        let allowed = "a context that can have one more stream";
        let created = created.map_err(|error| failed("cuStreamCreate", error, allowed))?;
        forget(context.clone());
        // SAFETY: the stream was just created and is never destroyed.
        Ok(unsafe { StreamHandle::from_raw(created as usize) })
    })
}

pub(crate) fn driver_context(context: &CudaContext) -> Option<cuda::Context> {
    // SAFETY: `cudarc` keeps the context alive.
    unsafe { cuda::Context::from_raw(context.cu_ctx() as usize) }
}

/// Makes a context current while the guard lives; `cudarc` would leave it current.
pub(crate) fn current(context: &CudaContext) -> Option<impl Drop + use<>> {
    crate::driver::context::enter_context(driver_context(context)?)
}

pub(crate) fn device_of(context: &CudaContext) -> Device {
    // The driver's device ordinals are `int`.
    Device::cuda(i32::try_from(context.ordinal()).unwrap_or(i32::MAX))
}

impl AsStream for CudaStream {
    fn as_stream(&self) -> StreamHandle {
        // SAFETY: the stream belongs to a field; an export owns the whole struct.
        unsafe { StreamHandle::from_raw(self.cu_stream() as usize) }
    }

    fn as_stream_on(&self, device: Device) -> Option<StreamHandle> {
        Some(handle_on(self, device))
    }
}

/// The stream is borrowed. As with a [`StreamHandle`], its owner keeps it alive while the struct is in use.
impl FromStream for Arc<CudaStream> {
    fn from_stream(stream: StreamHandle, device: Device) -> Result<Self> {
        let ordinal = ordinal_of(stream, device)?;
        let context = context(ordinal)?;
        order_default_stream(stream, driver_context(&context), device)?;
        Ok(match stream {
            StreamHandle::NothingPending | StreamHandle::LegacyDefault => context.default_stream(),
            StreamHandle::PerThreadDefault => context.per_thread_stream(),
            // SAFETY: `ordinal_of` has found that the stream belongs to the context. Whoever created the handle keeps
            // the stream alive; it is not destroyed here.
            StreamHandle::Raw(raw) => unsafe {
                context.wrap_borrowed_stream(core::ptr::with_exposed_provenance_mut(raw.get()))
            },
        })
    }
}
