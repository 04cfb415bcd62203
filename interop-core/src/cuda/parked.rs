//! Releases that wait: the list of them, and who looks at it when.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::context::Relaxed;
use super::driver::{Driver, opened};
use super::event::Event;
use super::release::{Fence, ReleasePolicy, events_after, let_go, release_policy, synchronized};
use crate::error::{Error, ErrorKind, Result};
use crate::owner::Owner;

/// The releases that [`ReleasePolicy::Batched`] decides together.
const BATCH: usize = 32;

/// What waits to be released.
struct Parked {
    owners: Vec<Owner>,
    fence: Fence,
    /// The events that are not done yet; `None` while nobody could record them.
    events: Option<Vec<Event<'static>>>,
}

/// Everything that waits.
struct List {
    /// In the order in which it was parked.
    parked: Vec<Parked>,
    /// So many owners some thread has taken out to look at or to drop.
    away: usize,
}

static LIST: Mutex<List> = Mutex::new(List { parked: Vec::new(), away: 0 });
/// Notified when something is in the list.
static SOMETHING: Condvar = Condvar::new();
/// Notified when what was away is back or dropped.
static SETTLED: Condvar = Condvar::new();
/// The owners in the list and those that are away, for whoever wants to know without the lock.
static PENDING: AtomicUsize = AtomicUsize::new(0);
/// Whether imports and exports should look at the list by the way.
static WORTH_A_LOOK: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The owners that this thread has taken out: not zero in the drop of one of them.
    static MINE: Cell<usize> = const { Cell::new(0) };
}

/// What a look is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Something else is being done.
    ByTheWay,
    /// The user asked.
    Now,
    /// The user waits for the work.
    Wait,
}

/// What came of a look.
struct Seen {
    /// Something was released.
    released: bool,
    /// No other thread had taken something out at the time.
    everything: bool,
}

fn list() -> MutexGuard<'static, List> {
    LIST.lock().unwrap_or_else(PoisonError::into_inner)
}

fn count(parked: &[Parked]) -> usize {
    parked.iter().map(|parked| parked.owners.len()).sum()
}

impl List {
    /// Whether undecided releases are decided by the way.
    fn has_a_batch(&self) -> bool {
        let undecided = self.parked.iter().filter(|parked| parked.events.is_none());
        release_policy() != ReleasePolicy::Batched
            || undecided.map(|parked| parked.owners.len()).sum::<usize>() >= BATCH
    }

    fn say_whether_worth_a_look(&self) {
        let decided = self.parked.iter().any(|parked| parked.events.is_some());
        WORTH_A_LOOK.store(decided || (!self.parked.is_empty() && self.has_a_batch()), Ordering::Relaxed);
    }

    /// Takes out what a look is about.
    fn take(&mut self, look: Look) -> Vec<Parked> {
        let everything = look != Look::ByTheWay || self.has_a_batch();
        let (taken, left) =
            core::mem::take(&mut self.parked).into_iter().partition(|one| everything || one.events.is_some());
        self.parked = left;
        self.away += count(&taken);
        self.say_whether_worth_a_look();
        MINE.set(MINE.get() + count(&taken));
        taken
    }

    /// Puts back, in front, what still has to wait.
    fn put_back(&mut self, mut still: Vec<Parked>) {
        self.settled(count(&still));
        still.append(&mut self.parked);
        self.parked = still;
        self.say_whether_worth_a_look();
        if !self.parked.is_empty() {
            SOMETHING.notify_one();
        }
    }

    /// So many are no longer away.
    fn settled(&mut self, owners: usize) {
        self.away -= owners;
        MINE.set(MINE.get() - owners);
        SETTLED.notify_all();
    }
}

/// The number of releases that wait for work on a device.
#[must_use]
pub fn pending_releases() -> usize {
    PENDING.load(Ordering::Acquire)
}

/// Has a release wait for the events; without events, for the look that decides it.
pub(super) fn park(owner: Owner, fence: Fence, events: Option<Vec<Event<'static>>>) {
    let mut list = list();
    // What is undecided is decided together.
    let alike = |parked: &&mut Parked| parked.fence == fence && parked.events.is_none();
    match list.parked.iter_mut().filter(|_| events.is_none()).find(alike) {
        Some(parked) => parked.owners.push(owner),
        None => list.parked.push(Parked { owners: vec![owner], fence, events }),
    }
    PENDING.fetch_add(1, Ordering::AcqRel);
    list.say_whether_worth_a_look();
    drop(list);
    SOMETHING.notify_one();
}

