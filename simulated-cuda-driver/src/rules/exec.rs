//! Runs operations: which one runs when a call waits, and what each kind does.

#![expect(unsafe_code, reason = "copies touch memory, and kernels are functions of the program")]

use std::ptr;

use crate::access::What;
use crate::handle::{Handle, OpId};
use crate::happens_before::{Before, Step};
use crate::kernels;
use crate::queue::{Callback, Place, Work};
use crate::report::Mistake;
use crate::state::{Policy, Sim, State, wake};
use crate::stream::Sort;
use crate::this_thread::{as_callback, host_waits};

/// The number of unsuccessful polls after which an operation runs.
const PATIENCE: u64 = 4;

impl Sim {
    /// Runs operations until everything in `before` has ended. The host waits, so it then knows that work to be
    /// finished.
    pub(crate) fn wait(&mut self, before: &Before) {
        if let Some(name) = host_waits() {
            self.report(Mistake::HostWait, format!("{name} makes the host wait where nothing may"));
        }
        self.run_until(&before.operations);
        self.host_learns(&before.clock);
    }

    /// Runs everything to the end, including spins. Everything so far then comes before everything that follows.
    pub(crate) fn run_everything(&mut self) {
        let spins = self.queue.select(|operation| matches!(operation.work, Work::Spin));
        self.released.extend(spins);
        let all = self.queue.select(|_| true);
        self.run_until(&all);
        self.forget_the_past();
    }

    /// Runs operations until `targets` have ended.
    pub(crate) fn run_until(&mut self, targets: &[OpId]) {
        self.settle();
        while targets.iter().any(|id| self.queue.is_pending(*id)) {
            match self.pick(targets) {
                Some(id) => self.run(id),
                None => self.sleep(),
            }
        }
    }

    /// Returns whether everything in `before` has ended. If so, the host knows that work to be finished.
    ///
    /// Repeated polling makes operations run, but does not end spins.
    pub(crate) fn poll(&mut self, before: &Before) -> bool {
        let targets = &before.operations;
        let done = |sim: &Self| !targets.iter().any(|id| sim.queue.is_pending(*id));
        if !done(self) {
            self.polls += 1;
            // The count is reset only when an operation runs, so unsuccessful polls do not lose earlier ones.
            let is_due = self.polls >= PATIENCE && self.queue.running.is_none();
            if let Some(id) = if is_due { self.runnable(targets) } else { None } {
                self.polls = 0;
                self.run(id);
            }
        }
        let done = done(self);
        if done {
            self.host_learns(&before.clock);
        }
        done
    }

    /// Runs what the policy runs without a wait: frees and released spins, or everything.
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

    /// Runs one operation that is ready, even if nothing waits for it.
    pub(crate) fn step(&mut self) -> bool {
        let all = self.queue.select(|_| true);
        let next = if self.queue.running.is_none() { self.runnable(&all) } else { None };
        next.map(|id| self.run(id)).is_some()
    }

    /// Picks the next operation for a call that waits for `targets`. Returns `None` if another thread must act first.
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
        // Only unreleased spins are left, and a call waits for them: they end now.
        let needed = self.queue.with_predecessors(targets);
        needed.into_iter().find(|id| self.is_ready(*id))
    }

    /// Picks an operation that is ready: one that `targets` need, or any under the random policy.
    fn runnable(&mut self, targets: &[OpId]) -> Option<OpId> {
        let needed = match self.policy {
            Policy::Random => self.queue.select(|_| true),
            Policy::Late | Policy::Eager => self.queue.with_predecessors(targets).into_iter().collect(),
        };
        let choices: Vec<_> = needed.into_iter().filter(|id| self.is_free_to_run(*id)).collect();
        self.queue.choose(&choices)
    }

    /// Whether an operation may run even if no call waits for it.
    fn is_free_to_run(&self, id: OpId) -> bool {
        let spins = self.queue.get(id).is_some_and(|operation| matches!(operation.work, Work::Spin));
        self.is_ready(id) && (!spins || self.released.contains(&id))
    }

    /// Whether everything that an operation waits for has happened: other operations, and a number.
    fn is_ready(&self, id: OpId) -> bool {
        self.queue.is_runnable(id) && self.queue.get(id).is_some_and(|one| State::is_answered(&one.work))
    }

    /// Runs an operation that is ready, of those that `targets` need.
    pub(crate) fn run_one_of(&mut self, targets: &[OpId]) {
        if let Some(id) = self.runnable(targets) {
            self.run(id);
        }
    }

    /// Runs an operation, and then the operations that it made ready and that the policy runs without a wait.
    fn run(&mut self, id: OpId) {
        self.run_one(id);
        self.settle();
    }

    /// Runs one operation.
    fn run_one(&mut self, id: OpId) {
        let Some(operation) = self.queue.get(id) else { return };
        let (work, step) = (operation.work.clone(), operation.step.clone());
        self.queue.running = Some(id);
        match work {
            Work::Kernel(launch) => {
                self.handed.clear();
                self.unlocked(|| as_callback(|| kernels::run(&launch)));
                self.note_silent(&step, &launch);
            }
            Work::Host(callback) => self.unlocked(|| as_callback(|| callback.call())),
            work => self.perform(&step, work),
        }
        self.queue.running = None;
        self.queue.end(id);
        self.released.remove(&id);
        self.memory.bury();
        wake();
    }
}

