//! Copies of arrays between the host and a device. Each piece of a strided host array is made contiguous in pinned memory
//! while the piece before it is copied. The elements of a device array are made contiguous on the device.

use core::ptr::{null_mut, with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::{Arc, Mutex, PoisonError};

use interop_kernel::copy_plan::{CopyPlan, FROM, TO};

use crate::array::device::{Device, DeviceType};
use crate::array::element::{Element, ElementType};
use crate::array::layout::axes::each_part;
use crate::array::layout::order::Order;
use crate::array::stream_handle::StreamHandle;
use crate::driver::context::{Context, PerContext, Relaxed};
use crate::driver::event::Event;
use crate::driver::functions::{Driver, Outcome, driver, is_available};
use crate::driver::reach::Reach;
#[cfg(any(feature = "cudarc", feature = "cuda-core"))]
use crate::driver::stream::LEGACY;
use crate::driver::stream::{LocatedStream, OwnStream, Stream, capture_of, dead_stream};
use crate::error::{Error, ErrorKind, Result, text};
use crate::memory::copy::device::{contiguous_plan, copy_now, queue_copy};
use crate::memory::copy::fetch::{copy_compacted, fetch_buffer};
use crate::memory::copy::host::{axes_in_elements, copy_axes};
use crate::memory::cuda_buffer::CudaBuffer;
use crate::memory::host::cells::check_readable;
use crate::memory::host::strided::{Strided, with_elements};
use crate::memory::host_vec::HostBuffer;
use crate::memory::import::Import;
use crate::order::array_info::ArrayInfo;
use crate::order::block::MemoryKind;
use crate::order::claim::{Claim, shared_elements};
use crate::order::wait::{Work, finish_stream, order};

/// The size of a piece in bytes. Two pieces are used in turn.
const PIECE: usize = 4 << 20;

/// Smaller arrays are made contiguous in pageable memory, because pinning memory would cost more.
pub(crate) const LEAST_BYTES: usize = 1 << 20;

/// The address of two pieces of pinned memory for each context, which one upload at a time uses. They are kept, because pinning
/// memory takes longer than filling it.
static PIECES: PerContext<Arc<Mutex<usize>>> = PerContext::new();

/// Copies elements to memory of a device. The copy is complete on return. Returns `false` if an element is larger than a
/// piece, and if no pinned memory can be allocated.
///
/// # Errors
///
/// [`ErrorKind::Driver`](crate::ErrorKind::Driver) if a driver call fails;
/// [`ErrorKind::DType`](crate::ErrorKind::DType) for a byte that is not a valid `bool`.
///
/// # Safety
///
/// The elements are live host memory, and `plan` copies them. `target` has room for the copy, in memory that the driver can
/// access, and nothing else uses it.
unsafe fn upload(
    driver: &Driver,
    context: Context,
    element: &ElementType,
    plan: &CopyPlan,
    from: usize,
    target: usize,
) -> Result<bool> {
    if element.size > PIECE {
        return Ok(false);
    }
    let _entered = context.enter(driver)?;
    let _relaxed = Relaxed::new(driver);
    // A reset of the primary context, which frees the pieces, is found out here.
    let stream = OwnStream::spare(context).raw(driver)?;
    let Ok(pieces) = PIECES.with(driver, context, || pin(driver), |_, pieces| Arc::clone(pieces)) else {
        return Ok(false);
    };
    let pieces = pieces.lock().unwrap_or_else(PoisonError::into_inner);
    let stream = LocatedStream { context, raw: stream };
    let mut staged = StagedCopies { driver, stream, pieces: *pieces, queued: [None, None], next: 0 };
    // SAFETY: as the caller promises. Only this call uses the pieces while they are locked. An element fits into a
    // piece, as checked above.
    let copied = unsafe { copy_pieces(&mut staged, element, plan, from, target) };
    // Waits after an error, too, because the next call uses the pieces.
    copied.and(finish_stream(driver, stream.raw).map_err(Into::into)).map(|()| true)
}

/// Allocates two pieces in the current context.
fn pin(driver: &Driver) -> Outcome<Arc<Mutex<usize>>> {
    let mut memory = null_mut();
    // SAFETY: the pointer is valid for a write. A context is current.
    unsafe { driver.memory_host_alloc(&raw mut memory, 2 * PIECE, 0) }?;
    Ok(Arc::new(Mutex::new(memory.expose_provenance())))
}

/// The two pieces, and the pending copies from them.
struct StagedCopies<'d> {
    driver: &'d Driver,
    stream: LocatedStream,
    pieces: usize,
    queued: [Option<Event<'d>>; 2],
    next: usize,
}

impl StagedCopies<'_> {
    /// Fills a free piece and queues its copy.
    ///
    /// # Safety
    ///
    /// `fill` writes `bytes` bytes, at most [`PIECE`]. `target` has room for as many.
    unsafe fn copy(
        &mut self,
        target: usize,
        bytes: usize,
        fill: impl FnOnce(usize) -> Result<()>,
    ) -> Result<()> {
        let Self { driver, stream: LocatedStream { context, raw }, .. } = *self;
        if let Some(event) = self.queued[self.next].take() {
            event.wait()?;
        }
        let piece = self.pieces + self.next * PIECE;
        fill(piece)?;
        // SAFETY: both sides have `bytes` bytes, and are live until the stream has been waited for.
        unsafe { driver.copy(target as u64, piece as u64, bytes, raw) }?;
        self.queued[self.next] = Some(Event::of_stream(driver, Some(context), raw)?);
        self.next = 1 - self.next;
        Ok(())
    }
}