/// The list is looked at under another policy from now on.
pub(super) fn policy_changed() {
    list().say_whether_worth_a_look();
}

/// Releases what is due, where it is worth a look. Every import, export and order of CUDA memory does so.
#[inline]
pub(crate) fn look_by_the_way() {
    if WORTH_A_LOOK.load(Ordering::Relaxed) {
        drain(Look::ByTheWay);
    }
}

/// Releases what is due, and says how many still wait. Imports, exports and orders of CUDA memory do so by the way.
#[expect(clippy::must_use_candidate, reason = "called for what it does")]
pub fn drain_releases() -> usize {
    if pending_releases() != 0 {
        drain(Look::Now);
    }
    pending_releases()
}

/// Waits on the host until everything that was parked can be released, and releases it, or until another thread that is
/// about to has done so.
///
/// What was parked during a capture, or is held, stays. Says how many still wait. Called by an owner that is being
/// released, it does not wait for other threads, which may be waiting for that one.
pub fn finish_releases() -> usize {
    while pending_releases() != 0 {
        let seen = drain(Look::Wait);
        // One release may lead to another: that of an import to that of the export it came from.
        if seen.released {
            continue;
        }
        // What is left cannot be decided, or this is called by a release of a thread for which another may wait.
        if seen.everything || MINE.get() != 0 {
            break;
        }
        let others = SETTLED.wait_while(list(), |list| list.away != 0);
        drop(others.unwrap_or_else(PoisonError::into_inner));
    }
    pending_releases()
}

/// Releases what was parked from a thread of its own, which looks about once a millisecond while there is something, for
/// programs that import and export too rarely to do it by the way. It runs until the program ends.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) when no thread can be made.
pub fn release_in_background() -> Result<()> {
    static STARTED: Mutex<bool> = Mutex::new(false);
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    if *started {
        return Ok(());
    }
    let look = || loop {
        let waiting = SOMETHING.wait_while(list(), |list| list.parked.is_empty());
        drop(waiting.unwrap_or_else(PoisonError::into_inner));
        drain_releases();
        std::thread::sleep(Duration::from_millis(1));
    };
    let thread = std::thread::Builder::new().name("interop-release".to_owned()).spawn(look);
    thread.map_err(|error| {
        Error::new(ErrorKind::Unsupported, "thread", error, "a thread that releases memory")
    })?;
    *started = true;
    Ok(())
}

/// Releases what is due.
#[cold]
fn drain(look: Look) -> Seen {
    let Some(driver) = opened() else { return Seen { released: false, everything: true } };
    let _relaxed = Relaxed::new(driver);
    let (taken, everything) = {
        let mut list = list();
        let alone = list.away == MINE.get();
        (list.take(look), alone)
    };
    let mut busy = Vec::new();
    let looked = taken.into_iter().map(|parked| parked.look(driver, look, &mut busy));
    let (due, still): (Vec<_>, Vec<_>) = looked.partition(Parked::is_due);
    list().put_back(still);
    let released = !due.is_empty();
    // Outside the lock: an owner's drop is anybody's code, which may come back here, or panic.
    for Parked { owners, fence, .. } in due {
        for owner in owners {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| let_go(driver, owner, fence))) {
                // Its drop could panic again.
                core::mem::forget(payload);
            }
            PENDING.fetch_sub(1, Ordering::AcqRel);
            list().settled(1);
        }
    }
    Seen { released, everything }
}

impl Parked {
    fn is_due(&self) -> bool {
        self.events.as_ref().is_some_and(Vec::is_empty)
    }

    /// Decides what was undecided, and forgets the events that are done. `busy`: fences of which an earlier event is not
    /// done. Later ones are not done either then: each comes after all work before it.
    fn look(mut self, driver: &'static Driver, look: Look, busy: &mut Vec<Fence>) -> Self {
        if self.events.is_none() {
            self.events = events_after(driver, self.fence);
        }
        match &mut self.events {
            Some(_) if busy.contains(&self.fence) => {}
            Some(events) => events.retain(|event| {
                let done = if look == Look::Wait { event.wait().map(|()| true) } else { event.is_done() };
                // A context that is gone has no work.
                !done.unwrap_or(true)
            }),
            None if look == Look::Wait => self.events = synchronized(driver, self.fence),
            None => {}
        }
        if self.events.as_ref().is_some_and(|events| !events.is_empty()) && !busy.contains(&self.fence) {
            busy.push(self.fence);
        }
        self
    }
}
