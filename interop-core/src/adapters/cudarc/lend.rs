//! Arrays of any owner as slices of `cudarc`, without a copy.

use core::mem::{ManuallyDrop, forget};
use core::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ::cudarc::driver::{CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtrMut, SyncOnDrop};

use crate::adapters::cudarc::streams::{current, device_of, driver_context, handle_on};
use crate::adapters::{check_allocated_in, contiguous_elements, failed};
use crate::array::element::Element;
use crate::derive::cuda_array::CudaArray;
use crate::derive::fields::stream::AsStream;
use crate::derive::launch_scope::LaunchScope;
use crate::derive::scope_state::ScopeUse;
use crate::driver::stream::is_capturing;
use crate::error::{Error, ErrorKind, Result, text};
use crate::order::array_info::ArrayInfo;

/// An array in memory of a device, lent to `cudarc` for reading. Nothing is copied.
///
/// [`view`](Self::view) is a `CudaView`, which launches, `memcpy_dtoh`, cuBLAS and custom operators of `candle` take. The
/// stream of the view waits for pending work on the array. At the end ([`finish`](Self::finish), or the drop) the array's
/// stream waits for the work on the view: this is a [`LaunchScope`] of one array. The array's owner frees the memory.
///
/// The array must be contiguous, in C or Fortran order; the view has its elements in the order of the memory. `bool`, and
/// other types for which some bytes are invalid, do not compile, because `cudarc` copies elements to the host unchecked.
///
/// A loan that is leaked (`mem::forget`) does not end: the array's stream does not wait for the work on the view.
///
/// Use the view on its own stream. `cudarc` orders uses on other streams of the same `CudaContext` as it does for its own
/// slices: if event tracking is on, by the last read and the last write. A stream that captures a graph needs a
/// `CudaContext` without event tracking (`disable_event_tracking`), because `cudarc` would wait for events outside the graph.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
/// use interop_core::adapters::cudarc::{LentSlice, LentSliceMut};
/// use interop_core::{CudaArray, Lease, LeaseMut};
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len])]
/// struct Row<S> { #[cuda_array(data)] values: S, len: usize }
///
/// /// `kernel` is `extern "C" __global__ void add(float *out, const float *other)`.
/// fn add_(
///     kernel: &CudaFunction,
///     stream: &Arc<CudaStream>,
///     out: &mut Row<LeaseMut<f32>>,
///     other: &Row<Lease<f32>>,
/// ) -> Result<(), Box<dyn std::error::Error>> {
///     let config = LaunchConfig::for_num_elems(u32::try_from(out.len.max(1))?);
///     let other = LentSlice::<f32>::with_stream(other, stream)?;        // `stream` waits for the arrays
///     let mut out = LentSliceMut::<f32>::with_stream(out, stream)?;
///     // SAFETY: the kernel takes these arguments, and both arrays have an element for each of its threads.
///     unsafe { stream.launch_builder(kernel).arg(&mut out.view_mut()).arg(&other.view()).launch(config)? };
///     out.finish()?;                                           // the streams of the arrays wait for the kernel
///     Ok(other.finish()?)
/// }
/// ```
///
/// An array of `bool` cannot be lent:
///
/// ```compile_fail,E0080
/// # use interop_core::{adapters::cudarc::LentSlice, CudaArray};
/// # fn mask() -> Box<dyn CudaArray> { unimplemented!() }
/// let mask = mask();
/// let lent = LentSlice::<bool>::new(&*mask).unwrap();
/// ```
#[derive(Debug)]
pub struct LentSlice<'a, T> {
    // Dropped before the scope: then the stream of the scope has waited for uses on other streams.
    slice: Unowned<T>,
    scope: LaunchScope<'a>,
}

/// As [`LentSlice`], for reading and writing.
#[derive(Debug)]
pub struct LentSliceMut<'a, T>(LentSlice<'a, T>);

