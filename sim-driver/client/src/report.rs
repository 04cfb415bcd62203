//! What the driver has noticed that the program does wrong.

use std::fmt;
use std::marker::PhantomData;

use crate::Sim;

/// What sort of mistake a [`Report`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Mistake {
    /// Two accesses of the same bytes, one of them a write, that nothing orders.
    Race = 0,
    /// An access that comes after the free of its memory, or that nothing orders before it.
    UseAfterFree = 1,
    /// An access that nothing orders after the stream-ordered allocation of its memory.
    UseBeforeAllocation = 2,
    /// Memory was freed twice.
    DoubleFree = 3,
    /// Memory was freed while a context was current that is not its own; of the pool, one of another device.
    WrongContext = 4,
    /// An event was neither destroyed nor kept: see [`Sim::report_leaked_events`].
    LeakedEvent = 5,
    /// The host waited for a device while [`NoWaits`] lived.
    HostWait = 6,
    /// A capture was spoilt, or ended without work that it had begun.
    Capture = 7,
    /// A stream was used that had been destroyed, alone or with its context. The real driver crashes, answers an error,
    /// or takes the handle for that of a newer stream.
    DestroyedStream = 8,
    /// An event was used that had been destroyed, or that is none.
    DestroyedEvent = 9,
    /// An access beyond an allocation, outside all of them, or by the host where only devices reach.
    OutOfBounds = 10,
    /// The driver was called from a host function or a kernel.
    CallInside = 11,
    /// A kernel was looked up for which no host function is registered.
    NoKernel = 12,
}

impl Mistake {
    /// Each under its number.
    const ALL: [Self; 13] = [
        Self::Race,
        Self::UseAfterFree,
        Self::UseBeforeAllocation,
        Self::DoubleFree,
        Self::WrongContext,
        Self::LeakedEvent,
        Self::HostWait,
        Self::Capture,
        Self::DestroyedStream,
        Self::DestroyedEvent,
        Self::OutOfBounds,
        Self::CallInside,
        Self::NoKernel,
    ];

    pub(crate) fn of(number: u32) -> Self {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        *Self::ALL.get(at).expect("the library was built with this client: run `cargo xtask sim`")
    }
}

const _: () = {
    let mut at = 0;
    while at < Mistake::ALL.len() {
        assert!(Mistake::ALL[at] as usize == at, "each under its number");
        at += 1;
    }
};

/// Something that the program did wrong. For two uses of memory the text names both, each with its function, operation,
/// stream and bytes, then the allocation, and the edge that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What sort of mistake it is.
    pub mistake: Mistake,
    /// What was done, in words.
    pub text: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.mistake, self.text)
    }
}

/// A time, for [`Sim::report_leaked_events`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(u64);

/// While it lives, a call of this thread that makes the host wait is reported.
pub struct NoWaits<'s>(&'s Sim, PhantomData<*const ()>);

impl Drop for NoWaits<'_> {
    fn drop(&mut self) {
        (self.0.hooks.forbid_waits)(0);
    }
}

impl Sim {
    /// What the program did wrong so far.
    pub fn reports(&self) -> Vec<Report> {
        let read = |index| {
            let (mut kind, mut bytes) = (0, vec![0; 4096]);
            let length = (self.hooks.report)(index, &raw mut kind, bytes.as_mut_ptr(), bytes.len() as u64);
            bytes.truncate(usize::try_from(length).unwrap_or(0));
            Report { mistake: Mistake::of(kind), text: String::from_utf8_lossy(&bytes).into_owned() }
        };
        (0..(self.hooks.report_count)()).map(read).collect()
    }

    /// The reports, which are forgotten.
    pub fn take_reports(&self) -> Vec<Report> {
        let reports = self.reports();
        (self.hooks.clear_reports)();
        reports
    }

    /// Takes the reports, of which there may be none.
    ///
    /// # Panics
    ///
    /// If there are any, with their texts.
    #[track_caller]
    pub fn assert_no_reports(&self) {
        let texts: Vec<_> = self.take_reports().iter().map(Report::to_string).collect();
        assert!(texts.is_empty(), "the driver reports:\n{}", texts.join("\n"));
    }

    /// The mark after which events count that are created from now on.
    pub fn mark(&self) -> Mark {
        Mark((self.hooks.mark)())
    }

    /// Reports every event that was created after the mark, that lives, and that is not one of those in `kept`, such as a
    /// pool for later use.
    pub fn report_leaked_events(&self, since: Mark, kept: &[u64]) {
        (self.hooks.report_leaked_events)(since.0, kept.as_ptr(), kept.len() as u64);
    }

    /// Reports every call of this thread that makes the host wait for a device while the guard lives.
    pub fn no_waits(&self) -> NoWaits<'_> {
        (self.hooks.forbid_waits)(1);
        NoWaits(self, PhantomData)
    }
}
