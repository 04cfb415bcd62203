//! Drops an owner with the context of its memory current.

use crate::cuda::context::Relaxed;
use crate::cuda::driver::{Driver, is_of_parent, opened};
use crate::cuda::release::AtHome;
use crate::cuda::release::erased::ErasedOwner;
use crate::cuda::release::scope::ReleaseScope;

/// Drops an owner. A foreign one is left to its library. For any other the context of its memory is current meanwhile, in the
/// relaxed mode of captures.
///
/// The drop may happen on any thread. Some libraries free in whatever context is current (`cust`; `cudarc` on a default
/// stream), and some leave their own current (`cudarc`), and an owner may destroy the context. Afterwards the thread has its own again.
pub(crate) fn drop_in_context(driver: &Driver, owner: ErasedOwner, scope: ReleaseScope) {
    // The drop of the one before may have forked.
    if is_of_parent() {
        return core::mem::forget(owner);
    }
    if scope.is_self_reliant() {
        return drop(owner);
    }
    let _relaxed = Relaxed::new(driver);
    let entered = scope.own().and_then(|context| context.enter(driver).ok());
    drop(owner);
    if let Some(entered) = entered {
        entered.leave();
    }
}

/// As for [`drop_in_context`]: the context of some memory current, and the mode in which it may be freed beside a capture.
pub(crate) fn enter_scope(scope: ReleaseScope) -> Option<AtHome> {
    let driver = opened()?;
    let entered = scope.own()?.enter(driver).ok()?;
    Some(AtHome { entered: Some(entered), _relaxed: Relaxed::new(driver) })
}
