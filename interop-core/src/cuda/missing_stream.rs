//! Producers that state no stream, such as the CUDA Array Interface before version 3: what the consumer's stream waits
//! for.

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

/// What an import makes the consumer's stream wait for if the producer states no stream.
///
/// The CUDA Array Interface has a `stream` since version 3. PyTorch, JAX, Warp and DALI write version 2, and work may
/// be pending on the memory that they export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum MissingStreamPolicy {
    /// All work of the memory's context, on any stream: one event, and the host does not wait. Drivers before 12.5 have
    /// no such event; with them the host waits. For memory without a context, and for memory that all devices reach
    /// (from a pool, pinned or managed), it is the work of every context that its release waits for
    /// ([`ReleasePolicy::AfterContext`](crate::cuda::release::policy::ReleasePolicy::AfterContext)). This is not
    /// possible while a graph is captured in such a context.
    #[default]
    WaitForAll,
    /// The work on the legacy default stream, and so on every blocking stream.
    LegacyDefault,
    /// Nothing: the caller has synchronized.
    NothingPending,
}

static UNSTATED: AtomicU8 = AtomicU8::new(MissingStreamPolicy::WaitForAll as u8);

/// Sets what the consumer's stream waits for if a producer states no stream, for the whole program.
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

/// Returns what the consumer's stream waits for if a producer states no stream.
#[must_use]
pub fn missing_stream_policy() -> MissingStreamPolicy {
    match UNSTATED.load(Ordering::Relaxed) {
        0 => MissingStreamPolicy::WaitForAll,
        1 => MissingStreamPolicy::LegacyDefault,
        _ => MissingStreamPolicy::NothingPending,
    }
}

/// Makes `consumer` wait for the work of a producer that states no stream, as the policy says.
///
/// # Errors
///
/// As [`stream_wait`](crate::cuda::stream_wait::stream_wait).
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

/// As [`wait_for_missing_stream`], for CUDA memory whose context is unknown.
#[cfg(feature = "python")]
pub(crate) fn wait_for_unknown_stream(consumer: StreamHandle, device: Device) -> Result<()> {
    wait_for_missing_stream(consumer, device, None, release_scope_for(driver()?, device))
}
