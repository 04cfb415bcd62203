//! The queue of deferred releases, and when it is polled.
//!
//! A deferred release is in one of three places: in [`Queue::recorded`] with its events, in [`Queue::unrecorded`]
//! without an event, or in [`Batches`] to share an event with others. A poll moves the batches to `unrecorded`, records
//! the missing events, and drops the owners whose events are done. [`Poll`] lists the occasions.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::driver::context::Relaxed;
use crate::driver::event::Event;
use crate::driver::functions::{Driver, driver, is_opened_by_parent, opened};
use crate::driver::reach::{Reach, contain_panic};
use crate::driver::stream::{DONE, OwnStream};
use crate::order::release::batch::Batches;
use crate::order::release::hold::{events_after, synchronized};
use crate::order::release::owner::{Nested, Owner};
use crate::order::release::{ReleasePolicy, THREAD, release_policy};
use crate::process::fork::PerProcess;
use crate::process::settings::{SETTINGS, unordered};

/// Wakes waiting threads. It counts them, because a wake-up costs a system call even if no thread waits.
pub(crate) struct Signal {
    waiting: AtomicUsize,
    condition: Condvar,
}

impl Signal {
    pub(crate) const fn new() -> Self {
        Self { waiting: AtomicUsize::new(0), condition: Condvar::new() }
    }

    /// Wakes the waiting threads. The caller holds the lock.
    pub(crate) fn notify(&self) {
        if self.is_awaited() {
            self.condition.notify_all();
        }
    }

    /// Returns whether a thread waits, or is about to check whether it has to.
    ///
    /// A thread that changes something without the lock calls this afterwards. If the result is true, it takes the lock
    /// and notifies. So a waiting thread either has seen the change or is counted here.
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) != 0
    }

    /// Waits while `holds` is true for the guarded value.
    pub(crate) fn wait_while<T>(&self, guarded: MutexGuard<'_, T>, holds: impl Fn(&T) -> bool) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let woken = self.condition.wait_while(guarded, |guarded| holds(guarded));
        drop(woken.unwrap_or_else(PoisonError::into_inner));
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The largest vector that is kept for further owners.
const MOST_KEPT: usize = 4096;

/// The deferred releases that are not in [`Batches`].
struct DeferredReleases {
    /// One queue for each set of contexts. A program has few.
    queues: Vec<Queue>,
    /// The number of owners that threads have taken out to poll or drop them.
    in_progress: usize,
}

/// The list, and what can be read without its lock.
struct Waiting {
    list: Mutex<DeferredReleases>,
    batches: Batches,
    /// Notified when something is in the list.
    not_empty: Signal,
    /// Notified when owners that were taken out are back in the list or dropped.
    put_back: Signal,
    /// The number of owners in the list, in a batch, or taken out.
    pending: AtomicUsize,
    /// Whether imports and exports should poll the list in passing.
    worth_polling: AtomicBool,
    /// Locked by the thread that polls in passing.
    passing: Mutex<()>,
    /// Whether the thread that polls was started.
    thread_started: Mutex<bool>,
}

/// A forked process starts with an empty queue: only the parent releases its GPU memory.
static WAITING: PerProcess<Waiting> = PerProcess::new(|_| Waiting {
    list: Mutex::new(DeferredReleases { queues: Vec::new(), in_progress: 0 }),
    batches: Batches::new(),
    not_empty: Signal::new(),
    put_back: Signal::new(),
    pending: AtomicUsize::new(0),
    worth_polling: AtomicBool::new(false),
    passing: Mutex::new(()),
    thread_started: Mutex::new(false),
});

/// The reason for a poll. It decides whether missing events are recorded, and whether the host waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Poll {
    /// In passing, as part of another operation.
    Opportunistic,
    /// A batch is full.
    Full,
    /// The release thread polls, or a test.
    Requested,
    /// The user waits on the host for the work ([`finish_releases`]).
    Blocking,
}

/// The result of a poll.
pub(crate) struct PollResult {
    /// Whether an owner was released.
    released: bool,
    /// Whether no other thread had taken owners out at any step of this poll.
    everything: bool,
}

/// The number of owners that this thread has taken out.
fn own_in_progress() -> usize {
    THREAD.with(|thread| thread.taken_out.get())
}

