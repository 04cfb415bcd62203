//! Questions about a stream: its context, and whether it captures a graph.

use crate::array::stream::StreamHandle;
use crate::cuda::context::Context;
use crate::cuda::driver::{Driver, Failure, Outcome, RawStream, code, driver};
use crate::error::{Error, ErrorKind, Result, text};

/// Whether a stream that joins with the legacy default stream of the current context captures a graph, which whatever
/// names that stream would spoil; no without a driver.
#[cfg(feature = "cudarc")]
pub(crate) fn legacy_stream_captures() -> bool {
    driver().is_ok_and(|driver| capture_of(driver, LEGACY).is_err_and(Failure::is_about_capture))
}

/// Whether a stream that is live captures a graph, as any but the legacy default stream can.
pub(crate) fn captures(stream: StreamHandle) -> bool {
    let raw = stream.to_raw().filter(|raw| *raw != LEGACY);
    let (Some(raw), Ok(driver)) = (raw, driver()) else { return false };
    capture_of(driver, raw).is_ok_and(|capture| capture.is_some())
}

/// `CU_STREAM_LEGACY`.
pub(crate) const LEGACY: RawStream = 1;

/// The context of a stream that is named by its handle, which is asked for before all else: for a stream that was destroyed
/// it answers an error, and every other question would be fatal.
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

/// The context of a stream; an error for one that was destroyed.
pub(crate) fn context_of(driver: &Driver, stream: RawStream) -> Outcome<Option<Context>> {
    let mut context = 0;
    // SAFETY: the handle is or was a stream, as everybody promises who names one; a place for a context.
    unsafe { driver.stream_context(stream, &raw mut context) }?;
    Ok(Context::from_driver(context))
}

/// As [`capture_of`], with the error that a user reads.
pub(crate) fn capture(driver: &Driver, handle: StreamHandle, raw: RawStream) -> Result<Option<u64>> {
    capture_of(driver, raw).map_err(|failure| match failure.code {
        code::CAPTURE_IMPLICIT => {
            capture_error(handle, "work on a stream that joins with the one that captures")
        }
        _ => dead_stream(failure, handle),
    })
}

/// The capture that a stream takes part in.
pub(crate) fn capture_of(driver: &Driver, stream: RawStream) -> Outcome<Option<u64>> {
    let mut status = 0;
    // SAFETY: a stream whose context the driver knows, or a default stream; a place for a status.
    unsafe { driver.stream_is_capturing(stream, &raw mut status) }?;
    if status == 0 {
        return Ok(None);
    }
    let (mut id, null) = (0, core::ptr::null_mut());
    // SAFETY: as above; a place for the id, and null for what is not asked.
    unsafe { driver.stream_capture(stream, &raw mut status, &raw mut id, null, null, null) }?;
    Ok(Some(id))
}

/// The error for a stream that the driver does not take.
pub(crate) fn dead_stream(failure: Failure, stream: StreamHandle) -> Error {
    failure.expecting(format_args!("a live stream of this process, not the {stream}"))
}

#[cold]
pub(crate) fn capture_error(stream: StreamHandle, what: impl core::fmt::Display) -> Error {
    let found = text!("{what} ({stream}), while a graph is captured");
    let allowed = "the same stream on both sides, or no ordering (-1), while a graph is captured";
    Error::new(ErrorKind::StreamCapture, "stream", found, allowed)
}
