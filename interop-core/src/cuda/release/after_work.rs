//! The start of every release: drops an owner now, or defers it until the queued work is done.

use crate::cuda::driver::{driver, is_of_parent, opened};
use crate::cuda::release::erased::ErasedOwner;
use crate::cuda::release::held::is_held;
use crate::cuda::release::in_context::drop_in_context;
use crate::cuda::release::policy::{ReleasePolicy, release_policy, store_policy};
use crate::cuda::release::queue::{defer, defer_in_batch, policy_changed, poll_in_passing};
use crate::cuda::release::record::events_after;
use crate::cuda::release::scope::ReleaseScope;

/// Sets what releases of CUDA memory wait for, for the whole program.
pub fn set_release_policy(policy: ReleasePolicy) {
    store_policy(policy);
    policy_changed();
}

/// Drops `owner` when the work that may use its memory is done: now, or at a later poll.
///
/// In a process that was forked from one that uses CUDA, the owner is leaked: the driver cannot free the memory there,
/// and the memory belongs to the parent.
#[cold]
pub(crate) fn after_work(owner: ErasedOwner, scope: ReleaseScope) {
    if is_of_parent() {
        return core::mem::forget(owner);
    }
    if scope == ReleaseScope::NONE {
        return drop(owner);
    }
    let policy = release_policy();
    let immediate = policy.is_immediate();
    // A small array makes no driver call here, because another thread may be capturing a graph.
    let small = scope.small_bytes() != 0 && !immediate;
    if !small {
        poll_in_passing();
    }
    let driver = if immediate { opened() } else { driver().ok() };
    // Without a driver no work can be pending.
    let Some(driver) = driver else { return drop(owner) };
    if immediate {
        return drop_in_context(driver, owner, scope);
    }
    // Applied now, because the policy may change before the events are recorded.
    let scope = if policy == ReleasePolicy::AfterAllContexts { scope.everywhere() } else { scope };
    if small {
        return defer_in_batch(owner, scope);
    }
    if is_held() {
        return defer(owner, scope, None);
    }
    match events_after(driver, scope) {
        Some(events) if events.is_empty() => drop_in_context(driver, owner, scope),
        events => defer(owner, scope, events),
    }
}
