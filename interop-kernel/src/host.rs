//! Runs of kernels on the CPU, without a GPU.
#![expect(unsafe_code, reason = "each thread of a launch gets the same arguments")]

use core::cell::Cell;
use core::ffi::c_void;
use std::mem::ManuallyDrop;
use std::panic::resume_unwind;
use std::ptr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::LaunchSize;
use crate::kernel::{Kernel, Parameters};
use crate::layout::Layout;
use crate::thread::Thread;

/// Where a thread is in its launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'g> {
    pub(crate) thread: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) size: LaunchSize,
    /// Where the threads of a block meet, if they run at the same time.
    gate: Option<&'g Gate>,
}

impl Place<'_> {
    #[track_caller]
    fn gate(&self) -> &Gate {
        self.gate.unwrap_or_else(|| unreachable!("a `BlockThread` runs beside the others of its block"))
    }

    #[track_caller]
    pub(crate) fn barrier(&self) {
        self.gate().wait();
    }

    #[track_caller]
    pub(crate) fn sum(&self, value: f64) -> f64 {
        let ((width, height, _), [x, y, z]) = (self.size.block, self.thread);
        let (gate, number) = (self.gate(), ((z * height + y) * width + x) as usize);
        let threads = gate.lock().values.len();
        assert!(threads % WARP == 0, "the sum of a block needs a multiple of 32 threads: found {threads}");
        self.share(number, (value.to_bits().into(), "f64"));
        if number > 0 { value } else { sum_of_block(&gate.lock().values) }
    }

    /// Leaves a value for the other threads of the block, when all have read the values before, and waits for theirs.
    #[track_caller]
    pub(crate) fn share(&self, number: usize, value: SharedValue) {
        let gate = self.gate();
        gate.wait();
        gate.lock().values[number] = value;
        gate.wait();
    }

    /// Returns what a thread of the block has left.
    #[track_caller]
    pub(crate) fn shared(&self, number: usize) -> SharedValue {
        self.gate().lock().values[number]
    }
}

/// The bits of a value that a thread shares, and the name of its type.
pub(crate) type SharedValue = (u128, &'static str);

/// The number of threads of a warp.
const WARP: usize = 32;

/// Adds in the order of the device: the lanes of each warp, then the warps.
#[expect(clippy::cast_possible_truncation, reason = "the bits of an `f64` are the lower half")]
fn sum_of_block(values: &[SharedValue]) -> f64 {
    let sum_of_warp = |values: &[f64]| {
        let mut lanes = [0.0; WARP];
        lanes[..values.len()].copy_from_slice(values);
        for distance in [16, 8, 4, 2, 1] {
            for lane in 0..distance {
                lanes[lane] += lanes[lane + distance];
            }
        }
        lanes[0]
    };
    let values: Vec<f64> = values.iter().map(|(bits, _)| f64::from_bits(*bits as u64)).collect();
    let warps: Vec<f64> = values.chunks(WARP).map(sum_of_warp).collect();
    sum_of_warp(&warps)
}

/// Where the threads of a block wait for each other.
#[derive(Debug)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    threads: usize,
    /// The threads that wait at a barrier.
    waiting: usize,
    /// The threads that have run the kernel for this block to its end.
    ended: usize,
    /// How often all threads have met.
    meetings: usize,
    /// Whether a thread has panicked, or has ended while others wait for it.
    is_broken: bool,
    /// Whether a thread has printed why. The others unwind without a message.
    is_reported: bool,
    /// What the threads share.
    values: Vec<SharedValue>,
}

/// The reason why the other threads of a block panic.
const BROKEN: &str = "a thread of the block does not reach the barrier at which others wait";

