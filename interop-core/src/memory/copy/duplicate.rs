//! Copies of arrays in new memory: of the same kind, or of the kind that other processes can open.

use interop_kernel::copy_plan::CopyPlan;

use crate::array::description::Description;
use crate::array::device::DeviceType;
use crate::array::element::{Element, ElementType};
use crate::array::layout::Layout;
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::array::stream_handle::StreamHandle;
use crate::driver::context::{Context, Relaxed, context_for};
use crate::driver::functions::{Driver, driver};
use crate::driver::pointer::{address_for_kernels, pointer_attributes};
use crate::driver::stream::{LocatedStream, Stream, capture_of};
use crate::error::{Error, Result};
use crate::memory::copy::device::queue_copy;
use crate::memory::cuda_buffer::CudaBuffer;
use crate::memory::import::Import;
use crate::order::array_info::ArrayInfo;
use crate::order::block::MemoryKind;
use crate::order::claim::{Claim, shared_elements};
use crate::order::handover::{hand_back, hand_over};
use crate::order::memory_state::MemoryState;
use crate::order::placement::Placement;
use crate::order::release::owner::Owner;
use crate::order::wait::{Waiter, finish_stream, queue_and_finish};

/// Copies an array on its device into new memory of the same kind. The copy is ready on the consumer's stream.
///
/// The copy is writable even if the original is not, unless elements share memory, because a write to one would change
/// others.
///
/// A copy keeps the memory order of the axes. It has no gaps and no negative strides, and stores a
/// repeated element once. Overlapping windows and packed sub-byte elements keep their layout.
///
/// The copy of device memory is queued on the consumer's stream, and later work on the array's own stream waits for it.
/// The host waits instead if the array or the consumer has no stream, and for pinned and managed memory. It also waits if the consumer's stream captures a
/// graph, because the new memory cannot be part of the graph.
///
/// # Errors
///
/// As [`stream_synchronize`](crate::cuda::stream_synchronize()), [`stream_wait`](crate::cuda::stream_wait()) and [`CudaBuffer::zeroed`];
/// [`ErrorKind::DType`](crate::error::ErrorKind::DType) for packed sub-byte elements with negative strides.
///
/// # Safety
///
/// The memory that `info` describes is live.
#[cfg(feature = "python")]
pub(crate) unsafe fn duplicate(info: &ArrayInfo, consumer: StreamHandle) -> Result<(CudaBuffer, ArrayInfo)> {
    let (kind, stream) = match info.device().device_type {
        DeviceType::CUDA => (MemoryKind::Pool, consumer),
        DeviceType::CUDA_HOST => (MemoryKind::Pinned, StreamHandle::NothingPending),
        _ => (MemoryKind::Managed, StreamHandle::NothingPending),
    };
    // SAFETY: as the caller promises.
    unsafe { CompactCopy::new(info)?.copy(info, consumer, kind, stream) }
}

/// The kind of the copies for other processes, which no other copy has.
const FOR_OTHERS: MemoryKind = MemoryKind::Device;

/// Copies an array of a GPU, or of managed memory, into memory of that GPU that other processes can open. The elements are in the order of
/// C. The copy is queued on the array's own stream; if that is unknown, and for managed memory, the host waits.
///
/// # Errors
///
/// As [`duplicate`].
///
/// # Safety
///
/// The memory that `info` describes is live.
#[doc(hidden)]
pub unsafe fn copy_for_others(info: &ArrayInfo) -> Result<Import> {
    let element = ElementType::from_whole_bytes(info.dtype(), info.is_padded())?;
    let copy = CompactCopy::in_order_of_c(info, &element)?;
    let stream = info.stream().unwrap_or(StreamHandle::NothingPending);
    // SAFETY: as the caller promises.
    let (buffer, copied) = unsafe { copy.copy(info, stream, FOR_OTHERS, stream) }?;
    // SAFETY: 1: the owner is the memory, whose drop frees it. The copy has written it. 2: it is in no `Box`. 3: the copy is on the
    // stream of the array, which is live as long as the array's users promise.
    Ok(unsafe { Import::from_parts(copied, Owner::new(buffer)) })
}