impl<'a, T: Element> LentSlice<'a, T> {
    /// Lends an array on its own stream, which [`stream`](Self::stream) returns.
    ///
    /// # Errors
    ///
    /// As [`with_stream`](Self::with_stream), and as [`FromStream::from_stream`](crate::launch::FromStream::from_stream).
    pub fn new(array: &'a (impl CudaArray + ?Sized)) -> Result<Self> {
        Self::lend(array, None)
    }

    /// Lends an array on a stream of yours.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Device`] if the memory is not on the device of the stream, or was allocated in another context;
    /// [`ErrorKind::DType`] for another element type; [`ErrorKind::Strides`] if the array is not contiguous;
    /// [`ErrorKind::Alignment`] if its address is not aligned for `T`; [`ErrorKind::StreamCapture`] for a captured stream of
    /// a context with event tracking; [`ErrorKind::Driver`] if a driver call fails; and as [`LaunchScope::read`].
    pub fn with_stream(array: &'a (impl CudaArray + ?Sized), stream: &Arc<CudaStream>) -> Result<Self> {
        Self::lend(array, Some(stream))
    }

    fn lend(array: &'a (impl CudaArray + ?Sized), stream: Option<&Arc<CudaStream>>) -> Result<Self> {
        let info = array.info()?;
        let scope_use = ScopeUse::read(array, &info);
        Self::from_info(&info, stream, scope_use)
    }

    /// Lends the array of a description, which the caller borrows for `'a`.
    fn from_info(
        info: &ArrayInfo,
        stream: Option<&Arc<CudaStream>>,
        scope_use: ScopeUse<'a>,
    ) -> Result<Self> {
        const {
            assert!(T::TYPE.any_bits, "not every byte is a value of this type");
        };
        let (address, len) = contiguous_elements::<T>(info)?;
        let (scope, stream) = if let Some(stream) = stream {
            check_place(info, stream)?;
            let scope = LaunchScope::on_handle(handle_on(stream, device_of(stream.context())));
            scope.add(info, scope_use)?;
            (scope, stream.clone())
        } else {
            let scope = LaunchScope::new();
            scope.add(info, scope_use)?;
            let stream: Arc<CudaStream> = scope.stream()?;
            check_place(info, &stream)?;
            (scope, stream)
        };
        check_capture(&stream)?;
        let _guards = (current(stream.context()), crate::driver::context::relaxed());
        // SAFETY: rule 1 of `CudaArray`: `len` elements are at this address for the lifetime of the borrow, and every bit
        // pattern is a `T`. They are in the context of the stream. The slice is not dropped.
        let slice = unsafe { slice_over(&stream, address, len) }?;
        let mut slice = Unowned(ManuallyDrop::new(slice));
        // Other streams of `cudarc` wait for what the stream has waited for.
        let (_, written) = slice.0.device_ptr_mut(&stream);
        record(written)?;
        Ok(Self { slice, scope })
    }

    /// The elements, in the order of the memory.
    #[must_use]
    pub fn view(&self) -> CudaView<'_, T> {
        self.slice.0.as_view()
    }

    /// The stream of the view.
    #[must_use]
    pub fn stream(&self) -> &Arc<CudaStream> {
        self.slice.0.stream()
    }

    /// Ends the loan: the array's stream waits for the work on the view.
    ///
    /// # Errors
    ///
    /// As [`LaunchScope::finish`].
    pub fn finish(self) -> Result<()> {
        let Self { slice, scope } = self;
        drop(slice);
        scope.finish()
    }
}

impl<'a, T: Element> LentSliceMut<'a, T> {
    /// As [`LentSlice::new`].
    ///
    /// # Errors
    ///
    /// As [`with_stream`](Self::with_stream), and as [`LentSlice::new`].
    pub fn new(array: &'a mut (impl CudaArray + ?Sized)) -> Result<Self> {
        Self::lend(array, None)
    }

    /// As [`LentSlice::with_stream`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ReadOnly`] for a read-only array; and as [`LentSlice::with_stream`].
    pub fn with_stream(array: &'a mut (impl CudaArray + ?Sized), stream: &Arc<CudaStream>) -> Result<Self> {
        Self::lend(array, Some(stream))
    }

