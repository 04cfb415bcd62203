//! Reports of mistakes of the program.

use crate::state::State;

/// The kind of a mistake, by the number that tests see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Mistake {
    /// Two unordered accesses of the same bytes, at least one of them a write.
    Race = 0,
    /// An access after the free of its memory, or one that is not ordered before the free.
    UseAfterFree = 1,
    /// An access that is not ordered after the stream-ordered allocation of its memory.
    UseBeforeAllocation = 2,
    DoubleFree = 3,
    /// Memory was freed while another context than its own was current.
    WrongContext = 4,
    /// An event was neither destroyed nor listed as kept.
    LeakedEvent = 5,
    /// The host waited although the test forbids it.
    HostWait = 6,
    /// A capture was invalidated, or ended without some of its work.
    Capture = 7,
    /// A stream was used after it or its context was destroyed.
    DestroyedStream = 8,
    DestroyedEvent = 9,
    /// An access beyond an allocation, or outside every allocation.
    OutOfBounds = 10,
    /// The driver was called from a host function or a kernel.
    CallInside = 11,
    /// A kernel was looked up for which no host function is registered.
    NoKernel = 12,
}

/// A mistake of the program.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) mistake: Mistake,
    pub(crate) text: String,
}

impl State {
    /// Adds a report.
    pub(crate) fn report(&mut self, mistake: Mistake, text: String) {
        self.reports.push(Report { mistake, text });
    }

    /// Reports the live events that were created after `mark` and are not in `kept`.
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
