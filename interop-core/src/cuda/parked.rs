//! Releases that wait: the list of them, and who looks at it when.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::context::Relaxed;
use super::driver::{Driver, opened};
use super::event::Event;
use super::intake::Intake;
use super::queue::{Parked, Queue, count};
use super::release::{Fence, ReleasePolicy, drop_in_context, events_after, release_policy, synchronized};
use super::signal::Signal;
use crate::fork::PerProcess;
use crate::owner::{Owner, contain_panic};

/// The releases that [`ReleasePolicy::Batched`] decides together.
const BATCH: usize = 32;

/// Everything that waits.
struct List {
    /// One for each fence, of which a program has few.
    queues: Vec<Queue>,
    /// How many owners the threads have taken out, to look at them or to drop them.
    away: usize,
}

/// The list, and what is told of it without its lock.
struct Waiting {
    list: Mutex<List>,
    intake: Intake,
    /// Something is in the list.
    something: Signal,
    /// What was away is back or dropped.
    settled: Signal,
    /// How many owners are in the list, left for it, or away.
    pending: AtomicUsize,
    /// Whether imports and exports should look at the list in passing.
    worth_polling: AtomicBool,
    /// A thread looks in passing.
    passing: AtomicBool,
}

/// Nothing waits in a process that was forked: what the parent has on its GPU is the parent's to release.
static WAITING: PerProcess<Waiting> = PerProcess::new(|_| Waiting {
    list: Mutex::new(List { queues: Vec::new(), away: 0 }),
    intake: Intake::new(),
    something: Signal::new(),
    settled: Signal::new(),
    pending: AtomicUsize::new(0),
    worth_polling: AtomicBool::new(false),
    passing: AtomicBool::new(false),
});

thread_local! {
    /// The owners that this thread has taken out: not zero in the drop of one of them.
    static MINE: Cell<usize> = const { Cell::new(0) };
    /// The thread that looks in passing is this one.
    static PASSES: Cell<bool> = const { Cell::new(false) };
}

/// What a look is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Poll {
    /// Something else is being done.
    Passing,
    /// The user asked.
    Requested,
    /// The user waits for the work.
    Blocking,
}

/// What came of a look.
struct Seen {
    /// Something was released.
    released: bool,
    /// No other thread had taken something out at any time at which this one looked.
    everything: bool,
}

/// How many undecided releases are decided in passing.
fn batch() -> usize {
    if release_policy() == ReleasePolicy::Batched { BATCH } else { 1 }
}

fn list() -> MutexGuard<'static, List> {
    WAITING.get().list.lock().unwrap_or_else(PoisonError::into_inner)
}

impl List {
    fn queue(&mut self, fence: Fence) -> &mut Queue {
        let known = self.queues.iter().position(|queue| queue.fence == fence);
        let at = known.unwrap_or_else(|| {
            // Contexts come and go.
            self.queues.retain(|queue| !queue.is_empty());
            self.queues.push(Queue { fence, decided: VecDeque::new(), undecided: Vec::new() });
            self.queues.len() - 1
        });
        &mut self.queues[at]
    }

    /// Whether there is nothing in the list, nor left for it.
    fn is_empty(&self) -> bool {
        self.queues.iter().all(Queue::is_empty) && WAITING.get().intake.left() == 0
    }

    /// Puts what the threads have left where it belongs.
    fn take_in(&mut self) {
        WAITING.get().intake.take(|fence, owner| self.queue(fence).undecided.push(owner));
    }

    /// Whether enough is undecided to decide it in passing.
    fn has_a_batch(&self) -> bool {
        let undecided: usize = self.queues.iter().map(|queue| queue.undecided.len()).sum();
        undecided + WAITING.get().intake.left() >= batch()
    }

    fn update_worth_polling(&self) {
        let decided = self.queues.iter().any(|queue| !queue.decided.is_empty());
        WAITING.get().worth_polling.store(decided || self.has_a_batch(), Ordering::Relaxed);
    }

    /// Counts owners that were taken out, and notes whether another thread had some at that time.
    fn took(&mut self, owners: usize, seen: &mut Seen) {
        seen.everything &= self.away == MINE.get();
        self.away += owners;
        MINE.set(MINE.get() + owners);
        self.update_worth_polling();
    }