impl Gate {
    fn new(threads: usize) -> Self {
        let values = vec![(0, ""); threads];
        let state = State {
            threads,
            waiting: 0,
            ended: 0,
            meetings: 0,
            is_broken: false,
            is_reported: false,
            values,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for all threads, at a barrier.
    #[track_caller]
    fn wait(&self) {
        let mut state = self.lock();
        state.waiting += 1;
        let mut state = self.meet(state);
        if state.is_broken {
            let is_reported = core::mem::replace(&mut state.is_reported, true);
            drop(state);
            assert!(is_reported, "{BROKEN}");
            resume_unwind(Box::new(BROKEN));
        }
    }

    /// Waits for all threads, at the end of a block.
    fn end(&self) {
        let mut state = self.lock();
        state.ended += 1;
        if self.meet(state).is_broken {
            resume_unwind(Box::new(BROKEN));
        }
    }

    /// Returns when all threads are here, or when one of them will not come.
    fn meet<'g>(&'g self, mut state: MutexGuard<'g, State>) -> MutexGuard<'g, State> {
        state.is_broken |= state.waiting > 0 && state.ended > 0;
        if state.waiting + state.ended == state.threads {
            (state.waiting, state.ended) = (0, 0);
            state.meetings += 1;
            self.changed.notify_all();
        }
        let meeting = state.meetings;
        let is_over = state.waiting + state.ended == 0;
        if state.is_broken {
            self.changed.notify_all();
        } else if !is_over {
            state = self
                .changed
                .wait_while(state, |state| state.meetings == meeting && !state.is_broken)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state
    }
}

/// Breaks a gate if its thread panics, so that the others do not wait for ever.
struct Guard<'g>(&'g Gate);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let mut state = self.0.lock();
            // The first panic has a message of its own.
            state.is_reported |= !state.is_broken;
            state.is_broken = true;
            self.0.changed.notify_all();
        }
    }
}

/// The parameters of a launch, which each thread gets.
struct Shared<P>(ManuallyDrop<P>);

// SAFETY: parameters are plain numbers, and pointers to elements, which are `Send` and `Sync`. No two threads write one
// element: each mapping gives it to one thread, or lets threads add to it in one step.
unsafe impl<P: Parameters> Sync for Shared<P> {}

impl<P: Parameters> Shared<P> {
    fn new(parameters: P) -> Self {
        Self(ManuallyDrop::new(parameters))
    }

    fn copy(&self) -> P {
        // SAFETY: parameters own nothing, and each copy goes to another thread of the launch, as on a device.
        unsafe { ptr::read(&raw const *self.0) }
    }
}

thread_local! {
    static IS_IN_KERNEL: Cell<bool> = const { Cell::new(false) };
}

/// Panics in a kernel. A second launch, or a second rule that gives elements to threads, would let two threads write one
/// element.
#[track_caller]
pub(crate) fn assert_outside(what: &str) {
    assert!(!IS_IN_KERNEL.get(), "{what} is called in a kernel; call it before the launch");
}

/// Marks that a thread of the system has left a kernel, also by a panic.
struct Inside;

impl Drop for Inside {
    fn drop(&mut self) {
        IS_IN_KERNEL.set(false);
    }
}

/// Runs a kernel in one thread of a launch.
fn call<K: Kernel>(place: &Place<'_>, parameters: K::Parameters<'_>) {
    IS_IN_KERNEL.set(true);
    let _inside = Inside;
    K::call(Thread::new(place), parameters);
}

/// Compares a launch with what every device takes.
#[track_caller]
fn assert_launchable(size: LaunchSize) {
    assert_outside("`run` or `run_in_threads`");
    let ((x, y, z), (width, height, depth)) = (size.grid, size.block);
    let threads =
        [width, height, depth].iter().try_fold(1_u32, |threads, extent| threads.checked_mul(*extent));
    assert!(
        threads.is_some_and(|threads| (1..=1024).contains(&threads)) && x > 0 && y > 0 && z > 0,
        "a launch has at least one block, and 1 to 1024 threads in a block: found {size:?}"
    );
}

fn positions((width, height, depth): (u32, u32, u32)) -> impl Iterator<Item = [u32; 3]> {
    (0..depth).flat_map(move |z| (0..height).flat_map(move |y| (0..width).map(move |x| [x, y, z])))
}

