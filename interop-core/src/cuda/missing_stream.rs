//! Arrays that name no device, as those of the CUDA Array Interface: the driver names it, and their work is ordered.

use core::sync::atomic::{AtomicU8, Ordering};

use crate::array::device::Device;
use crate::array::stream::StreamHandle;
use crate::cuda::context::Context;
#[cfg(feature = "python")]
use crate::cuda::driver::driver;
use crate::cuda::release::scope::ReleaseScope;
use crate::cuda::stream_wait::{stream_wait_in, wait_for_all_work};
#[cfg(feature = "python")]
use crate::cuda::verify::release_scope_for;
use crate::error::Result;

/// What an import orders before the consumer's work when a producer says nothing of streams.
///
/// The CUDA Array Interface has a `stream` since version 3. PyTorch, JAX, Warp and DALI write version 2, and work may be
/// pending on what they hand out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum MissingStreamPolicy {
    /// All work of the memory's context, whatever the stream: one event, nothing waits on the host (before driver 12.5 the
    /// host waits, as there is no such event). For memory that is of no context or that all devices reach, from a pool,
    /// pinned or managed, it is the work of every context that its release comes after
    /// ([`ReleasePolicy::AfterContext`](crate::cuda::release::policy::ReleasePolicy::AfterContext)). It cannot be had while a graph is captured in
    /// such a context.
    #[default]
    WaitForAll,
    /// The work on the legacy default stream, and so on every blocking stream.
    LegacyDefault,
    /// Nothing: the caller has synchronized.
    NothingPending,
}

static UNSTATED: AtomicU8 = AtomicU8::new(MissingStreamPolicy::WaitForAll as u8);

/// Sets what is ordered before work on arrays whose producer says nothing of streams, for the whole program.
///
/// ```
/// use interop_core::cuda::{MissingStreamPolicy, set_missing_stream_policy, missing_stream_policy};
///
/// assert_eq!(missing_stream_policy(), MissingStreamPolicy::WaitForAll);
/// set_missing_stream_policy(MissingStreamPolicy::NothingPending); // the program synchronizes before it hands arrays over
/// assert_eq!(missing_stream_policy(), MissingStreamPolicy::NothingPending);
/// ```
pub fn set_missing_stream_policy(policy: MissingStreamPolicy) {
    UNSTATED.store(policy as u8, Ordering::Relaxed);
}

/// What is ordered before work on arrays whose producer says nothing of streams.
#[must_use]
pub fn missing_stream_policy() -> MissingStreamPolicy {
    match UNSTATED.load(Ordering::Relaxed) {
        0 => MissingStreamPolicy::WaitForAll,
        1 => MissingStreamPolicy::LegacyDefault,
        _ => MissingStreamPolicy::NothingPending,
    }
}

/// Orders the work of a producer that says nothing of streams before `consumer`, as the user wishes.
///
/// # Errors
///
/// As [`stream_wait`](crate::cuda::stream_wait::order).
pub(crate) fn wait_for_missing_stream(
    consumer: StreamHandle,
    device: Device,
    context: Option<Context>,
    scope: ReleaseScope,
) -> Result<()> {
    match missing_stream_policy() {
        MissingStreamPolicy::NothingPending => Ok(()),
        MissingStreamPolicy::LegacyDefault => {
            stream_wait_in(consumer, StreamHandle::LegacyDefault, device, context).map(|_| ())
        }
        MissingStreamPolicy::WaitForAll => wait_for_all_work(consumer, device, context, scope),
    }
}

/// As [`wait_for_missing_stream`], for memory of CUDA's whose context is not known.
#[cfg(feature = "python")]
pub(crate) fn wait_for_unknown_stream(consumer: StreamHandle, device: Device) -> Result<()> {
    wait_for_missing_stream(consumer, device, None, release_scope_for(driver()?, device))
}
