//! Releases that come after the work that was queued: memory goes back to its owner when nobody reads it any more.
//!
//! Neither protocol tells the producer when the consumer's kernels are done, and a stream that was named in some earlier
//! call may be destroyed by now. So a release asks for no stream: it records one event after *all* work of the context
//! (`cuCtxRecordEvent`), looks whether it is done, and if not, parks what is to be released. Parked releases are looked at
//! again whenever something is imported, exported or ordered, and when the user says so. No call waits.
//!
//! | policy | covers | costs | limits |
//! | --- | --- | --- | --- |
//! | [`AfterContext`](ReleasePolicy::AfterContext) | every stream of the memory's context; of every context that is in use for pinned and managed memory | an event for each context, which costs more the more streams the context has, and a query | a capture that goes on in the context on a non-blocking stream is spoiled, loudly: hold releases meanwhile ([`HoldReleases`]). Work of another GPU on memory of this one is not covered |
//! | [`AfterAllContexts`](ReleasePolicy::AfterAllContexts) | every stream of every device's primary context and of the memory's context | an event for each device in use, a query | the same for captures |
//! | [`Batched`](ReleasePolicy::Batched) | as `AfterContext` | a place in a list; the event and the query are shared by 32 releases | up to 31 arrays stay until the batch is full, or [`drain_releases`] is called, however idle the device is |
//! | [`Immediate`](ReleasePolicy::Immediate) | nothing: the user has ordered the work | nothing | a race if he has not |
//!
//! A capture on a blocking stream is seen before anything is called; the release is then parked undecided, as under
//! [`HoldReleases`], and decided when the capture is over. What was imported for work on a stream that captures is released
//! at once: the graph is ordered by the capture, and keeping its memory for the replays is up to whoever keeps the graph.
//!
//! Before driver 12.5 there is no event of a context. Releases are parked undecided then, and decided by
//! [`finish_releases`], which waits on the host.

use core::num::NonZeroUsize;
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::context::{Context, Relaxed};
use super::driver::{Driver, Failure, Outcome, code, driver, opened};
use super::event::Event;
use super::order::{LEGACY, capture_of};
use crate::error::{Error, ErrorKind, Result};
use crate::owner::Owner;

/// What the release of CUDA memory comes after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ReleasePolicy {
    /// All work of the memory's context; of all contexts in use for pinned and managed memory.
    #[default]
    AfterContext,
    /// All work of all contexts in use, for memory that other GPUs read.
    AfterAllContexts,
    /// Nothing: whoever drops has ordered the work.
    Immediate,
    /// All work of the memory's context, decided for 32 releases at a time: for programs that pass many small arrays.
    Batched,
}

/// The releases that [`Batched`](ReleasePolicy::Batched) decides together.
const BATCH: usize = 32;

static POLICY: AtomicU8 = AtomicU8::new(ReleasePolicy::AfterContext as u8);

/// Sets what releases of CUDA memory come after, for the whole program.
pub fn set_release_policy(policy: ReleasePolicy) {
    POLICY.store(policy as u8, Ordering::Relaxed);
    put_off(pending_releases());
}

/// What releases of CUDA memory come after.
#[must_use]
pub fn release_policy() -> ReleasePolicy {
    match POLICY.load(Ordering::Relaxed) {
        0 => ReleasePolicy::AfterContext,
        1 => ReleasePolicy::AfterAllContexts,
        2 => ReleasePolicy::Immediate,
        _ => ReleasePolicy::Batched,
    }
}

/// The contexts in which memory may be in use when it is released. One word, because every owner carries one: the
/// memory's context, with the lowest bit set where other contexts use the memory too (a `CUcontext` is an aligned address).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fence(NonZeroUsize);

impl Fence {
    /// For memory of one device.
    pub(crate) fn of_device(context: Context) -> Self {
        Self(context.to_raw())
    }

    /// For memory that every device reaches, pinned or managed.
    pub(crate) fn of_all(own: Option<Context>) -> Self {
        Self(own.map_or(NonZeroUsize::MIN, |context| context.to_raw() | Self::EVERYWHERE))
    }

    const EVERYWHERE: usize = 1;

    fn own(self) -> Option<Context> {
        Context::answered(self.0.get() & !Self::EVERYWHERE)
    }

    fn is_everywhere(self) -> bool {
        self.0.get() & Self::EVERYWHERE != 0
    }
}

/// What waits to be released.
struct Parked {
    owners: Vec<Owner>,
    fence: Fence,
    /// The events that are not done yet; `None` while nobody could record them.
    events: Option<Vec<Event<'static>>>,
}

