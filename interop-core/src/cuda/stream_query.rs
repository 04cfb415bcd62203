//! Queries about a stream: its context, and whether it captures a graph.

use crate::array::stream::StreamHandle;
use crate::cuda::context::Context;
use crate::cuda::driver::{Driver, Failure, Outcome, RawStream, code, driver};
use crate::error::{Error, ErrorKind, Result, text};

/// Returns whether a stream that synchronizes with the legacy default stream of the current context captures a graph.
/// Using the legacy default stream would invalidate that capture. Returns false without a driver.
#[cfg(feature = "cudarc")]
pub(crate) fn legacy_stream_captures() -> bool {
    driver().is_ok_and(|driver| capture_of(driver, LEGACY).is_err_and(Failure::is_about_capture))
}

/// Returns whether a live stream captures a graph. The legacy default stream cannot.
pub(crate) fn captures(stream: StreamHandle) -> bool {
    let raw = stream.to_raw().filter(|raw| *raw != LEGACY);
    let (Some(raw), Ok(driver)) = (raw, driver()) else { return false };
    capture_of(driver, raw).is_ok_and(|capture| capture.is_some())
}

/// `CU_STREAM_LEGACY`.
pub(crate) const LEGACY: RawStream = 1;

/// Returns the context of a stream that is given by its handle, or `None` for a default stream.
///
/// This must be the first query about a stream: for a stream that was destroyed it returns an error, while every other
/// query would end the process.
pub(crate) fn context_of_live(
    driver: &Driver,
    handle: StreamHandle,
    raw: RawStream,
) -> Result<Option<Context>> {
    match handle {
        StreamHandle::Raw(_) => context_of(driver, raw).map_err(|failure| dead_stream(failure, handle)),
        _ => Ok(None),
    }
}

/// Returns whether a stream belongs to a context. A default stream can be that of any context.
///
/// # Errors
///
/// [`ErrorKind::Driver`] for a stream that was destroyed.
#[cfg(feature = "python")]
pub(crate) fn is_stream_of(handle: StreamHandle, context: Option<Context>) -> Result<bool> {
    let (StreamHandle::Raw(raw), Some(context)) = (handle, context) else { return Ok(true) };
    Ok(context_of_live(driver()?, handle, raw.get())? == Some(context))
}

/// Returns the context of a stream. Fails for a stream that was destroyed.
pub(crate) fn context_of(driver: &Driver, stream: RawStream) -> Outcome<Option<Context>> {
    let mut context = 0;
    // SAFETY: the handle is or was a stream, as required of every `StreamHandle`; `context` is valid for a write.
    unsafe { driver.stream_context(stream, &raw mut context) }?;
    Ok(Context::from_driver(context))
}

/// As [`capture_of`], with the error that a user sees.
pub(crate) fn capture(driver: &Driver, handle: StreamHandle, raw: RawStream) -> Result<Option<u64>> {
    capture_of(driver, raw).map_err(|failure| match failure.code {
        code::CAPTURE_IMPLICIT => {
            capture_error(handle, "work on a stream that synchronizes with a capturing stream")
        }
        _ => dead_stream(failure, handle),
    })
}

/// Returns the id of the capture that a stream is part of.
pub(crate) fn capture_of(driver: &Driver, stream: RawStream) -> Outcome<Option<u64>> {
    let mut status = 0;
    // SAFETY: the driver knows the stream's context, or it is a default stream; `status` is valid for a write.
    unsafe { driver.stream_is_capturing(stream, &raw mut status) }?;
    if status == 0 {
        return Ok(None);
    }
    let (mut id, null) = (0, core::ptr::null_mut());
    // SAFETY: as above; `id` is valid for a write, and null stands for what is not requested.
    unsafe { driver.stream_capture(stream, &raw mut status, &raw mut id, null, null, null) }?;
    Ok(Some(id))
}

/// Returns the error for a stream that the driver rejects.
pub(crate) fn dead_stream(failure: Failure, stream: StreamHandle) -> Error {
    failure.expecting(format_args!("a live stream of this process, not the {stream}"))
}

#[cold]
pub(crate) fn capture_error(stream: StreamHandle, what: impl core::fmt::Display) -> Error {
    let found = text!("{what} ({stream}), while a graph is captured");
    let allowed = "work on the captured stream alone, and no wait for other work";
    Error::new(ErrorKind::StreamCapture, "stream", found, allowed)
        .with_python_hint(
            "make this call before the capture, or with arrays that the captured stream alone uses",
        )
        .with_rust_hint("do this before the capture, or use the array on the captured stream alone")
}
