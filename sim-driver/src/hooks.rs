//! What tests can ask and order, under names that no driver has.

#![allow(unsafe_code, reason = "the names are exported")]

use std::ffi::c_char;

use crate::api_call::{In, Out, forbid_waits};
use crate::kernels::{Kernel, KernelFunction, host_access, translate};
use crate::queue::Work;
use crate::state::{Policy, lock, wake};
use crate::status::Status;

/// Answered for arguments that make no sense.
const REFUSED: u64 = u64::MAX;

/// How often a function was called, by its exported name; all calls for a null pointer.
#[unsafe(no_mangle)]
extern "C" fn interop_sim_calls(name: In<c_char>) -> u64 {
    let sim = lock();
    match name.text() {
        Ok(name) => sim.calls.get(name.as_str()).copied().unwrap_or(0),
        Err(_) => sim.calls.values().sum(),
    }
}

/// Starts all counts of calls at zero.
#[unsafe(no_mangle)]
extern "C" fn interop_sim_reset_calls() {
    lock().calls.clear();
}

/// The number of reports on what the program did wrong.
#[unsafe(no_mangle)]
extern "C" fn interop_sim_report_count() -> u64 {
    lock().reports.len() as u64
}

/// Writes up to `room` bytes of a report and the number of its mistake, and returns how many bytes it has.
#[unsafe(no_mangle)]
extern "C" fn interop_sim_report(index: u64, mistake: Out<u32>, text: Out<u8>, room: u64) -> u64 {
    let sim = lock();
    let Some(report) = usize::try_from(index).ok().and_then(|index| sim.reports.get(index)) else {
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

/// Forgets the reports.
#[unsafe(no_mangle)]
extern "C" fn interop_sim_clear_reports() {
    lock().reports.clear();
}

/// The mark that events which are created from now on come after.
#[unsafe(no_mangle)]
extern "C" fn interop_sim_mark() -> u64 {
    lock().last_handle()
}

/// Reports the events that were created after a mark, that live, and that are not among `count` handles.
#[unsafe(no_mangle)]
extern "C" fn interop_sim_report_leaked_events(mark: u64, kept: In<u64>, count: u64) {
    let count = usize::try_from(count).unwrap_or(0);
    let kept: Vec<_> = (0..count).filter_map(|index| kept.get(index).ok()).collect();
    lock().report_leaked_events(mark, &kept);
}

/// Reports every wait of this thread for a device from now on, until as many calls have taken it back.
#[unsafe(no_mangle)]
extern "C" fn interop_sim_forbid_waits(forbid: u32) {
    forbid_waits(forbid != 0);
}

/// Has the program on the host read or write bytes that it shares with devices.
#[unsafe(no_mangle)]
extern "C" fn interop_sim_host_access(address: u64, bytes: u64, write: u32) {
    host_access(address, bytes, write != 0);
}

/// Whether each thread knows only what it was told, or all are one.
#[unsafe(no_mangle)]
extern "C" fn interop_sim_set_threads_apart(apart: u32) {
    lock().agents.set_apart(apart != 0);
}

/// Whether host memory that is registered from now on has another address for devices than for the host.
#[unsafe(no_mangle)]
extern "C" fn interop_sim_set_registered_apart(apart: u32) {
    lock().memory.registered_apart = apart != 0;
}

/// Whether the handles and addresses of what is destroyed and freed from now on are given out again.
#[unsafe(no_mangle)]
extern "C" fn interop_sim_set_reuse(reuse: u32) {
    lock().set_reuse(reuse != 0);
}

/// Keeps what this thread knows, to be handed to another, under the number that it returns.
#[unsafe(no_mangle)]
extern "C" fn interop_sim_hand_over() -> u64 {
    lock().agents.hand_over()
}

/// This thread knows what was handed over.
#[unsafe(no_mangle)]
extern "C" fn interop_sim_take_over(number: u64) {
    lock().agents.take_over(number);
}

/// After `before` more calls of `cuStreamWaitEvent` or `cuCtxRecordEvent`, the next orders nothing.
#[unsafe(no_mangle)]
extern "C" fn interop_sim_lose(name: In<c_char>, before: u64) {
    if let Ok(name) = name.text() {
        lock().losses.insert(name, before);
    }
}

/// How many there are of: 0 allocations, 1 created streams, 2 events, 3 contexts, 4 operations that have not ended,
/// 5 modules, 6 captures under way, 7 graphs.
#[unsafe(no_mangle)]
extern "C" fn interop_sim_live(kind: u32) -> u64 {
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
extern "C" fn interop_sim_set_policy(policy: u32) {
    let mut sim = lock();
    sim.policy = match policy {
        1 => Policy::Random,
        2 => Policy::Eager,
        _ => Policy::Late,
    };
    sim.settle();
}

/// Starts the choices of the scheduler again, from a seed.
#[unsafe(no_mangle)]
extern "C" fn interop_sim_set_seed(seed: u64) {
    lock().queue.seed(seed);
}

/// Runs everything to the end, spins included. What was before and what comes after is ordered by it.
#[unsafe(no_mangle)]
extern "C" fn interop_sim_run_all() {
    let mut sim = lock();
    let spins = sim.queue.select(|operation| matches!(operation.work, Work::Spin));
    sim.released.extend(spins);
    let all = sim.queue.select(|_| true);
    sim.run_until(&all);
    sim.forget_the_past();
}

/// Runs one operation that may run now; 0 if there is none.
#[unsafe(no_mangle)]
extern "C" fn interop_sim_step() -> u32 {
    lock().step().into()
}

/// Orders the answer of the next call of a function that has none ordered, by its name with or without the version.
#[unsafe(no_mangle)]
extern "C" fn interop_sim_fail_next(name: In<c_char>, code: i32) {
    if let Ok(name) = name.text() {
        lock().faults.entry(name).or_default().push_back(Status(code));
    }
}

/// Has every call answer a code and do nothing, from now on; 0 takes it back.
#[unsafe(no_mangle)]
extern "C" fn interop_sim_fail_all(code: i32) {
    lock().all_fail = (code != 0).then_some(Status(code));
}

/// Forgets the answers that were ordered.
#[unsafe(no_mangle)]
extern "C" fn interop_sim_clear_faults() {
    let mut sim = lock();
    sim.faults.clear();
    sim.all_fail = None;
    sim.losses.clear();
}

/// Queues an operation that ends when the test says so, or when something must wait for it unless the policy is eager.
#[unsafe(no_mangle)]
extern "C" fn interop_sim_spin(stream: u64) -> u64 {
    let mut sim = lock();
    let queued = sim.stream(stream, "interop_sim_spin").and_then(|handle| sim.submit(handle, Work::Spin));
    queued.ok().flatten().unwrap_or(REFUSED)
}

/// Lets a spin end.
#[unsafe(no_mangle)]
extern "C" fn interop_sim_release_spin(spin: u64) {
    let mut sim = lock();
    if sim.queue.is_pending(spin) {
        sim.released.insert(spin);
        wake();
        sim.settle();
    }
}

/// Whether an operation, such as a spin, has not ended.
#[unsafe(no_mangle)]
extern "C" fn interop_sim_is_pending(operation: u64) -> u32 {
    lock().queue.is_pending(operation).into()
}

/// Registers the host function behind a kernel, with the sizes of its parameters.
#[unsafe(no_mangle)]
extern "C" fn interop_sim_register_kernel(
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

/// The usable address of `bytes` at a device address, for kernels and for tests; null, and a report, if they may not be
/// touched.
#[unsafe(no_mangle)]
extern "C" fn interop_sim_translate(address: u64, bytes: u64, write: u32) -> *mut u8 {
    translate(address, bytes, write != 0)
}
