//! How clocks pass between processes.

#![expect(unsafe_code, reason = "numbers are read and written where the program says")]

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::access::Use;
use crate::happens_before::{Clock, Moment, Step, Who};
use crate::queue::Work;
use crate::shared_memory::{ForeignMoment, SharedMemory};
use crate::state::State;

impl State {
    /// Returns a clock with everything that its actions have learned.
    pub(crate) fn expand(&self, clock: &Clock) -> Clock {
        let mut clock = clock.clone();
        // What is learned may name actions that have learned more.
        loop {
            let before = clock.clone();
            for (agent, learned) in &self.others.learned {
                let known = clock.of(*agent);
                let count = learned.partition_point(|(number, _)| *number <= known);
                if let Some((_, known)) = count.checked_sub(1).and_then(|last| learned.get(last)) {
                    clock.join(known);
                }
            }
            if clock == before {
                return clock;
            }
        }
    }

    /// Whether [`expand`](Self::expand) can add anything.
    pub(crate) fn has_learned(&self) -> bool {
        !self.others.learned.is_empty()
    }

    /// Translates a clock for other processes.
    pub(crate) fn export_clock(&self, clock: &Clock) -> Vec<ForeignMoment> {
        let translate = |(agent, number)| match self.agents.who(agent) {
            Who::Foreign { process, agent } => ForeignMoment { process, agent, number },
            _ => ForeignMoment { process: std::process::id(), agent, number },
        };
        self.expand(clock).entries().map(translate).collect()
    }

    fn import_moment(&mut self, moment: ForeignMoment) -> Moment {
        let ForeignMoment { process, agent, number } = moment;
        if process == std::process::id() {
            return Moment { agent, number };
        }
        let agents = &mut self.agents;
        let known = self.others.agents.entry((process, agent));
        let agent = *known.or_insert_with(|| agents.add(Who::Foreign { process, agent }));
        Moment { agent, number }
    }

    /// Translates the clock of a record.
    pub(crate) fn import_clock(&mut self, record: &SharedMemory) -> Clock {
        self.translate_clock(record.load_clock())
    }

    fn translate_clock(&mut self, moments: Vec<ForeignMoment>) -> Clock {
        let mut clock = Clock::default();
        for moment in moments {
            clock.advance(self.import_moment(moment));
        }
        clock
    }

    /// Tells other processes of the earlier uses of memory that lies at an address here.
    pub(crate) fn publish_uses(&mut self, memory: &SharedMemory, first: u64, bytes: u64) {
        let history = self.memory.find_mut(first).map_or(&[][..], |(_, known)| known.history.uses());
        let own: Vec<_> = history.iter().filter_map(|one| one.within(first, bytes)).collect();
        memory.exchange(&own, first);
    }

    /// Tells other processes of the uses of shared memory by this one, and returns theirs that conflict with a new use and do not come
    /// before it. `first` is the first address of the memory.
    pub(crate) fn note_shared(
        &mut self,
        memory: &SharedMemory,
        first: u64,
        own: &[Use],
        new: &Use,
    ) -> Vec<Use> {
        let mut wrong = Vec::new();
        for foreign in memory.exchange(own, first) {
            let moment = self.import_moment(foreign.moment);
            let names = &mut self.others.names;
            let name = *names.entry(foreign.name).or_insert_with_key(|name| name.clone().leak());
            let step = Step { moment, clock: Arc::default(), name };
            let old = Use { what: foreign.what, address: first + foreign.offset, bytes: foreign.bytes, step };
            if old.is_wrong_before(new) {
                wrong.push(old);
            }
        }
        wrong
    }

    /// Whether nothing outside the queue keeps an operation from running: it waits for no number, or the number is there.
    pub(crate) fn is_answered(work: &Work) -> bool {
        match work {
            Work::WaitForNumber { address, comparison, number } => {
                comparison.holds(number_at(*address).load(Ordering::Acquire), *number)
            }
            _ => true,
        }
    }

    /// Whether operations are queued that wait for a number that nobody has written.
    pub(crate) fn waits_for_numbers(&self) -> bool {
        !self.queue.select(|operation| !Self::is_answered(&operation.work)).is_empty()
    }

    /// Writes a number, with everything that its operation knows.
    pub(crate) fn write_number(&mut self, step: &Step, address: u64, number: u64) {
        if let Ok(clock) = self.others.clock_of_number(address) {
            clock.store_number(number, &self.export_clock(&step.clock));
        }
        number_at(address).store(number, Ordering::Release);
    }

    /// Adds what the writer of the first number that a wait accepts knew to everything that comes after the wait.
    pub(crate) fn learn_number(&mut self, moment: Moment, address: u64, accepts: impl Fn(u64) -> bool) {
        let Ok(record) = self.others.clock_of_number(address) else { return };
        let mut clock = self.translate_clock(record.load_number(accepts));
        let learned = self.others.learned.entry(moment.agent).or_default();
        if let Some((_, before)) = learned.last() {
            clock.join(before);
        }
        learned.push((moment.number, clock));
    }
}

/// The number at an address that was checked when its operation was queued.
fn number_at<'a>(address: u64) -> &'a AtomicU64 {
    let at: *const AtomicU64 = ptr::with_exposed_provenance(address as usize);
    // SAFETY: an aligned address in pinned or registered memory. The program promises that this memory exists until the work
    // that uses it has run, and uses the number as an atomic.
    unsafe { &*at }
}