static PARKED: Mutex<Vec<Parked>> = Mutex::new(Vec::new());
/// Notified when something is parked.
static SOMETHING: Condvar = Condvar::new();
static PENDING: AtomicUsize = AtomicUsize::new(0);
/// So many have to wait before imports and exports look at them by the way.
static WORTH_A_LOOK: AtomicUsize = AtomicUsize::new(1);
static HELD: AtomicUsize = AtomicUsize::new(0);

/// The number of releases that wait for work on a device.
#[must_use]
pub fn pending_releases() -> usize {
    PENDING.load(Ordering::Acquire)
}

/// While one of these lives, releases are parked undecided: hold one while a graph is captured on a non-blocking stream,
/// and nothing that is dropped meanwhile touches the capture.
///
/// ```
/// use interop_core::cuda::HoldReleases;
///
/// let held = HoldReleases::new();
/// // ... capture a graph; imports and exports may be dropped ...
/// drop(held);
/// ```
#[derive(Debug)]
pub struct HoldReleases(());

impl HoldReleases {
    /// Holds releases from now on, on all threads.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "a guard that is made by mistake should not be easy to make"
    )]
    pub fn new() -> Self {
        HELD.fetch_add(1, Ordering::AcqRel);
        Self(())
    }
}

/// Says whether a stream that is at work captures a graph, for libraries that can be asked for theirs.
static WATCH: OnceLock<fn() -> bool> = OnceLock::new();

/// Has releases ask `captures` first: they are parked undecided while it says so.
#[cfg(feature = "python")]
pub(crate) fn watch_captures(captures: fn() -> bool) {
    // The first one stays.
    let _ = WATCH.set(captures);
}

fn is_held() -> bool {
    HELD.load(Ordering::Acquire) != 0 || WATCH.get().is_some_and(|captures| captures())
}

