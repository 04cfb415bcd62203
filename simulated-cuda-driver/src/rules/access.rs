//! Which uses of memory nothing orders.

use std::sync::Arc;

use crate::access::{Use, What};
use crate::happens_before::{Moment, Step, Who};
use crate::report::Mistake;
use crate::state::State;

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

    /// As [`locate`](Self::locate), for memory that the driver knows.
    pub(crate) fn touch(&mut self, step: &Step, address: u64, bytes: u64, what: What) -> Option<*mut u8> {
        let told = self.note(step, what, address, bytes);
        let why = match self.memory.translate(address, bytes) {
            Ok(found) => return Some(found),
            // The conflicting pair of uses has already been reported.
            Err(why) if told && why.mistake != Mistake::OutOfBounds => return None,
            Err(why) => why,
        };
        let Step { moment, name, .. } = step;
        let who = self.agents.who(moment.agent);
        let text = format!("{name} (operation {} of {who}) was not performed: {}", moment.number, why.text);
        self.report_operations(why.mistake, text, &[(moment.number, name)]);
        None
    }
}
