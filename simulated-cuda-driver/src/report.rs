//! Reports of mistakes of the program.

use std::backtrace::Backtrace;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::handle::OpId;

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

/// The reports, and how much of them the program has seen.
#[derive(Debug)]
pub(crate) struct Reports {
    pub(crate) all: Vec<Report>,
    /// The number of reports, from the first on, that somebody has read.
    read: usize,
    /// Where each operation was requested, if `SIMULATED_CUDA_BACKTRACE` asks for it.
    pub(crate) requests: Option<BTreeMap<OpId, Arc<Backtrace>>>,
}

impl Reports {
    /// No reports.
    pub(crate) fn new() -> Self {
        let wanted =
            std::env::var("SIMULATED_CUDA_BACKTRACE").is_ok_and(|set| !matches!(set.as_str(), "" | "0"));
        Self { all: Vec::new(), read: 0, requests: wanted.then(BTreeMap::new) }
    }

    /// The number of reports.
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// Returns a report, which then counts as read.
    pub(crate) fn read(&mut self, index: usize) -> Option<&Report> {
        self.read = self.read.max((index + 1).min(self.all.len()));
        self.all.get(index)
    }

    pub(crate) fn clear(&mut self) {
        self.all.clear();
        self.read = 0;
    }

    /// Records where an operation is requested.
    pub(crate) fn note_request(&mut self, operation: OpId) {
        if let Some(requests) = &mut self.requests {
            requests.insert(operation, Arc::new(Backtrace::force_capture()));
        }
    }

    pub(crate) fn unread(&self) -> &[Report] {
        &self.all[self.read..]
    }
}
