//! Work that was pending when memory was imported. A storage that uses the memory in place remembers it.

use core::num::NonZeroUsize;

use crate::array::device::Device;
use crate::array::stream::{PendingWork, StreamHandle};
use crate::cuda::context::Context;
use crate::cuda::default_context::{context_for, has_default_streams};
use crate::cuda::driver::{Failure, driver};
use crate::cuda::stream_wait::stream_synchronize;
use crate::error::Result;

impl PendingWork {
    /// Pending work on a default stream of `context`.
    pub(crate) fn in_context(stream: StreamHandle, context: Context) -> Self {
        Self::from_context(stream, context.to_raw(), find)
    }

    /// Pending work on the legacy default stream of a context: the given one, else the one in which memory of `device` is
    /// used now.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Driver`](crate::error::ErrorKind::Driver) for a device that does not exist.
    pub(crate) fn on_default_stream(device: Device, context: Option<Context>) -> Result<Self> {
        let legacy = StreamHandle::LegacyDefault;
        let context = match (context, driver()) {
            (Some(context), _) => context,
            (None, Ok(driver)) => context_for(driver, device)?,
            (None, Err(_)) => return Ok(Self::on(legacy)),
        };
        Ok(Self::in_context(legacy, context))
    }
}

/// Returns a default stream of a context by a handle that means it on this thread. If there is none, waits on the host,
/// so that nothing is pending.
fn find(stream: StreamHandle, context: NonZeroUsize, device: Device) -> StreamHandle {
    let Some(context) = Context::from_driver(context.get()) else { return stream };
    if names(context, device) { stream } else { waited_for(stream, context, device) }
}

#[cold]
fn waited_for(stream: StreamHandle, context: Context, device: Device) -> StreamHandle {
    let Ok(driver) = driver() else { return stream };
    let done = match context.enter(driver) {
        Ok(_entered) => stream_synchronize(stream, device).is_ok(),
        // The work is gone with its context.
        Err(failure) => Failure::is_final(failure),
    };
    if done { StreamHandle::NothingPending } else { stream }
}

/// Returns whether the handles of the default streams mean those of `context` on this thread, for memory of `device`.
fn names(context: Context, device: Device) -> bool {
    let current = driver().ok().and_then(|driver| Context::current(driver).ok().flatten());
    current == Some(context) || has_default_streams(context, device)
}
