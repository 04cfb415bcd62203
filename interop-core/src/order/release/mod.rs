//! Releases of CUDA memory: an owner is dropped after the work that may still use its memory.
//!
//! A stream that an earlier call named may be destroyed by now, so a release uses no stream. Instead it records one
//! event after *all* work of each context in its `Reach` (`cuCtxRecordEvent`). A dropped owner takes one of
//! three ways:
//!
//! - Released now: all events are done, the reach is empty, there is no driver, or the program orders releases itself.
//! - Deferred with recorded events: work is pending. The owner is dropped once all of its events are done.
//! - Deferred without an event yet: a guard holds releases, a graph is captured, or the driver failed to record an
//!   event. Small arrays also wait here in a batch to share an event. A later poll records it.
//!
//! The queue is polled in passing by exports, hand-overs, allocations and the releases of larger arrays, and on request by
//! the release thread and `finish_releases`. Nothing here waits on the host unless the user asks for it
//! (`finish_releases`), or more bytes are deferred than the `limit` when memory is allocated. The drop of an owner may wait by
//! itself: `cuMemFree` waits for all work of the device, also for later work.

pub(crate) mod batch;
pub(crate) mod hold;
pub(crate) mod owner;
pub(crate) mod queue;
pub(crate) mod requests;

use core::cell::Cell;
use core::sync::atomic::Ordering;

use crate::array::stream_handle::StreamHandle;
use crate::process::settings::SETTINGS;

/// What the release of CUDA memory waits for.
///
/// Neither protocol tells a producer when the kernels of a consumer are done. A release therefore waits for more work
/// than it has to: it is deferred until the work that the policy names is done. The host does not wait for that work.
///
/// | policy | waits for | costs | limits |
/// | --- | --- | --- | --- |
/// | [`AfterContext`](Self::AfterContext) | every stream of the memory's context; for pinned and managed memory also of every primary context in use | one event for each context, which costs more the more streams the context has, and one query; small arrays share both | the event invalidates a capture on a non-blocking stream of the context, with an error: see below. Does not cover work of another GPU on memory of this one |
/// | [`AfterAllContexts`](Self::AfterAllContexts) | every stream of the memory's context and of every device's primary context in use | one event for each device in use, and one query; small arrays share both | the same for captures |
///
/// A program that orders releases itself says so in `unsafe` code, by [`set_unordered`](crate::cuda::set_unordered). Then no
/// release waits.
///
/// # Small arrays
///
/// Arrays of less than 1 MiB share an event, so that waiting for work costs next to nothing for each of them. Dropping
/// one makes no driver call, unless it fills a list. Its release waits for the first of these:
///
/// - the next export, hand-over or allocation of CUDA memory on any thread, unless earlier releases got their event less
///   than about a millisecond ago;
/// - 64 small arrays, or about 16 MiB of them, wait on the same thread;
/// - a call of [`finish_releases`](crate::cuda::finish_releases), or a poll by the thread of
///   [`start_release_thread`](crate::order::release::requests::start_release_thread);
/// - the end of the last [`HoldReleases`](crate::cuda::HoldReleases) guard, after which the next export records the
///   event.
///
/// Then the event is recorded. It comes after all work of the context until that moment, and so after all work that was
/// queued before the drop. Larger arrays get their event when they are dropped.
///
/// # Captures
///
/// A capture on a blocking stream is detected before an event is recorded. The release is then deferred without an
/// event, as under [`HoldReleases`](crate::cuda::HoldReleases), and a poll after the capture records the event. Memory
/// that was imported for work on a capturing stream is released at once: the capture orders the graph, and the owner of
/// the graph keeps the memory alive for the replays.
///
/// A capture on a non-blocking stream, as in PyTorch, can be queried only on the capturing thread. Small arrays that
/// are dropped on other threads do not affect it, because their drop makes no driver call. On another thread the
/// following still invalidates the capture: the drop of an array of 1 MiB or more, the drop of the 64th small array,
/// and an import or export that records the event of waiting releases. The driver has no event that could be recorded
/// during such a capture. A program that does one of these while it captures holds releases
/// ([`HoldReleases`](crate::cuda::HoldReleases)).
///
/// # Foreign memory
///
/// The deleter of a foreign tensor belongs to its library: no context is made current for it, and the thread's capture
/// mode is not changed. Owners of this program are dropped with their context current and in the relaxed capture mode,
/// because some of them free memory in whatever context is current.
///
/// A green context has no memory of its own: memory allocated in one belongs to the primary context. An event of the
/// primary context also comes after the work of its green contexts.
///
/// Memory of a pool has no context. Its release waits for the primary context of its device. If another context of the
/// device was current at the import or export, it waits for that context and for every primary context in use. No
/// policy covers work in other contexts, which libraries may create.
///
/// Drivers before 12.5 cannot record an event for a whole context. With them a release is deferred until
/// [`finish_releases`](crate::cuda::finish_releases), which waits on the host. The same holds if the
/// driver fails to record the event, unless a later poll succeeds. With such a driver the thread of
/// [`start_release_thread`](crate::order::release::requests::start_release_thread) waits; without it the memory stays
/// allocated until that call.
///
/// ```
/// use interop_core::cuda::{ReleasePolicy, release_policy, set_release_policy};
///
/// assert_eq!(release_policy(), ReleasePolicy::AfterContext);
/// set_release_policy(ReleasePolicy::AfterAllContexts); // kernels of other devices read the memory
/// assert_eq!(release_policy(), ReleasePolicy::AfterAllContexts);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleasePolicy {
    /// Waits for all work of the memory's context; for pinned and managed memory, of all contexts in use.
    #[default]
    AfterContext,
    /// Waits for all work of all contexts in use, for memory that other GPUs read.
    AfterAllContexts,
}

/// Returns what releases of CUDA memory wait for.
#[must_use]
pub fn release_policy() -> ReleasePolicy {
    if SETTINGS.releases_after_all_contexts.load(Ordering::Relaxed) {
        ReleasePolicy::AfterAllContexts
    } else {
        ReleasePolicy::AfterContext
    }
}

/// What a thread does with releases.
pub(crate) struct ThreadState {
    /// The number of [`DeferRecording`](hold::DeferRecording) guards.
    pub(crate) defers: Cell<usize>,
    /// The number of owners that it has taken out of the queue. It is not 0 while one of them is dropped.
    pub(crate) taken_out: Cell<usize>,
    /// The stream that the consumer of the current call has named, as a [`NamedConsumer`](hold::NamedConsumer) says.
    pub(crate) consumer: Cell<Option<StreamHandle>>,
}

thread_local!(pub(crate) static THREAD: ThreadState = const { ThreadState::new() });

impl ThreadState {
    const fn new() -> Self {
        Self { defers: Cell::new(0), taken_out: Cell::new(0), consumer: Cell::new(None) }
    }
}
