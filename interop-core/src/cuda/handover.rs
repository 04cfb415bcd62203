//! Hand-over of an array: the consumer's stream waits for pending work, and the array's stream for the consumer.

use crate::array::device::{Device, DeviceType};
use crate::array::info::ArrayInfo;
use crate::array::stream::StreamHandle;
use crate::cuda::driver::is_available;
use crate::cuda::proxy_stream::join_default_stream;
use crate::cuda::release::queue::poll_in_passing;
use crate::cuda::stream_wait::{stream_synchronize, stream_wait, wait_for_pending};
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
    wait_for_pending(info.stream, consumer, info.device())
}

/// Makes an array's own stream wait for the work on the array that was queued on `stream`.
///
/// # Errors
///
/// [`ErrorKind::Stream`] for an array that has no stream, and as [`stream_wait`].
pub(crate) fn wait_for_consumer(info: &ArrayInfo, stream: StreamHandle) -> Result<()> {
    if info.device().device_type == DeviceType::CPU || stream == StreamHandle::NothingPending {
        return Ok(());
    }
    if info.stream() == StreamHandle::NothingPending {
        let found = text!("{}, and pending work on the {stream}", info.stream());
        let allowed = "a struct whose `stream` field holds a stream that can wait for the work";
        return Err(Error::new(ErrorKind::Stream, "stream", found, allowed));
    }
    stream_wait(info.stream(), stream, info.device())?;
    join_default_stream(info.stream(), info.device())
}

/// Waits on the host for the work that is pending on an array, before a consumer on the host gets the array.
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
    stream_synchronize(info.stream(), info.device())
}

/// Waits on the host for the work that is pending on memory, before the host reads or writes it. Without a driver there
/// is no such work.
///
/// # Errors
///
/// As [`stream_synchronize`].
pub(crate) fn synchronize_if_available(stream: StreamHandle, device: Device) -> Result<()> {
    if is_available() { stream_synchronize(stream, device) } else { Ok(()) }
}
