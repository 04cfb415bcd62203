//! Work that was pending when memory arrived, as the storage remembers it that uses the memory in place.

use crate::array::device::Device;
use crate::array::stream::StreamHandle;
use crate::cuda::context::Context;
use crate::cuda::default_context::{context_for, has_default_streams};
use crate::cuda::driver::{Failure, driver};
use crate::cuda::release::scope::ReleaseScope;
use crate::cuda::stream_wait::stream_synchronize;
use crate::error::Result;

/// The stream on which work is pending. Of a default stream also the context: on another thread, or later, another one may
/// be current, and the same name means another stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingWork {
    stream: StreamHandle,
    of: Option<Context>,
}

impl PendingWork {
    /// On a stream whose name means the same everywhere, or nowhere.
    pub(crate) const fn on(stream: StreamHandle) -> Self {
        Self { stream, of: None }
    }

    /// On the legacy default stream, of the context in which memory of `device` is used now, whose release has this fence.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Driver`](crate::error::ErrorKind::Driver) for a device that does not exist.
    pub(crate) fn on_default_stream(device: Device, scope: Option<ReleaseScope>) -> Result<Self> {
        let Ok(driver) = driver() else { return Ok(Self::on(StreamHandle::LegacyDefault)) };
        let own = scope.and_then(ReleaseScope::own);
        // Nearly always the memory's own context is current, and need not be asked for its device.
        let context = if own.is_some() && Context::current(driver)? == own { own } else { None };
        let context = context.map_or_else(|| context_for(driver, device), Ok)?;
        Ok(Self { stream: StreamHandle::LegacyDefault, of: Some(context) })
    }

    /// The stream by a name that is good on this thread. Where it has none the host waits, and nothing is pending.
    #[inline]
    pub(crate) fn stream(self, device: Device) -> StreamHandle {
        match self.of {
            Some(context) if !names(context, device) => self.waited_for(context, device),
            _ => self.stream,
        }
    }

    #[cold]
    fn waited_for(self, context: Context, device: Device) -> StreamHandle {
        let Ok(driver) = driver() else { return self.stream };
        let done = match context.enter(driver) {
            Ok(_entered) => stream_synchronize(self.stream, device).is_ok(),
            // The work went with it.
            Err(failure) => Failure::is_final(failure),
        };
        if done { StreamHandle::NothingPending } else { self.stream }
    }
}

/// Whether the default streams of a context of `device` are called so on this thread.
fn names(context: Context, device: Device) -> bool {
    let current = driver().ok().and_then(|driver| Context::current(driver).ok().flatten());
    current == Some(context) || has_default_streams(context, device)
}
