//! Hand-over of an array: a consumer, on a stream or on the host, waits for pending work, and the array's stream for the
//! consumer. If the stream of the work is unknown, all work of the memory's context is waited for.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::array::info::ArrayInfo;
use crate::cuda::memory_check::pointer_attributes_of;
use crate::driver::context::{Context, context_for};
use crate::driver::device::{Device, DeviceType};
use crate::driver::functions::{driver, is_available, run_blocking};
#[cfg(feature = "python")]
use crate::driver::pointer::release_scope_for;
use crate::driver::pointer::{host_address, memory_use};
#[cfg(feature = "python")]
use crate::driver::release::hold::is_captured;
use crate::driver::release::queue::poll_in_passing;
use crate::driver::release::scope::ReleaseScope;
#[cfg(feature = "python")]
use crate::driver::stream::capture_error;
use crate::driver::stream::{captures, handover};
use crate::driver::stream_handle::{PendingWork, StreamHandle};
#[cfg(feature = "python")]
use crate::driver::stream_wait::make_context_wait;
use crate::driver::stream_wait::{
    Fork, stream_wait_in, synchronize_all_work, synchronize_on, synchronize_stream_of, wait_between,
    wait_for_all_work, wait_in_contexts,
};
use crate::driver::uses::Uses;
use crate::error::{Error, ErrorKind, Result, text};
use crate::process::fork::PerProcess;
use crate::process::settings::unordered;

/// Makes the consumer's stream wait for the work that is pending on an array.
///
/// # Errors
///
/// As [`stream_wait`].
#[inline]
pub(crate) fn make_consumer_wait(info: &ArrayInfo, consumer: StreamHandle) -> Result<()> {
    if info.device().device_type == DeviceType::CPU {
        return Ok(());
    }
    poll_in_passing();
    if consumer != StreamHandle::NothingPending {
        join_storage(info)?;
    }
    match info.pending.only_name() {
        Some(_) => wait_in_contexts(PendingWork::on(consumer), info.pending, info.device()),
        None => make_stream_wait_for_unknown(consumer, info.address, info.device(), info.followed()),
    }
}

/// Makes a stream wait for the work on memory at an address of which nobody knows the stream: the work that this crate has
/// has `followed`, or all work of the memory's context.
///
/// # Errors
///
/// As [`stream_wait`].
#[cold]
pub(crate) fn make_stream_wait_for_unknown(
    stream: StreamHandle,
    address: usize,
    device: Device,
    followed: Option<&Uses>,
) -> Result<()> {
    if stream == StreamHandle::NothingPending {
        return Ok(());
    }
    if followed.and_then(|uses| uses.make_wait(stream, device)).is_some() {
        return Ok(());
    }
    match memory_use(address, device)? {
        Some((context, scope)) => wait_for_missing_stream(stream, device, context, scope),
        None => Ok(()),
    }
}

/// Makes the stream of a `stream` field wait for what the storage knows of other work: on its own stream, or on its block of
/// pool memory. A field that states that nothing is pending has no stream, so the host waits. A capture leaves the wait out,
/// because a graph is ordered where it is launched.
///
/// # Errors
///
/// As [`stream_wait`].
#[inline]
pub(crate) fn join_storage(info: &ArrayInfo) -> Result<()> {
    info.of_storage().map_or(Ok(()), |work| join_storage_with(info, work))
}

#[cold]
fn join_storage_with(info: &ArrayInfo, work: PendingWork) -> Result<()> {
    let device = info.device();
    let field = info.pending.name().filter(|_| is_available());
    match (field, work.name(), &info.uses) {
        (None, ..) => Ok(()),
        (Some(StreamHandle::NothingPending), Some(_), _) => synchronize_stream_of((work, device)),
        (Some(StreamHandle::NothingPending), None, Some(uses)) => {
            let mut done = None;
            run_blocking(|| done = uses.wait());
            done.map_or_else(|| synchronize_pending(work, info.address, device), Ok)
        }
        (Some(field), ..) if captures(field) => Ok(()),
        (Some(_), Some(_), _) => wait_between((info.pending, device), (work, device), Fork::Refused),
        (Some(field), None, uses) => {
            make_stream_wait_for_unknown(field, info.address, device, uses.as_deref())
        }
    }
}

/// Returns the stream that an interface dict names for an array: a stream that waits for all work on it.
///
/// If it is unknown which stream has to be waited for, and the policy is to wait for all work, it is a stream of this crate:
/// each look at the dict would make the legacy default stream a barrier for all blocking streams.
///
/// # Errors
///
/// As [`stream_wait`].
pub(crate) fn stream_for_interface(info: &ArrayInfo) -> Result<StreamHandle> {
    join_storage(info)?;
    match info.pending.only_name().and(info.stream()) {
        Some(stream) => Ok(stream),
        None => match memory_use(info.address, info.device())? {
            Some((context, scope)) => handover_stream(info.device(), context, scope),
            None => Ok(StreamHandle::NothingPending),
        },
    }
}

