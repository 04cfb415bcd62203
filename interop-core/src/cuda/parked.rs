//! Releases that wait: the list of them, and who looks at it when.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::context::Relaxed;
use super::driver::{Driver, opened};
use super::event::Event;
use super::intake;
use super::release::{Fence, ReleasePolicy, drop_in_context, events_after, release_policy, synchronized};
use super::signal::Signal;
use crate::owner::{Owner, contain_panic};

/// The releases that [`ReleasePolicy::Batched`] decides together.
const BATCH: usize = 32;

/// What waits for the work of the same contexts.
struct Queue {
    fence: Fence,
    /// In the order of their events. Each event comes after all work before it, so while the first is not done, no other
    /// is. Two threads may park in the wrong order; one of the two then waits a little longer than it has to.
    decided: VecDeque<Parked>,
    /// Those for which no event could be recorded yet.
    undecided: Vec<Owner>,
}

/// Owners that share their events, of which none is left when the work is done.
struct Parked {
    events: Vec<Event<'static>>,
    owners: Vec<Owner>,
}

/// Everything that waits.
struct List {
    /// One for each fence, of which a program has few.
    queues: Vec<Queue>,
    /// How many owners the threads have taken out, to look at them or to drop them.
    away: usize,
}

static LIST: Mutex<List> = Mutex::new(List { queues: Vec::new(), away: 0 });
/// Something is in the list.
static SOMETHING: Signal = Signal::new();
/// What was away is back or dropped.
static SETTLED: Signal = Signal::new();
/// How many owners are in the list, left for it, or away, readable without the lock.
static PENDING: AtomicUsize = AtomicUsize::new(0);
/// Whether imports and exports should look at the list in passing.
static WORTH_POLLING: AtomicBool = AtomicBool::new(false);
/// A thread looks in passing.
static PASSING: AtomicBool = AtomicBool::new(false);

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
    LIST.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.decided.is_empty() && self.undecided.is_empty()
    }
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
        self.queues.iter().all(Queue::is_empty) && intake::left() == 0
    }

    /// Puts what the threads have left where it belongs.
    fn take_in(&mut self) {
        intake::take(|fence, owner| self.queue(fence).undecided.push(owner));
    }

    /// Whether enough is undecided to decide it in passing.
    fn has_a_batch(&self) -> bool {
        let undecided: usize = self.queues.iter().map(|queue| queue.undecided.len()).sum();
        undecided + intake::left() >= batch()
    }

    fn update_worth_polling(&self) {
        let decided = self.queues.iter().any(|queue| !queue.decided.is_empty());
        WORTH_POLLING.store(decided || self.has_a_batch(), Ordering::Relaxed);
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
        self.away -= owners;
        MINE.set(MINE.get() - owners);
        self.update_worth_polling();
        SETTLED.notify();
        if !self.is_empty() {
            SOMETHING.notify();
        }
    }
}

fn count(parked: &VecDeque<Parked>) -> usize {
    parked.iter().map(|parked| parked.owners.len()).sum()
}

/// The number of releases that wait for work on a device.
#[must_use]
pub fn pending_releases() -> usize {
    PENDING.load(Ordering::Acquire)
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
    PENDING.fetch_add(1, Ordering::AcqRel);
    list.update_worth_polling();
    SOMETHING.notify();
}

/// Has a release wait for the look that decides a batch, which the thread makes that fills one; while releases are `held`,
/// the first look afterwards.
pub(super) fn park_for_batch(owner: Owner, fence: Fence, held: bool) {
    PENDING.fetch_add(1, Ordering::AcqRel);
    let left = intake::leave(fence, owner);
    if SOMETHING.is_awaited() {
        let _list = list();
        SOMETHING.notify();
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
    if WORTH_POLLING.load(Ordering::Relaxed) {
        pass();
    }
}

#[cold]
fn pass() {
    struct Passing;

    impl Drop for Passing {
        fn drop(&mut self) {
            PASSES.set(false);
            PASSING.store(false, Ordering::Release);
        }
    }

    // The thread goes on looking within what it releases: each release can park another.
    if PASSES.get() {
        drain(Poll::Passing);
    } else if !PASSING.load(Ordering::Relaxed) && !PASSING.swap(true, Ordering::Acquire) {
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
        SETTLED.wait_while(list(), |list| list.away != 0);
    }
    pending_releases()
}

/// Waits until something is parked.
pub(super) fn wait_for_something() {
    SOMETHING.wait_while(list(), List::is_empty);
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
    for parked in due {
        parked.release(driver, fence);
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
        let late = front.iter_mut().position(|parked| !parked.is_done(poll)).unwrap_or(taken);
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

impl Parked {
    /// Whether the work is done; events that are done are forgotten.
    fn is_done(&mut self, poll: Poll) -> bool {
        self.events.retain(|event| {
            let done = event.in_context(|| match poll {
                Poll::Blocking => event.wait().map(|()| true),
                _ => event.is_done(),
            });
            // An event that is none any more went with its context, even if another one has the context's handle now.
            !done.unwrap_or_else(|failure| failure.is_final() || failure.is_about_handles())
        });
        self.events.is_empty()
    }

    /// Drops the owners. Outside the lock: a drop may run any code, come back here, or panic.
    fn release(self, driver: &Driver, fence: Fence) {
        let owners = self.owners.len();
        for owner in self.owners {
            contain_panic(|| drop_in_context(driver, owner, fence));
        }
        PENDING.fetch_sub(owners, Ordering::AcqRel);
        list().settled(owners);
    }
}
