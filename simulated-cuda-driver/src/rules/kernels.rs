//! What kernels and host code do with memory.

use std::ptr;

use crate::access::What;
use crate::handle::Handle;
use crate::happens_before::Step;
use crate::kernels::{Kernel, Launch};
use crate::memory::Life;
use crate::report::Mistake;
use crate::state::{State, lock};
use crate::status::{Answer, Status};
use crate::this_thread::in_callback;

impl State {
    /// Returns the kernel of a function handle, with the context of its module.
    pub(crate) fn kernel(&self, function: Handle) -> Answer<(&Kernel, Handle)> {
        let function = self.functions.get(&function).ok_or(Status::INVALID_HANDLE)?;
        let module = self.modules.get(&function.module).ok_or(Status::INVALID_HANDLE)?;
        let kernel = self.kernels.get(&function.name).ok_or(Status::NOT_FOUND)?;
        Ok((kernel, module.context))
    }

    /// Records that a kernel writes all memory among its parameters that it did not ask for.
    ///
    /// A kernel declares its accesses by asking for pointers. What it does with other memory is unknown, so a write is
    /// assumed.
    pub(crate) fn note_silent(&mut self, step: &Step, launch: &Launch) {
        for address in launch.words() {
            let Some((first, known)) = self.memory.find(address) else { continue };
            if known.life == Life::Live && self.handed.insert(first) {
                self.note_whole(step, What::Write, first);
            }
        }
    }
}

/// Returns a usable pointer to memory that a running kernel accesses, or that a test inspects outside the program.
///
/// Returns null, and adds a report, if the memory may not be accessed.
pub(crate) fn translate(address: u64, bytes: u64, write: bool) -> *mut u8 {
    let mut sim = lock();
    let running = sim.queue.running.filter(|_| in_callback());
    let step = running.and_then(|id| sim.queue.get(id)).map(|operation| operation.step.clone());
    let found = if let Some(step) = step {
        let first = sim.memory.find(address).map(|(first, _)| first);
        sim.handed.extend(first);
        let seen = sim.memory.on_devices(address);
        if seen != address {
            let text = format!("a kernel uses {address:#x}, which the host has and devices see at {seen:#x}");
            sim.report(Mistake::OutOfBounds, text);
            return ptr::null_mut();
        }
        sim.touch(&step, address, bytes, if write { What::Write } else { What::Read })
    } else {
        let answer = sim.memory.translate(address, bytes);
        if let Err(why) = &answer {
            sim.report(why.mistake, format!("the test looks at memory that it may not: {}", why.text));
        }
        answer.ok()
    };
    found.unwrap_or(ptr::null_mut())
}

/// Records that host code of the program accesses memory that it shares with devices.
///
/// The code belongs to this thread, or to the host function or kernel that runs on it.
pub(crate) fn host_access(address: u64, bytes: u64, write: bool) {
    let mut sim = lock();
    let running = sim.queue.running.filter(|_| in_callback());
    let step = match running.and_then(|id| sim.queue.get(id)) {
        Some(operation) => operation.step.clone(),
        None => Step { name: "the program", ..sim.host_step() },
    };
    if sim.memory.find(address).is_some_and(|(_, known)| !known.on_host()) {
        sim.report(Mistake::OutOfBounds, format!("the host uses {address:#x}, which only devices reach"));
    }
    sim.touch(&step, address, bytes, if write { What::Write } else { What::Read });
}
