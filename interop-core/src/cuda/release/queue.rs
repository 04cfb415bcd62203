//! Releases that wait: the list of them, and who looks at it when.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cuda::driver::{Driver, opened};
use crate::cuda::event::Event;
use crate::cuda::release::batch::Batches;
use crate::cuda::release::deferred::{Deferred, Queue, count};
use crate::cuda::release::erased::ErasedOwner;
use crate::cuda::release::erased::contain_panic;
use crate::cuda::release::in_context::drop_in_context;
use crate::cuda::release::policy::{ReleasePolicy, release_policy};
use crate::cuda::release::record::{events_after, synchronized};
use crate::cuda::release::scope::ReleaseScope;
use crate::cuda::release::signal::Signal;
use crate::process::fork::PerProcess;

/// The releases that [`ReleasePolicy::Batched`] decides together.
const BATCH: usize = 32;

/// Everything that waits.
struct List {
    /// One for each fence, of which a program has few.
    queues: Vec<Queue>,
    /// How many owners the threads have taken out, to look at them or to drop them.
    in_progress: usize,
}

/// The list, and what is told of it without its lock.
struct Waiting {
    list: Mutex<List>,
    batches: Batches,
    /// Something is in the list.
    not_empty: Signal,
    /// What was away is back or dropped.
    put_back: Signal,
    /// How many owners are in the list, or away.
    pending: AtomicUsize,
    /// Whether imports and exports should look at the list in passing.
    worth_polling: AtomicBool,
    /// A thread looks in passing.
    passing: AtomicBool,
}

/// Nothing waits in a process that was forked: what the parent has on its GPU is the parent's to release.
static WAITING: PerProcess<Waiting> = PerProcess::new(|_| Waiting {
    list: Mutex::new(List { queues: Vec::new(), in_progress: 0 }),
    batches: Batches::new(),
    not_empty: Signal::new(),
    put_back: Signal::new(),
    pending: AtomicUsize::new(0),
    worth_polling: AtomicBool::new(false),
    passing: AtomicBool::new(false),
});

thread_local! {
    /// The owners that this thread has taken out: not zero in the drop of one of them.
    static OWN_IN_PROGRESS: Cell<usize> = const { Cell::new(0) };
    /// The thread that looks in passing is this one.
    static PASSES: Cell<bool> = const { Cell::new(false) };
}

/// What a look is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Poll {
    /// Something else is being done.
    Opportunistic,
    /// A thread has as many left as may wait.
    Full,
    /// The user asked.
    Requested,
    /// The user waits for the work.
    Blocking,
}

/// What came of a look.
struct PollResult {
    /// Something was released.
    released: bool,
    /// No other thread had taken something out at any time at which this one looked.
    everything: bool,
}

/// Under [`ReleasePolicy::Batched`] only a batch is decided in passing.
fn waits_for_batches() -> bool {
    release_policy() == ReleasePolicy::Batched
}

fn list() -> MutexGuard<'static, List> {
    WAITING.get().list.lock().unwrap_or_else(PoisonError::into_inner)
}

impl List {
    fn queue(&mut self, scope: ReleaseScope) -> &mut Queue {
        let scope = scope.contexts();
        let known = self.queues.iter().position(|queue| queue.scope == scope);
        let at = known.unwrap_or_else(|| {
            // Contexts come and go.
            self.queues.retain(|queue| !queue.is_empty());
            self.queues.push(Queue { scope, recorded: VecDeque::new(), unrecorded: Vec::new() });
            self.queues.len() - 1
        });
        &mut self.queues[at]
    }

    /// Whether there is nothing in the list, nor left for it.
    fn is_empty(&self) -> bool {
        self.queues.iter().all(Queue::is_empty) && WAITING.get().batches.len() == 0
    }

    /// Puts what the threads have left where it belongs.
    fn collect_batches(&mut self) {
        let waiting = WAITING.get();
        waiting.batches.take(&waiting.pending, |owner| {
            let scope = owner.scope().unwrap_or(ReleaseScope::NONE);
            self.queue(scope).unrecorded.push(owner);
        });
    }

    /// How many are undecided.
    fn unrecorded(&self) -> usize {
        self.queues.iter().map(|queue| queue.unrecorded.len()).sum()
    }

    /// Whether what is undecided is to be decided in a look for `poll`.
    fn is_to_be_decided(&self, poll: Poll) -> bool {
        let batches = &WAITING.get().batches;
        match poll {
            Poll::Requested | Poll::Blocking => true,
            _ if waits_for_batches() => self.unrecorded() + batches.len() >= BATCH,
            Poll::Opportunistic => self.unrecorded() != 0 || (batches.is_occupied() && batches.is_due()),
            // Another thread may have emptied the lists.
            Poll::Full => batches.is_full(),
        }
    }

