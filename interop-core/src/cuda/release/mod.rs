//! Releases that come after the work that was queued: memory goes back to its owner when nobody reads it any more.
//!
//! A stream that was named in some earlier call may be destroyed by now, so a release asks for no stream. It records one
//! event after *all* work of the context (`cuCtxRecordEvent`). If that is done the owner is dropped at once; if not, the
//! release is parked and looked at again whenever something is imported, exported, handed over or released, and when the user
//! says so. Small arrays wait for others first, to share the event.
//! Nothing here waits, unless the user asks for it (`finish_releases`); what an owner does when it is dropped is its own
//! affair, and `cuMemFree` waits for all work of the device, also later work.

pub(crate) mod after_work;
pub(crate) mod background;
pub(crate) mod batch;
pub(crate) mod deferred;
pub(crate) mod erased;
pub(crate) mod hold;
pub(crate) mod in_context;
pub(crate) mod policy;
pub(crate) mod queue;
pub(crate) mod record;
pub(crate) mod scope;
pub(crate) mod signal;
pub(crate) mod ticks;

use crate::cuda::context::{Entered, Relaxed};
use crate::cuda::release::policy::{ReleasePolicy, release_policy};

/// Whether the release of an import records events.
pub(crate) fn records_events() -> bool {
    release_policy() != ReleasePolicy::Immediate
}

/// A context that is current for the drop of an owner, and put back afterwards whatever the owner has made current.
pub(crate) struct AtHome {
    entered: Option<Entered<'static>>,
    _relaxed: Relaxed<'static>,
}

impl Drop for AtHome {
    fn drop(&mut self) {
        if let Some(entered) = self.entered.take() {
            entered.leave();
        }
    }
}
