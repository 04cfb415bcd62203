//! Who has used which bytes of an allocation, and what of it nothing orders.

use crate::happens_before::Step;
use crate::report::Mistake;
use crate::state::State;

/// What is done with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Read,
    Write,
    /// They become usable, in the order of a stream.
    Allocate,
    Free,
}

impl What {
    const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Allocate => "allocation",
            Self::Free => "free",
        }
    }
}

/// A use of some bytes.
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

    fn changes(&self) -> bool {
        self.what != What::Read
    }

    /// Whether the two must be ordered.
    fn conflicts(&self, other: &Self) -> bool {
        (self.changes() || other.changes()) && self.overlaps(other)
    }
}

/// The uses of an allocation that later ones have to be compared with.
#[derive(Debug, Default)]
pub(crate) struct History(Vec<Use>);

impl History {
    /// Adds a use, and returns the earlier ones that are a mistake beside it. Uses are added in an order that agrees with
    /// happens-before, so that nothing before can come after the new one.
    pub(crate) fn add(&mut self, new: Use) -> Vec<Use> {
        let knows = |old: &Use| new.step.clock.knows(old.step.moment);
        let wrong = |old: &&Use| old.conflicts(&new) && (old.what == What::Free || !knows(old));
        let found: Vec<_> = self.0.iter().filter(wrong).cloned().collect();
        // Whatever is ordered after the new use is ordered after those that come before it, too.
        self.0.retain(|old| {
            let stands_for = new.covers(old) && (new.changes() || !old.changes()) && knows(old);
            old.what == What::Free || !stands_for
        });
        match self.0.last_mut().filter(|old| old.step.moment == new.step.moment && old.what == new.what) {
            // One operation goes through memory bit by bit.
            Some(old) if old.end() == new.address => old.bytes += new.bytes,
            _ => self.0.push(new),
        }
        found
    }

    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }
}

impl State {
    /// Notes that a step uses bytes, which are reported with every earlier use that it must be ordered with and is not.
    /// Whether there was one.
    pub(crate) fn note(&mut self, step: &Step, what: What, address: u64, bytes: u64) -> bool {
        // One place has one history, by whichever address it is used.
        let address = self.memory.on_host(address);
        let Some((first, allocation)) = self.memory.find_mut(address) else { return false };
        let bytes = bytes.min(first + allocation.bytes - address);
        let new = Use { what, address, bytes, step: step.clone() };
        let wrong = allocation.history.add(new.clone());
        if wrong.is_empty() {
            return false;
        }
        let place = format!(
            "allocation {} ({:?} memory, {} bytes at {first:#x})",
            allocation.id, allocation.kind, allocation.bytes
        );
        for old in wrong {
            self.report_pair(&old, &new, &place);
        }
        true
    }

    /// Notes a use of a whole allocation by its first address.
    pub(crate) fn note_whole(&mut self, step: &Step, what: What, first: u64) -> bool {
        self.note(step, what, first, u64::MAX)
    }

    /// Reports two uses of which the one that was asked for later does not come after the other; or, if one is a free,
    /// that it does.
    fn report_pair(&mut self, ran: &Use, runs: &Use, place: &str) {
        let in_order = ran.step.moment.number < runs.step.moment.number;
        let (early, late) = if in_order { (ran, runs) } else { (runs, ran) };
        let (from, to) = (early.step.moment, late.step.moment);
        if !self.told.insert((from.number, to.number)) {
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
        let [early, late] = [early, late].map(|one| self.describe(one));
        self.report(mistake, format!("{early}, and {late}, in {place}, {why}"));
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
