//! What this process knows of others that use the same memory or numbers, and how clocks pass between them.
//!
//! A clock leaves its process as triples of process, agent and number. Each process has an agent of its own for every foreign
//! agent that it hears of. Numbers are compared within one agent only, so no number is translated.
//!
//! The clock of a wait for a number is not known when it is queued, because its writer may not exist yet. It is *learned* when
//! the wait runs. Whoever comes after the wait knows it too: clocks are expanded by what their actions have learned.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::handle::OpId;
use crate::happens_before::{Agent, Clock};
use crate::shared_memory::{SharedMemory, anonymous_file, clocks_of_file, file_behind, remove_unused_clocks};
use crate::status::{Answer, Status};

/// What this process knows of others.
#[derive(Debug, Default)]
pub(crate) struct OtherProcesses {
    /// The agents of this process that stand for foreign ones, by process and agent there.
    pub(crate) agents: HashMap<(u32, u32), Agent>,
    /// The names of driver functions in the records of others.
    pub(crate) names: HashMap<String, &'static str>,
    /// What the actions of an agent have learned: after an action, everything up to it. In ascending order.
    pub(crate) learned: HashMap<Agent, Vec<(OpId, Clock)>>,
    /// The clocks of numbers, by address.
    numbers: HashMap<u64, Arc<SharedMemory>>,
    /// The files with clocks of numbers, by the name of the file that has the numbers.
    clock_files: HashMap<String, Arc<OwnedFd>>,
    /// The clocks of numbers that only this process can see, and how many there are.
    own_clocks: Option<(Arc<OwnedFd>, usize)>,
    /// Whether memory or numbers were ever shared.
    pub(crate) in_use: bool,
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
