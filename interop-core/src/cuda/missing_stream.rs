//! Work whose stream is unknown, such as that of a producer that states no stream: what the consumer's stream waits for.

use core::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::array::device::Device;
use crate::array::stream::StreamHandle;
use crate::cuda::context::Context;
use crate::cuda::default_context::context_for;
use crate::cuda::driver::driver;
use crate::cuda::own_streams::handover;
use crate::cuda::release::scope::ReleaseScope;
use crate::cuda::stream_wait::{stream_synchronize, stream_wait_in, synchronize_all_work, wait_for_all_work};
#[cfg(feature = "python")]
use crate::cuda::verify::release_scope_for;
use crate::error::Result;
use crate::process::fork::PerProcess;
use crate::process::promise::OrderedByProgram;

/// What a consumer's stream waits for if it is unknown on which stream memory was last written.
///
/// - An import from a producer that states no stream. The CUDA Array Interface has a `stream` since version 3. PyTorch,
///   JAX, Warp and DALI write version 2, and work may be pending on the memory that they export.
/// - An export of a struct of which neither the `stream` field nor the storage knows the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// Nothing: the program has synchronized, which it promises by `unsafe` code.
    NothingPending(OrderedByProgram),
}

static POLICY: AtomicU8 = AtomicU8::new(0);

/// Sets what a consumer's stream waits for if the stream of pending work is unknown, for the whole program.
///
/// ```
/// use interop_core::cuda::{MissingStreamPolicy, OrderedByProgram, missing_stream_policy, set_missing_stream_policy};
///
/// assert_eq!(missing_stream_policy(), MissingStreamPolicy::WaitForAll);
/// // SAFETY: this program synchronizes before it hands arrays over.
/// let ordered = unsafe { OrderedByProgram::promise() };
/// set_missing_stream_policy(MissingStreamPolicy::NothingPending(ordered));
/// assert_eq!(missing_stream_policy(), MissingStreamPolicy::NothingPending(ordered));
/// ```
pub fn set_missing_stream_policy(policy: MissingStreamPolicy) {
    let number = match policy {
        MissingStreamPolicy::WaitForAll => 0,
        MissingStreamPolicy::LegacyDefault => 1,
        MissingStreamPolicy::NothingPending(_) => 2,
    };
    POLICY.store(number, Ordering::Relaxed);
}

/// Returns what a consumer's stream waits for if the stream of pending work is unknown.
#[must_use]
pub fn missing_stream_policy() -> MissingStreamPolicy {
    match POLICY.load(Ordering::Relaxed) {
        0 => MissingStreamPolicy::WaitForAll,
        1 => MissingStreamPolicy::LegacyDefault,
        _ => MissingStreamPolicy::NothingPending(OrderedByProgram::GIVEN),
    }
}

/// Makes `consumer` wait for work whose stream is unknown, as the policy says.
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
        MissingStreamPolicy::NothingPending(_) => Ok(()),
        MissingStreamPolicy::LegacyDefault => {
            stream_wait_in(consumer, StreamHandle::LegacyDefault, device, context).map(|_| ())
        }
        MissingStreamPolicy::WaitForAll => wait_for_all_work(consumer, device, context, scope),
    }
}

/// Waits on the host for work whose stream is unknown, as the policy says.
///
/// # Errors
///
/// As [`stream_synchronize`].
pub(crate) fn synchronize_missing_stream(device: Device, scope: ReleaseScope) -> Result<()> {
    match missing_stream_policy() {
        MissingStreamPolicy::NothingPending(_) => Ok(()),
        MissingStreamPolicy::LegacyDefault => stream_synchronize(StreamHandle::LegacyDefault, device),
        MissingStreamPolicy::WaitForAll => synchronize_all_work(scope),
    }
}

/// Returns a stream that waits for work whose stream is unknown, as the policy says. For all work it is a non-blocking
/// stream of this crate, in the memory's context or the primary one of the device.
///
/// # Errors
///
/// As [`stream_wait`](crate::cuda::stream_wait::stream_wait).
pub(crate) fn handover_stream(
    device: Device,
    context: Option<Context>,
    scope: ReleaseScope,
) -> Result<StreamHandle> {
    match missing_stream_policy() {
        MissingStreamPolicy::NothingPending(_) => Ok(StreamHandle::NothingPending),
        MissingStreamPolicy::LegacyDefault => Ok(StreamHandle::LegacyDefault),
        MissingStreamPolicy::WaitForAll => {
            let driver = driver()?;
            let context = context.map_or_else(|| context_for(driver, device), Ok)?;
            let _entered = context.enter(driver)?;
            let stream = handover(driver, context)?;
            wait_for_all_work(stream, device, Some(context), scope)?;
            Ok(stream)
        }
    }
}

/// As [`wait_for_missing_stream`], for CUDA memory whose context is unknown.
#[cfg(feature = "python")]
pub(crate) fn wait_for_unknown_stream(consumer: StreamHandle, device: Device) -> Result<()> {
    wait_for_missing_stream(consumer, device, None, release_scope_for(driver()?, device))
}

/// The proxy streams, each with the context of the default streams that it stands for.
static PROXIES: PerProcess<Mutex<Vec<(StreamHandle, Context)>>> = PerProcess::new(|_| Mutex::new(Vec::new()));

/// Registers a stream as the proxy of the per-thread default streams of its context. The stream lives as long as the
/// program.
///
/// The legacy default stream needs no registration, because it and a blocking stream wait for each other.
#[cfg(feature = "cudarc")]
pub(crate) fn register_proxy(stream: StreamHandle, context: Context) {
    PROXIES.get().lock().unwrap_or_else(PoisonError::into_inner).push((stream, context));
}

/// Makes this thread's default stream wait for the work on its proxy stream. Does nothing for any other stream.
///
/// # Errors
///
/// As [`stream_wait`](crate::cuda::stream_wait::stream_wait).
pub(crate) fn join_default_stream(stream: StreamHandle, device: Device) -> Result<()> {
    let known = PROXIES.get().lock().unwrap_or_else(PoisonError::into_inner);
    let context = known.iter().find(|(of, _)| *of == stream).map(|(_, context)| *context);
    drop(known);
    let Some(context) = context else { return Ok(()) };
    stream_wait_in(StreamHandle::PerThreadDefault, stream, device, Some(context)).map(|_| ())
}