impl Drop for HoldReleases {
    fn drop(&mut self) {
        HELD.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Drops `owner` when the work that may use its memory is done: now, or at a later look.
#[cold]
pub(crate) fn after_work(owner: Owner, fence: Fence) {
    look_by_the_way();
    let policy = release_policy();
    if policy == ReleasePolicy::Immediate {
        return let_go(owner, fence);
    }
    // Without a driver nothing can be at work.
    let Ok(driver) = driver() else { return drop(owner) };
    if policy == ReleasePolicy::Batched {
        park(owner, fence, None);
        return look_by_the_way();
    }
    match events_after(driver, fence) {
        Ok(events) if events.is_empty() => let_go(owner, fence),
        Ok(events) => park(owner, fence, Some(events)),
        Err(Undecided) => park(owner, fence, None),
    }
}

/// Drops an owner with the context of its memory current.
///
/// Some libraries free in whatever context is current (`cust`; `cudarc` on a default stream), some leave their own
/// current (`cudarc`), and whoever has an array last drops it on any thread. Afterwards the thread has its own again.
fn let_go(owner: Owner, fence: Fence) {
    let _entered = opened().and_then(|driver| fence.own()?.enter(driver).ok());
    drop(owner);
}

fn park(owner: Owner, fence: Fence, events: Option<Vec<Event<'static>>>) {
    let mut list = PARKED.lock().unwrap_or_else(PoisonError::into_inner);
    // What is undecided is decided together.
    let alike = |parked: &&mut Parked| parked.fence == fence && parked.events.is_none();
    match list.iter_mut().find(alike).filter(|_| events.is_none()) {
        Some(parked) => parked.owners.push(owner),
        None => list.push(Parked { owners: vec![owner], fence, events }),
    }
    PENDING.fetch_add(1, Ordering::AcqRel);
    drop(list);
    SOMETHING.notify_one();
}

/// A release that cannot be decided while a graph is captured.
struct Undecided;

/// Events after all work of the contexts, without those that are done.
fn events_after(driver: &'static Driver, fence: Fence) -> Result<Vec<Event<'static>>, Undecided> {
    if is_held() {
        return Err(Undecided);
    }
    let _relaxed = Relaxed::new(driver);
    let mut events = Vec::new();
    for context in contexts(driver, fence) {
        match event_after(driver, context) {
            Ok(Some(event)) => events.push(event),
            // Nothing is known of the work then, and it may go better at the next look.
            Err(failure)
                if failure.is_about_capture()
                    || matches!(failure.code, code::NOT_FOUND | code::OUT_OF_MEMORY) =>
            {
                return Err(Undecided);
            }
            // Done; or the context is gone or broken, and with it the work.
            Ok(None) | Err(_) => {}
        }
    }
    Ok(events)
}

/// An event after all work of a context, unless that is done.
fn event_after(driver: &'static Driver, context: Context) -> Outcome<Option<Event<'static>>> {
    {
        let _entered = context.enter(driver)?;
        capture_of(driver, LEGACY)?;
    }
    let event = Event::of_context(driver, context)?;
    Ok(if event.is_done()? { None } else { Some(event) })
}

fn contexts(driver: &Driver, fence: Fence) -> impl Iterator<Item = Context> {
    let own = fence.own();
    let alone = !fence.is_everywhere() && release_policy() != ReleasePolicy::AfterAllContexts;
    let others = if alone { Vec::new() } else { contexts_in_use(driver) };
    own.into_iter().chain(others.into_iter().filter(move |context| own != Some(*context)))
}

/// The primary contexts that somebody uses.
fn contexts_in_use(driver: &Driver) -> Vec<Context> {
    let mut all = Vec::new();
    for ordinal in 0..driver.devices() {
        let (mut flags, mut active) = (0, 0);
        // SAFETY: an ordinal of this machine; two places for numbers.
        let answer = unsafe { driver.primary_state(ordinal, &raw mut flags, &raw mut active) };
        if answer.is_ok() && active != 0 {
            all.extend(Context::primary_of(driver, ordinal).ok());
        }
    }
    all
}

/// Puts the next look by the way off until there is something to see, when so many wait.
fn put_off(pending: usize) {
    let worth = if release_policy() == ReleasePolicy::Batched { pending + BATCH } else { 1 };
    WORTH_A_LOOK.store(worth, Ordering::Relaxed);
}

/// Releases what is due, where so many wait that it is worth a look. Every import, export and order of CUDA memory does so.
#[inline]
pub(crate) fn look_by_the_way() {
    if pending_releases() >= WORTH_A_LOOK.load(Ordering::Relaxed) {
        drain(false);
    }
}

/// Releases what is due, and says how many still wait. Imports, exports and orders of CUDA memory do so by the way.
#[inline]
#[expect(clippy::must_use_candidate, reason = "called for what it does")]
pub fn drain_releases() -> usize {
    if pending_releases() != 0 {
        drain(false);
    }
    pending_releases()
}

/// Waits on the host until everything that was parked can be released, and releases it.
///
/// What was parked during a capture, or is held, stays. Says how many still wait.
#[expect(clippy::must_use_candidate, reason = "called for what it does")]
pub fn finish_releases() -> usize {
    // One release may lead to another: that of an import to that of the export it came from.
    while pending_releases() != 0 && drain(true) {}
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
        let list = PARKED.lock().unwrap_or_else(PoisonError::into_inner);
        drop(SOMETHING.wait_while(list, |list| list.is_empty()).unwrap_or_else(PoisonError::into_inner));
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

/// Releases what is due, and says whether there was something.
#[cold]
fn drain(wait: bool) -> bool {
    let Some(driver) = opened() else { return false };
    let mut list = PARKED.lock().unwrap_or_else(PoisonError::into_inner);
    let parked = core::mem::take(&mut *list);
    drop(list);
    let (due, still): (Vec<_>, Vec<_>) = {
        let _relaxed = Relaxed::new(driver);
        parked.into_iter().map(|parked| parked.look(driver, wait)).partition(Parked::is_due)
    };
    let mut list = PARKED.lock().unwrap_or_else(PoisonError::into_inner);
    list.extend(still);
    let count = |list: &[Parked]| list.iter().map(|parked| parked.owners.len()).sum::<usize>();
    let pending = count(&list);
    PENDING.store(pending, Ordering::Release);
    put_off(pending);
    drop(list);
    let some = !due.is_empty();
    // Outside the lock: an owner's drop is anybody's code, which may come back here, or panic.
    for Parked { owners, fence, .. } in due {
        for owner in owners {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| let_go(owner, fence))) {
                // Its drop could panic again.
                core::mem::forget(payload);
            }
        }
    }
    some
}

impl Parked {
    fn is_due(&self) -> bool {
        self.events.as_ref().is_some_and(Vec::is_empty)
    }

    /// Decides what was undecided, and forgets the events that are done.
    fn look(mut self, driver: &'static Driver, wait: bool) -> Self {
        if self.events.is_none() {
            self.events = events_after(driver, self.fence).ok();
        }
        match &mut self.events {
            Some(events) => events.retain(|event| {
                let done = if wait { event.wait().map(|()| true) } else { event.is_done() };
                // A context that is gone has no work.
                !done.unwrap_or(true)
            }),
            None if wait => self.events = synchronized(driver, self.fence),
            None => {}
        }
        self
    }
}

/// Waits for all contexts where no event can be had of them; `None` while a graph is captured.
fn synchronized(driver: &Driver, fence: Fence) -> Option<Vec<Event<'static>>> {
    if is_held() {
        return None;
    }
    for context in contexts(driver, fence) {
        let Ok(_entered) = context.enter(driver) else { continue };
        if capture_of(driver, LEGACY).is_err_and(Failure::is_about_capture) {
            return None;
        }
        // SAFETY: no conditions; the context is current.
        let _ = unsafe { driver.context_synchronize() };
    }
    Some(Vec::new())
}
