//! Where a thread is in a launch on the CPU, and where the threads of a block meet.

use std::panic::resume_unwind;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::LaunchSize;

/// Where a thread is in its launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'g> {
    pub(crate) thread: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) size: LaunchSize,
    /// Where the threads of a block meet, if they run at the same time.
    pub(crate) gate: Option<&'g Gate>,
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
pub(crate) struct Gate {
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
pub(crate) const BROKEN: &str = "a thread of the block does not reach the barrier at which others wait";

impl Gate {
    pub(crate) fn new(threads: usize) -> Self {
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
    pub(crate) fn end(&self) {
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
pub(crate) struct Guard<'g>(pub(crate) &'g Gate);

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