/// # Safety
///
/// As [`upload`]. Nothing else uses the pieces of `staged`. An element is at most as large as a piece.
unsafe fn copy_pieces(
    staged: &mut StagedCopies<'_>,
    element: &ElementType,
    plan: &CopyPlan,
    from: usize,
    target: usize,
) -> Result<()> {
    let axes = axes_in_elements(plan, element.size);
    each_part(&axes, (PIECE / element.size, usize::MAX), |offset, part| {
        let bytes = part.iter().map(|axis| axis.extent).product::<usize>() * element.size;
        let [target, from] = [TO, FROM].map(|side| {
            let start = if side == TO { target } else { from };
            start.wrapping_add_signed(offset[side] * element.size as isize)
        });
        let from = with_exposed_provenance(from);
        // SAFETY: the elements of the array are live. A piece has room for this many, because an element is not larger
        // than a piece. So has the target from this offset on.
        let fill =
            |piece: usize| unsafe { copy_axes(part, element, from, with_exposed_provenance_mut(piece)) };
        // SAFETY: as above.
        unsafe { staged.copy(target, bytes, fill) }
    })
}

/// A copy of an import, and the stream on which it is made.
pub(crate) struct ImportCopy {
    driver: &'static Driver,
    stream: LocatedStream,
    ordinal: i32,
    /// The stream by its name. `None` if nobody has named one.
    own: Option<Stream>,
    /// The stream of the import: the copy waits for it, and it waits for the copy.
    of_import: Option<Stream>,
    /// The source is in use by the copy.
    _claim: Option<Claim>,
    /// What the release of the source waits for, if a copy may be pending when the source is released.
    reach: Option<Reach>,
    /// Whether the target is memory that was allocated in the order of the stream.
    is_in_order: bool,
}

/// Finds the context of a stream, and its device. For a default stream of no known context, this is the one in which memory of
/// `device` is used.
fn locate(driver: &Driver, own: Option<Stream>, device: Device) -> Result<(LocatedStream, i32)> {
    let stream = own.unwrap_or(Stream::legacy(None, device)).in_context(driver)?;
    let _entered = stream.context.enter(driver)?;
    Ok((stream, Context::current_ordinal(driver)?))
}

impl ImportCopy {
    /// A copy on the stream of an import, which captures no graph.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Driver`] without a driver; [`ErrorKind::StreamCapture`] for a stream that captures a graph.
    pub(crate) fn new(import: &mut Import) -> Result<Self> {
        // First, because what others have not queued yet cannot be waited for.
        Claim::asked(import.info(), import.info().state.placement.stream(import.info().device()))?;
        let ((own, reach), driver) = (import.copy_stream()?, driver()?);
        let (stream, ordinal) = locate(driver, own, import.info().device())?;
        refuse_capture(driver, stream, own)?;
        // Memory of the host is read by the host, which records that itself.
        let claim = if import.info().device() == Device::CPU {
            None
        } else {
            let on = own.map(|own| own.with_context(driver)).transpose()?;
            Some(Claim::by_device(shared_elements(import.info()), false, on)?)
        };
        Ok(Self { driver, stream, ordinal, own, of_import: own, _claim: claim, reach, is_in_order: false })
    }

