//! What this process knows of others that use the same memory or numbers, and how clocks pass between them.
//!
//! A clock leaves its process as triples of process, agent and number. Each process has an agent of its own for every foreign
//! agent that it hears of. Numbers are compared within one agent only, so no number is translated.
//!
//! The clock of a wait for a number is not known when it is queued, because its writer may not exist yet. It is *learned* when
//! the wait runs. Whoever comes after the wait knows it too: clocks are expanded by what their actions have learned.

#![expect(unsafe_code, reason = "numbers are read and written where the program says")]

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::access::Use;
use crate::happens_before::{Agent, Clock, Moment, Step, Who};
use crate::queue::{Comparison, OpId, Work};
use crate::shared_memory::{
    ForeignMoment, SharedMemory, anonymous_file, clocks_of_file, file_behind, remove_unused_clocks,
};
use crate::state::{Sim, State, lock, wake};
use crate::status::{Answer, Status};

/// How long the thread that answers other processes sleeps between its rounds.
const ROUND: Duration = Duration::from_micros(300);

/// What this process knows of others.
#[derive(Debug, Default)]
pub(crate) struct OtherProcesses {
    /// The agents of this process that stand for foreign ones, by process and agent there.
    agents: HashMap<(u32, u32), Agent>,
    /// The names of driver functions in the records of others.
    names: HashMap<String, &'static str>,
    /// What the actions of an agent have learned: after an action, everything up to it. In ascending order.
    learned: HashMap<Agent, Vec<(OpId, Clock)>>,
    /// The clocks of numbers, by address.
    numbers: HashMap<u64, Arc<SharedMemory>>,
    /// The files with clocks of numbers, by the name of the file that has the numbers.
    clock_files: HashMap<String, Arc<OwnedFd>>,
    /// The clocks of numbers that only this process can see, and how many there are.
    own_clocks: Option<(Arc<OwnedFd>, usize)>,
    /// Whether memory or numbers were ever shared.
    in_use: bool,
}

impl OtherProcesses {
    /// Whether a clock of this process may be known elsewhere, so that it must not be cleared.
    pub(crate) fn is_in_use(&self) -> bool {
        self.in_use
    }

    /// Discards the clocks of numbers in memory that the program takes back.
    pub(crate) fn forget_numbers(&mut self, first: u64, bytes: u64) {
        self.numbers.retain(|address, _| *address < first || *address - first >= bytes);
    }

    /// Closes the files with clocks at the end of the process, and removes those that no process has open.
    pub(crate) fn close_clocks(&mut self) {
        self.numbers.clear();
        self.clock_files.clear();
        if self.in_use {
            remove_unused_clocks();
        }
    }

    /// Returns a clock for a number that only this process can see.
    fn own_clock(&mut self) -> Answer<Arc<SharedMemory>> {
        if self.own_clocks.is_none() {
            self.own_clocks = Some((Arc::new(anonymous_file()?), 0));
        }
        let (file, count) = self.own_clocks.as_mut().ok_or(Status::OUT_OF_MEMORY)?;
        *count += 1;
        SharedMemory::clock(file, *count - 1)
    }

    /// Returns the clock of a number, which its writers store there.
    pub(crate) fn clock_of_number(&mut self, address: u64) -> Answer<Arc<SharedMemory>> {
        if let Some(known) = self.numbers.get(&address) {
            return Ok(known.clone());
        }
        let clock = if let Some((name, offset)) = file_behind(address) {
            if !self.clock_files.contains_key(&name) {
                self.clock_files.insert(name.clone(), Arc::new(clocks_of_file(&name)?));
            }
            let index = usize::try_from(offset / 8).map_err(|_| Status::INVALID_VALUE)?;
            SharedMemory::clock(&self.clock_files[&name], index)?
        } else {
            self.own_clock()?
        };
        self.numbers.insert(address, clock.clone());
        Ok(clock)
    }
}

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
        let mut clock = Clock::default();
        for moment in record.load_clock() {
            clock.advance(self.import_moment(moment));
        }
        clock
    }

    /// Tells other processes of the earlier uses of memory that lies at an address here.
    fn publish_uses(&mut self, memory: &SharedMemory, first: u64, bytes: u64) {
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
            clock.store_clock(&self.export_clock(&step.clock));
        }
        number_at(address).store(number, Ordering::Release);
    }

    /// Adds what the writer of a number knew to everything that comes after an action.
    pub(crate) fn learn_number(&mut self, moment: Moment, address: u64) {
        let Ok(record) = self.others.clock_of_number(address) else { return };
        let mut clock = self.import_clock(&record);
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

impl Comparison {
    /// Whether a wait with this number ends once `found` is in memory.
    pub(crate) fn holds(self, found: u64, number: u64) -> bool {
        match self {
            // As the driver: a number that wraps around is greater.
            Self::GreaterOrEqual => found.wrapping_sub(number) < 1 << 63,
            Self::Equal => found == number,
            Self::And => found & number != 0,
            Self::Nor => !(found | number) != 0,
        }
    }
}

impl Sim {
    /// Records what the host knows now, for those who open memory at an address: they get what opens it from here. `first` and
    /// `bytes` are 0 for memory without an address.
    pub(crate) fn tell_openers(&mut self, memory: &SharedMemory, first: u64, bytes: u64) {
        self.share_with_others();
        let step = self.host_step();
        memory.store_clock(&self.export_clock(&step.clock));
        self.publish_uses(memory, first, bytes);
    }

    /// Adds what the host of another process knew, when it told what opens this memory, to what this host knows.
    pub(crate) fn learn_as_opener(&mut self, memory: &SharedMemory) {
        self.share_with_others();
        let clock = self.import_clock(memory);
        self.host_learns(&clock);
    }

    /// Records that memory or numbers are shared from now on, and starts the thread that does what other processes wait for: it
    /// runs writes of numbers, and looks for numbers that others have written.
    pub(crate) fn share_with_others(&mut self) {
        if std::mem::replace(&mut self.others.in_use, true) {
            return;
        }
        thread::spawn(|| {
            loop {
                thread::sleep(ROUND);
                let mut sim = lock();
                let writes = sim.queue.select(|one| matches!(one.work, Work::WriteNumber { .. }));
                if sim.queue.running.is_none() && !writes.is_empty() {
                    sim.run_one_of(&writes);
                }
                drop(sim);
                wake();
            }
        });
    }
}
