//! The uses of each allocation's bytes, and the pairs of uses that nothing orders.

use std::sync::Arc;

use crate::happens_before::{Moment, Step, Who};
use crate::report::Mistake;
use crate::state::State;

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

    const fn word(self) -> &'static str {
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

impl State {
    /// Records that a step uses bytes, and reports every earlier use that should be ordered with it and is not.
    ///
    /// Returns whether there was such a use.
    pub(crate) fn note(&mut self, step: &Step, what: What, address: u64, bytes: u64) -> bool {
        // Each byte has one history, even if host and devices use different addresses for it.
        let address = self.memory.on_host(address);
        let mut step = step.clone();
        if self.has_learned() {
            step.clock = Arc::new(self.expand(&step.clock));
        }
        let Some((first, allocation)) = self.memory.find_mut(address) else { return false };
        let bytes = bytes.min(first + allocation.bytes - address);
        let new = Use { what, address, bytes, step };
        let mut wrong = allocation.history.add(new.clone());
        let whole = allocation.shared.clone().map(|shared| (shared, first, allocation.bytes));
        let parts =
            whole.map_or_else(|| self.memory.mapped.shared(address..address + bytes), |whole| vec![whole]);
        for (shared, first, bytes) in parts {
            let history = self.memory.find_mut(address).map_or(&[][..], |(_, known)| known.history.uses());
            let own: Vec<_> = history.iter().filter_map(|one| one.within(first, bytes)).collect();
            let new = new.within(first, bytes);
            wrong.extend(new.into_iter().flat_map(|new| self.note_shared(&shared, first, &own, &new)));
        }
        if wrong.is_empty() {
            return false;
        }
        let Some((first, allocation)) = self.memory.find_mut(address) else { return false };
        let place = format!(
            "allocation {} ({:?} memory, {} bytes at {first:#x})",
            allocation.id, allocation.kind, allocation.bytes
        );
        for old in wrong {
            self.report_pair(&old, &new, &place);
        }
        true
    }

    /// Records a use of the whole allocation that starts at `first`.
    pub(crate) fn note_whole(&mut self, step: &Step, what: What, first: u64) -> bool {
        self.note(step, what, first, u64::MAX)
    }

    /// Reports two uses: they are unordered, or one is a free and the later use comes after it.
    fn report_pair(&mut self, ran: &Use, runs: &Use, place: &str) {
        let is_foreign = |moment: Moment| matches!(self.agents.who(moment.agent), Who::Foreign { .. });
        // Numbers of different processes say nothing about who was first.
        let in_order = is_foreign(ran.step.moment) || ran.step.moment.number < runs.step.moment.number;
        let (early, late) = if in_order { (ran, runs) } else { (runs, ran) };
        let (from, to) = (early.step.moment, late.step.moment);
        if !self.told.insert((from, to)) {
            return;
        }
        let frees = [early, late].iter().filter(|one| one.what == What::Free).count();
        let mistake = match frees {
            2 => Mistake::DoubleFree,
            1 => Mistake::UseAfterFree,
            _ if early.what == What::Allocate => Mistake::UseBeforeAllocation,
            _ => Mistake::Race,
        };
        let why = if late.step.clock.knows(from) {
            "in this order".to_owned()
        } else {
            let seen = match late.step.clock.of(from.agent) {
                0 => "nothing".to_owned(),
                number => format!("nothing later than operation {number}"),
            };
            let [who, whom] = [to, from].map(|moment| self.agents.who(moment.agent));
            let (from, to) = (from.number, to.number);
            format!(
                "unordered: {who} knows {seen} of {whom}, and an edge from operation {from} to operation {to} is missing"
            )
        };
        let own = [early, late].into_iter().filter(|one| !is_foreign(one.step.moment));
        let operations: Vec<_> = own.map(|one| (one.step.moment.number, one.step.name)).collect();
        let [early, late] = [early, late].map(|one| self.describe(one));
        self.report_operations(mistake, format!("{early}, and {late}, in {place}, {why}"), &operations);
    }

    fn describe(&self, one: &Use) -> String {
        let Use { what, address, bytes, step: Step { moment, name, .. } } = one;
        let who = self.agents.who(moment.agent);
        format!(
            "{} of {bytes} bytes at {address:#x} by {name} (operation {} of {who})",
            what.word(),
            moment.number
        )
    }
}