/// Locks whether the thread that polls was started.
pub(crate) fn lock_thread_started() -> MutexGuard<'static, bool> {
    WAITING.get().thread_started.lock().unwrap_or_else(PoisonError::into_inner)
}

fn list() -> MutexGuard<'static, DeferredReleases> {
    WAITING.get().list.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DeferredReleases {
    fn queue(&mut self, reach: Reach) -> &mut Queue {
        let reach = reach.contexts();
        let known = self.queues.iter().position(|queue| queue.reach == reach);
        let at = known.unwrap_or_else(|| {
            // Contexts come and go, so queues that are no longer used are removed.
            self.queues.retain(|queue| !queue.is_empty());
            self.queues.push(Queue { reach, recorded: VecDeque::new(), unrecorded: Vec::new() });
            self.queues.len() - 1
        });
        &mut self.queues[at]
    }

    /// Moves the owners in the batches to the queues of their contexts: all of them, or those of a full list.
    fn collect_batches(&mut self, poll: Poll) {
        let batches = &WAITING.get().batches;
        let receive = |owner: Owner| self.queue(reach_of(&owner)).unrecorded.push(owner);
        if poll == Poll::Full {
            batches.take_own(receive);
        } else {
            batches.take_all(receive);
        }
    }

    /// Returns the number of owners in the list without an event.
    fn unrecorded(&self) -> usize {
        self.queues.iter().map(|queue| queue.unrecorded.len()).sum()
    }

    /// Returns whether a poll for this reason records the missing events.
    fn should_record_events(&self, poll: Poll) -> bool {
        let batches = &WAITING.get().batches;
        match poll {
            Poll::Requested | Poll::Blocking => true,
            Poll::Opportunistic => self.unrecorded() != 0 || batches.are_due(),
            // Another thread may have emptied the batches meanwhile.
            Poll::Full => batches.own_is_full(),
        }
    }

    fn update_worth_polling(&self) {
        let recorded = self.queues.iter().any(|queue| !queue.recorded.is_empty());
        WAITING.get().worth_polling.store(recorded || self.unrecorded() != 0, Ordering::Relaxed);
    }

    /// Counts owners that this thread takes out. Notes in `result` whether another thread has some at this time.
    fn take_out(&mut self, owners: usize, result: &mut PollResult) {
        result.everything &= self.in_progress == own_in_progress();
        self.in_progress += owners;
        THREAD.with(|thread| thread.taken_out.set(thread.taken_out.get() + owners));
        self.update_worth_polling();
    }

    /// Counts owners that are no longer taken out: they are back in the list, or dropped.
    fn put_back(&mut self, owners: usize) {
        // If a drop has forked, the child's list does not count the owners that the parent took out.
        self.in_progress = self.in_progress.saturating_sub(owners);
        THREAD.with(|thread| thread.taken_out.set(thread.taken_out.get() - owners));
        self.update_worth_polling();
        let waiting = WAITING.get();
        waiting.put_back.notify();
        if pending_releases() != 0 {
            waiting.not_empty.notify();
        }
    }
}

/// Returns the number of deferred releases.
#[must_use]
pub fn pending_releases() -> usize {
    WAITING.get().pending.load(Ordering::SeqCst)
}

/// Defers a release until `events` are done. With `None` it is deferred without an event, until a poll records one.
fn defer(owner: Owner, events: Option<Vec<Event<'static>>>) {
    let (mut list, reach) = (list(), reach_of(&owner));
    let queue = list.queue(reach);
    match events {
        Some(events) => {
            queue.recorded.push_back(Deferred { events, owners: vec![owner], is_given_up: false });
        }
        // All releases without an event get their events together.
        None => queue.unrecorded.push(owner),
    }
    let waiting = WAITING.get();
    waiting.pending.fetch_add(1, Ordering::SeqCst);
    reach.count_deferred();
    list.update_worth_polling();
    waiting.not_empty.notify();
}

/// Defers a release in a batch, so that it shares an event. Makes no driver call, unless this release fills the batch.
fn defer_in_batch(owner: Owner) {
    let waiting = WAITING.get();
    reach_of(&owner).count_deferred();
    waiting.pending.fetch_add(1, Ordering::SeqCst);
    let full = waiting.batches.push(owner);
    if waiting.not_empty.is_awaited() {
        let _list = list();
        waiting.not_empty.notify();
    }
    if full {
        // Polls even if another thread is polling: the batch may have been filled after that thread has emptied it.
        drain(Poll::Full);
    }
}

