//! Releases that come after the work that was queued: memory goes back to its owner when nobody reads it any more.
//!
//! A stream that was named in some earlier call may be destroyed by now, so a release asks for no stream. It records one
//! event after *all* work of the context (`cuCtxRecordEvent`). If that is done the owner is dropped at once; if not, the
//! release is parked and looked at again whenever something is imported, exported, handed over or released, and when the user
//! says so.
//! Nothing here waits, unless the user asks for it (`finish_releases`); what an owner does when it is dropped is its own
//! affair, and `cuMemFree` waits for all work of the device, also later work.

use core::cell::Cell;
use core::num::NonZeroUsize;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock};

use super::context::{Context, Entered, Relaxed};
use super::driver::{Driver, Failure, Outcome, code, driver, is_of_parent, opened};
use super::event::Event;
use super::order::{LEGACY, capture_of};
use super::parked::{park, park_for_batch, policy_changed, poll_releases};
use crate::fork::PerProcess;
use crate::owner::Owner;

/// What the release of CUDA memory comes after.
///
/// Neither protocol tells a producer when the kernels of a consumer are done, so a release waits for more than it has to:
/// it is parked until the work that the policy names is done, and nothing waits for that on the host.
///
/// | policy | covers | costs | limits |
/// | --- | --- | --- | --- |
/// | [`AfterContext`](Self::AfterContext) | every stream of the memory's context; for pinned and managed memory also of every primary context in use | an event for each context, dearer the more streams the context has, and a query | spoils, loudly, a capture in the context on a non-blocking stream: hold releases meanwhile ([`HoldReleases`]). Does not cover work of another GPU on memory of this one |
/// | [`AfterAllContexts`](Self::AfterAllContexts) | every stream of the memory's context and of every device's primary context | an event for each device in use, and a query | the same for captures |
/// | [`Batched`](Self::Batched) | as `AfterContext` | a place in a list; 32 releases share the events and the query | up to 31 arrays stay until the batch is full or [`drain_releases`](super::drain_releases) is called, however idle the device is |
/// | [`Immediate`](Self::Immediate) | nothing: you have ordered the work | nothing | a race otherwise |
///
/// A capture on a blocking stream is noticed before anything is called. The release is then parked undecided, as under
/// [`HoldReleases`], and decided when the capture is over. What was imported for work on a stream that captures is released
/// at once: the capture orders the graph, and whoever keeps the graph keeps its memory for the replays.
///
/// A green context has no memory of its own: what is allocated in one is the primary context's, whose event comes after the
/// work of its green contexts too.
///
/// Memory of a pool has no context. The one that was current when it was imported or exported counts as its own, if it is
/// of the device, and so do the primary ones. Work in other contexts, which libraries may make, is covered by no policy.
///
/// Drivers before 12.5 have no event of a context. Releases are parked undecided there, as wherever the driver fails to
/// give one, until [`finish_releases`](super::finish_releases) decides them, which waits on the host. With such a driver
/// the thread of [`release_in_background`](super::release_in_background) does so; without it the memory stays.
///
/// ```
/// use interop_core::cuda::{ReleasePolicy, release_policy, set_release_policy};
///
/// assert_eq!(release_policy(), ReleasePolicy::AfterContext);
/// set_release_policy(ReleasePolicy::Batched); // many small arrays, which may stay a little longer
/// assert_eq!(release_policy(), ReleasePolicy::Batched);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum ReleasePolicy {
    /// All work of the memory's context; of all contexts in use for pinned and managed memory.
    #[default]
    AfterContext,
    /// All work of all contexts in use, for memory that other GPUs read.
    AfterAllContexts,
    /// Nothing: you have ordered the work before the drop.
    Immediate,
    /// All work of the memory's context, decided for 32 releases at a time: for programs that pass many small arrays.
    Batched,
}

static POLICY: AtomicU8 = AtomicU8::new(ReleasePolicy::AfterContext as u8);