/// Returns the consumer's stream and its context, if a copy can be queued there and the array's own
/// stream can wait for it.
fn queue_stream(driver: &Driver, info: &ArrayInfo, consumer: StreamHandle) -> Result<Option<LocatedStream>> {
    // If the library has hidden streams as well, `hand_back` makes them wait.
    let own = info.state.placement.stream(info.device());
    let stream = Stream::new(consumer, None, info.device());
    let (Some(stream), Some(_)) = (stream, own) else { return Ok(None) };
    let stream = stream.in_context(driver)?;
    let _entered = stream.context.enter(driver)?;
    let is_there = Context::current_ordinal(driver)? == info.device().device_id;
    Ok((is_there && capture_of(driver, stream.raw) == Ok(None)).then_some(stream))
}

/// The source of a copy, and the layout of the copy.
struct CompactCopy {
    layout: Layout,
    plan: CopyPlan,
    /// The address of the first byte that the plan copies.
    from: usize,
    /// The offset of element \[0, …, 0\] in the copy, in bytes.
    first: usize,
    bytes: usize,
}

impl CompactCopy {
    /// Copies into new memory of a kind, on a stream if that is possible, for a consumer.
    ///
    /// # Safety
    ///
    /// As [`duplicate`].
    unsafe fn copy(
        &self,
        info: &ArrayInfo,
        consumer: StreamHandle,
        kind: MemoryKind,
        stream: StreamHandle,
    ) -> Result<(CudaBuffer, ArrayInfo)> {
        let (driver, on) = (driver()?, Stream::new(consumer, None, info.device()));
        let claim = Claim::by_device(shared_elements(info), false, on)?;
        let (buffer, stream) = if self.plan.run == 0 {
            info.work().order_before(Waiter::Host, &claim)?;
            (
                CudaBuffer::for_elements(kind, info.device().device_id, u8::TYPE, 0)?,
                StreamHandle::NothingPending,
            )
        } else if let Some(on) = queue_stream(driver, info, stream)? {
            // SAFETY: as the caller promises.
            (unsafe { self.queue(driver, on, kind, info, consumer) }?, consumer)
        } else {
            info.work().order_before(Waiter::Host, &claim)?;
            // SAFETY: as the caller promises.
            (unsafe { self.finish(driver, kind, info) }?, StreamHandle::NothingPending)
        };
        let info = self.info(info, &buffer, stream);
        Ok((buffer, info))
    }

    #[cfg(feature = "python")]
    fn new(info: &ArrayInfo) -> Result<Self> {
        let is_backwards = info.strides().iter().any(|stride| *stride < 0);
        let bits = info.dtype().item_bits(info.is_padded());
        let item = bits / 8;
        if info.numel() != 0 && bits % 8 == 0 {
            if let Some(layout) = without_gaps(info.layout()) {
                return Ok(Self::elements(info, layout, item));
            }
        }
        if !is_backwards {
            let range = info.unwatched_range();
            let plan = CopyPlan::from_bytes(range.len());
            let first = info.unwatched_address.wrapping_sub(range.start);
            let (layout, bytes) = (info.layout().clone(), range.len());
            return Ok(Self { layout, plan, from: range.start, first, bytes });
        }
        // For overlapping windows with negative strides, the copy stores each element separately.
        Self::in_order_of_c(info, &ElementType::from_whole_bytes(info.dtype(), info.is_padded())?)
    }

    fn in_order_of_c(info: &ArrayInfo, element: &ElementType) -> Result<Self> {
        info.numel().checked_mul(element.size).ok_or_else(|| element.too_large(info.numel()))?;
        Ok(Self::elements(info, Layout::contiguous(info.shape(), Order::C)?, element.size))
    }

    fn elements(info: &ArrayInfo, layout: Layout, item: usize) -> Self {
        let plan = CopyPlan::new(info.shape(), layout.strides(), info.strides(), item);
        let bytes = plan.bytes();
        Self { layout, plan, from: info.unwatched_address, first: 0, bytes }
    }