/// Makes an array's own stream wait for the work on the array that was queued on `stream`. Does nothing if the stream is
/// unknown, because whoever uses the array waits for all work then.
///
/// # Errors
///
/// [`ErrorKind::Stream`] for an array that states that nothing is pending, and as [`stream_wait`].
pub(crate) fn wait_for_consumer(info: &ArrayInfo, stream: StreamHandle) -> Result<()> {
    if info.device().device_type == DeviceType::CPU || stream == StreamHandle::NothingPending {
        return Ok(());
    }
    let Some(own) = info.pending.name() else { return Ok(()) };
    if own == StreamHandle::NothingPending {
        let found = text!("{own}, and pending work on the {stream}");
        let allowed = "a struct whose `stream` field holds a stream that can wait for the work";
        return Err(Error::new(ErrorKind::Stream, "stream", found, allowed));
    }
    wait_in_contexts(info.pending, PendingWork::on(stream), info.device())?;
    if let Some(storage) = info.of_storage().filter(|work| work.name().is_some()) {
        // The storage frees the memory in the order of its own stream.
        wait_in_contexts(storage, PendingWork::on(stream), info.device())?;
    }
    join_default_stream(own, info.device())
}

/// Makes a library that does not name its stream wait for the work that is pending on an array: all later work of the
/// memory's context does, or else the host.
///
/// # Errors
///
/// As [`stream_wait`].
#[cfg(feature = "python")]
pub(crate) fn make_context_wait_for(info: &ArrayInfo) -> Result<()> {
    let device = info.device();
    if device.device_type == DeviceType::CPU || info.is_idle() {
        return Ok(());
    }
    join_storage(info)?;
    let pending = if info.pending.only_name().is_some() {
        info.pending
    } else {
        make_stream_wait_for_unknown(StreamHandle::LegacyDefault, info.address, device, info.followed())?;
        PendingWork::on_default_stream(device, None)?
    };
    if device.device_type == DeviceType::CUDA && make_context_wait((info.address, device), (pending, device))?
    {
        return Ok(());
    }
    synchronize_stream_of((pending, device))
}

/// Waits on the host for the work that is pending on an array, before a consumer on the host gets it.
///
/// # Errors
///
/// As [`stream_synchronize`](crate::cuda::stream_synchronize).
#[cfg(feature = "python")]
#[inline]
pub(crate) fn synchronize_for_host(info: &ArrayInfo) -> Result<()> {
    if info.device().device_type == DeviceType::CPU {
        return Ok(());
    }
    poll_in_passing();
    synchronize(info)
}

/// Refuses a wait for all work of a context while a library captures a graph. This comes before the thread leaves the
/// interpreter, without which no library can be asked.
///
/// # Errors
///
/// [`ErrorKind::StreamCapture`].
#[cfg(feature = "python")]
pub(crate) fn refuse_capture(info: &ArrayInfo, consumer: StreamHandle) -> Result<()> {
    let device = info.device();
    let waits_for_all = device.device_type != DeviceType::CPU
        && info.pending.only_name().is_none()
        && info.followed().is_none();
    let ordinal = (device.device_type == DeviceType::CUDA).then_some(device.device_id);
    if waits_for_all && is_captured(ordinal) {
        return Err(capture_error(consumer, "a wait for all work of a context"));
    }
    Ok(())
}

/// Waits on the host for the work that is pending on an array.
///
/// # Errors
///
/// As [`stream_synchronize`](crate::cuda::stream_synchronize).
pub(crate) fn synchronize(info: &ArrayInfo) -> Result<()> {
    join_storage(info)?;
    let followed = info.followed().filter(|_| info.pending.only_name().is_none());
    if followed.and_then(Uses::wait).is_some() {
        return Ok(());
    }
    synchronize_pending(info.pending, info.address, info.device())
}

/// As [`synchronize`], before the host reads or writes the memory. Without a driver nothing is pending.
///
/// # Errors
///
/// As [`stream_synchronize`](crate::cuda::stream_synchronize).
pub(crate) fn synchronize_if_available(info: &ArrayInfo) -> Result<()> {
    if info.is_idle() || !is_available() { Ok(()) } else { synchronize(info) }
}

/// As [`synchronize`], for the memory at an address.
pub(crate) fn synchronize_pending(pending: PendingWork, address: usize, device: Device) -> Result<()> {
    if pending.only_name().is_some() {
        return synchronize_on((pending, device));
    }
    match memory_use(address, device)? {
        Some((_, scope)) => synchronize_missing_stream(scope),
        None => Ok(()),
    }
}

/// Makes `consumer` wait for work whose stream is unknown: all work that the release of the memory would wait for. That is one
/// event for each context, and the host does not wait. Drivers before 12.5 have no such event; with them the host waits.
///
/// # Errors
///
/// As [`stream_wait`].
pub(crate) fn wait_for_missing_stream(
    consumer: StreamHandle,
    device: Device,
    context: Option<Context>,
    scope: ReleaseScope,
) -> Result<()> {
    if unordered().unknown_work { Ok(()) } else { wait_for_all_work(consumer, device, context, scope) }
}