/// Makes the next export or hand-over record the events of what waits in batches.
pub(crate) fn make_due() {
    WAITING.get().batches.make_due();
}

/// Sets how long releases may wait to share an event, in nanoseconds, so that tests do not depend on the clock.
#[cfg(feature = "counters")]
pub fn share_events_for(nanoseconds: u64) {
    WAITING.get().batches.share_for(nanoseconds);
}

/// Polls the queue if that is worthwhile and no other thread polls in passing. One thread is enough; others would only
/// wait for the lock. Everything that exports, hands over, allocates or releases CUDA memory calls this function. An import
/// does not: on its caller's stream it must leave a capture alone, whatever is pending elsewhere.
#[inline]
pub(crate) fn poll_in_passing() {
    let waiting = WAITING.get();
    if waiting.worth_polling.load(Ordering::Relaxed) || waiting.batches.are_due() {
        pass();
    }
}

#[cold]
fn pass() {
    let passing = WAITING.get().passing.try_lock();
    // A drop inside a poll may defer another release, so this thread polls again.
    if passing.is_ok() || own_in_progress() != 0 {
        drain(Poll::Opportunistic);
    }
}

/// Records missing events and releases memory whose work is done. Returns [`pending_releases`].
pub(crate) fn poll() -> usize {
    // One release may lead to another: releasing an import releases the export that it came from.
    while pending_releases() != 0 && drain(Poll::Requested).released {}
    make_due();
    pending_releases()
}

/// Waits on the host until every deferred release is done, by this thread or by another.
///
/// Returns the number of releases that are still deferred: those that a guard holds, those deferred during a capture,
/// and those for whose work the driver fails to wait.
///
/// Before the call, release every lock that a deferred release may need, such as the Python interpreter's
/// (`py.detach`): another thread may be waiting for that lock to release something. A call from the drop of an owner
/// that is being released does not wait for other threads, because they may be waiting for that drop.
pub fn finish_releases() -> usize {
    while pending_releases() != 0 {
        let result = drain(Poll::Blocking);
        make_due();
        // One release may lead to another: releasing an import releases the export that it came from.
        if result.released {
            continue;
        }
        // The rest gets no event now; or this is a call from a release, which another thread may be waiting for.
        if result.everything || own_in_progress() != 0 {
            break;
        }
        WAITING.get().put_back.wait_while(list(), |list| list.in_progress != 0);
    }
    pending_releases()
}

/// Returns whether a release on this device has an event for which no allocation has waited in vain.
pub(crate) fn is_worth_waiting(ordinal: i32) -> bool {
    let list = list();
    // What another thread has taken out to poll it will be back, or dropped.
    list.in_progress != own_in_progress()
        || list.queues.iter().any(|queue| {
            let may_wait = |oldest: &Deferred| !oldest.is_given_up;
            queue.reach.ordinal() == Some(ordinal) && queue.recorded.front().is_some_and(may_wait)
        })
}

/// Makes allocations wait no longer for the oldest releases on this device.
pub(crate) fn give_up_on_oldest(ordinal: i32) {
    let mut list = list();
    let queues = list.queues.iter_mut().filter(|queue| queue.reach.ordinal() == Some(ordinal));
    queues.filter_map(|queue| queue.recorded.front_mut()).for_each(|oldest| oldest.is_given_up = true);
}

/// Waits until a release is deferred.
pub(crate) fn wait_until_not_empty() {
    WAITING.get().not_empty.wait_while(list(), |_| pending_releases() == 0);
}

/// Polls the queue: records missing events if the reason asks for it, then releases what is done.
#[cold]
pub(crate) fn drain(poll: Poll) -> PollResult {
    let mut result = PollResult { released: false, everything: true };
    let Some(driver) = opened() else { return result };
    let (fences, unrecorded) = {
        let mut list = list();
        // Batches stay where they are unless this poll records their events.
        let unrecorded = list.should_record_events(poll);
        if unrecorded {
            list.collect_batches(poll);
        }
        let waiting = list.queues.iter().filter(|queue| !queue.is_empty());
        let fences: Vec<Reach> = waiting.map(|queue| queue.reach).collect();
        if fences.is_empty() {
            // The list is empty, but another thread may put back the owners that it has taken out.
            result.everything = list.in_progress == own_in_progress();
        }
        (fences, unrecorded)
    };
    for reach in fences {
        if unrecorded {
            record_events(driver, reach, poll, &mut result);
        }
        release_due(driver, reach, poll, &mut result);
    }
    result
}