    /// Queues the copy on the consumer's stream. It waits for pending work on the array; later work on the array's own
    /// stream waits for it.
    ///
    /// # Safety
    ///
    /// As [`duplicate`]. `stream` is that of the consumer.
    unsafe fn queue(
        &self,
        driver: &Driver,
        stream: LocatedStream,
        kind: MemoryKind,
        info: &ArrayInfo,
        consumer: StreamHandle,
    ) -> Result<CudaBuffer> {
        let on = Stream::new(consumer, Some(stream.context), info.device());
        hand_over(info, on)?;
        let _entered = stream.context.enter(driver)?;
        let _relaxed = Relaxed::new(driver);
        let ordinal = info.device().device_id;
        let (context, bytes) = (stream.context, self.bytes);
        let buffer = if kind == FOR_OTHERS {
            CudaBuffer::for_others(context, consumer, ordinal, u8::TYPE, bytes)?
        } else {
            CudaBuffer::in_order(context, consumer, ordinal, u8::TYPE, bytes)?
        };
        let to = buffer.address;
        // SAFETY: the elements of the array are live, as the caller promises. The buffer is new and as large as the
        // copy.
        let queued = unsafe { queue_copy(driver, stream, &self.plan, self.from, to) }.map_err(Error::from);
        let done = queued.and_then(|()| hand_back(info, on));
        if done.is_err() {
            // The queued copy reads the array, but the array's own stream does not wait for it.
            let _ = finish_stream(driver, stream.raw);
        }
        buffer.note_work(consumer);
        if let (Some(uses), Some(on)) = (&info.state.uses, on) {
            uses.note_work(on);
        }
        done.map(|()| buffer)
    }

    /// Copies, and waits on the host for the copy.
    ///
    /// # Safety
    ///
    /// As [`duplicate`].
    unsafe fn finish(&self, driver: &Driver, kind: MemoryKind, info: &ArrayInfo) -> Result<CudaBuffer> {
        let (context, ordinal) = if info.device().device_type == DeviceType::CUDA {
            (context_for(driver, info.device())?, info.device().device_id)
        } else {
            // The device of the original, so that no context is created on an unused device.
            let ordinal =
                pointer_attributes(info.unwatched_address)?.map_or(0, |attributes| attributes.ordinal);
            (Context::primary(ordinal)?, ordinal)
        };
        let _entered = context.enter(driver)?;
        let _relaxed = Relaxed::new(driver);
        let buffer = match kind {
            FOR_OTHERS => {
                CudaBuffer::for_others(context, StreamHandle::NothingPending, ordinal, u8::TYPE, self.bytes)?
            }
            _ => CudaBuffer::uninitialized(kind, context, ordinal, u8::TYPE, self.bytes)?,
        };
        let from = address_for_kernels(self.from, info.device())?;
        queue_and_finish(driver, |stream| {
            // SAFETY: as in `queue`.
            unsafe { queue_copy(driver, stream, &self.plan, from, buffer.address) }
        })?;
        Ok(buffer)
    }

    /// Returns the description of the copy, with work pending on `stream`.
    fn info(&self, info: &ArrayInfo, buffer: &CudaBuffer, stream: StreamHandle) -> ArrayInfo {
        let start = buffer.address;
        let mutability = if self.layout.is_injective() { Mutability::Writable } else { info.mutability() };
        let description = Description {
            unwatched_address: if info.numel() == 0 { 0 } else { start + self.first },
            range: start..start + self.bytes,
            layout: self.layout.clone(),
            device: buffer.device,
            mutability,
            ..info.description.clone()
        };
        let release_is_ordered = buffer.release_is_ordered();
        let state = MemoryState {
            release_is_ordered,
            ..MemoryState::new(Placement::all_on(Stream::named(stream, buffer.device)))
        };
        ArrayInfo::new(description, state)
    }
}

/// Returns the layout of the same elements without gaps, in memory order. Elements that are repeated by a stride of 0 stay
/// repeated. Returns `None` if elements overlap in another way.
#[cfg(feature = "python")]
fn without_gaps(layout: &Layout) -> Option<Layout> {
    let (shape, axes) = (layout.shape(), layout.axes_apart()?);
    let (mut strides, mut count) = (vec![0_isize; shape.len()], 1_usize);
    for &at in &axes {
        strides[at] = count as isize;
        count *= shape[at];
    }
    for at in (0..shape.len()).rev().filter(|at| shape[*at] == 1) {
        // As in a contiguous array, because consumers derive the memory order from it.
        strides[at] = strides.get(at + 1).map_or(1, |next| (next * shape[at + 1] as isize).max(1));
    }
    Layout::strided(shape, &strides).ok()
}