/// Waits on the host for work whose stream is unknown.
///
/// # Errors
///
/// As [`stream_synchronize`](crate::cuda::stream_synchronize).
pub(crate) fn synchronize_missing_stream(scope: ReleaseScope) -> Result<()> {
    if unordered().unknown_work { Ok(()) } else { synchronize_all_work(scope) }
}

/// Returns a stream that waits for work whose stream is unknown: a non-blocking stream of this crate, in the memory's context
/// or in the one that [`context_for`] returns.
///
/// # Errors
///
/// As [`stream_wait`].
pub(crate) fn handover_stream(
    device: Device,
    context: Option<Context>,
    scope: ReleaseScope,
) -> Result<StreamHandle> {
    if unordered().unknown_work {
        return Ok(StreamHandle::NothingPending);
    }
    let driver = driver()?;
    let context = context.map_or_else(|| context_for(driver, device), Ok)?;
    let _entered = context.enter(driver)?;
    let stream = handover(driver, context)?;
    wait_for_all_work(stream, device, Some(context), scope)?;
    Ok(stream)
}

/// As [`wait_for_missing_stream`], for CUDA memory whose context is unknown.
#[cfg(feature = "python")]
pub(crate) fn wait_for_unknown_stream(consumer: StreamHandle, device: Device) -> Result<()> {
    wait_for_missing_stream(consumer, device, None, release_scope_for(driver()?, device))
}

/// The proxy streams: the context, its default stream, and the stream that stands for it.
type Proxies = Vec<(Context, StreamHandle, StreamHandle)>;

static PROXIES: PerProcess<Mutex<Proxies>> = PerProcess::new(|_| Mutex::new(Vec::new()));

fn proxies() -> MutexGuard<'static, Proxies> {
    PROXIES.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the stream that stands for a default stream of a context. The first call makes it, and it lives as long as the
/// program, as the context does.
#[cfg(feature = "cudarc")]
pub(crate) fn proxy_stream(
    context: Context,
    default: StreamHandle,
    make: impl FnOnce() -> Result<StreamHandle>,
) -> Result<StreamHandle> {
    let mut proxies = proxies();
    if let Some((.., stream)) = proxies.iter().find(|(of, name, _)| (*of, *name) == (context, default)) {
        return Ok(*stream);
    }
    let stream = make()?;
    proxies.push((context, default, stream));
    Ok(stream)
}

/// Makes this thread's default stream wait for the work on its proxy stream. Does nothing for any other stream. The legacy
/// default stream needs no wait, because it and a blocking stream wait for each other.
///
/// # Errors
///
/// As [`stream_wait`](crate::driver::stream_wait::stream_wait).
pub(crate) fn join_default_stream(stream: StreamHandle, device: Device) -> Result<()> {
    let own = StreamHandle::PerThreadDefault;
    let proxy = proxies().iter().find(|(_, name, of)| (*name, *of) == (own, stream)).copied();
    let Some((context, ..)) = proxy else { return Ok(()) };
    stream_wait_in(own, stream, device, Some(context)).map(|_| ())
}

/// Completes the description of an array that states no device, and makes `consumer` wait for the work that is pending
/// on the array's stream. The device is the one that the driver reports. The caller then sets the array's stream to
/// `consumer`.
///
/// `stated` says whether the producer stated its stream, or that it has none. Returns the release scope, and whether
/// `consumer` captures a graph if that was queried.
///
/// # Errors
///
/// [`ErrorKind::Device`](crate::error::ErrorKind::Device) for an address that is not CUDA memory,
/// [`ErrorKind::OutOfBounds`](crate::error::ErrorKind::OutOfBounds) for elements outside the allocation, and as
/// [`stream_wait`](crate::driver::stream_wait::stream_wait).
pub(crate) fn locate_and_wait(
    info: &mut ArrayInfo,
    stated: bool,
    consumer: StreamHandle,
) -> Result<(Option<ReleaseScope>, Option<bool>)> {
    let Some(attributes) = pointer_attributes_of(info)? else {
        // An array without elements has no pending work.
        info.device = current_device()?;
        return Ok((None, None));
    };
    info.device = attributes.device();
    if info.device == Device::CUDA_HOST {
        // The interface states the address for devices, which may differ from the host address for registered memory.
        // An `ArrayInfo` holds the host address. Kernel views look up the other one (`device_address`).
        info.move_to(host_address(info.address)?);
    }
    let (context, scope) = (attributes.context(), attributes.scope(driver()?).holding(info.span().len()));
    if !stated {
        wait_for_missing_stream(consumer, info.device, context, scope)?;
        return Ok((Some(scope), None));
    }
    let pending = info.pending.name().unwrap_or(StreamHandle::NothingPending);
    Ok((Some(scope), stream_wait_in(consumer, pending, info.device, context)?))
}

/// Returns the current device, for an array without elements, which has no address to query. Without a current context
/// this is device 0.
pub(crate) fn current_device() -> Result<Device> {
    let Ok(driver) = driver() else { return Ok(Device::cuda(0)) };
    let Some(_) = Context::current(driver)? else { return Ok(Device::cuda(0)) };
    Ok(Device::cuda(Context::current_ordinal(driver)?))
}