/// Sets what releases of CUDA memory come after, for the whole program.
pub fn set_release_policy(policy: ReleasePolicy) {
    POLICY.store(policy as u8, Ordering::Relaxed);
    policy_changed();
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
    const EVERYWHERE: usize = 1;
    /// For memory whose work somebody else orders. No context has this address.
    pub(crate) const NOTHING: Self = Self(NonZeroUsize::MIN.saturating_add(1));

    /// For memory of one device.
    pub(crate) fn of_device(context: Context) -> Self {
        Self(context.to_raw())
    }

    /// For memory that every device reaches, pinned or managed.
    pub(crate) fn of_all(own: Option<Context>) -> Self {
        own.map_or(Self(NonZeroUsize::MIN), |context| Self::of_device(context).everywhere())
    }

    fn everywhere(self) -> Self {
        Self(self.0 | Self::EVERYWHERE)
    }

    /// Whether work in a context comes before the release.
    #[cfg(any(feature = "cust", feature = "cudarc"))]
    pub(super) fn covers(self, driver: &Driver, context: Context, ordinal: i32) -> bool {
        // The policy answers for the user's work, not for what is queued here.
        if release_policy() == ReleasePolicy::Immediate {
            return false;
        }
        let is_primary = || Context::primary_of(driver, ordinal).is_ok_and(|primary| primary == context);
        self.own() == Some(context) || (self.is_everywhere() && is_primary())
    }

    pub(super) fn own(self) -> Option<Context> {
        Context::answered(self.0.get() & !Self::EVERYWHERE)
    }

    /// The one device whose work the release comes after, if that is known; on any other a graph may be captured meanwhile:
    /// in the relaxed mode, nothing that is asked of a context touches captures in those of other devices.
    fn device(self) -> Option<i32> {
        if self.is_everywhere() { None } else { self.own()?.kept_for() }
    }

    /// The contexts beside its own.
    pub(super) fn others(self, driver: &Driver) -> Outcome<Vec<Context>> {
        if !self.is_everywhere() {
            return Ok(Vec::new());
        }
        let mut others = Context::all_in_use(driver)?;
        others.retain(|context| self.own() != Some(*context));
        Ok(others)
    }

    fn is_everywhere(self) -> bool {
        self.0.get() & Self::EVERYWHERE != 0
    }
}

/// What is between decisions and holds.
#[derive(Debug)]
struct Decisions {
    /// How many [`HoldReleases`] there are.
    held: AtomicUsize,
    /// Held for reading while it is decided whether a release may record events, and while it does.
    deciding: RwLock<()>,
}

static DECISIONS: PerProcess<Decisions> =
    PerProcess::new(|_| Decisions { held: AtomicUsize::new(0), deciding: RwLock::new(()) });

/// While one of these lives, releases are parked undecided: hold one while a graph is captured on a non-blocking stream,
/// and nothing that is dropped meanwhile touches the capture. What is released under [`ReleasePolicy::Immediate`] needs no
/// event, and is not held.
///
/// ```
/// use interop_core::cuda::HoldReleases;
///
/// let held = HoldReleases::new();
/// // ... capture a graph; imports and exports may be dropped ...
/// drop(held);
/// ```
#[derive(Debug)]
pub struct HoldReleases(&'static Decisions);

impl HoldReleases {
    /// Holds releases from now on, on all threads.
    ///
    /// It waits for those that are being decided, of which one may wait for a device (drivers before 12.5): with Python call it
    /// in `py.detach`, because the work that is waited for may hold a function of the host that needs the interpreter's lock.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "a guard that is made by mistake should not be easy to make"
    )]
    pub fn new() -> Self {
        let decisions = DECISIONS.get();
        decisions.held.fetch_add(1, Ordering::SeqCst);
        // Waits for the threads that have seen no hold, until they have recorded their events.
        drop(decisions.deciding.write().unwrap_or_else(PoisonError::into_inner));
        Self(decisions)
    }
}

impl Drop for HoldReleases {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::AcqRel);
    }
}

thread_local! {
    /// How many [`DeferDecisions`] this thread has.
    static LATER: Cell<usize> = const { Cell::new(0) };
}

/// While one of these lives, its thread decides no release, new or parked: it cannot ask libraries meanwhile whether they
/// capture a graph.
#[cfg(feature = "python")]
pub(crate) struct DeferDecisions(());

#[cfg(feature = "python")]
impl DeferDecisions {
    pub(crate) fn new() -> Self {
        LATER.set(LATER.get() + 1);
        Self(())
    }
}

#[cfg(feature = "python")]
impl Drop for DeferDecisions {
    fn drop(&mut self) {
        LATER.set(LATER.get() - 1);
    }
}

/// Says whether a stream that is at work on this device, or on any, captures a graph, for libraries that can be asked for theirs.
static WATCH: OnceLock<fn(Option<i32>) -> bool> = OnceLock::new();

/// Has releases ask `captures` first: they are parked undecided while it says so.
#[cfg(feature = "python")]
pub(crate) fn watch_captures(captures: fn(Option<i32>) -> bool) {
    // The first one stays.
    let _ = WATCH.set(captures);
}

/// Calls `decide`, unless releases are held or a library's work is being captured. No hold begins before it is back.
fn unless_held<R>(fence: Fence, decide: impl FnOnce() -> Option<R>) -> Option<R> {
    // Foreign code, so not under the lock.
    if WATCH.get().is_some_and(|captures| captures(fence.device())) {
        return None;
    }
    let _deciding = DECISIONS.get().deciding.read().unwrap_or_else(PoisonError::into_inner);
    if held() { None } else { decide() }
}

/// Whether nothing is decided on this thread.
fn held() -> bool {
    // A thread at its end defers nothing.
    LATER.try_with(|later| later.get() != 0).unwrap_or(false)
        || DECISIONS.get().held.load(Ordering::SeqCst) != 0
}

