//! What this crate orders, in tests.

use interop_core::cuda::{ReleasePolicy, Unordered, set_release_policy, unordered};

/// What the releases of CUDA memory wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Releases {
    AfterContext,
    AfterAllContexts,
    Unordered,
}

impl Releases {
    pub(crate) fn set(self) {
        set_unordered(Unordered { releases: self == Self::Unordered, ..unordered() });
        set_release_policy(match self {
            Self::AfterAllContexts => ReleasePolicy::AfterAllContexts,
            Self::AfterContext | Self::Unordered => ReleasePolicy::AfterContext,
        });
    }
}

/// Sets what this crate leaves unordered.
pub(crate) fn set_unordered(what: Unordered) {
    // SAFETY: the tests that leave something unordered wait for the device, or expect the race that the driver reports.
    #[allow(unsafe_code, reason = "a promise of the tests")]
    unsafe {
        interop_core::cuda::set_unordered(what);
    }
}
