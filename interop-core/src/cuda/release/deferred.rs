//! What waits for work on a device, by what it waits for.

use std::collections::VecDeque;

use crate::cuda::context::Relaxed;
use crate::cuda::driver::Driver;
use crate::cuda::event::Event;
use crate::cuda::release::erased::ErasedOwner;
use crate::cuda::release::scope::ReleaseScope;

/// What waits for the work of the same contexts.
pub(crate) struct Queue {
    pub(crate) scope: ReleaseScope,
    /// In the order of their events. Each event comes after all work before it, so while the first is not done, no other
    /// is. Two threads may park in the wrong order; one of the two then waits a little longer than it has to.
    pub(crate) recorded: VecDeque<Deferred>,
    /// Those for which no event could be recorded yet.
    pub(crate) unrecorded: Vec<ErasedOwner>,
}

/// Owners that share their events, of which none is left when the work is done.
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
    /// Whether the work is done, for which it can `wait`; events that are done are forgotten.
    pub(crate) fn is_done(&mut self, driver: &Driver, wait: bool) -> bool {
        if self.events.is_empty() {
            return true;
        }
        let _relaxed = Relaxed::new(driver);
        self.events.retain(|event| {
            let done = event.in_context(|| if wait { event.wait().map(|()| true) } else { event.is_done() });
            // An event that is none any more went with its context, even if another one has the context's handle now.
            !done.unwrap_or_else(|failure| failure.is_final() || failure.is_about_handles())
        });
        self.events.is_empty()
    }
}

/// How many owners there are.
pub(crate) fn count(deferred: &VecDeque<Deferred>) -> usize {
    deferred.iter().map(|deferred| deferred.owners.len()).sum()
}