/// Records the events of the releases that have none. If that is not possible now, they stay as they are.
fn record_events(driver: &'static Driver, reach: Reach, poll: Poll, result: &mut PollResult) {
    let mut owners = {
        let mut list = list();
        let owners = core::mem::take(&mut list.queue(reach).unrecorded);
        list.take_out(owners.len(), result);
        owners
    };
    if owners.is_empty() {
        return;
    }
    // Without the lock, because this asks libraries whether they capture a graph.
    let events = events_after(driver, reach);
    let events = events.or_else(|| (poll == Poll::Blocking).then(|| synchronized(driver, reach)).flatten());
    if events.as_ref().is_some_and(Vec::is_empty) {
        // No work is left to wait for, so no other thread has to see these owners.
        result.released = true;
        release(owners, reach, &WAITING.get().pending);
        return;
    }
    let (mut list, recorded) = (list(), owners.len());
    let queue = list.queue(reach);
    if let Some(events) = events {
        queue.recorded.push_back(Deferred { events, owners, is_given_up: false });
    } else {
        owners.append(&mut queue.unrecorded);
        queue.unrecorded = owners;
    }
    list.put_back(recorded);
}

/// Releases the owners whose events are done.
fn release_due(driver: &'static Driver, reach: Reach, poll: Poll, result: &mut PollResult) {
    // All are taken out before the first is dropped. A drop may import or export, which polls in passing. That poll
    // would drop the next owner inside this drop, and so on, as deep as the queue is long.
    let due = take_due(driver, reach, poll, result);
    result.released |= !due.is_empty();
    // Taken before the drops: if a drop forks and the child returns here, it must not decrease the counter of its new,
    // empty queue.
    let pending = &WAITING.get().pending;
    for Deferred { owners, .. } in due {
        release(owners, reach, pending);
    }
}

/// Takes out the releases whose events are done, from the front up to the first that is not done. Nearly always that is the
/// first of all.
fn take_due(driver: &Driver, reach: Reach, poll: Poll, result: &mut PollResult) -> Vec<Deferred> {
    let mut due = Vec::new();
    loop {
        let front = {
            let mut list = list();
            let front = list.queue(reach).recorded.pop_front();
            list.take_out(front.as_ref().map_or(0, |front| front.owners.len()), result);
            front
        };
        let Some(mut front) = front else { return due };
        if !front.is_done(driver, poll == Poll::Blocking) {
            let (mut list, owners) = (list(), front.owners.len());
            list.queue(reach).recorded.push_front(front);
            list.put_back(owners);
            return due;
        }
        due.push(front);
    }
}

/// Drops the owners, without the lock: a drop may run any code, come back here, or panic.
///
/// Their queue gets the vector back. Freeing more than a kilobyte for each full list makes glibc merge its small blocks,
/// and then the next allocations take longer.
fn release(mut owners: Vec<Owner>, queue: Reach, pending: &AtomicUsize) {
    let released = owners.len();
    for owner in owners.drain(..) {
        let reach = reach_of(&owner);
        contain_panic(|| release_now(owner));
        reach.count_released();
    }
    pending.fetch_sub(released, Ordering::AcqRel);
    let mut list = list();
    let kept = &mut list.queue(queue).unrecorded;
    if kept.is_empty() && (kept.capacity()..=MOST_KEPT).contains(&owners.capacity()) {
        *kept = owners;
    }
    list.put_back(released);
}

/// The deferred releases that wait for the work of the same contexts.
pub(crate) struct Queue {
    pub(crate) reach: Reach,
    /// Releases with events, in the order in which the events were recorded. Each event comes after all work before it,
    /// so while the first is not done, no other is. Two threads may add theirs in the wrong order; one of the two
    /// releases then waits a little longer than it has to.
    pub(crate) recorded: VecDeque<Deferred>,
    /// Owners for which no event is recorded yet.
    pub(crate) unrecorded: Vec<Owner>,
}

