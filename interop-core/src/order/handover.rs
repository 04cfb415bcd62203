//! Hand-over of an array: what its users wait for, and what waits for them. `order/wait.rs` makes the waits.

use crate::array::device::{Device, DeviceType};
use crate::array::stream_handle::StreamHandle;
use crate::driver::context::{Context, context_for};
use crate::driver::event::Event;
use crate::driver::functions::{driver, is_available};
use crate::driver::pointer::{
    MemoryUse, attributes_at, context_of_memory, host_address, memory_use, not_cuda,
};
use crate::driver::reach::Reach;
use crate::driver::stream::{Stream, capture_error, interface_stream, is_capturing};
use crate::error::{Error, ErrorKind, Result, text};
use crate::order::array_info::ArrayInfo;
use crate::order::claim::Claim;
use crate::order::default_streams::join_default_stream;
use crate::order::memory_state::MemoryState;
use crate::order::placement::Placement;
use crate::order::release::hold::library_is_capturing;
use crate::order::release::queue::poll_in_passing;
use crate::order::uses::Uses;
use crate::order::wait::{Waiter, Work, order, record};
use crate::process::settings::unordered;

/// The work on an array, for which its next user waits.
#[derive(Clone, Copy)]
pub(crate) struct ArrayWork<'a> {
    pub(crate) state: &'a MemoryState,
    /// Whether the uses are known.
    pub(crate) is_followed: bool,
    pub(crate) address: usize,
    pub(crate) device: Device,
}

impl<'a> ArrayWork<'a> {
    /// Makes a stream, the host or a context wait for the work. Without a driver the host waits for nothing.
    ///
    /// # Errors
    ///
    /// As [`stream_wait`](crate::cuda::stream_wait()).
    #[inline]
    pub(crate) fn order_before(self, waiter: Waiter, claim: &Claim) -> Result<()> {
        if matches!(waiter, Waiter::Host) && !is_available() {
            return Ok(());
        }
        order(
            waiter,
            self.part(self.state.placement, self.state.uses.as_deref().filter(|_| self.is_followed)),
        )?;
        self.state
            .of_storage
            .as_deref()
            .map_or(Ok(()), |work| self.order_storage_before(waiter, *work, claim))
    }

    /// A capture leaves the wait out, because a graph is ordered where it is launched.
    #[cold]
    fn order_storage_before(self, waiter: Waiter, work: Placement, _: &Claim) -> Result<()> {
        let (waiter, stream) = match waiter {
            Waiter::Stream(to) | Waiter::StreamIntoCapture(to) => (Waiter::Stream(to), Some(to.handle())),
            other => (other, None),
        };
        if [stream, self.state.placement.handle()].into_iter().flatten().any(is_capturing) {
            return Ok(());
        }
        order(waiter, self.part(work, self.state.uses.as_deref())).map(drop)
    }

    /// Whether those who wait for all work on the memory, because its stream is unknown, would miss that of a stream: one of a
    /// context that is none of theirs.
    ///
    /// # Errors
    ///
    /// As [`stream_wait`](crate::cuda::stream_wait()).
    #[inline]
    pub(crate) fn misses(self, stream: Stream) -> Result<bool> {
        if matches!(self.state.placement, Placement::Unknown) { self.is_elsewhere(stream) } else { Ok(false) }
    }

    #[cold]
    fn is_elsewhere(self, stream: Stream) -> Result<bool> {
        let is_followed = || self.state.uses.as_deref().is_some_and(|uses| uses.can_follow(stream));
        if unordered().unknown_work || is_followed() {
            return Ok(false);
        }
        let Some(MemoryUse { context, reach }) = memory_use(self.address, self.device)? else {
            return Ok(false);
        };
        let work = stream.for_device(self.device).context(driver()?)?;
        // Memory without a context, such as that of a pool, is waited for in the one that is current then.
        let is_waited_for = match work.primary_ordinal() {
            _ if context.is_some() => reach.contains(work),
            Some(of) => self.device.device_type != DeviceType::CUDA || self.device.device_id == of,
            None => false,
        };
        Ok(!is_waited_for)
    }

    /// Records events behind the work.
    ///
    /// # Errors
    ///
    /// As [`order_before`](Self::order_before).
    pub(crate) fn record(self, _: &Claim) -> Result<Vec<Event<'static>>> {
        let known = self.state.uses.as_deref().filter(|_| self.is_followed);
        let mut events = record(self.part(self.state.placement, known))?;
        if let Some(work) = self.state.of_storage.as_deref() {
            events.extend(record(self.part(*work, known))?);
        }
        Ok(events)
    }

    fn part(self, work: Placement, known: Option<&'a Uses>) -> Work<'a> {
        let Self { address, device, .. } = self;
        if work.is_known() { work.stream(device).into() } else { Work::Memory { address, device, known } }
    }
}