    fn lend(array: &'a mut (impl CudaArray + ?Sized), stream: Option<&Arc<CudaStream>>) -> Result<Self> {
        let info = array.info()?;
        info.check_writable()?;
        let scope_use = ScopeUse::write(array, &info)?;
        LentSlice::from_info(&info, stream, scope_use).map(Self)
    }

    /// The elements, in the order of the memory.
    #[must_use]
    pub fn view_mut(&mut self) -> CudaViewMut<'_, T> {
        self.0.slice.0.as_view_mut()
    }

    /// As [`LentSlice::finish`].
    ///
    /// # Errors
    ///
    /// As [`LaunchScope::finish`].
    pub fn finish(self) -> Result<()> {
        self.0.finish()
    }
}

impl<'a, T> Deref for LentSliceMut<'a, T> {
    type Target = LentSlice<'a, T>;

    fn deref(&self) -> &LentSlice<'a, T> {
        &self.0
    }
}

/// A slice whose memory belongs to somebody else.
#[derive(Debug)]
struct Unowned<T>(ManuallyDrop<CudaSlice<T>>);

impl<T> Drop for Unowned<T> {
    fn drop(&mut self) {
        // SAFETY: the slice is taken once.
        let slice = unsafe { ManuallyDrop::take(&mut self.0) };
        let _guards = (current(slice.context()), crate::driver::context::relaxed());
        // This makes the slice's stream wait for uses on other streams, and destroys the events.
        slice.leak();
    }
}

/// Returns an error unless the memory is on the device of a stream, and of its context or of none.
fn check_place(info: &ArrayInfo, stream: &CudaStream) -> Result<()> {
    let (context, device) = (stream.context(), device_of(stream.context()));
    if info.device != device {
        let allowed = text!("memory of {device}, the device of the stream; copy the array there");
        return Err(Error::new(ErrorKind::Device, "device", info.device, allowed));
    }
    check_allocated_in(info.unwatched_address, driver_context(context))
}

/// Returns an error for a captured stream if `cudarc` would make it wait for an event that was recorded outside the graph.
fn check_capture(stream: &CudaStream) -> Result<()> {
    if !stream.context().is_event_tracking() || !is_capturing(stream.as_stream()) {
        return Ok(());
    }
    let found = "a captured stream of a `CudaContext` with event tracking";
    let allowed = "a `CudaContext` without event tracking (`disable_event_tracking`), or a kernel view in a `LaunchScope`";
    Err(Error::new(ErrorKind::StreamCapture, "stream", found, allowed))
}

/// Records that a slice was written, as `cudarc` would, but returns the error.
///
/// `cudarc` records the event only if the context has several streams. They may belong to another `CudaContext`.
pub(crate) fn record(written: SyncOnDrop<'_>) -> Result<()> {
    let recorded = match &written {
        SyncOnDrop::Record(Some((event, stream))) => event.record(stream),
        _ => Ok(()),
    };
    forget(written);
    recorded.map_err(|error| failed("record", error, "an event of the stream's own context"))
}

/// Makes a slice over memory, which its drop frees.
///
/// `cudarc` has only one function for this. It unwraps errors of the events that it creates, so the panic is caught
/// here. The panic hook still runs, and with `panic = "abort"` the program ends.
///
/// # Safety
///
/// There are `len` values of `T` at `address`, in memory of the stream's context. The slice is dropped only if it may free
/// them.
pub(crate) unsafe fn slice_over<T>(
    stream: &Arc<CudaStream>,
    address: u64,
    len: usize,
) -> Result<CudaSlice<T>> {
    // SAFETY: as the caller promises.
    let slice = catch_unwind(AssertUnwindSafe(|| unsafe { stream.upgrade_device_ptr(address, len) }));
    slice.map_err(|panic| {
        let found = panic.downcast_ref::<String>().map_or("a panic of `cudarc`", String::as_str);
        Error::new(ErrorKind::Driver, "cuEventCreate", found, "a context that can have two more events")
    })
}