    /// A copy on the legacy default stream of the device's primary context, in which `cudarc` works.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new), and for a capture on a stream that synchronizes implicitly with the default stream.
    #[cfg(any(feature = "cudarc", feature = "cuda-core"))]
    pub(crate) fn on_default_stream(import: &mut Import) -> Result<Self> {
        let copy = Self::new(import)?;
        let of_import = copy.own.map(|own| own.with_context(copy.driver)).transpose()?;
        let context = Context::primary(copy.ordinal)?;
        let stream = LocatedStream { context, raw: LEGACY };
        let own = Some(Stream::legacy(Some(context), Device::cuda(copy.ordinal)));
        refuse_capture(copy.driver, stream, own)?;
        Ok(Self { stream, own, of_import, is_in_order: true, ..copy })
    }

    /// The device of the stream.
    #[cfg(any(feature = "cudarc", feature = "cuda-core"))]
    pub(crate) fn ordinal(&self) -> usize {
        self.ordinal.unsigned_abs() as usize
    }

    fn handle(&self) -> StreamHandle {
        self.own.map_or(StreamHandle::NothingPending, Stream::handle)
    }

    /// Copies the elements to `target`, contiguous in `order`. The copy waits for pending work on the import.
    ///
    /// If the host does not wait, the copy may be pending on return, and later work on the stream of the import waits for it. The host
    /// waits all the same if the release of the import would not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Driver`] if a driver call fails; [`ErrorKind::DType`] for other element types and for a byte that is not a
    /// valid `bool`.
    ///
    /// # Safety
    ///
    /// This was made for the import. `target` has room for as many elements, in memory that the driver can access, and nothing else
    /// uses it.
    pub(crate) unsafe fn copy(
        &self,
        import: &Import,
        element: &ElementType,
        memory_order: Order,
        target: usize,
        host_waits: bool,
    ) -> Result<()> {
        order(self.own.into(), Work::from(self.of_import))?;
        // SAFETY: as the caller promises; the elements are live while the import is.
        let copied = unsafe { self.queue(import.info(), element, memory_order, target) };
        // If a part failed, the parts before it are still queued, and read the source.
        let is_pending = copied.as_ref().map_or(true, |pending| *pending);
        let waits = host_waits || copied.is_err() || !self.is_guarded();
        let finished = if is_pending && waits { self.finish() } else { Ok(()) };
        copied.and(finished)?;
        if is_pending && !waits {
            order(self.of_import.into(), Work::from(self.own))?;
            import.wait_for_copy(self.of_import)?;
        }
        Ok(())
    }

    /// Copies the elements of an array to `target`, contiguous in `order`. Returns whether the copy may still be pending
    /// on the stream.
    ///
    /// # Safety
    ///
    /// The memory of the array is live. `target` has room for as many elements, in memory that the driver can access, and
    /// nothing else uses it.
    unsafe fn queue(
        &self,
        info: &ArrayInfo,
        element: &ElementType,
        order: Order,
        target: usize,
    ) -> Result<bool> {
        let layout = info.layout_of(element)?;
        let plan = contiguous_plan(&layout, order, element.size);
        let is_one_copy = plan.axes.is_empty() && info.device().device_type != DeviceType::CPU;
        if element.any_bits && (is_one_copy || self.reaches(info.device())) {
            let _entered = self.stream.context.enter(self.driver)?;
            // SAFETY: as the caller promises.
            unsafe { queue_copy(self.driver, self.stream, &plan, info.unwatched_address, target) }?;
            return Ok(true);
        }
        if self.is_in_order {
            // What follows uses other streams.
            self.finish()?;
        }
        if element.any_bits && info.device().device_type == DeviceType::CUDA {
            let claim = Claim::by_device(shared_elements(info), false, None)?;
            // SAFETY: as above; the driver copies between devices.
            if unsafe { copy_compacted(info, &claim, &plan, target) }? {
                return Ok(false);
            }
        }
        // SAFETY: as the caller promises.
        unsafe { self.copy_by_host(info, element, &plan, order, target) }.map(|()| false)
    }