impl ArrayInfo {
    /// The stream of a consumer of the array. If it has to wait, it is that of the context which is current now; the array's own stream
    /// means itself in any context.
    #[inline]
    pub(crate) fn consumer(&self, handle: StreamHandle) -> Option<Stream> {
        match handle {
            StreamHandle::NothingPending => None,
            StreamHandle::Raw(_) => Stream::anywhere(handle),
            _ if self.device == Device::CPU => None,
            _ => self.default_stream_of_consumer(handle),
        }
    }

    #[cold]
    fn default_stream_of_consumer(&self, handle: StreamHandle) -> Option<Stream> {
        let stream = Stream::new(handle, None, self.device);
        let is_ready = self.state.of_storage.is_none()
            && (self.state.placement.is_nothing() || self.state.placement.only_stream(self.device) == stream);
        stream.map(|stream| if is_ready { stream } else { stream.located(self.device) })
    }

    /// The work for which the next user of the array waits.
    #[inline]
    pub(crate) fn work(&self) -> ArrayWork<'_> {
        let (address, device) = (self.unwatched_address, self.device);
        ArrayWork { state: &self.state, is_followed: self.state.followed().is_some(), address, device }
    }
}

/// Makes the consumer's stream wait for the work that is pending on an array. Without a stream nothing is to be pending, so the host
/// waits.
///
/// # Errors
///
/// As [`stream_wait`](crate::cuda::stream_wait()).
#[inline]
pub(crate) fn hand_over(info: &ArrayInfo, consumer: Option<Stream>) -> Result<()> {
    if info.device().device_type == DeviceType::CPU {
        return Ok(());
    }
    poll_in_passing();
    let claim = Claim::asked(info, consumer)?;
    info.work().order_before(consumer.map_or(Waiter::Host, Waiter::Stream), claim)
}

/// Makes a library that does not name its stream wait for the work that is pending on an array: all later work of the
/// memory's context does, or else the host.
///
/// # Errors
///
/// As [`stream_wait`](crate::cuda::stream_wait()).
#[cfg(feature = "python")]
pub(crate) fn hand_over_to_context(info: &ArrayInfo) -> Result<()> {
    match info.device().device_type {
        DeviceType::CPU => Ok(()),
        _ if info.is_idle() => Ok(()),
        _ => {
            let claim = Claim::asked(info, None)?;
            info.work().order_before(later_work(info.unwatched_address, info.device())?, claim)
        }
    }
}

/// Returns the waiter for a library that does not name its stream: all later work of the memory's context, or the host for
/// memory that several devices use.
pub(crate) fn later_work(address: usize, device: Device) -> Result<Waiter> {
    if device.device_type == DeviceType::CUDA {
        context_of_memory(address, device).map(Waiter::Context)
    } else {
        Ok(Waiter::Host)
    }
}

/// Refuses a wait for all work of a context while a library captures a graph. This comes before the thread leaves the
/// interpreter, without which no library can be asked.
///
/// # Errors
///
/// [`ErrorKind::StreamCapture`].
#[cfg(feature = "python")]
pub(crate) fn refuse_capture(info: &ArrayInfo, consumer: StreamHandle) -> Result<()> {
    let waits_for_all = info.device().device_type != DeviceType::CPU
        && !info.state.placement.is_known()
        && info.state.followed().is_none();
    if waits_for_all { refuse_capture_on(info.device(), consumer) } else { Ok(()) }
}

fn refuse_capture_on(device: Device, consumer: StreamHandle) -> Result<()> {
    let ordinal = (device.device_type == DeviceType::CUDA).then_some(device.device_id);
    if library_is_capturing(ordinal) {
        return Err(capture_error(consumer, "a wait for all work of a context"));
    }
    Ok(())
}

/// Returns the stream that an interface dict names for an array: a stream that waits for all work on it.
///
/// If the stream of the work is unknown, it is a stream of this crate: each look at the dict would make the legacy default
/// stream a barrier for all blocking streams.
///
/// # Errors
///
/// As [`stream_wait`](crate::cuda::stream_wait()).
pub(crate) fn stream_for_interface(info: &ArrayInfo) -> Result<StreamHandle> {
    let (device, placement) = (info.device(), info.state.placement);
    // The consumer waits for the stream that is named, on whatever stream it works.
    let claim = Claim::asked(info, placement.only_stream(device))?;
    if let Some(named) = info.stream().filter(|_| placement.is_known()) {
        if let Some(work) = info.state.of_storage.as_deref().filter(|_| is_available()) {
            let waiter = placement.stream(device).map_or(Waiter::Host, Waiter::Stream);
            info.work().order_storage_before(waiter, *work, claim)?;
        }
        return Ok(named);
    }
    let Some(MemoryUse { context, reach }) =
        memory_use(info.unwatched_address, device)?.filter(|_| !unordered().unknown_work)
    else {
        return Ok(StreamHandle::NothingPending);
    };
    // A consumer that captures would make a stream outside of its capture wait.
    refuse_capture_on(device, StreamHandle::LegacyDefault)?;
    let driver = driver()?;
    let context = context.map_or_else(|| context_for(driver, device), Ok)?;
    let _entered = context.enter(driver)?;
    let stream = interface_stream(driver, context)?;
    order(Stream::new(stream, Some(context), device).into(), Work::All(reach))?;
    Ok(stream)
}

