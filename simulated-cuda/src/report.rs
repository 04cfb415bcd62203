//! Reports of the mistakes that the driver has detected in the program.

use std::fmt;
use std::marker::PhantomData;

use crate::Sim;

/// The kind of mistake of a [`Report`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Mistake {
    /// Two unordered accesses of the same bytes, at least one of them a write.
    Race = 0,
    /// An access after the free of its memory, or one that is not ordered before the free.
    UseAfterFree = 1,
    /// An access that is not ordered after the stream-ordered allocation of its memory.
    UseBeforeAllocation = 2,
    /// Memory was freed twice.
    DoubleFree = 3,
    /// Memory was freed while another context than its own was current; for pool memory, a context of another device.
    WrongContext = 4,
    /// An event was neither destroyed nor listed as kept: see [`Sim::report_leaked_events`].
    LeakedEvent = 5,
    /// The host waited for a device while a [`NoWaits`] guard existed.
    HostWait = 6,
    /// A capture was invalidated, or ended without work that belongs to it.
    Capture = 7,
    /// A stream was used after it or its context was destroyed. The real driver crashes, returns an error, or treats
    /// the handle as that of a newer stream.
    DestroyedStream = 8,
    /// An event was used that was destroyed or never existed.
    DestroyedEvent = 9,
    /// An access beyond an allocation, outside every allocation, or by the host to memory that only devices can access.
    OutOfBounds = 10,
    /// The driver was called from a host function or a kernel.
    CallInside = 11,
    /// A kernel was looked up for which no host function is registered.
    NoKernel = 12,
}

impl Mistake {
    /// All kinds, each at the index of its number.
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

/// A mistake of the program.
///
/// For two uses of memory the text names both, each with its function, operation, stream and bytes. Then it names the
/// allocation and the missing dependency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The kind of mistake.
    pub mistake: Mistake,
    /// A description of what the program did.
    pub text: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.mistake, self.text)
    }
}

/// A point in time, for [`Sim::report_leaked_events`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(u64);

/// A guard. While it exists, every call of its thread that makes the host wait is reported.
pub struct NoWaits<'s>(&'s Sim, PhantomData<*const ()>);

impl Drop for NoWaits<'_> {
    fn drop(&mut self) {
        (self.0.hooks.forbid_waits)(0);
    }
}

impl Sim {
    /// The reports so far.
    pub fn reports(&self) -> Vec<Report> {
        let read = |index| {
            let (mut kind, mut bytes) = (0, Vec::new());
            // The first call asks for the length.
            for _ in 0..2 {
                let length =
                    (self.hooks.report)(index, &raw mut kind, bytes.as_mut_ptr(), bytes.len() as u64);
                bytes.resize(usize::try_from(length).unwrap_or(0), 0);
            }
            Report { mistake: Mistake::of(kind), text: String::from_utf8_lossy(&bytes).into_owned() }
        };
        (0..(self.hooks.report_count)()).map(read).collect()
    }

    /// Returns the reports and clears them.
    pub fn take_reports(&self) -> Vec<Report> {
        let reports = self.reports();
        (self.hooks.clear_reports)();
        reports
    }

    /// Clears the reports and checks that there were none.
    ///
    /// # Panics
    ///
    /// If there are any. The message contains their texts.
    #[track_caller]
    pub fn assert_no_reports(&self) {
        let texts: Vec<_> = self.take_reports().iter().map(Report::to_string).collect();
        assert!(texts.is_empty(), "the driver reports:\n{}", texts.join("\n"));
    }

    /// Returns a mark. [`report_leaked_events`](Self::report_leaked_events) counts events that are created after it.
    pub fn mark(&self) -> Mark {
        Mark((self.hooks.mark)())
    }

    /// Reports every live event that was created after the mark and is not in `kept`. `kept` lists events that the
    /// program keeps for later use, for example in a pool.
    pub fn report_leaked_events(&self, since: Mark, kept: &[u64]) {
        (self.hooks.report_leaked_events)(since.0, kept.as_ptr(), kept.len() as u64);
    }

    /// Reports every call of this thread that makes the host wait for a device, as long as the guard exists.
    pub fn no_waits(&self) -> NoWaits<'_> {
        (self.hooks.forbid_waits)(1);
        NoWaits(self, PhantomData)
    }
}
