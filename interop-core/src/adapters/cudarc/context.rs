//! `cudarc`'s contexts, and what its driver calls say when they fail.

use core::fmt::Display;
use core::mem::forget;
use std::sync::{Arc, Mutex, PoisonError};

use ::cudarc::driver::{CudaContext, DriverError};

use crate::cuda;
use crate::cuda::default_context::enter_primary_context;
use crate::error::{Error, ErrorKind, Result, text};
use crate::process::fork::PerProcess;

/// The context in which imports into `cudarc`'s types work: the primary one of a device, kept until the end of the program.
///
/// `cudarc` orders the uses of a slice, and its release, by events once it knows of a second stream of the `CudaContext`;
/// this one has two from the beginning. Slices of it may be used on streams of any other `CudaContext` of the device.
///
/// # Errors
///
/// [`ErrorKind::Driver`] without a driver, and for an ordinal that is none; [`ErrorKind::StreamCapture`] when the first call for a
/// device comes while a stream that joins with the default one captures a graph.
pub fn context(ordinal: usize) -> Result<Arc<CudaContext>> {
    static CONTEXTS: PerProcess<Mutex<Vec<Arc<CudaContext>>>> = PerProcess::new(|_| Mutex::new(Vec::new()));
    let mut kept = CONTEXTS.get().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(context) = kept.iter().find(|context| context.ordinal() == ordinal) {
        return Ok(context.clone());
    }
    // Asked first: without a driver `cudarc` panics. It leaves its context current on the thread.
    let _guards = (enter_primary_context(i32::try_from(ordinal).unwrap_or(i32::MAX))?, cuda::relaxed());
    let usable = text!("a device that can be used, as number {ordinal}");
    let context = CudaContext::new(ordinal).map_err(|error| failed("CudaContext", error, usable))?;
    if cuda::legacy_stream_captures() {
        let allowed =
            "a call of `context` before the capture, which makes a stream that waits for the default one";
        return Err(Error::new(ErrorKind::StreamCapture, "context", "a graph that is captured", allowed));
    }
    // Kept for good: without it a slice would be freed without regard to streams of other contexts, and not at all on a
    // thread without a context.
    let second = context.default_stream().fork();
    forget(second.map_err(|error| failed("fork", error, "a context that can have one more stream"))?);
    kept.push(context.clone());
    Ok(context)
}

#[cold]
pub(crate) fn failed(call: &str, error: DriverError, allowed: impl Display) -> Error {
    Error::new(ErrorKind::Driver, call, format_args!("{error:?}"), allowed)
}

/// What `cudarc` is told of a wait that was refused, as of its own.
pub(crate) fn captured() -> DriverError {
    DriverError(::cudarc::driver::sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
}