    /// Counts owners that are no longer away: back, or dropped.
    fn settled(&mut self, owners: usize) {
        // Where a drop has forked, the child's list knows nothing of what the parent's look took out.
        self.away = self.away.saturating_sub(owners);
        MINE.set(MINE.get() - owners);
        self.update_worth_polling();
        let waiting = WAITING.get();
        waiting.settled.notify();
        if !self.is_empty() {
            waiting.something.notify();
        }
    }
}

/// The number of releases that wait for work on a device.
#[must_use]
pub fn pending_releases() -> usize {
    WAITING.get().pending.load(Ordering::Acquire)
}

/// Has a release wait for the events; without events, for the look that decides it.
pub(super) fn park(owner: Owner, fence: Fence, events: Option<Vec<Event<'static>>>) {
    let mut list = list();
    let queue = list.queue(fence);
    match events {
        Some(events) => queue.decided.push_back(Parked { events, owners: vec![owner] }),
        // What is undecided is decided together.
        None => queue.undecided.push(owner),
    }
    let waiting = WAITING.get();
    waiting.pending.fetch_add(1, Ordering::AcqRel);
    list.update_worth_polling();
    waiting.something.notify();
}

/// Has a release wait for the look that decides a batch, which the thread makes that fills one; while releases are `held`,
/// the first look afterwards.
pub(super) fn park_for_batch(owner: Owner, fence: Fence, held: bool) {
    let waiting = WAITING.get();
    waiting.pending.fetch_add(1, Ordering::AcqRel);
    let left = waiting.intake.leave(fence, owner);
    if waiting.something.is_awaited() {
        let _list = list();
        waiting.something.notify();
    }
    // Under another policy, which may have come meanwhile, one is enough.
    if left == BATCH || batch() == 1 {
        if held {
            list().update_worth_polling();
        } else {
            // Whoever is looking: the batch may have been filled behind them.
            drain(Poll::Passing);
        }
    }
}

/// The list is looked at under another policy from now on.
pub(super) fn policy_changed() {
    list().update_worth_polling();
}

/// Releases what is due, where it is worth a look and no other thread is looking: what is due is released once, and others
/// would only wait for the list. Whatever imports, exports, hands over or releases CUDA memory does so.
#[inline]
pub(crate) fn poll_releases() {
    if WAITING.get().worth_polling.load(Ordering::Relaxed) {
        pass();
    }
}

#[cold]
fn pass() {
    struct Passing;

    impl Drop for Passing {
        fn drop(&mut self) {
            PASSES.set(false);
            WAITING.get().passing.store(false, Ordering::Release);
        }
    }

    // The thread goes on looking within what it releases: each release can park another.
    if PASSES.get() {
        drain(Poll::Passing);
        return;
    }
    let passing = &WAITING.get().passing;
    if !passing.load(Ordering::Relaxed) && !passing.swap(true, Ordering::Acquire) {
        PASSES.set(true);
        let _passing = Passing;
        drain(Poll::Passing);
    }
}

/// Releases what is due, and says how many still wait. Imports, exports and releases of CUDA memory do this in passing, and so
/// does [`order_before`](crate::CudaArray::order_before).
///
/// ```
/// // At a point where the program is idle, so that nothing stays until the next import:
/// let waiting = interop_core::cuda::drain_releases();
/// assert_eq!(waiting, 0);
/// ```
#[expect(clippy::must_use_candidate, reason = "called for what it does")]
pub fn drain_releases() -> usize {
    if pending_releases() != 0 {
        drain(Poll::Requested);
    }
    pending_releases()
}

/// Waits on the host until everything that was parked is released, by this thread or by another, and says how many still
/// wait: what was parked during a capture, is held, or is work that the driver fails to wait for, stays.
///
/// Before you call it, give up every lock that a release may need, such as the Python interpreter's (`py.detach`): another
/// thread may be waiting for that lock to release something. Called from the drop of an owner that is being released, it
/// does not wait for other threads, because they may be waiting for that drop.
pub fn finish_releases() -> usize {
    while pending_releases() != 0 {
        let seen = drain(Poll::Blocking);
        // One release may lead to another: that of an import to that of the export it came from.
        if seen.released {
            continue;
        }
        // What is left cannot be decided; or this is called from a release, for which another thread may wait.
        if seen.everything || MINE.get() != 0 {
            break;
        }
        WAITING.get().settled.wait_while(list(), |list| list.away != 0);
    }
    pending_releases()
}

