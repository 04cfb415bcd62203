//! What the program did wrong.

use crate::state::State;

/// What sort of mistake it is, by the number that tests see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Mistake {
    /// Two accesses of the same bytes, one of them a write, that nothing orders.
    Race = 0,
    /// An access that comes after the free of its memory, or that nothing orders before it.
    UseAfterFree = 1,
    /// An access that nothing orders after the stream-ordered allocation of its memory.
    UseBeforeAllocation = 2,
    DoubleFree = 3,
    /// Memory was freed while a context was current that is not its own.
    WrongContext = 4,
    /// An event was neither destroyed nor kept for later.
    LeakedEvent = 5,
    /// The host waited where it must not.
    HostWait = 6,
    /// A capture was spoilt, or ended without its work.
    Capture = 7,
    /// A stream was used that had been destroyed, with its context or alone.
    DestroyedStream = 8,
    DestroyedEvent = 9,
    /// An access beyond an allocation, or outside all of them.
    OutOfBounds = 10,
    /// The driver was called from a host function or a kernel.
    CallInside = 11,
    /// A kernel of a module for which no host function is registered.
    NoKernel = 12,
}

/// Something that the program did wrong.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) mistake: Mistake,
    pub(crate) text: String,
}

impl State {
    /// Notes something that the program did wrong.
    pub(crate) fn report(&mut self, mistake: Mistake, text: String) {
        self.reports.push(Report { mistake, text });
    }

    /// Reports the events made after `mark` that live and are not among those that are `kept`.
    pub(crate) fn report_leaked_events(&mut self, mark: u64, kept: &[u64]) {
        let leaked = self.events.iter().filter(|(handle, event)| event.made > mark && !kept.contains(handle));
        let words = |(handle, event): (&u64, &crate::stream::Event)| {
            format!("event {handle:#x} of context {:#x} was neither destroyed nor kept", event.context)
        };
        let texts: Vec<_> = leaked.map(words).collect();
        for text in texts {
            self.report(Mistake::LeakedEvent, text);
        }
    }
}
