//! Where a thread is in a launch on the CPU, and where the threads of a block meet.

use std::any::Any;
use std::panic::{Location, resume_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::LaunchSize;
use crate::host_part::HostPart;

/// Where a thread is in its launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'g> {
    pub(crate) thread: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) size: LaunchSize,
    /// Where the threads of a block meet, if they run at the same time.
    pub(crate) gate: Option<&'g Gate<SharedValue>>,
    /// Where the threads of its team meet, if they run at the same time. Otherwise the first one plays them all.
    pub(crate) team: Option<&'g Gate<TeamCall>>,
    /// In a launch on the CPU, the part of the work that this thread has. `None` in a run as on a device.
    pub(crate) part: Option<HostPart<'g>>,
}

impl Place<'_> {
    #[track_caller]
    fn gate(&self) -> &Gate<SharedValue> {
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
        gate.share(number, (value.to_bits().into(), "f64"));
        if number > 0 { value } else { sum_of_block(&gate.lock().values) }
    }

    /// Leaves a value for the other threads of the block, when all have read the values before, and waits for theirs.
    #[track_caller]
    pub(crate) fn share(&self, number: usize, value: SharedValue) {
        self.gate().share(number, value);
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

/// A call that a thread of a team makes together with the others: where it is in the program, and the values that it brings.
pub(crate) type TeamCall = (&'static Location<'static>, [f32; 3]);

/// Where the threads of a block, or of a team, wait for each other.
#[derive(Debug)]
pub(crate) struct Gate<V> {
    state: Mutex<State<V>>,
    changed: Condvar,
    /// Why the other threads panic if one does not come.
    broken: &'static str,
}

#[derive(Debug)]
struct State<V> {
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
    values: Vec<V>,
}

/// The reason why the other threads of a block panic.
const BLOCK_IS_BROKEN: &str = "a thread of the block does not reach the barrier at which others wait";

/// The reason why the other threads of a team panic.
const TEAM_IS_BROKEN: &str = "a thread of the team does not make this call, for which the others wait: all threads of a team make the same calls";

/// Whether a thread has panicked because of another one.
pub(crate) fn is_consequence(panic: &(dyn Any + Send)) -> bool {
    let reasons = [BLOCK_IS_BROKEN, TEAM_IS_BROKEN];
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).is_some_and(|text| reasons.contains(&text))
}

impl Gate<SharedValue> {
    pub(crate) fn of_block(threads: usize) -> Self {
        Self::new(vec![(0, ""); threads], BLOCK_IS_BROKEN)
    }
}

impl Gate<TeamCall> {
    pub(crate) fn of_team(threads: usize) -> Self {
        Self::new(vec![(Location::caller(), [0.0; 3]); threads], TEAM_IS_BROKEN)
    }

    /// Makes a call together with the others of the team, and returns the values that each has brought.
    ///
    /// # Panics
    ///
    /// If another thread makes another call.
    #[track_caller]
    pub(crate) fn call(&self, lane: usize, values: [f32; 3]) -> Vec<[f32; 3]> {
        let own = Location::caller();
        self.share(lane, (own, values));
        let mut state = self.lock();
        if let Some((other, _)) = state.values.iter().find(|(other, _)| *other != own) {
            let text = format!(
                "the threads of a team make different calls: one at {own}, and another at {other}. A GPU would leave elements unwritten, \
                 or wait for ever"
            );
            state.is_broken = true;
            self.end_thread(state, &text);
        }
        state.values.iter().map(|(_, values)| *values).collect()
    }
}

impl<V> Gate<V> {
    fn new(values: Vec<V>, broken: &'static str) -> Self {
        let threads = values.len();
        let state = State {
            threads,
            waiting: 0,
            ended: 0,
            meetings: 0,
            is_broken: false,
            is_reported: false,
            values,
        };
        Self { state: Mutex::new(state), changed: Condvar::new(), broken }
    }

    fn lock(&self) -> MutexGuard<'_, State<V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for all threads, at a barrier.
    #[track_caller]
    fn wait(&self) {
        let mut state = self.lock();
        state.waiting += 1;
        let state = self.meet(state);
        if state.is_broken {
            self.end_thread(state, self.broken);
        }
    }

    /// Leaves a value for the other threads, when all have read the values before, and waits for theirs.
    #[track_caller]
    fn share(&self, number: usize, value: V) {
        self.wait();
        self.lock().values[number] = value;
        self.wait();
    }

    /// Ends a thread. Only one of them prints why.
    #[track_caller]
    fn end_thread(&self, mut state: MutexGuard<'_, State<V>>, why: &str) -> ! {
        let is_reported = core::mem::replace(&mut state.is_reported, true);
        drop(state);
        assert!(is_reported, "{why}");
        resume_unwind(Box::new(self.broken));
    }

    /// Waits for all threads, at the end of a block.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.ended += 1;
        if self.meet(state).is_broken {
            resume_unwind(Box::new(self.broken));
        }
    }

    /// Returns when all threads are here, or when one of them will not come.
    fn meet<'g>(&'g self, mut state: MutexGuard<'g, State<V>>) -> MutexGuard<'g, State<V>> {
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
pub(crate) struct Guard<'g, V>(pub(crate) &'g Gate<V>);

impl<V> Drop for Guard<'_, V> {
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
