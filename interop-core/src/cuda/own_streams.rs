//! Streams of this crate, made when they are first needed.
#![expect(unsafe_code, reason = "makes a stream of a handle")]

use crate::array::stream::StreamHandle;
use crate::cuda::context::Context;
use crate::cuda::driver::{Driver, Outcome};
use crate::cuda::per_context::PerContext;

/// One non-blocking stream for each context. It lives as long as its context.
pub(crate) struct OwnStreams(PerContext<StreamHandle>);

impl OwnStreams {
    pub(crate) const fn new() -> Self {
        Self(PerContext::new())
    }

    /// Returns the stream of a context.
    pub(crate) fn of(&self, driver: &Driver, context: Context) -> Outcome<StreamHandle> {
        const NON_BLOCKING: u32 = 1;
        let _entered = context.enter(driver)?;
        let make = || {
            let mut stream = 0;
            // SAFETY: `stream` is valid for a write.
            unsafe { driver.stream_create(&raw mut stream, NON_BLOCKING) }?;
            // SAFETY: the stream is never destroyed, except with its context, which `PerContext` finds out.
            Ok(unsafe { StreamHandle::from_raw(stream) })
        };
        self.0.with(driver, context, make, |stream| *stream)
    }

    /// Forgets the stream of a context. This is for a primary context that was reset.
    pub(crate) fn forget(&self, context: Context) {
        self.0.forget(context);
    }
}
