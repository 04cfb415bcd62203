//! Contexts of `cudarc`, and errors of its driver calls.

use core::mem::forget;
use std::sync::{Arc, Mutex, PoisonError};

use ::cudarc::driver::{CudaContext, DriverError};

use crate::adapters::failed;
use crate::driver::context::enter_primary_context;
use crate::error::{Error, ErrorKind, Result, text};
use crate::process::fork::PerProcess;

/// Returns the context that imports into `cudarc`'s types use: the primary context of a device. It is kept until the
/// program ends.
///
/// `cudarc` tracks the uses and the release of a slice by events only if its `CudaContext` has several streams. This
/// one has two from the start. Its slices may be used on streams of any other `CudaContext` of the device.
///
/// # Errors
///
/// [`ErrorKind::Driver`] without a driver, and for an invalid ordinal. [`ErrorKind::StreamCapture`] if the first call
/// for a device occurs while a blocking stream captures a graph.
pub fn context(ordinal: usize) -> Result<Arc<CudaContext>> {
    static CONTEXTS: PerProcess<Mutex<Vec<Arc<CudaContext>>>> = PerProcess::new(|_| Mutex::new(Vec::new()));
    let mut contexts = CONTEXTS.get().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(context) = contexts.iter().find(|context| context.ordinal() == ordinal) {
        return Ok(context.clone());
    }
    // Without a driver `cudarc` would panic. It would also leave its context current on the thread.
    let _guards = (
        enter_primary_context(i32::try_from(ordinal).unwrap_or(i32::MAX))?,
        crate::driver::context::relaxed(),
    );
    let usable = text!("a usable device with ordinal {ordinal}");
    let context = CudaContext::new(ordinal).map_err(|error| failed("CudaContext", error, usable))?;
    if crate::driver::stream::legacy_stream_joins_capture() {
        let allowed = "a call of `adapters::cudarc::context` before the capture begins, because it creates a blocking stream";
        return Err(Error::new(ErrorKind::StreamCapture, "context", "a graph that is captured", allowed));
    }
    // The second stream is never dropped. Without it, a slice would be freed without a wait for streams of other
    // contexts, and not at all on a thread without a context.
    let second = context.default_stream().fork();
    forget(second.map_err(|error| failed("fork", error, "a context that can have one more stream"))?);
    contexts.push(context.clone());
    Ok(context)
}

/// The error that `cudarc` records for a wait during capture.
pub(crate) fn captured() -> DriverError {
    DriverError(::cudarc::driver::sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
}