/// Runs a kernel in all threads of a launch: one after the other, or, if they work together, those of a block at the same time.
#[doc(hidden)]
#[track_caller]
pub fn run<K: Kernel>(size: LaunchSize, parameters: K::Parameters<'_>) {
    assert_launchable(size);
    if K::NEEDS_BLOCK {
        return run_in_threads::<K>(size, parameters);
    }
    let parameters = Shared::new(parameters);
    for block in positions(size.grid) {
        for thread in positions(size.block) {
            call::<K>(&Place { thread, block, size, gate: None }, parameters.copy());
        }
    }
}

/// Runs a kernel with one thread of the system for each thread of a block, block after block.
#[doc(hidden)]
#[track_caller]
pub fn run_in_threads<K: Kernel>(size: LaunchSize, parameters: K::Parameters<'_>) {
    assert_launchable(size);
    let threads: Vec<[u32; 3]> = positions(size.block).collect();
    let (gate, parameters) = (Gate::new(threads.len()), Shared::new(parameters));
    let work = |thread: [u32; 3]| {
        let _guard = Guard(&gate);
        for block in positions(size.grid) {
            call::<K>(&Place { thread, block, size, gate: Some(&gate) }, parameters.copy());
            gate.end();
        }
    };
    let work = &work;
    let failures: Vec<_> = thread::scope(|scope| {
        // If the system has no further thread, those that run wait for nobody.
        let _guard = Guard(&gate);
        let running: Vec<_> = threads.iter().map(|thread| scope.spawn(move || work(*thread))).collect();
        running.into_iter().filter_map(|thread| thread.join().err()).collect()
    });
    // The first mistake is the cause of the others.
    let is_cause = |failure: &Box<dyn std::any::Any + Send>| {
        failure.downcast_ref::<String>().is_none_or(|text| text != BROKEN)
            && failure.downcast_ref::<&str>().is_none_or(|text| *text != BROKEN)
    };
    let cause = failures.iter().position(is_cause).unwrap_or(0);
    if let Some(failure) = failures.into_iter().nth(cause) {
        resume_unwind(failure);
    }
}

/// Memory that a kernel knows by its device address, for [`simulate`].
///
/// # Safety
///
/// `place` returns a pointer to what a launch names by this address. If an array of the launch is there, the pointer is good for
/// its bytes until the kernel has run.
pub unsafe trait Memory: 'static {
    /// Returns a pointer of the host to the `bytes` bytes at `address`, or `None` if a kernel may not access them. The kernel
    /// then does nothing.
    fn place(address: u64, bytes: usize, writes: bool) -> Option<*mut u8>;
}

/// Runs a kernel on the CPU with the arguments of a launch, as a simulated driver gets them: the three extents of the grid and of
/// a block, and a pointer to each argument.
///
/// # Safety
///
/// 1. `grid` and `block` point to three extents, and `arguments` to a pointer for each parameter of `K`, to an argument of its
///    type.
/// 2. The arrays are those of a launch: until the kernel has run, nobody else writes the elements, and nobody else uses those
///    that the kernel writes.
pub unsafe extern "C" fn simulate<K: Kernel, M: Memory>(
    grid: *const u32,
    block: *const u32,
    _: u32,
    arguments: *const *const c_void,
) {
    let extents = |of: *const u32| {
        // SAFETY: 1 of the caller.
        let [x, y, z] = unsafe { of.cast::<[u32; 3]>().read() };
        (x, y, z)
    };
    // SAFETY: 1 and 2 of the caller.
    let Some(parameters) = (unsafe { K::Parameters::located::<M>(arguments) }) else { return };
    run::<K>(LaunchSize { grid: extents(grid), block: extents(block) }, parameters);
}

/// What the parameters of a kernel are in bytes, one a line. PTX that is compiled from the same types has the same text, in the
/// constant `interop_layout_` with the name of the kernel.
#[must_use]
pub fn layout<K: Kernel>() -> &'static [u8] {
    const { &Layout::of_kernel::<K::Parameters<'static>>(K::PARAMETERS) }.as_bytes()
}

/// The size of each argument of a kernel in bytes.
#[must_use]
pub fn sizes<K: Kernel>() -> &'static [usize] {
    <K::Parameters<'static> as Parameters>::SIZES
}
