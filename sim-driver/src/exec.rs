//! Running operations: when somebody must wait, and what each kind does.

#![expect(unsafe_code, reason = "copies touch memory, and kernels are functions of the program")]

use std::ptr;

use crate::entry::as_callback;
use crate::kernels;
use crate::queue::{Access, Callback, OpId, Place, Work};
use crate::state::{Policy, Sim, State, wake};
use crate::stream::Stream;

/// Of so many questions whether work is done, all but the last are answered with no before anything runs.
const PATIENCE: u64 = 4;

impl Sim {
    /// Lets operations run until `targets` have ended.
    pub(crate) fn wait(&mut self, targets: &[OpId]) {
        self.settle();
        while targets.iter().any(|id| self.queue.is_pending(*id)) {
            match self.pick(targets) {
                Some(id) => self.run(id),
                None => self.sleep(),
            }
        }
    }

    /// Whether `targets` have ended. Asking often enough brings the end nearer, but ends no spin.
    pub(crate) fn poll(&mut self, targets: &[OpId]) -> bool {
        let done = |sim: &Self| !targets.iter().any(|id| sim.queue.is_pending(*id));
        if done(self) {
            return true;
        }
        self.polls += 1;
        if self.polls.is_multiple_of(PATIENCE)
            && self.queue.running.is_none()
            && let Some(id) = self.runnable(targets)
        {
            self.run(id);
        }
        done(self)
    }

    /// Runs what the policy wants to run now: frees and released spins, or everything.
    pub(crate) fn settle(&mut self) {
        if self.queue.running.is_some() {
            return;
        }
        loop {
            let eager = self.policy == Policy::Eager;
            let wanted =
                self.queue.select(|operation| eager || matches!(operation.work, Work::Free(_) | Work::Spin));
            let Some(id) = wanted.into_iter().find(|id| self.is_free_to_run(*id)) else { return };
            self.run_one(id);
        }
    }

    /// Runs one operation that may run now, whoever waits for it.
    pub(crate) fn step(&mut self) -> bool {
        let all = self.queue.select(|_| true);
        let next = if self.queue.running.is_none() { self.runnable(&all) } else { None };
        next.map(|id| self.run(id)).is_some()
    }

    /// What runs next when somebody waits for `targets`; `None` if another thread has to act first.
    fn pick(&mut self, targets: &[OpId]) -> Option<OpId> {
        if self.queue.running.is_some() {
            return None;
        }
        if let Some(id) = self.runnable(targets) {
            return Some(id);
        }
        if self.policy == Policy::Eager {
            return None;
        }
        // Only spins are left, and somebody has to wait for them: they end now.
        let needed = self.queue.with_predecessors(targets);
        needed.into_iter().find(|id| self.queue.is_runnable(*id))
    }

    /// One of the operations that `targets` need, or of all under the random policy, which may run now.
    fn runnable(&mut self, targets: &[OpId]) -> Option<OpId> {
        let needed = match self.policy {
            Policy::Random => self.queue.select(|_| true),
            Policy::Late | Policy::Eager => self.queue.with_predecessors(targets).into_iter().collect(),
        };
        let choices: Vec<_> = needed.into_iter().filter(|id| self.is_free_to_run(*id)).collect();
        self.queue.choose(&choices)
    }

    /// Whether an operation may run without anybody having to wait for it.
    fn is_free_to_run(&self, id: OpId) -> bool {
        let spins = self.queue.get(id).is_some_and(|operation| matches!(operation.work, Work::Spin));
        self.queue.is_runnable(id) && (!spins || self.released.contains(&id))
    }

    /// Runs an operation, and then what it has held back and the policy wants to run now.
    fn run(&mut self, id: OpId) {
        self.run_one(id);
        self.settle();
    }