/// Makes an array's own stream wait for the work on the array that was queued on `stream`. If that is unknown, whoever uses the array
/// waits for all work then, so the host waits for what they would miss.
///
/// # Errors
///
/// [`ErrorKind::Stream`] for an array that states that nothing is pending, and as
/// [`stream_wait`](crate::cuda::stream_wait()).
pub(crate) fn hand_back(info: &ArrayInfo, stream: Option<Stream>) -> Result<()> {
    let device = info.device();
    let Some(work) = stream.filter(|_| device.device_type != DeviceType::CPU) else { return Ok(()) };
    let placement = info.state.placement;
    let Some(own) = placement.handle() else {
        let is_missed = info.work().misses(work)?;
        return if is_missed { order(Waiter::Host, Work::Stream(work)).map(drop) } else { Ok(()) };
    };
    if own == StreamHandle::NothingPending {
        let found = text!("{own}, and pending work on the {}", work.handle());
        let allowed = "a struct whose `stream` field holds a stream that can wait for the work";
        return Err(Error::new(ErrorKind::Stream, "stream", found, allowed));
    }
    // The storage frees the memory in the order of its own stream.
    for waiter in [Some(placement), info.state.of_storage.as_deref().copied()].into_iter().flatten() {
        order(waiter.stream(device).into(), Work::Stream(work))?;
    }
    if placement.has_hidden_streams() {
        order(later_work(info.unwatched_address, device)?, Work::Stream(work))?;
    }
    join_default_stream(own, device)
}

/// Memory that its producer stated without a device.
pub(crate) struct OrderedMemory {
    /// `None` for an array without elements.
    pub(crate) reach: Option<Reach>,
    /// Whether the stream of the consumer captures a graph, if that was asked.
    pub(crate) is_capturing: Option<bool>,
}

/// Completes the description of an array that states no device, and makes `consumer` wait for the work that is pending
/// on the array's stream. The device is the one that the driver reports. The caller then sets the array's stream to
/// `consumer`.
///
/// `stated` says whether the producer stated its stream, or that it has none.
///
/// # Errors
///
/// [`ErrorKind::Device`](crate::error::ErrorKind::Device) for an address that is not CUDA memory,
/// [`ErrorKind::OutOfBounds`](crate::error::ErrorKind::OutOfBounds) for elements outside the allocation, and as
/// [`stream_wait`](crate::cuda::stream_wait()).
pub(crate) fn locate_and_order(
    info: &mut ArrayInfo,
    stated: bool,
    consumer: StreamHandle,
) -> Result<OrderedMemory> {
    if info.numel() == 0 {
        // An array without elements has no pending work.
        info.description.device = current_device()?;
        return Ok(OrderedMemory { reach: None, is_capturing: None });
    }
    let (driver, address) = (driver()?, info.unwatched_address);
    let attributes = attributes_at(driver, address)?;
    let attributes = attributes.ok_or_else(|| not_cuda(address, "memory that CUDA can reach"))?;
    attributes.check_range(driver, &info.unwatched_range())?;
    info.description.device = attributes.device;
    if info.device == Device::CUDA_HOST {
        // The interface states the address for devices, which may differ from the host address for registered memory.
        // An `ArrayInfo` holds the host address. Kernel views look up the other one (`device_address`).
        info.description.move_to(host_address(address)?);
    }
    let (context, reach) =
        (attributes.context, attributes.reach(driver).holding(info.unwatched_range().len()));
    let work = if stated {
        info.state.placement.handle().and_then(|named| Stream::new(named, context, info.device)).into()
    } else {
        Work::All(reach)
    };
    let is_capturing = order(Stream::new(consumer, context, info.device).into(), work)?;
    Ok(OrderedMemory { reach: Some(reach), is_capturing })
}

/// Returns the current device, for an array without elements, which has no address to query. Without a current context
/// this is device 0.
pub(crate) fn current_device() -> Result<Device> {
    let Ok(driver) = driver() else { return Ok(Device::cuda(0)) };
    let Some(_) = Context::current(driver)? else { return Ok(Device::cuda(0)) };
    Ok(Device::cuda(Context::current_ordinal(driver)?))
}