/// Owners that share their events. The events that are done are removed.
pub(crate) struct Deferred {
    pub(crate) events: Vec<Event<'static>>,
    pub(crate) owners: Vec<Owner>,
    /// Whether an allocation has waited for the events in vain.
    pub(crate) is_given_up: bool,
}

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.recorded.is_empty() && self.unrecorded.is_empty()
    }
}

impl Deferred {
    /// Returns whether the work is done, and removes the events that are done. With `wait`, waits for the work on the
    /// host.
    pub(crate) fn is_done(&mut self, driver: &Driver, wait: bool) -> bool {
        if self.events.is_empty() {
            return true;
        }
        let _relaxed = Relaxed::new(driver);
        self.events.retain(|event| {
            let done = event.in_context(|| if wait { event.wait().map(|()| true) } else { event.is_done() });
            // An invalid event was destroyed with its context, even if another context has the handle now. It counts as
            // done.
            !done.unwrap_or_else(|failure| failure.is_final() || failure.is_about_handles())
        });
        self.events.is_empty()
    }
}

/// Sets what releases of CUDA memory wait for, for the whole program.
pub fn set_release_policy(policy: ReleasePolicy) {
    let all = policy == ReleasePolicy::AfterAllContexts;
    SETTINGS.releases_after_all_contexts.store(all, Ordering::Relaxed);
    make_due();
}

/// Writes the number of an owner that ends in one behind all work that may use its memory. `None` if there is no number, or events
/// cannot be recorded now.
fn end_in_number(driver: &'static Driver, owner: &mut Owner, reach: Reach) -> Option<()> {
    let ending = owner.number()?;
    let events = events_after(driver, reach)?;
    let home = OwnStream { context: reach.own()?, key: DONE };
    ending.number()?.write_behind(driver, &events, home).ok()?;
    ending.was_queued();
    Some(())
}

/// What the release of a deferred owner waits for.
fn reach_of(owner: &Owner) -> Reach {
    owner.reach().unwrap_or(Reach::NONE)
}

/// Releases an owner with the context of its memory current, in the relaxed capture mode. An owner that needs none, such as
/// one of another library, is released without either.
///
/// The drop may run on any thread. Some libraries free in whatever context is current (`cust`; `cudarc` on a default
/// stream), some leave their own context current (`cudarc`), and an owner may destroy the context. Afterwards the
/// thread's previous context is current again.
fn release_now(mut owner: Owner) {
    // The drop of an earlier owner may have forked.
    if is_opened_by_parent() {
        return core::mem::forget(owner);
    }
    let _context = reach_of(&owner).enter();
    owner.release_now();
}

/// Releases the memory when the work that may use it is done: now, or at a later poll.
impl Drop for Owner {
    #[inline]
    fn drop(&mut self) {
        if !self.releases() {
            return;
        }
        let Some(_nested) = Nested::start(self) else { return };
        if self.reach().is_none() { self.release_now() } else { after_work(core::mem::take(self)) }
    }
}

/// In a process that was forked from one that uses CUDA, the owner is leaked: the driver cannot free the memory there,
/// and the memory belongs to the parent.
#[cold]
fn after_work(mut owner: Owner) {
    let reach = reach_of(&owner);
    if is_opened_by_parent() {
        return core::mem::forget(owner);
    }
    if reach == Reach::NONE {
        return owner.release_now();
    }
    let immediate = unordered().releases;
    // A small array makes no driver call here, because another thread may be capturing a graph.
    let small = reach.is_small() && !immediate;
    if !small {
        poll_in_passing();
    }
    let driver = if immediate { opened() } else { driver().ok() };
    // Without a driver no work can be pending.
    let Some(driver) = driver else { return owner.release_now() };
    if immediate {
        return release_now(owner);
    }
    // Applied now, because the policy may change before the events are recorded.
    let reach = if release_policy() == ReleasePolicy::AfterAllContexts { reach.everywhere() } else { reach };
    let mut owner = owner.with_reach(Some(reach));
    if end_in_number(driver, &mut owner, reach).is_some() {
        return owner.release_now();
    }
    if small {
        return defer_in_batch(owner);
    }
    match events_after(driver, reach) {
        Some(events) if events.is_empty() => release_now(owner),
        events => defer(owner, events),
    }
}