    /// Runs an operation.
    fn run_one(&mut self, id: OpId) {
        let Some(operation) = self.queue.get(id) else { return };
        let (work, stream) = (operation.work.clone(), operation.stream);
        self.queue.running = Some(id);
        match work {
            Work::Kernel(launch) => self.unlocked(|| as_callback(|| kernels::run(&launch))),
            Work::Host(callback) => self.unlocked(|| as_callback(|| callback.call())),
            work => {
                if let Err(why) = self.perform(id, work) {
                    self.error(format!("operation {id} on stream {stream:#x} was not performed: {why}"));
                }
            }
        }
        self.queue.running = None;
        self.queue.end(id);
        self.released.remove(&id);
        self.memory.bury();
        wake();
    }
}

impl Callback {
    /// Calls the program.
    fn call(self) {
        match self {
            Self::Plain(function, data) => function(data),
            Self::WithStream(function, stream, data) => function(stream, 0, data),
        }
    }
}

impl State {
    /// Does what an operation does that is no code of the program.
    fn perform(&mut self, id: OpId, work: Work) -> Result<(), String> {
        match work {
            Work::Nothing | Work::Spin | Work::Kernel(_) | Work::Host(_) => {}
            Work::Record(event) => {
                let now = self.queue.ended;
                // An event may be destroyed, or recorded anew, before a record of it is reached.
                if let Some(event) = self.events.get_mut(&event).filter(|event| event.last == Some(id)) {
                    event.reached = Some(now);
                }
            }
            Work::Alloc(first) => {
                if let Some(allocation) = self.memory.at(first) {
                    allocation.life = crate::memory::Life::Live;
                }
            }
            Work::Free(first) => {
                if self.memory.was_freed(first) {
                    return Err(format!("{first:#x} was freed before"));
                }
                self.memory.free(first);
            }
            Work::Copy { to, from, bytes } => {
                let source = self.locate(id, &from, bytes, false)?;
                let target = self.locate(id, &to, bytes, true)?;
                let count = usize::try_from(bytes).map_err(|error| error.to_string())?;
                // SAFETY: both are `bytes` long: the driver's memory was checked by `locate`; the caller of the copy
                // promises it for host memory until the copy has run. They may overlap.
                unsafe { ptr::copy(source.cast_const(), target, count) };
            }
            Work::Set { to, pattern, width, bytes } => {
                let target = self.locate(id, &Place::Cuda(to), bytes, true)?;
                let count = usize::try_from(bytes).map_err(|error| error.to_string())?;
                for (index, value) in pattern.iter().take(width.into()).cycle().take(count).enumerate() {
                    // SAFETY: `index` is below `bytes`, which `locate` has checked.
                    unsafe { target.wrapping_add(index).write(*value) };
                }
            }
        }
        Ok(())
    }

    /// The usable address of a place, and a note in the operation that uses it.
    fn locate(&mut self, id: OpId, place: &Place, bytes: u64, write: bool) -> Result<*mut u8, String> {
        match place {
            Place::Host(address) => Ok(ptr::with_exposed_provenance_mut(*address as usize)),
            Place::Staged(staged) => Ok(staged.as_ptr().cast_mut()),
            Place::Cuda(address) => {
                let found = self.memory.translate(*address, bytes)?;
                self.note(id, Access { address: *address, bytes, write });
                Ok(found)
            }
        }
    }

    /// Notes what an operation has touched.
    pub(crate) fn note(&mut self, id: OpId, access: Access) {
        if let Some(operation) = self.queue.get_mut(id) {
            operation.accesses.push(access);
        }
    }

    /// The operations that a wait for a stream waits for.
    pub(crate) fn work_of_stream(&self, handle: u64) -> Vec<OpId> {
        let Stream { tail, sort, .. } = &self.streams[&handle];
        // Waiting for the legacy stream waits for what its next operation would wait for.
        match sort {
            crate::stream::Sort::Legacy => self.before_next(handle),
            _ => tail.iter().copied().collect(),
        }
    }

    /// The operations of a device.
    pub(crate) fn work_of_device(&self, device: usize) -> Vec<OpId> {
        let here = |context| self.contexts.get(&context).is_some_and(|context| context.device == device);
        self.queue.select(|operation| here(operation.context))
    }
}