/// Waits until something is parked.
pub(super) fn wait_for_something() {
    WAITING.get().something.wait_while(list(), List::is_empty);
}

/// Releases what is due.
#[cold]
fn drain(poll: Poll) -> Seen {
    let mut seen = Seen { released: false, everything: true };
    let Some(driver) = opened() else { return seen };
    let _relaxed = Relaxed::new(driver);
    let (fences, undecided) = {
        let mut list = list();
        // What is left for a batch is counted where it is until it is one: who leaves the last of it decides it.
        let undecided = poll != Poll::Passing || list.has_a_batch();
        if undecided {
            list.take_in();
        }
        let waiting = list.queues.iter().filter(|queue| !queue.is_empty());
        let fences: Vec<Fence> = waiting.map(|queue| queue.fence).collect();
        if fences.is_empty() {
            // Another thread that has taken something out may put it back.
            seen.everything = list.away == MINE.get();
        }
        (fences, undecided)
    };
    for fence in fences {
        if undecided {
            decide(driver, fence, poll, &mut seen);
        }
        release_due(driver, fence, poll, &mut seen);
    }
    seen
}

/// Decides what was undecided, if that can be done now.
fn decide(driver: &'static Driver, fence: Fence, poll: Poll, seen: &mut Seen) {
    let mut owners = {
        let mut list = list();
        let owners = core::mem::take(&mut list.queue(fence).undecided);
        list.took(owners.len(), seen);
        owners
    };
    if owners.is_empty() {
        return;
    }
    // Outside the lock: libraries are asked whether they capture.
    let events = events_after(driver, fence);
    let events = events.or_else(|| (poll == Poll::Blocking).then(|| synchronized(driver, fence)).flatten());
    let (mut list, decided) = (list(), owners.len());
    let queue = list.queue(fence);
    if let Some(events) = events {
        queue.decided.push_back(Parked { events, owners });
    } else {
        owners.append(&mut queue.undecided);
        queue.undecided = owners;
    }
    list.settled(decided);
}

/// Releases what is decided and done.
fn release_due(driver: &'static Driver, fence: Fence, poll: Poll, seen: &mut Seen) {
    // All of it is taken out before the first is released. A release may import or export, which looks at the list in
    // passing: it would release the next within this one, as deep as the list is long.
    let due = take_due(fence, poll, seen);
    seen.released |= !due.is_empty();
    // It counts them, whatever process a drop makes, and ends in.
    let pending = &WAITING.get().pending;
    for parked in due {
        release(parked, driver, fence, pending);
    }
}

/// Takes out what is decided and done: from the front as far as it goes.
fn take_due(fence: Fence, poll: Poll, seen: &mut Seen) -> VecDeque<Parked> {
    let mut due = VecDeque::new();
    // One at first: nearly always it says that there is nothing to be done, whatever the number of those behind it.
    let mut most = 1;
    loop {
        let mut front = {
            let mut list = list();
            let decided = &mut list.queue(fence).decided;
            let front: VecDeque<Parked> = decided.drain(..most.min(decided.len())).collect();
            list.took(count(&front), seen);
            front
        };
        let taken = front.len();
        let late =
            front.iter_mut().position(|parked| !parked.is_done(poll == Poll::Blocking)).unwrap_or(taken);
        due.extend(front.drain(..late));
        if !front.is_empty() {
            let owners = count(&front);
            let mut list = list();
            let decided = &mut list.queue(fence).decided;
            // In front of those behind them, which may be many and are not touched.
            front.into_iter().rev().for_each(|parked| decided.push_front(parked));
            list.settled(owners);
            return due;
        }
        if taken < most {
            return due;
        }
        most *= 2;
    }
}

/// Drops the owners. Outside the lock: a drop may run any code, come back here, or panic.
fn release(parked: Parked, driver: &Driver, fence: Fence, pending: &AtomicUsize) {
    let owners = parked.owners.len();
    for owner in parked.owners {
        contain_panic(|| drop_in_context(driver, owner, fence));
    }
    pending.fetch_sub(owners, Ordering::AcqRel);
    list().settled(owners);
}