impl Callback {
    /// Calls the host function.
    fn call(self) {
        match self {
            Self::Plain(function, data) => function(data),
            Self::WithStream(function, stream, data) => function(stream, 0, data),
        }
    }
}

impl State {
    /// Performs the part of an operation that runs no code of the program.
    fn perform(&mut self, step: &Step, work: Work) {
        let id = step.moment.number;
        match work {
            Work::Nothing | Work::Spin | Work::Kernel(_) | Work::Host(_) => {}
            Work::WriteNumber { address, number } => self.write_number(step, address, number),
            Work::WaitForNumber { address, comparison, number } => {
                self.learn_number(step.moment, address, |written| comparison.holds(written, number));
            }
            Work::Record(event) => {
                let now = self.queue.ended;
                // The event may have been destroyed or recorded again since this record was queued.
                if let Some(event) = self.events.get_mut(&event).filter(|event| event.last == Some(id)) {
                    event.reached = Some(now);
                }
            }
            Work::Alloc(first) => {
                if let Some(allocation) = self.memory.at(first) {
                    allocation.life = crate::memory::Life::Live;
                }
            }
            Work::Free(first) if self.memory.at(first).is_some_and(|known| known.openings > 0) => {
                self.close_of_pool(first);
            }
            Work::Free(first) => {
                self.report_openings(first, step.name);
                if !self.note_whole(step, What::Free, first) && self.memory.was_freed(first) {
                    self.report(Mistake::DoubleFree, format!("{}: {first:#x} was freed before", step.name));
                }
                self.memory.free(first);
            }
            Work::Copy { to, from, bytes } => {
                let source = self.locate(step, &from, bytes, What::Read);
                let target = self.locate(step, &to, bytes, What::Write);
                let (Some(source), Some(target)) = (source, target) else { return };
                let count = usize::try_from(bytes).unwrap_or(0);
                // SAFETY: both ranges are `bytes` long. `locate` has checked the driver's memory; the caller of the
                // copy promises it for host memory until the copy has run. The ranges may overlap.
                unsafe { ptr::copy(source.cast_const(), target, count) };
            }
            Work::Set { to, pattern, width, bytes } => {
                let Some(target) = self.locate(step, &Place::Cuda(to), bytes, What::Write) else { return };
                let count = usize::try_from(bytes).unwrap_or(0);
                for (index, value) in pattern.iter().take(width.into()).cycle().take(count).enumerate() {
                    // SAFETY: `index` is below `bytes`, which `locate` has checked.
                    unsafe { target.wrapping_add(index).write(*value) };
                }
            }
        }
    }

    /// Reports memory that is freed while other processes have it open, which CUDA leaves undefined.
    pub(crate) fn report_openings(&mut self, first: u64, name: &str) {
        let shared = self.memory.at(first).and_then(|known| known.shared.clone());
        let openings = shared.map_or(0, |shared| shared.openings());
        if openings > 0 {
            let text =
                format!("{name}: {first:#x} is freed while other processes have it open ({openings} times)");
            self.report(Mistake::UseAfterFree, text);
        }
    }

    /// Closes memory from a pool of another process. Others go on with it, so this is no free for them. Nobody waits, so the
    /// uses of this process stay known.
    pub(crate) fn close_of_pool(&mut self, first: u64) {
        if let Some(shared) = self.memory.at(first).and_then(|known| known.shared.as_ref()) {
            shared.count_opening(false);
        }
        self.memory.free(first);
    }

    /// Returns a usable pointer to memory that a step uses. Returns `None`, and adds a report, if the step may not use
    /// it.
    fn locate(&mut self, step: &Step, place: &Place, bytes: u64, what: What) -> Option<*mut u8> {
        match place {
            Place::Host(address) => Some(ptr::with_exposed_provenance_mut(*address as usize)),
            Place::Staged(staged) => Some(staged.as_ptr().cast_mut()),
            Place::Cuda(address) => self.touch(step, *address, bytes, what),
        }
    }

    /// Returns the work that a synchronization of a stream waits for.
    pub(crate) fn work_of_stream(&self, handle: u64) -> Before {
        let stream = &self.streams[&handle];
        // A wait for the legacy stream also waits for the blocking streams, as its next operation would.
        match stream.sort {
            Sort::Legacy => self.before_next(handle),
            _ => self.after_all_of([stream]),
        }
    }

    /// Returns the work that a synchronization of contexts waits for.
    pub(crate) fn work_of(&self, wanted: impl Fn(Handle) -> bool) -> Before {
        let streams = self.streams.values().filter(|stream| wanted(stream.context));
        let operations = self.queue.select(|operation| wanted(operation.context));
        Before { operations, ..self.after_all_of(streams) }
    }

    /// Returns the work that a synchronization of a device waits for.
    pub(crate) fn work_of_device(&self, device: usize) -> Before {
        self.work_of(|context| self.contexts.get(&context).is_some_and(|context| context.device == device))
    }
}
