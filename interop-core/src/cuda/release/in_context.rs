//! Drops an owner with the context of its memory current.

use crate::cuda::context::Relaxed;
use crate::cuda::driver::{Driver, is_of_parent, opened};
use crate::cuda::release::ScopeContext;
use crate::cuda::release::erased::ErasedOwner;
use crate::cuda::release::scope::ReleaseScope;

/// Drops an owner with the context of its memory current, in the relaxed capture mode. A self-reliant owner, such as
/// one of another library, is dropped without either.
///
/// The drop may run on any thread. Some libraries free in whatever context is current (`cust`; `cudarc` on a default
/// stream), some leave their own context current (`cudarc`), and an owner may destroy the context. Afterwards the
/// thread's previous context is current again.
pub(crate) fn drop_in_context(driver: &Driver, owner: ErasedOwner, scope: ReleaseScope) {
    // The drop of an earlier owner may have forked.
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

/// Makes the context of a scope current, in the relaxed capture mode, so that its memory may be freed during a capture.
pub(crate) fn enter_scope(scope: ReleaseScope) -> Option<ScopeContext> {
    let driver = opened()?;
    let entered = scope.own()?.enter(driver).ok()?;
    Some(ScopeContext { entered: Some(entered), _relaxed: Relaxed::new(driver) })
}