    /// Copies elements that may have to be checked or reordered on the host first. The copy is complete on return.
    ///
    /// # Safety
    ///
    /// As [`queue`](Self::queue). The plan copies the elements of the array.
    unsafe fn copy_by_host(
        &self,
        info: &ArrayInfo,
        element: &ElementType,
        plan: &CopyPlan,
        order: Order,
        target: usize,
    ) -> Result<()> {
        let copy_from = |from, bytes| {
            // SAFETY: both sides have `bytes` bytes, and are live until the copy has been waited for.
            Ok(unsafe { copy_now(self.driver, self.stream.context, target, from, bytes) }?)
        };
        if !info.device().device_type.is_host_accessible() {
            // SAFETY: the memory is live, as the caller promises.
            let fetched = unsafe { fetch_buffer(info, element, order) }?;
            return copy_from(fetched.address(), fetched.bytes);
        }
        let claim = Claim::by_host(shared_elements(info), false)?;
        check_readable(info.work(), &claim)?;
        if element.any_bits && plan.axes.is_empty() {
            return copy_from(info.unwatched_address, plan.run);
        }
        if plan.bytes() >= LEAST_BYTES {
            // SAFETY: as the caller promises; the host can access the elements.
            let done = unsafe {
                upload(self.driver, self.stream.context, element, plan, info.unwatched_address, target)
            }?;
            if done {
                return Ok(());
            }
        }
        let copy = HostBuffer::uninit(*element, info.layout_of(element)?.numel())?;
        let from = with_exposed_provenance(info.unwatched_address);
        let axes = axes_in_elements(plan, element.size);
        // SAFETY: as above. The buffer is new and has room for the elements.
        unsafe { copy_axes(&axes, element, from, with_exposed_provenance_mut(copy.address())) }?;
        copy_from(copy.address(), copy.bytes)
    }

    /// Whether kernels of this device can use memory of `device` at its host address.
    fn reaches(&self, device: Device) -> bool {
        device == Device::cuda(self.ordinal) || device == Device::CUDA_MANAGED
    }

    /// Waits on the host for the work on the stream.
    fn finish(&self) -> Result<()> {
        let _entered = self.stream.context.enter(self.driver)?;
        let _relaxed = Relaxed::new(self.driver);
        Ok(finish_stream(self.driver, self.stream.raw)?)
    }

    /// Whether another library that keeps the stream handle refers to the same stream. It may use a default stream in
    /// the primary context, while another context is current here.
    fn is_named(&self) -> bool {
        let primary = || Context::primary_in_use(self.driver, self.ordinal);
        matches!(self.handle(), StreamHandle::Raw(_)) || primary() == Ok(Some(self.stream.context))
    }

    /// Whether the release of the source waits for work in this context.
    fn is_guarded(&self) -> bool {
        self.reach.is_some_and(|reach| reach.covers(self.driver, self.stream.context, self.ordinal))
    }
}

/// Returns an error if the stream, or a stream that synchronizes with it implicitly, captures a graph. The caller
/// checks this before it allocates memory, because an allocation would end the capture.
fn refuse_capture(driver: &Driver, stream: LocatedStream, own: Option<Stream>) -> Result<()> {
    let _entered = stream.context.enter(driver)?;
    let handle = own.map_or(StreamHandle::NothingPending, Stream::handle);
    let which = match capture_of(driver, stream.raw) {
        Ok(None) => return Ok(()),
        Ok(Some(_)) => "which",
        Err(failure) if failure.is_about_capture() => "while a stream that joins with it",
        Err(failure) => return Err(dead_stream(failure, handle)),
    };
    let found = text!("{handle}, {which} captures a graph");
    let allowed = "an import in place (`Lease`, `LeaseMut`), because a copy needs new memory";
    Err(Error::new(ErrorKind::StreamCapture, "stream", found, allowed))
}

