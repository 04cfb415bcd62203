//! Copies of imported arrays into contiguous CUDA memory, for the buffers of `cust` and `cudarc`.
#![expect(unsafe_code, reason = "calls the driver, and reads the memory of imports")]

use crate::array::device::{Device, DeviceType};
use crate::array::element::Element;
use crate::array::layout::order::Order;
use crate::array::stream::StreamHandle;
#[cfg(feature = "cust")]
use crate::cuda::allocation::MemoryKind;
#[cfg(feature = "cust")]
use crate::cuda::buffer::CudaBuffer;
use crate::cuda::context::{Context, Relaxed};
use crate::cuda::copy::copy_now;
use crate::cuda::copy_kernel::queue_copy;
use crate::cuda::copy_plan::CopyPlan;
use crate::cuda::default_context::context_for;
use crate::cuda::driver::{Driver, RawStream, driver};
use crate::cuda::release::scope::ReleaseScope;
use crate::cuda::stream_query::{LEGACY, capture_of, context_of_live, dead_stream};
#[cfg(feature = "cudarc")]
use crate::cuda::stream_wait::{stream_synchronize, stream_wait_in};
use crate::error::{Error, ErrorKind, Result, text};
use crate::memory::fetch::{copy_compacted, fetch_vec};
use crate::memory::import::Import;
#[cfg(feature = "cust")]
use crate::memory::storage::Storage;
use crate::memory::upload::{LEAST_BYTES, upload};

/// A context and one of its streams, on which a copy is made.
struct CopyTarget {
    driver: &'static Driver,
    context: Context,
    ordinal: i32,
    stream: RawStream,
}

impl CopyTarget {
    /// Finds the context of a stream. For a default stream, this is the context in which memory of `device` is used.
    fn of(stream: StreamHandle, device: Device) -> Result<Self> {
        let driver = driver()?;
        let raw = stream.to_raw().unwrap_or(LEGACY);
        let context =
            context_of_live(driver, stream, raw)?.map_or_else(|| context_for(driver, device), Ok)?;
        let _entered = context.enter(driver)?;
        let ordinal = Context::current_ordinal(driver)?;
        Ok(Self { driver, context, ordinal, stream: raw })
    }

    /// Copies the elements of an import to `target`, contiguous in `order`. Returns whether the copy may still be
    /// pending on the stream.
    ///
    /// # Safety
    ///
    /// `target` has room for as many elements, in memory that the driver can access, and nothing else uses it.
    unsafe fn copy<T: Element>(&self, import: &Import, order: Order, target: usize) -> Result<bool> {
        let info = import.info();
        let plan = CopyPlan::compact(&info.layout_of(&T::TYPE)?, order, size_of::<T>());
        let is_one_copy = plan.axes.is_empty() && info.device().device_type != DeviceType::CPU;
        if T::TYPE.any_bits && (is_one_copy || self.reaches(info.device())) {
            let _entered = self.context.enter(self.driver)?;
            let at = (self.context, self.stream);
            // SAFETY: the elements of the import are live while the import is. The target has room for them.
            unsafe { queue_copy(self.driver, at, &plan, info.address, target) }?;
            return Ok(true);
        }
        if T::TYPE.any_bits && info.device().device_type == DeviceType::CUDA {
            // SAFETY: as above; the driver copies between devices.
            if unsafe { copy_compacted(info, &plan, target) }? {
                return Ok(false);
            }
        }
        // SAFETY: as the caller promises.
        unsafe { self.copy_by_host::<T>(import, &plan, order, target) }.map(|()| false)
    }

