//! Deferred releases, grouped by the contexts that they wait for.

use std::collections::VecDeque;

use crate::cuda::context::Relaxed;
use crate::cuda::driver::Driver;
use crate::cuda::event::Event;
use crate::cuda::release::erased::ErasedOwner;
use crate::cuda::release::scope::ReleaseScope;

/// The deferred releases that wait for the work of the same contexts.
pub(crate) struct Queue {
    pub(crate) scope: ReleaseScope,
    /// Releases with events, in the order in which the events were recorded. Each event comes after all work before it,
    /// so while the first is not done, no other is. Two threads may add theirs in the wrong order; one of the two
    /// releases then waits a little longer than it has to.
    pub(crate) recorded: VecDeque<Deferred>,
    /// Owners for which no event is recorded yet.
    pub(crate) unrecorded: Vec<ErasedOwner>,
}

/// Owners that share their events. The events that are done are removed.
pub(crate) struct Deferred {
    pub(crate) events: Vec<Event<'static>>,
    pub(crate) owners: Vec<ErasedOwner>,
}

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.recorded.is_empty() && self.unrecorded.is_empty()
    }
}

impl Deferred {
    /// Returns whether the work is done, and removes the events that are done. With `wait`, waits for the work on the
    /// host.
    pub(crate) fn is_done(&mut self, driver: &Driver, wait: bool) -> bool {
        if self.events.is_empty() {
            return true;
        }
        let _relaxed = Relaxed::new(driver);
        self.events.retain(|event| {
            let done = event.in_context(|| if wait { event.wait().map(|()| true) } else { event.is_done() });
            // An invalid event was destroyed with its context, even if another context has the handle now. It counts as
            // done.
            !done.unwrap_or_else(|failure| failure.is_final() || failure.is_about_handles())
        });
        self.events.is_empty()
    }
}

/// Returns the number of owners.
pub(crate) fn count(deferred: &VecDeque<Deferred>) -> usize {
    deferred.iter().map(|deferred| deferred.owners.len()).sum()
}
