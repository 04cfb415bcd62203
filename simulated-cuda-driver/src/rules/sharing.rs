//! What this process does for others, which wait for it.

use std::thread;
use std::time::Duration;

use crate::queue::Work;
use crate::shared_memory::SharedMemory;
use crate::state::{Sim, lock, wake};

/// How long the thread that answers other processes sleeps between its rounds.
const ROUND: Duration = Duration::from_micros(300);

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
