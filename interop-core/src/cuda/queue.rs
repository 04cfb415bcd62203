//! What waits for work on a device, by what it waits for.

use std::collections::VecDeque;

use super::event::Event;
use super::release::Fence;
use crate::owner::Owner;

/// What waits for the work of the same contexts.
pub(super) struct Queue {
    pub(super) fence: Fence,
    /// In the order of their events. Each event comes after all work before it, so while the first is not done, no other
    /// is. Two threads may park in the wrong order; one of the two then waits a little longer than it has to.
    pub(super) decided: VecDeque<Parked>,
    /// Those for which no event could be recorded yet.
    pub(super) undecided: Vec<Owner>,
}

/// Owners that share their events, of which none is left when the work is done.
pub(super) struct Parked {
    pub(super) events: Vec<Event<'static>>,
    pub(super) owners: Vec<Owner>,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.decided.is_empty() && self.undecided.is_empty()
    }
}

impl Parked {
    /// Whether the work is done, for which it can `wait`; events that are done are forgotten.
    pub(super) fn is_done(&mut self, wait: bool) -> bool {
        self.events.retain(|event| {
            let done = event.in_context(|| if wait { event.wait().map(|()| true) } else { event.is_done() });
            // An event that is none any more went with its context, even if another one has the context's handle now.
            !done.unwrap_or_else(|failure| failure.is_final() || failure.is_about_handles())
        });
        self.events.is_empty()
    }
}

/// How many owners there are.
pub(super) fn count(parked: &VecDeque<Parked>) -> usize {
    parked.iter().map(|parked| parked.owners.len()).sum()
}
