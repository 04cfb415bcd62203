//! Hand-over of an array: a consumer, on a stream or on the host, waits for pending work, and the array's stream for the
//! consumer.

use crate::array::device::{Device, DeviceType};
use crate::array::info::ArrayInfo;
use crate::array::stream::{PendingWork, StreamHandle};
use crate::array::use_record::UseRecord;
use crate::cuda::block;
use crate::cuda::driver::is_available;
use crate::cuda::missing_stream::join_default_stream;
use crate::cuda::missing_stream::{handover_stream, synchronize_missing_stream, wait_for_missing_stream};
use crate::cuda::release::queue::poll_in_passing;
#[cfg(feature = "python")]
use crate::cuda::stream_wait::{make_context_wait, synchronize_stream_of};
use crate::cuda::stream_wait::{stream_synchronize, stream_wait, wait_for_pending};
use crate::cuda::verify::memory_use;
use crate::error::{Error, ErrorKind, Result, text};

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
    match info.pending.only_name() {
        Some(_) => wait_for_pending(info.pending, consumer, info.device()),
        None => make_stream_wait_for_unknown(consumer, info.address, info.device(), info.followed()),
    }
}

/// Makes a stream wait for the work on memory at an address of which nobody knows the stream: the work that this crate has
/// has `followed`, or all work of the memory's context, or what [`MissingStreamPolicy`](crate::cuda::missing_stream::MissingStreamPolicy) says.
///
/// # Errors
///
/// As [`stream_wait`].
#[cold]
pub(crate) fn make_stream_wait_for_unknown(
    stream: StreamHandle,
    address: usize,
    device: Device,
    followed: Option<UseRecord>,
) -> Result<()> {
    if stream == StreamHandle::NothingPending {
        return Ok(());
    }
    if followed.and_then(|uses| block::make_wait(uses, stream, device)).is_some() {
        return Ok(());
    }
    match memory_use(address, device)? {
        Some((context, scope)) => wait_for_missing_stream(stream, device, context, scope),
        None => Ok(()),
    }
}

/// Returns the stream that an interface dict names for an array: a stream that waits for all work on it.
///
/// If that stream is unknown, it is a stream of this crate: each look at the dict would make the legacy default stream a
/// barrier for all blocking streams.
///
/// # Errors
///
/// As [`stream_wait`].
pub(crate) fn stream_for_interface(info: &ArrayInfo) -> Result<StreamHandle> {
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
    let Some(own) = info.stream() else { return Ok(()) };
    if own == StreamHandle::NothingPending {
        let found = text!("{own}, and pending work on the {stream}");
        let allowed = "a struct whose `stream` field holds a stream that can wait for the work";
        return Err(Error::new(ErrorKind::Stream, "stream", found, allowed));
    }
    stream_wait(own, stream, info.device())?;
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
    if device.device_type == DeviceType::CPU || info.pending.is_nothing() {
        return Ok(());
    }
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
/// As [`stream_synchronize`].
#[cfg(feature = "python")]
#[inline]
pub(crate) fn synchronize_for_host(info: &ArrayInfo) -> Result<()> {
    if info.device().device_type == DeviceType::CPU {
        return Ok(());
    }
    poll_in_passing();
    synchronize(info)
}

/// Waits on the host for the work that is pending on an array.
///
/// # Errors
///
/// As [`stream_synchronize`].
pub(crate) fn synchronize(info: &ArrayInfo) -> Result<()> {
    let followed = info.followed().filter(|_| info.pending.only_name().is_none());
    if followed.and_then(block::wait).is_some() {
        return Ok(());
    }
    synchronize_pending(info.pending, info.address, info.device())
}

/// As [`synchronize`], before the host reads or writes the memory. Without a driver nothing is pending.
///
/// # Errors
///
/// As [`stream_synchronize`].
pub(crate) fn synchronize_if_available(info: &ArrayInfo) -> Result<()> {
    if info.pending.is_nothing() || !is_available() { Ok(()) } else { synchronize(info) }
}

/// As [`synchronize`], for the memory at an address.
pub(crate) fn synchronize_pending(pending: PendingWork, address: usize, device: Device) -> Result<()> {
    if let Some(stream) = pending.only_name().and(pending.stream(device)) {
        return stream_synchronize(stream, device);
    }
    match memory_use(address, device)? {
        Some((_, scope)) => synchronize_missing_stream(device, scope),
        None => Ok(()),
    }
}
