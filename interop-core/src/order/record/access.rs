//! One access to memory, and which of them conflict.

use core::ops::Range;

use crate::array::elements::Elements;
use crate::driver::stream::StreamId;

/// An access to elements, for reading or for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Access {
    pub(crate) elements: Elements,
    on: StreamId,
    pub(crate) writes: u32,
    /// Whether it is that of kernels on a stream, and not that of the host.
    pub(crate) by_device: u32,
}

impl Access {
    #[inline]
    pub(crate) fn by_host(elements: Elements, writes: bool) -> Self {
        Self { elements, on: StreamId::NONE, writes: writes.into(), by_device: 0 }
    }

    #[inline]
    pub(crate) fn by_device(elements: Elements, writes: bool, on: StreamId) -> Self {
        Self { elements, on, writes: writes.into(), by_device: 1 }
    }

    /// Two accesses on one stream are ordered by it.
    #[inline]
    pub(crate) fn conflicts(&self, with: &Self) -> bool {
        (self.writes | with.writes) != 0
            && (self.on != with.on || self.on == StreamId::NONE)
            && self.elements.overlap(&with.elements)
    }
}

/// An access that a thread has begun. It stays where it was put until it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recorded {
    pub(crate) access: Access,
    pub(crate) number: u64,
    pub(crate) thread: usize,
}

/// What ends an access: its number, and where a table has it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Ticket {
    start: usize,
    end: usize,
    /// No other access has it, but for equal ones among many. It differs in a forked child, where an access from before the fork
    /// may have ended.
    pub(crate) number: u64,
    /// The place among few accesses, if it was put there.
    pub(crate) place: usize,
}

impl Ticket {
    /// That of no access.
    pub(crate) const NONE: Self = Self { start: 0, end: 0, number: 0, place: 0 };

    #[inline]
    pub(crate) fn new(range: &Range<usize>, number: u64, place: Option<usize>) -> Self {
        Self { start: range.start, end: range.end, number, place: place.unwrap_or(usize::MAX) }
    }

    #[inline]
    pub(crate) fn range(&self) -> Range<usize> {
        self.start..self.end
    }
}
