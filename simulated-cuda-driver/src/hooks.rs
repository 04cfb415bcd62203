//! The functions that let tests query and control the driver. No real driver has functions with these names.

#![allow(unsafe_code, reason = "the names are exported")]

use std::ffi::c_char;

use crate::api_call::{In, Out};
use crate::kernels::{Kernel, KernelFunction};
use crate::queue::Work;
use crate::rules::kernels::{host_access, translate};
use crate::state::{Policy, lock, wake};
use crate::status::Status;
use crate::this_thread::forbid_waits;

/// The result for invalid arguments.
const REFUSED: u64 = u64::MAX;

/// Returns the number of calls of a function, by its exported name, or of all functions for a null pointer.
#[unsafe(no_mangle)]
extern "C" fn simulated_cuda_calls(name: In<c_char>) -> u64 {
    let sim = lock();
    match name.text() {
        Ok(name) => sim.calls.get(name.as_str()).copied().unwrap_or(0),
        Err(_) => sim.calls.values().sum(),
    }
}

/// Resets all call counts to zero.
#[unsafe(no_mangle)]
extern "C" fn simulated_cuda_reset_calls() {
    lock().calls.clear();
}

/// Returns the number of reports of mistakes of the program.
#[unsafe(no_mangle)]
extern "C" fn simulated_cuda_report_count() -> u64 {
    lock().reports.count() as u64
}

/// Returns a report, which the end of the process then does not print: writes up to `room` bytes of its text and the number of its mistake. Returns the length of the whole text.
#[unsafe(no_mangle)]
extern "C" fn simulated_cuda_report(index: u64, mistake: Out<u32>, text: Out<u8>, room: u64) -> u64 {
    let mut sim = lock();
    let Some(report) = usize::try_from(index).ok().and_then(|index| sim.reports.read(index)) else {
        return REFUSED;
    };
    mistake.set_if_wanted(report.mistake as u32);
    let room = usize::try_from(room).unwrap_or(usize::MAX);
    for (index, letter) in report.text.bytes().enumerate().take(room) {
        if text.set_at(index, letter).is_err() {
            break;
        }
    }
    report.text.len() as u64
}

/// Clears the reports.
#[unsafe(no_mangle)]
extern "C" fn simulated_cuda_clear_reports() {
    lock().reports.clear();
}

/// Returns a mark; events that are created later come after it.
#[unsafe(no_mangle)]
extern "C" fn simulated_cuda_mark() -> u64 {
    lock().last_handle()
}

/// Reports the live events that were created after a mark and are not among the `count` handles in `kept`.
#[unsafe(no_mangle)]
extern "C" fn simulated_cuda_report_leaked_events(mark: u64, kept: In<u64>, count: u64) {
    let count = usize::try_from(count).unwrap_or(0);
    let kept: Vec<_> = (0..count).filter_map(|index| kept.get(index).ok()).collect();
    lock().report_leaked_events(mark, &kept);
}

/// Reports every wait of this thread for a device, until the same number of calls with 0 have undone this.
#[unsafe(no_mangle)]
extern "C" fn simulated_cuda_forbid_waits(forbid: u32) {
    forbid_waits(forbid != 0);
}

/// Declares that the host program reads or writes bytes that it shares with devices.
#[unsafe(no_mangle)]
extern "C" fn simulated_cuda_host_access(address: u64, bytes: u64, write: u32) {
    host_access(address, bytes, write != 0);
}

/// Chooses whether host threads have separate knowledge or share it.
#[unsafe(no_mangle)]
extern "C" fn simulated_cuda_set_threads_apart(apart: u32) {
    lock().agents.set_apart(apart != 0);
}

/// Chooses whether host memory that is registered from now on has a different address on devices.
#[unsafe(no_mangle)]
extern "C" fn simulated_cuda_set_registered_apart(apart: u32) {
    lock().memory.registered_apart = apart != 0;
}

/// Chooses whether the handles and addresses of objects that are destroyed or freed from now on are reused.
#[unsafe(no_mangle)]
extern "C" fn simulated_cuda_set_reuse(reuse: u32) {
    lock().set_reuse(reuse != 0);
}

/// Stores what this thread knows to be finished, for another thread. Returns its number.
#[unsafe(no_mangle)]
extern "C" fn simulated_cuda_hand_over() -> u64 {
    lock().agents.hand_over()
}

/// Adds what another thread handed over to this thread's knowledge.
#[unsafe(no_mangle)]
extern "C" fn simulated_cuda_take_over(number: u64) {
    lock().agents.take_over(number);
}

