//! What a release waits for, in one word.

use core::num::NonZeroUsize;

use crate::cuda::context::Context;
use crate::cuda::driver::{Driver, Outcome};
#[cfg(any(feature = "cust", feature = "cudarc"))]
use crate::cuda::release::policy::{ReleasePolicy, release_policy};

/// The contexts in which memory may be in use when it is released, and how a release is treated.
///
/// One word, because every owner carries one. A `CUcontext` is the address of something that was allocated, so four bits are free:
///
/// | bits | meaning |
/// | --- | --- |
/// | 0 | other contexts use the memory too |
/// | 1, 2 | the size of the array: 1 to 3, as in `SMALL`; 0: larger, or unknown |
/// | 3 | the release needs neither a current context nor a capture mode |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReleaseScope(NonZeroUsize);

/// Arrays of fewer bytes than one of these share the event of their release.
const SMALL: [usize; 3] = [16 << 10, 128 << 10, 1 << 20];

impl ReleaseScope {
    const EVERYWHERE: usize = 1;
    const SIZE: usize = 6;
    const SELF_RELIANT: usize = 8;
    /// For memory whose work somebody else orders. It is the size of an array that is used nowhere.
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

    /// For an array of this size.
    pub(crate) fn holding(self, bytes: usize) -> Self {
        let class = SMALL.iter().position(|limit| bytes < *limit).map_or(0, |class| class + 1);
        NonZeroUsize::new(self.0.get() & !Self::SIZE | class << 1).map_or(self, Self)
    }

    /// For an owner that belongs to another library, or that makes current itself what it needs.
    pub(crate) fn self_reliant(self) -> Self {
        Self(self.0 | Self::SELF_RELIANT)
    }

    /// Whether the owner needs neither a current context nor a capture mode when it is dropped.
    pub(crate) fn is_self_reliant(self) -> bool {
        self.0.get() & Self::SELF_RELIANT != 0
    }

    /// The size of an array that is so small that its release shares an event, rounded up; 0 for any other.
    pub(crate) fn small_bytes(self) -> usize {
        let class = (self.0.get() & Self::SIZE) >> 1;
        class.checked_sub(1).map_or(0, |class| SMALL[class])
    }

    /// What is waited for, without the rest: releases with the same one share their events.
    pub(crate) fn contexts(self) -> Self {
        let contexts = self.0.get() & !(Self::SIZE | Self::SELF_RELIANT);
        NonZeroUsize::new(contexts).map_or(self, Self)
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
        Context::from_driver(self.0.get() & !(Self::EVERYWHERE | Self::SIZE | Self::SELF_RELIANT))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_sizes_leave_the_context_alone() {
        let context = Context::from_driver(0x7fff_fff0).unwrap();
        for (bytes, rounded) in
            [(0, SMALL[0]), (1 << 14, SMALL[1]), (0xf_ffff, SMALL[2]), (1 << 20, 0), (usize::MAX, 0)]
        {
            let scope = ReleaseScope::of_context(context).holding(bytes);
            assert_eq!((scope.small_bytes(), scope.own()), (rounded, Some(context)), "{bytes}");
            let all = scope.everywhere().self_reliant();
            assert_eq!((all.own(), all.is_self_reliant()), (Some(context), true));
            assert_eq!(all.contexts(), ReleaseScope::of_all(Some(context)));
            assert_eq!(scope.self_reliant().holding(1).contexts(), ReleaseScope::of_context(context));
            assert_ne!(ReleaseScope::of_all(None).holding(bytes), ReleaseScope::NONE);
        }
        assert_eq!(ReleaseScope::of_context(context).small_bytes(), 0, "nobody said how large it is");
        assert_eq!(ReleaseScope::of_all(None).holding(64).self_reliant().own(), None);
        assert_eq!((ReleaseScope::NONE.own(), ReleaseScope::NONE.contexts()), (None, ReleaseScope::NONE));
    }
}
