//! The contexts whose work a release waits for.

use core::num::NonZeroUsize;

use crate::cuda::context::Context;
use crate::cuda::driver::{Driver, Outcome};
#[cfg(any(feature = "cust", feature = "cudarc"))]
use crate::cuda::release::policy::{ReleasePolicy, release_policy};

/// The contexts in which memory may be in use when it is released. One word, because every owner carries one: the
/// memory's context, with the lowest bit set where other contexts use the memory too (a `CUcontext` is an aligned address).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReleaseScope(NonZeroUsize);

impl ReleaseScope {
    const EVERYWHERE: usize = 1;
    /// For memory whose work somebody else orders. No context has this address.
    pub(crate) const NONE: Self = Self(NonZeroUsize::MIN.saturating_add(1));

    /// For memory of one device.
    pub(crate) fn of_context(context: Context) -> Self {
        Self(context.to_raw())
    }

    /// For memory that every device reaches, pinned or managed.
    pub(crate) fn of_all(own: Option<Context>) -> Self {
        own.map_or(Self(NonZeroUsize::MIN), |context| Self::of_context(context).everywhere())
    }

    pub(crate) fn everywhere(self) -> Self {
        Self(self.0 | Self::EVERYWHERE)
    }

    /// Whether work in a context comes before the release.
    #[cfg(any(feature = "cust", feature = "cudarc"))]
    pub(crate) fn covers(self, driver: &Driver, context: Context, ordinal: i32) -> bool {
        // The policy answers for the user's work, not for what is queued here.
        if release_policy() == ReleasePolicy::Immediate {
            return false;
        }
        let is_primary = || Context::primary_of(driver, ordinal).is_ok_and(|primary| primary == context);
        self.own() == Some(context) || (self.is_everywhere() && is_primary())
    }

    pub(crate) fn own(self) -> Option<Context> {
        Context::from_driver(self.0.get() & !Self::EVERYWHERE)
    }

    /// The one device whose work the release comes after, if that is known; on any other a graph may be captured meanwhile:
    /// in the relaxed mode, nothing that is asked of a context touches captures in those of other devices.
    pub(crate) fn device(self) -> Option<i32> {
        if self.is_everywhere() { None } else { self.own()?.primary_ordinal() }
    }

    /// The contexts beside its own.
    pub(crate) fn others(self, driver: &Driver) -> Outcome<Vec<Context>> {
        if !self.is_everywhere() {
            return Ok(Vec::new());
        }
        let mut others = Context::all_in_use(driver)?;
        others.retain(|context| self.own() != Some(*context));
        Ok(others)
    }

    fn is_everywhere(self) -> bool {
        self.0.get() & Self::EVERYWHERE != 0
    }
}