/// Makes one call of `cuStreamWaitEvent` or `cuCtxRecordEvent` do nothing: the one after `before` more calls.
#[unsafe(no_mangle)]
extern "C" fn simulated_cuda_lose(name: In<c_char>, before: u64) {
    if let Ok(name) = name.text() {
        lock().losses.insert(name, before);
    }
}

/// Returns the number of live objects: 0 allocations, 1 created streams, 2 events, 3 contexts, 4 operations that have
/// not ended, 5 modules, 6 captures in progress, 7 graphs.
#[unsafe(no_mangle)]
extern "C" fn simulated_cuda_live(kind: u32) -> u64 {
    let sim = lock();
    let count = match kind {
        0 => sim.memory.live().count(),
        1 => sim.streams.values().filter(|stream| !stream.dead && !stream.implicit).count(),
        2 => sim.events.len(),
        3 => sim.contexts.len(),
        4 => sim.queue.len(),
        5 => sim.modules.len(),
        6 => sim.captures.len(),
        7 => sim.graphs.len(),
        _ => return REFUSED,
    };
    count as u64
}

/// Chooses when operations run: 0 late, 1 random, 2 eager.
#[unsafe(no_mangle)]
extern "C" fn simulated_cuda_set_policy(policy: u32) {
    let mut sim = lock();
    sim.policy = match policy {
        1 => Policy::Random,
        2 => Policy::Eager,
        _ => Policy::Late,
    };
    sim.settle();
}

/// Restarts the scheduler's random choices from a seed.
#[unsafe(no_mangle)]
extern "C" fn simulated_cuda_set_seed(seed: u64) {
    lock().queue.seed(seed);
}

/// Runs everything to the end, including spins. Everything so far then comes before everything that follows.
#[unsafe(no_mangle)]
extern "C" fn simulated_cuda_run_all() {
    lock().run_everything();
}

/// Runs one operation that is ready. Returns 0 if there is none.
#[unsafe(no_mangle)]
extern "C" fn simulated_cuda_step() -> u32 {
    lock().step().into()
}

/// Sets the result of the next call of a function whose result is not set yet. The version suffix may be omitted.
#[unsafe(no_mangle)]
extern "C" fn simulated_cuda_fail_next(name: In<c_char>, code: i32) {
    if let Ok(name) = name.text() {
        lock().faults.entry(name).or_default().push_back(Status(code));
    }
}

/// Makes every call return this code and do nothing from now on. Code 0 ends this.
#[unsafe(no_mangle)]
extern "C" fn simulated_cuda_fail_all(code: i32) {
    lock().all_fail = (code != 0).then_some(Status(code));
}

/// Clears the results set for later calls, and the calls that were to do nothing.
#[unsafe(no_mangle)]
extern "C" fn simulated_cuda_clear_faults() {
    let mut sim = lock();
    sim.faults.clear();
    sim.all_fail = None;
    sim.losses.clear();
}

/// Queues an operation that ends when the test releases it, or when a call must wait for it unless the policy is eager.
#[unsafe(no_mangle)]
extern "C" fn simulated_cuda_spin(stream: u64) -> u64 {
    let mut sim = lock();
    let queued = sim.stream(stream, "simulated_cuda_spin").and_then(|handle| sim.submit(handle, Work::Spin));
    queued.ok().flatten().unwrap_or(REFUSED)
}

/// Lets a spin end.
#[unsafe(no_mangle)]
extern "C" fn simulated_cuda_release_spin(spin: u64) {
    let mut sim = lock();
    if sim.queue.is_pending(spin) {
        sim.released.insert(spin);
        wake();
        sim.settle();
    }
}

/// Whether an operation, such as a spin, has not ended yet.
#[unsafe(no_mangle)]
extern "C" fn simulated_cuda_is_pending(operation: u64) -> u32 {
    lock().queue.is_pending(operation).into()
}

/// Registers the host function that simulates a kernel, with the sizes of its parameters.
#[unsafe(no_mangle)]
extern "C" fn simulated_cuda_register_kernel(
    name: In<c_char>,
    run: Option<KernelFunction>,
    sizes: In<usize>,
    count: u64,
) -> u64 {
    let (Ok(name), Some(run)) = (name.text(), run) else { return REFUSED };
    let count = usize::try_from(count).unwrap_or(0);
    let Ok(sizes) = (0..count).map(|index| sizes.get(index)).collect() else { return REFUSED };
    lock().kernels.insert(name, Kernel { run, sizes });
    0
}

/// Returns a usable pointer to `bytes` bytes at a device address, for kernels and for tests. Returns null, and adds a
/// report, if they may not be accessed.
#[unsafe(no_mangle)]
extern "C" fn simulated_cuda_translate(address: u64, bytes: u64, write: u32) -> *mut u8 {
    translate(address, bytes, write != 0)
}