    fn update_worth_polling(&self) {
        let recorded = self.queues.iter().any(|queue| !queue.recorded.is_empty());
        let unrecorded = if waits_for_batches() {
            self.is_to_be_decided(Poll::Opportunistic)
        } else {
            self.unrecorded() != 0
        };
        WAITING.get().worth_polling.store(recorded || unrecorded, Ordering::Relaxed);
    }

    /// Counts owners that were taken out, and notes whether another thread had some at that time.
    fn take_out(&mut self, owners: usize, result: &mut PollResult) {
        result.everything &= self.in_progress == OWN_IN_PROGRESS.get();
        self.in_progress += owners;
        OWN_IN_PROGRESS.set(OWN_IN_PROGRESS.get() + owners);
        self.update_worth_polling();
    }

    /// Counts owners that are no longer away: back, or dropped.
    fn put_back(&mut self, owners: usize) {
        // Where a drop has forked, the child's list knows nothing of what the parent's look took out.
        self.in_progress = self.in_progress.saturating_sub(owners);
        OWN_IN_PROGRESS.set(OWN_IN_PROGRESS.get() - owners);
        self.update_worth_polling();
        let waiting = WAITING.get();
        waiting.put_back.notify();
        if !self.is_empty() {
            waiting.not_empty.notify();
        }
    }
}

/// The number of releases that wait for work on a device.
#[must_use]
pub fn pending_releases() -> usize {
    let waiting = WAITING.get();
    // In this order: what is taken from there is counted here first.
    waiting.batches.len() + waiting.pending.load(Ordering::SeqCst)
}

/// Has a release wait for the events; without events, for the look that decides it.
pub(crate) fn defer(owner: ErasedOwner, scope: ReleaseScope, events: Option<Vec<Event<'static>>>) {
    let mut list = list();
    let queue = list.queue(scope);
    let owner = owner.after(Some(scope));
    match events {
        Some(events) => queue.recorded.push_back(Deferred { events, owners: vec![owner] }),
        // What is undecided is decided together.
        None => queue.unrecorded.push(owner),
    }
    let waiting = WAITING.get();
    waiting.pending.fetch_add(1, Ordering::AcqRel);
    list.update_worth_polling();
    waiting.not_empty.notify();
}

/// Has a release wait for others, to share their event. No driver call is made, unless this is the last that may wait.
pub(crate) fn defer_in_batch(owner: ErasedOwner, scope: ReleaseScope) {
    let waiting = WAITING.get();
    let full = waiting.batches.push(owner, scope);
    if waiting.not_empty.is_awaited() {
        let _list = list();
        waiting.not_empty.notify();
    }
    let full = if waits_for_batches() { waiting.batches.len() >= BATCH } else { full };
    if full {
        // Whoever is looking: the list may have been filled behind them.
        drain(Poll::Full);
    }
}

/// The list is looked at under another policy from now on.
pub(crate) fn policy_changed() {
    make_due();
    list().update_worth_polling();
}

/// Has the next import or export decide what waits for others to share an event.
pub(crate) fn make_due() {
    WAITING.get().batches.make_due();
}

/// Releases what is due, where it is worth a look and no other thread is looking: what is due is released once, and others
/// would only wait for the list. Whatever imports, exports, hands over or releases CUDA memory does so.
#[inline]
pub(crate) fn poll_in_passing() {
    let waiting = WAITING.get();
    if waiting.worth_polling.load(Ordering::Relaxed)
        || (waiting.batches.is_occupied() && waiting.batches.is_due() && !waits_for_batches())
    {
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
        drain(Poll::Opportunistic);
        return;
    }
    let passing = &WAITING.get().passing;
    if !passing.load(Ordering::Relaxed) && !passing.swap(true, Ordering::Acquire) {
        PASSES.set(true);
        let _passing = Passing;
        drain(Poll::Opportunistic);
    }
}

/// Releases what is due, and says how many still wait. Imports, exports and releases of CUDA memory do this in passing, and so
/// does [`make_stream_wait`](crate::derive::cuda_array::CudaArray::make_stream_wait).
///
/// ```
/// // At a point where the program is idle, so that nothing stays until the next import:
/// let waiting = interop_core::cuda::poll_releases();
/// assert_eq!(waiting, 0);
/// ```
#[expect(clippy::must_use_candidate, reason = "called for what it does")]
pub fn poll_releases() -> usize {
    // One release may lead to another: that of an import to that of the export it came from.
    while pending_releases() != 0 && drain(Poll::Requested).released {}
    make_due();
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
        let result = drain(Poll::Blocking);
        make_due();
        // One release may lead to another: that of an import to that of the export it came from.
        if result.released {
            continue;
        }
        // What is left cannot be decided; or this is called from a release, for which another thread may wait.
        if result.everything || OWN_IN_PROGRESS.get() != 0 {
            break;
        }
        WAITING.get().put_back.wait_while(list(), |list| list.in_progress != 0);
    }
    pending_releases()
}

