//! Releases of CUDA memory: an owner is dropped after the work that may still use its memory.
//!
//! A stream that an earlier call named may be destroyed by now, so a release uses no stream. Instead it records one
//! event after *all* work of each context in its `ReleaseScope` (`cuCtxRecordEvent`). A dropped owner takes one of
//! three ways:
//!
//! - Released now: all events are done, the scope is empty, there is no driver, or the policy is `Immediate`.
//! - Deferred with recorded events: work is pending. The owner is dropped once all of its events are done.
//! - Deferred without an event yet: a guard holds releases, a graph is captured, or the driver failed to record an
//!   event. Small arrays also wait here in a batch to share an event. A later poll records it.
//!
//! The queue is polled in passing by exports, hand-overs, allocations and the releases of larger arrays, and on request by
//! `poll_releases` and `finish_releases`. Nothing here waits on the host unless the user asks for it
//! (`finish_releases`), or more bytes are deferred than the `limit` when memory is allocated. The drop of an owner may wait by itself: `cuMemFree` waits for all work of the device, also for
//! later work.

pub(crate) mod batch;
pub(crate) mod hold;
pub(crate) mod limit;
pub(crate) mod policy;
pub(crate) mod queue;
pub(crate) mod requests;
pub(crate) mod room;
pub(crate) mod scope;
pub(crate) mod signal;
pub(crate) mod trusted;

use crate::cuda::context::{Entered, Relaxed};
use crate::cuda::release::policy::release_policy;

/// Returns whether the release of an import records events.
pub(crate) fn records_events() -> bool {
    !release_policy().is_immediate()
}

/// Keeps a context current while an owner is dropped. Afterwards the previous context is current again, whatever
/// context the owner has made current.
pub(crate) struct ScopeContext {
    entered: Option<Entered<'static>>,
    _relaxed: Relaxed<'static>,
}

impl Drop for ScopeContext {
    fn drop(&mut self) {
        if let Some(entered) = self.entered.take() {
            entered.leave();
        }
    }
}
