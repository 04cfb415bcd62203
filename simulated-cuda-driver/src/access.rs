//! The uses of each allocation's bytes, and the pairs of uses that nothing orders.

use crate::happens_before::Step;

/// How a step uses bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Read,
    Write,
    /// The bytes become usable: a stream-ordered allocation.
    Allocate,
    Free,
}

impl What {
    /// The use with this number in a record of another process; a free if there is none, which nothing may follow.
    pub(crate) const fn of(number: u64) -> Self {
        match number {
            0 => Self::Read,
            1 => Self::Write,
            2 => Self::Allocate,
            _ => Self::Free,
        }
    }

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Allocate => "allocation",
            Self::Free => "free",
        }
    }
}

/// One use of a range of bytes.
#[derive(Clone, Debug)]
pub(crate) struct Use {
    pub(crate) what: What,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) step: Step,
}

impl Use {
    const fn end(&self) -> u64 {
        self.address + self.bytes
    }

    const fn overlaps(&self, other: &Self) -> bool {
        self.address < other.end() && other.address < self.end()
    }

    const fn covers(&self, other: &Self) -> bool {
        self.address <= other.address && other.end() <= self.end()
    }

    /// The part of the use in a range of addresses.
    pub(crate) fn within(&self, first: u64, bytes: u64) -> Option<Self> {
        let (address, end) = (self.address.max(first), self.end().min(first + bytes));
        let bytes = end.checked_sub(address).filter(|bytes| *bytes > 0)?;
        Some(Self { address, bytes, ..self.clone() })
    }

    fn changes(&self) -> bool {
        self.what != What::Read
    }

    /// Whether the two uses must be ordered.
    fn conflicts(&self, other: &Self) -> bool {
        (self.changes() || other.changes()) && self.overlaps(other)
    }

    /// Whether this earlier use and a new one conflict, and this one does not come before the new one, or is a free.
    pub(crate) fn is_wrong_before(&self, new: &Self) -> bool {
        self.conflicts(new) && (self.what == What::Free || !new.step.clock.knows(self.step.moment))
    }
}

/// The uses of an allocation that later uses must be compared with.
#[derive(Debug, Default)]
pub(crate) struct History(Vec<Use>);

impl History {
    /// Adds a use, and returns the earlier uses that conflict with it.
    ///
    /// Uses are added in an order that agrees with happens-before: no earlier use can come after the new one.
    pub(crate) fn add(&mut self, new: Use) -> Vec<Use> {
        let knows = |old: &Use| new.step.clock.knows(old.step.moment);
        let found: Vec<_> = self.0.iter().filter(|old| old.is_wrong_before(&new)).cloned().collect();
        // The new use replaces the ones that it covers: whatever comes after it comes after them too.
        self.0.retain(|old| {
            let stands_for = new.covers(old) && (new.changes() || !old.changes()) && knows(old);
            old.what == What::Free || !stands_for
        });
        match self.0.last_mut().filter(|old| old.step.moment == new.step.moment && old.what == new.what) {
            // An operation may use its memory piece by piece; adjacent pieces are merged.
            Some(old) if old.end() == new.address => old.bytes += new.bytes,
            _ => self.0.push(new),
        }
        found
    }

    pub(crate) fn uses(&self) -> &[Use] {
        &self.0
    }

    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }
}