/// Drops `owner` when the work that may use its memory is done: now, or at a later look.
///
/// A process that was forked from one that uses CUDA cannot give its memory back, and so does not try: the memory is the parent's.
#[cold]
pub(crate) fn after_work(owner: Owner, fence: Fence) {
    if is_of_parent() {
        return core::mem::forget(owner);
    }
    if fence == Fence::NOTHING {
        return owner.let_go();
    }
    poll_releases();
    let policy = release_policy();
    let immediate = policy == ReleasePolicy::Immediate;
    let driver = if immediate { opened() } else { driver().ok() };
    // Without a driver nothing can be at work.
    let Some(driver) = driver else { return owner.let_go() };
    // Decided now, because the policy may change before the events are recorded.
    let fence = if policy == ReleasePolicy::AfterAllContexts { fence.everywhere() } else { fence };
    let held = held();
    if policy == ReleasePolicy::Batched {
        return park_for_batch(owner, fence, held);
    }
    if held && !immediate {
        return park(owner, fence, None);
    }
    let _relaxed = Relaxed::new(driver);
    if immediate {
        return drop_in_context(driver, owner, fence);
    }
    match events_after(driver, fence) {
        Some(events) if events.is_empty() => drop_in_context(driver, owner, fence),
        events => park(owner, fence, events),
    }
}

/// Drops an owner with the context of its memory current. The caller is in the relaxed mode of captures.
///
/// The drop may happen on any thread. Some libraries free in whatever context is current (`cust`; `cudarc` on a default
/// stream), and some leave their own current (`cudarc`), and an owner may destroy the context. Afterwards the thread has its own again.
pub(super) fn drop_in_context(driver: &Driver, owner: Owner, fence: Fence) {
    // The drop of the one before may have forked.
    if is_of_parent() {
        return core::mem::forget(owner);
    }
    let entered = fence.own().and_then(|context| context.enter(driver).ok());
    owner.let_go();
    if let Some(entered) = entered {
        entered.leave();
    }
}

/// As for [`drop_in_context`]: the context of some memory current, and the mode in which it may be freed beside a capture.
pub(crate) fn at_home(fence: Fence) -> Option<(Entered<'static>, Relaxed<'static>)> {
    let driver = opened()?;
    Some((fence.own()?.enter(driver).ok()?, Relaxed::new(driver)))
}

/// Events after all work of the contexts, without those that are done; `None` while it cannot be decided, such as during a
/// capture. The caller is in the relaxed mode of captures.
pub(super) fn events_after(driver: &'static Driver, fence: Fence) -> Option<Vec<Event<'static>>> {
    unless_held(fence, || {
        let mut events = Vec::new();
        for context in contexts(driver, fence)? {
            match event_after(driver, context) {
                Ok(Some(event)) => events.push(event),
                // Nothing is known of the work then, and it may go better at the next look.
                Err(failure) if !failure.is_final() => {
                    EVENTLESS.fetch_or(failure.code == code::NOT_FOUND, Ordering::Relaxed);
                    return None;
                }
                // Done; or the context is gone or broken, and with it the work.
                Ok(None) | Err(_) => {}
            }
        }
        Some(events)
    })
}

/// The driver has no event of a context.
static EVENTLESS: AtomicBool = AtomicBool::new(false);

/// Whether nothing but a wait decides a release, as before 12.5.
pub(super) fn are_decided_by_waits() -> bool {
    EVENTLESS.load(Ordering::Relaxed)
}

/// Waits for all contexts where no event can be had of them, and gives none; `None` where one cannot be waited for, as while
/// a graph is captured.
pub(super) fn synchronized(driver: &Driver, fence: Fence) -> Option<Vec<Event<'static>>> {
    unless_held(fence, || {
        let waited = |context| finish(driver, context).map_or_else(Failure::is_final, |()| true);
        contexts(driver, fence)?.all(waited).then(Vec::new)
    })
}

/// Waits for all work of a context.
fn finish(driver: &Driver, context: Context) -> Outcome {
    let _entered = context.enter(driver)?;
    capture_of(driver, LEGACY)?;
    // SAFETY: no conditions; the context is current.
    unsafe { driver.context_synchronize() }
}

/// An event after all work of a context, unless that is done.
fn event_after(driver: &'static Driver, context: Context) -> Outcome<Option<Event<'static>>> {
    let _entered = context.enter(driver)?;
    capture_of(driver, LEGACY)?;
    let event = Event::of_context(driver, context)?;
    Ok(if event.is_done()? { None } else { Some(event) })
}

/// The contexts of a fence; `None` while the driver does not say which are in use.
fn contexts(driver: &Driver, fence: Fence) -> Option<impl Iterator<Item = Context>> {
    let others = match fence.others(driver) {
        Ok(others) => others,
        // The driver is gone, and with it the work.
        Err(failure) if failure.is_final() => Vec::new(),
        Err(_) => return None,
    };
    Some(fence.own().into_iter().chain(others))
}