/// Returns the device of a stream of its primary context. For a default stream, this is the device of the context in
/// which memory of `device` is used.
///
/// # Errors
///
/// [`ErrorKind::Driver`] without a driver; [`ErrorKind::Stream`] for a stream of another context than the primary one.
#[cfg(any(feature = "cudarc", feature = "cuda-core"))]
pub(crate) fn ordinal_of(handle: StreamHandle, device: Device) -> Result<usize> {
    let (stream, ordinal) = locate(driver()?, Stream::new(handle, None, device), device)?;
    if matches!(handle, StreamHandle::Raw(_)) && Context::primary(ordinal)? != stream.context {
        let found = text!("{handle}, of a context that is not the primary one of device {ordinal}");
        let allowed = "a stream of the primary context, in which `cudarc` and `cuda-core` work; a `StreamHandle` holds any";
        return Err(Error::new(ErrorKind::Stream, "stream", found, allowed));
    }
    Ok(ordinal.unsigned_abs() as usize)
}

/// Copies the elements of an import into new memory, contiguous in `order`. Returns `None` without elements; then no
/// driver is needed.
///
/// Device memory is allocated on the device of the import's copy stream. On return, the copy may still be pending on
/// that stream. A copy into host-accessible memory is complete.
///
/// # Errors
///
/// [`ErrorKind::Driver`] without a driver or if the allocation fails; [`ErrorKind::StreamCapture`] for a stream that
/// captures a graph; [`ErrorKind::DType`] for other element types and for a byte that is not a valid `bool`.
pub(crate) fn copy_to_buffer(
    import: &mut Import,
    element: ElementType,
    kind: MemoryKind,
    memory_order: Order,
) -> Result<Option<CudaBuffer>> {
    let count = import.info().layout_of(&element)?.numel();
    if count == 0 {
        return Ok(None);
    }
    let copy = ImportCopy::new(import)?;
    // The contiguous copy of a broadcast array can be larger than the memory that the array spans.
    let bytes = count.checked_mul(element.size).ok_or_else(|| element.too_large(count))?;
    // What is copied by the host first is not in the order of the stream.
    let is_queued = element.any_bits && copy.reaches(import.info().device());
    let (context, ordinal, handle) = (copy.stream.context, copy.ordinal, copy.handle());
    let target = if kind == MemoryKind::Pool && is_queued {
        CudaBuffer::in_order(context, handle, ordinal, element, bytes)?
    } else {
        CudaBuffer::uninitialized(kind, context, ordinal, element, bytes)?
    };
    let host_waits = !matches!(kind, MemoryKind::Device | MemoryKind::Pool) || !copy.is_named();
    // SAFETY: the memory is new and has room for the elements.
    let copied = unsafe { copy.copy(import, &element, memory_order, target.address, host_waits) };
    target.note_work(handle);
    copied?;
    Ok(Some(target))
}

/// Copies the elements of an import into memory of another allocator, contiguous in `order`. The copy waits for pending work on the
/// import, and is complete on return.
///
/// A [`FromImport`](crate::storage::FromImport) of your own allocates the memory, and calls this. `T` may have a lower rank than
/// the import: `[f32; 3]` takes the last axis. No context has to be current. Without elements `target` may be null.
///
/// # Errors
///
/// [`ErrorKind::Driver`] without a driver, unless the import is from the host, and if a driver call fails;
/// [`ErrorKind::StreamCapture`] if the import's stream captures a graph; [`ErrorKind::DType`] for other element types and for a byte
/// that is not a valid `bool`.
///
/// # Safety
///
/// 1. `target` has room for the elements of the import and is aligned for them. Nothing else uses the memory until this returns.
/// 2. It is pinned or managed memory, which all devices use at the same address, or memory of the device of the import. For an
///    import from the host it is any host memory, or memory of the device that is current.
pub unsafe fn copy_import<T: Element>(
    import: &mut Import,
    memory_order: Order,
    target: *mut T,
) -> Result<()> {
    if import.info().layout_of(&T::TYPE)?.is_empty() {
        return Ok(());
    }
    if import.info().device() == Device::CPU && !is_available() {
        // SAFETY: as the caller promises; without a driver the target is host memory.
        let copy = |elements: Strided<'_, T>| unsafe { elements.copy_to(memory_order, target) };
        // SAFETY: the elements are live while the import is.
        return unsafe { with_elements(import.info(), false, copy) };
    }
    let copy = ImportCopy::new(import)?;
    // SAFETY: as the caller promises.
    unsafe { copy.copy(import, &T::TYPE, memory_order, target.expose_provenance(), true) }
}