    /// Copies elements that may have to be checked or reordered on the host first. The copy is complete on return.
    ///
    /// # Safety
    ///
    /// As [`copy`](Self::copy). `plan` copies the elements of the import.
    unsafe fn copy_by_host<T: Element>(
        &self,
        import: &Import,
        plan: &CopyPlan,
        order: Order,
        target: usize,
    ) -> Result<()> {
        let info = import.info();
        let copy_from = |from, bytes| {
            // SAFETY: both sides have `bytes` bytes, and are live until the copy has been waited for.
            Ok(unsafe { copy_now(self.driver, self.context, target, from, bytes) }?)
        };
        if !info.device().device_type.is_host_accessible() {
            // SAFETY: the memory is live while the import is (contract of its constructors).
            let elements = unsafe { fetch_vec::<T>(info, order) }?;
            return copy_from(elements.as_ptr().expose_provenance(), size_of_val(&*elements));
        }
        // SAFETY: the elements are used while the import exists.
        let elements = unsafe { import.elements::<T>() }?;
        if T::TYPE.any_bits && plan.axes.is_empty() {
            return copy_from(info.address, plan.run);
        }
        if plan.bytes() >= LEAST_BYTES {
            // SAFETY: as the caller promises.
            if unsafe { upload((self.driver, self.context), &elements, order, target) }? {
                return Ok(());
            }
        }
        let elements = elements.to_vec(order)?;
        copy_from(elements.as_ptr().expose_provenance(), size_of_val(&*elements))
    }

    /// Whether kernels of this device can use memory of `device` at its host address.
    fn reaches(&self, device: Device) -> bool {
        device == Device::cuda(self.ordinal) || device == Device::CUDA_MANAGED
    }

    /// Returns an error if the stream, or a stream that synchronizes with it implicitly, captures a graph. The caller
    /// checks this before it allocates memory, because an allocation would end the capture.
    fn refuse_capture(&self, stream: StreamHandle) -> Result<()> {
        let _entered = self.context.enter(self.driver)?;
        let which = match capture_of(self.driver, self.stream) {
            Ok(None) => return Ok(()),
            Ok(Some(_)) => "which",
            Err(failure) if failure.is_about_capture() => "while a stream that joins with it",
            Err(failure) => return Err(dead_stream(failure, stream)),
        };
        let found = text!("{stream}, {which} captures a graph");
        let allowed = "an import in place (`Lease`, `LeaseMut`), because a copy needs new memory";
        Err(Error::new(ErrorKind::StreamCapture, "stream", found, allowed))
    }

    /// Waits on the host for the work on the stream.
    fn finish(&self) -> Result<()> {
        let _entered = self.context.enter(self.driver)?;
        let _relaxed = Relaxed::new(self.driver);
        // SAFETY: the stream is live, as the creator of its handle promised.
        Ok(unsafe { self.driver.stream_synchronize(self.stream) }?)
    }

    /// Whether another library that keeps the stream handle refers to the same stream. It may use a default stream in
    /// the primary context, while another context is current here.
    #[cfg(feature = "cust")]
    fn is_named(&self, stream: StreamHandle) -> bool {
        let is_primary = || Context::primary_in_use(self.driver, self.ordinal) == Ok(Some(self.context));
        matches!(stream, StreamHandle::Raw(_)) || is_primary()
    }

    /// Whether the release of the source waits for work in this context.
    fn is_guarded(&self, source: Option<ReleaseScope>) -> bool {
        source.is_some_and(|scope| scope.covers(self.driver, self.context, self.ordinal))
    }
}

/// Returns the device of a stream of its primary context. For a default stream, this is the device of the context in
/// which memory of `device` is used.
///
/// # Errors
///
/// [`ErrorKind::Driver`] without a driver; [`ErrorKind::Stream`] for a stream of another context than the primary one.
#[cfg(feature = "cudarc")]
pub(crate) fn ordinal_of(stream: StreamHandle, device: Device) -> Result<usize> {
    let CopyTarget { context, ordinal, .. } = CopyTarget::of(stream, device)?;
    if matches!(stream, StreamHandle::Raw(_)) && Context::primary(ordinal)? != context {
        let found = text!("{stream}, of a context that is not the primary one of device {ordinal}");
        let allowed =
            "a stream of the primary context, the only one that `cudarc` uses; a `StreamHandle` holds any";
        return Err(Error::new(ErrorKind::Stream, "stream", found, allowed));
    }
    Ok(ordinal.unsigned_abs() as usize)
}

/// The target of a copy on the legacy default stream of a device's primary context, in which `cudarc` works.
#[cfg(feature = "cudarc")]
pub(crate) struct DefaultStreamTarget {
    site: CopyTarget,
    /// The copy waits for this stream, and the stream for the copy. The scope is the release scope of the source.
    beside: (StreamHandle, Option<ReleaseScope>),
}