/// Waits until something is parked.
pub(crate) fn wait_until_not_empty() {
    WAITING.get().not_empty.wait_while(list(), List::is_empty);
}

/// Releases what is due.
#[cold]
fn drain(poll: Poll) -> PollResult {
    let mut result = PollResult { released: false, everything: true };
    let Some(driver) = opened() else { return result };
    let (fences, unrecorded) = {
        let mut list = list();
        // What waits for others stays where it is until it is decided.
        let unrecorded = list.is_to_be_decided(poll);
        if unrecorded {
            list.collect_batches();
        }
        let waiting = list.queues.iter().filter(|queue| !queue.is_empty());
        let fences: Vec<ReleaseScope> = waiting.map(|queue| queue.scope).collect();
        if fences.is_empty() {
            // Another thread that has taken something out may put it back.
            result.everything = list.in_progress == OWN_IN_PROGRESS.get();
        }
        (fences, unrecorded)
    };
    for scope in fences {
        if unrecorded {
            record_events(driver, scope, poll, &mut result);
        }
        release_due(driver, scope, poll, &mut result);
    }
    result
}

/// Decides what was undecided, if that can be done now.
fn record_events(driver: &'static Driver, scope: ReleaseScope, poll: Poll, result: &mut PollResult) {
    let mut owners = {
        let mut list = list();
        let owners = core::mem::take(&mut list.queue(scope).unrecorded);
        list.take_out(owners.len(), result);
        owners
    };
    if owners.is_empty() {
        return;
    }
    // Outside the lock: libraries are asked whether they capture.
    let events = events_after(driver, scope);
    let events = events.or_else(|| (poll == Poll::Blocking).then(|| synchronized(driver, scope)).flatten());
    let (mut list, recorded) = (list(), owners.len());
    let queue = list.queue(scope);
    if let Some(events) = events {
        queue.recorded.push_back(Deferred { events, owners });
    } else {
        owners.append(&mut queue.unrecorded);
        queue.unrecorded = owners;
    }
    list.put_back(recorded);
}

/// Releases what is decided and done.
fn release_due(driver: &'static Driver, scope: ReleaseScope, poll: Poll, result: &mut PollResult) {
    // All of it is taken out before the first is released. A release may import or export, which looks at the list in
    // passing: it would release the next within this one, as deep as the list is long.
    let due = take_due(driver, scope, poll, result);
    result.released |= !due.is_empty();
    // It counts them, whatever process a drop makes, and ends in.
    let pending = &WAITING.get().pending;
    for deferred in due {
        release(deferred, driver, pending);
    }
}

/// Takes out what is decided and done: from the front as far as it goes.
fn take_due(driver: &Driver, scope: ReleaseScope, poll: Poll, result: &mut PollResult) -> VecDeque<Deferred> {
    let mut due = VecDeque::new();
    // One at first: nearly always it says that there is nothing to be done, whatever the number of those behind it.
    let mut most = 1;
    loop {
        let mut front = {
            let mut list = list();
            let recorded = &mut list.queue(scope).recorded;
            let front: VecDeque<Deferred> = recorded.drain(..most.min(recorded.len())).collect();
            list.take_out(count(&front), result);
            front
        };
        let taken = front.len();
        let late = front.iter_mut().position(|deferred| !deferred.is_done(driver, poll == Poll::Blocking));
        let late = late.unwrap_or(taken);
        due.extend(front.drain(..late));
        if !front.is_empty() {
            let owners = count(&front);
            let mut list = list();
            let recorded = &mut list.queue(scope).recorded;
            // In front of those behind them, which may be many and are not touched.
            front.into_iter().rev().for_each(|deferred| recorded.push_front(deferred));
            list.put_back(owners);
            return due;
        }
        if taken < most {
            return due;
        }
        most *= 2;
    }
}

/// Drops the owners. Outside the lock: a drop may run any code, come back here, or panic.
fn release(deferred: Deferred, driver: &Driver, pending: &AtomicUsize) {
    let owners = deferred.owners.len();
    for owner in deferred.owners {
        let scope = owner.scope().unwrap_or(ReleaseScope::NONE);
        contain_panic(|| drop_in_context(driver, owner, scope));
    }
    pending.fetch_sub(owners, Ordering::AcqRel);
    list().put_back(owners);
}
