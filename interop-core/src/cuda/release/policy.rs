//! The policy for releases.

use core::sync::atomic::{AtomicU8, Ordering};

/// What the release of CUDA memory comes after.
///
/// Neither protocol tells a producer when the kernels of a consumer are done, so a release waits for more than it has to:
/// it is parked until the work that the policy names is done, and nothing waits for that on the host.
///
/// | policy | covers | costs | limits |
/// | --- | --- | --- | --- |
/// | [`AfterContext`](Self::AfterContext) | every stream of the memory's context; for pinned and managed memory also of every primary context in use | an event for each context, dearer the more streams the context has, and a query; small arrays share them | the event spoils, loudly, a capture in the context on a non-blocking stream: see below. Does not cover work of another GPU on memory of this one |
/// | [`AfterAllContexts`](Self::AfterAllContexts) | every stream of the memory's context and of every device's primary context | an event for each device in use, and a query; small arrays share them | the same for captures |
/// | [`Batched`](Self::Batched) | as `AfterContext` | a place in a list; 32 releases of any size share the events and the query | up to 31 arrays stay until the batch is full or [`poll_releases`](crate::cuda::release::queue::poll_releases) is called, however idle the device is |
/// | [`Immediate`](Self::Immediate) | nothing: you have ordered the work | nothing | a race otherwise |
///
/// # Small arrays
///
/// Arrays of less than a mebibyte share an event, so that order costs next to nothing for each. To drop one makes no driver call. It
/// waits for the first of these:
///
/// - the next import, export or hand-over of CUDA memory on any thread, unless what waited before has got its event less than about a
///   millisecond ago;
/// - the 64th array, or the 16th mebibyte, that waits on its thread;
/// - [`poll_releases`](crate::cuda::release::queue::poll_releases) or [`finish_releases`](crate::cuda::release::queue::finish_releases); or the thread of
///   [`start_release_thread`](crate::cuda::release::background::start_release_thread);
/// - the end of the last [`HoldReleases`](crate::cuda::HoldReleases), after which the next import or export decides.
///
/// Then the event is recorded, which comes after all work of the context until that moment, and so after all that was queued until
/// the drop. Larger arrays get their event when they are dropped.
///
/// # Captures
///
/// A capture on a blocking stream is noticed before anything is called. The release is then parked undecided, as under
/// [`HoldReleases`](crate::cuda::HoldReleases), and decided when the capture is over. What was imported for work on a stream that captures is released
/// at once: the capture orders the graph, and whoever keeps the graph keeps its memory for the replays.
///
/// A capture on a non-blocking stream, as PyTorch's are, can be asked for only on the thread that captures. Small arrays that are
/// dropped on other threads leave it alone, as they make no call. What still spoils it, on another thread: the drop of an array of
/// a mebibyte or more, the 64th small array, and an import or export that decides what waits. The driver has no event for such a
/// moment. A program that does this while it captures holds releases ([`HoldReleases`](crate::cuda::HoldReleases)).
///
/// # Foreign memory
///
/// The deleter of a foreign tensor belongs to its library: no context is made current for it, and the thread's capture mode is not
/// changed. For owners of this program both is done, because some free in whatever context is current.
///
/// A green context has no memory of its own: what is allocated in one is the primary context's, whose event comes after the
/// work of its green contexts too.
///
/// Memory of a pool has no context. The one that was current when it was imported or exported counts as its own, if it is
/// of the device, and so do the primary ones. Work in other contexts, which libraries may make, is covered by no policy.
///
/// Drivers before 12.5 have no event of a context. Releases are parked undecided there, as wherever the driver fails to
/// give one, until [`finish_releases`](crate::cuda::release::queue::finish_releases) decides them, which waits on the host. With such a driver
/// the thread of [`start_release_thread`](crate::cuda::release::background::start_release_thread) does so; without it the memory stays.
///
/// ```
/// use interop_core::cuda::{ReleasePolicy, release_policy, set_release_policy};
///
/// assert_eq!(release_policy(), ReleasePolicy::AfterContext);
/// set_release_policy(ReleasePolicy::Batched); // arrays of any size share events, and may stay a little longer
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
    /// All work of the memory's context, decided for 32 releases at a time, of arrays of any size.
    Batched,
}

pub(crate) static POLICY: AtomicU8 = AtomicU8::new(ReleasePolicy::AfterContext as u8);

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