#[cfg(feature = "cudarc")]
impl DefaultStreamTarget {
    /// Creates the target on the device of the import's copy stream.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Driver`] without a driver; [`ErrorKind::StreamCapture`] while that stream, or one that synchronizes
    /// implicitly with the default stream, captures a graph.
    pub(crate) fn of(import: &mut Import) -> Result<Self> {
        let (stream, scope) = import.copy_stream()?;
        let device = import.info().device();
        let user = CopyTarget::of(stream, device)?;
        user.refuse_capture(stream)?;
        let site = CopyTarget { context: Context::primary(user.ordinal)?, stream: LEGACY, ..user };
        site.refuse_capture(StreamHandle::LegacyDefault)?;
        let is_named = matches!(stream, StreamHandle::Raw(_));
        if is_named || user.context == site.context {
            return Ok(Self { site, beside: (stream, scope) });
        }
        // A default stream of another context cannot be named in the primary context. The host waits for it now, and
        // later for the copy.
        stream_synchronize(stream, device)?;
        Ok(Self { site, beside: (StreamHandle::NothingPending, None) })
    }

    pub(crate) fn ordinal(&self) -> usize {
        self.site.ordinal.unsigned_abs() as usize
    }
}

/// Copies the elements of an import into new memory, contiguous in `order`. Returns its address, which the caller must
/// free, and the number of elements. Without elements no memory is allocated, and no driver is needed.
///
/// Device memory is allocated on the device of the import's copy stream. On return, the copy may still be pending on
/// that stream. A copy into host-accessible memory is complete.
///
/// # Errors
///
/// [`ErrorKind::Driver`] without a driver or if the allocation fails; [`ErrorKind::StreamCapture`] for a stream that
/// captures a graph; [`ErrorKind::DType`] for other element types and for a byte that is not a valid `bool`.
#[cfg(feature = "cust")]
pub(crate) fn copied<T: Element>(
    import: &mut Import,
    kind: MemoryKind,
    order: Order,
) -> Result<(usize, usize)> {
    let count = import.info().layout_of(&T::TYPE)?.numel();
    if count == 0 {
        return Ok((0, 0));
    }
    let (stream, scope) = import.copy_stream()?;
    let site = CopyTarget::of(stream, import.info().device())?;
    site.refuse_capture(stream)?;
    // The contiguous copy of a broadcast array can be larger than the memory that the array spans.
    let bytes = count.checked_mul(size_of::<T>()).ok_or_else(|| T::TYPE.too_large(count))?;
    let target = CudaBuffer::uninitialized(kind, site.context, site.ordinal, T::TYPE, bytes)?;
    // SAFETY: the memory is new and has room for the elements.
    let pending = unsafe { site.copy::<T>(import, order, target.memory().address) }?;
    if pending && !(kind == MemoryKind::Device && site.is_guarded(scope) && site.is_named(stream)) {
        site.finish()?;
    } else if pending {
        import.wait_for_copy(stream)?;
    }
    Ok((target.into_address(), count))
}

/// Copies the elements of an import to `target`, contiguous in `order`, on the legacy default stream of a device. The
/// copy waits for pending work on the import. Later work on the import's copy stream waits for the copy.
///
/// # Errors
///
/// As [`copied`] and [`stream_wait`](crate::cuda::stream_wait::stream_wait).
///
/// # Safety
///
/// `at` was created for this import. `target` has room for as many elements, in memory of its device, and nothing else
/// uses it.
#[cfg(feature = "cudarc")]
pub(crate) unsafe fn copy_on_default_stream<T: Element>(
    import: &Import,
    order: Order,
    at: &DefaultStreamTarget,
    target: usize,
) -> Result<()> {
    let DefaultStreamTarget { site, beside: (stream, scope) } = at;
    let (device, here) = (Device::cuda(site.ordinal), Some(site.context));
    stream_wait_in(StreamHandle::LegacyDefault, *stream, device, here)?;
    // SAFETY: as the caller promises.
    let copied = unsafe { site.copy::<T>(import, order, target) };
    // If a part failed, the parts before it are still queued.
    let pending = copied.as_ref().map_or(true, |pending| *pending);
    let finished = if pending && !site.is_guarded(*scope) { site.finish() } else { Ok(()) };
    copied.and(finished)?;
    stream_wait_in(*stream, StreamHandle::LegacyDefault, device, here)?;
    import.wait_for_copy(*stream)
}
