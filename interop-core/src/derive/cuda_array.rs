//! The trait of derived structs: describe, view, read, write and export an array.
#![expect(unsafe_code, reason = "implements and calls functions that rely on the trait's memory rules")]

use std::sync::Arc;

use crate::array::device::DeviceType;
use crate::array::element::Element;
use crate::array::layout::order::Order;
use crate::array::stream_handle::StreamHandle;
use crate::derive::fields::axes::{ShapeField, StridesField};
use crate::derive::fields::stream::AsStream;
use crate::driver::pointer::address_for_kernels;
use crate::driver::reach::InReach;
use crate::driver::stream::Stream;
use crate::error::{Refused, Result};
use crate::memory::array_view::{ArrayView, ArrayViewMut};
use crate::memory::host::cells::ReadOnlyCell;
use crate::memory::host::strided::{Strided, StridedMut, with_elements, with_elements_mut};
use crate::memory::maybe_dangling::MaybeDangling;
use crate::memory::storage::Storage;
use crate::order::array_info::ArrayInfo;
use crate::order::handover::{hand_back, hand_over, stream_for_interface};
use crate::order::placement::Placement;
use crate::order::release::queue::poll_in_passing;
use crate::protocols::cai::CudaArrayInterface;
use crate::protocols::dlpack::abi::{TensorAbi, Versioned};
use crate::protocols::dlpack::export::{ExportedValue, Ownership, export_described, export_kept};
use crate::protocols::dlpack::managed_tensor::ManagedTensor;

/// A struct that holds array memory. Implement it by `#[derive(CudaArray)]`.
///
/// `dyn CudaArray` describes arrays of any struct: [`info`](Self::info), [`to_cai`](Self::to_cai), the waits, and
/// [`LaunchScope`](crate::LaunchScope). Methods that are generic or take the struct need its type.
///
/// # Safety
///
/// 1. The memory in the [`byte_range`](ArrayInfo::byte_range) of [`info`](Self::info) is live and initialized as long
///    as `self` is. It is on the stated device, and may be written if `info` says so. For host memory, the provenance
///    of the address has been exposed.
/// 2. Moving `self` does not move the memory. Only methods that take `&mut self` free or replace the memory.
/// 3. No method with `&self` writes to the memory, except by a view, which records the access. If `info` says
///    [`Mutability::Writable`](crate::array::mutability::Mutability::Writable), no method with `&self` returns a
///    reference to the memory.
/// 4. If `info` says [`Mutability::UniqueOwner`](crate::array::mutability::Mutability::UniqueOwner), nothing but borrows of
///    `self` uses the memory as long as `self` exists: an export that consumes `self` lets its consumer write. A handle
///    of a shared array, such as a struct around an `Arc`, says
///    [`ReadOnly`](crate::array::mutability::Mutability::ReadOnly) instead, as `Arc<impl Storage>` does.
/// 5. The drop, and any method that frees or replaces device memory, waits for all work of the memory's context, or frees it in
///    the order of the stream that `info` states.
/// 6. Work that is pending on the memory comes before later work on the stream that `info` states, which is live as long as
///    `self` is. If `info` states none, the work is in the context of the memory. [`note_read`](Self::note_read) and
///    [`note_write`](Self::note_write) tell of the work of others.
///
/// # Example
///
/// ```
/// use std::sync::Arc;
/// use interop_core::{CudaArray, FromArray, HostVec, Lease};
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [height, width, 3])]
/// struct Image<S> {
///     #[cuda_array(data)]
///     pixels: S,
///     height: usize,
///     width: usize,
/// }
///
/// let image = Image { pixels: HostVec::<f32>::zeroed(2 * 4 * 3), height: 2, width: 4 };
/// let image = Arc::new(image);
/// let tensor = image.share_dlpack()?;              // a new export at each call
/// let borrowed: Image<Lease<f32>> = Image::from_dlpack(tensor)?; // another struct, the same memory
/// assert_eq!((borrowed.height, borrowed.width), (2, 4));
/// assert_eq!(borrowed.info()?.address(), image.info()?.address());
/// # Ok::<(), interop_core::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `CudaArray`",
    label = "this type does not implement `CudaArray`",
    note = "write `#[derive(CudaArray)]` on the struct, with one field marked `#[cuda_array(data)]`"
)]
pub unsafe trait CudaArray {
    /// Checks the fields and returns the description of the array.
    ///
    /// # Errors
    ///
    /// If the fields are inconsistent: [`ErrorKind::OutOfBounds`](crate::error::ErrorKind::OutOfBounds) for a shape
    /// that needs more memory than there is; otherwise as
    /// [`RawDescriptor::validate`](crate::array::validate::RawDescriptor::validate).
    fn info(&self) -> Result<ArrayInfo>;

    /// Expanded code overrides this function with the traits that its `unsafe impl` relies on. So it compiles only with
    /// those of this crate, and not with others of these names in the module of `crate = "path"`.
    #[doc(hidden)]
    fn __relies_on(_: &dyn Storage, _: &dyn ShapeField, _: &dyn StridesField, _: &dyn AsStream)
    where
        Self: Sized,
    {
    }

    /// Notes that work on `stream` has read the memory, as [`Storage::note_read`] does for a storage: at the end of a
    /// [`LaunchScope`](crate::LaunchScope) or of a loan. The stream that [`info`](Self::info) states has been made to wait for
    /// this work.
    ///
    /// Returns whether safe functions of the array come after the work. If not, the host waits for it, which is what the default
    /// asks for. The derive passes the call to its storage; an implementation by hand adds the work to its own events, or
    /// returns `true` if all its functions are on the stated stream.
    #[inline]
    fn note_read(&self, stream: StreamHandle) -> bool {
        let _ = stream;
        false
    }

    /// As [`note_read`](Self::note_read), for work that has written the memory.
    #[inline]
    fn note_write(&mut self, stream: StreamHandle) -> bool {
        let _ = stream;
        false
    }

    /// As [`Storage::is_only_handle`], for the storage of the array.
    #[doc(hidden)]
    #[inline]
    fn __is_only_handle(&mut self) -> bool {
        true
    }

    /// Returns a view of elements `T` with `N` axes.
    ///
    /// # Errors
    ///
    /// As [`info`](Self::info) and [`ArrayView::from_info`]: [`ErrorKind::DType`](crate::error::ErrorKind::DType) for
    /// another element type, [`ErrorKind::Rank`](crate::error::ErrorKind::Rank) for another number of axes.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as ArrayView::from_info")]
    fn view<T: Element, const N: usize>(&self) -> Result<ArrayView<'_, T, N>>
    where
        Self: Sized,
    {
        let info = self.info()?;
        // SAFETY: rule 1, for the lifetime of the borrow.
        let view = unsafe { ArrayView::from_info(&info) };
        info.dissolve();
        view
    }

    /// Returns a mutable view of elements `T` with `N` axes.
    ///
    /// # Errors
    ///
    /// As [`view`](Self::view); [`ErrorKind::ReadOnly`](crate::error::ErrorKind::ReadOnly) for read-only memory,
    /// [`ErrorKind::Strides`](crate::error::ErrorKind::Strides) if indices share elements, as in a broadcast array.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as ArrayView::from_info")]
    fn view_mut<T: Element, const N: usize>(&mut self) -> Result<ArrayViewMut<'_, T, N>>
    where
        Self: Sized,
    {
        let info = self.info()?;
        // SAFETY: rule 1; the borrow is exclusive, so no other Rust code accesses the elements through the struct.
        let view = unsafe { ArrayViewMut::from_info(&info) };
        info.dissolve();
        view
    }

    /// Copies the elements into a `Vec`, in row-major order. Works for any rank, strides and memory. For CUDA memory it
    /// waits for pending work.
    ///
    /// # Errors
    ///
    /// By [`ErrorKind`](crate::ErrorKind):
    ///
    /// - `DType` for another element type than `T`, and for a byte that is not a valid `bool`.
    /// - `Rank`, `Shape`, `Strides` if the last axes are not the trailing axes of `T`, or are not contiguous.
    /// - `OutOfMemory` if the copy cannot be allocated.
    /// - `AlreadyBorrowed` while Rust code writes to the memory through another struct: a view, or an open
    ///   [`LaunchScope`](crate::LaunchScope).
    /// - `Stream` for a stream with CPU memory.
    /// - Otherwise as [`info`](Self::info) and [`cuda::stream_synchronize`](crate::cuda::stream_synchronize).
    fn to_vec<T: Element>(&self) -> Result<Vec<T>>
    where
        Self: Sized,
    {
        let info = self.info()?;
        if info.device().device_type != DeviceType::CUDA {
            // SAFETY: rule 1.
            return unsafe { with_elements(&info, false, |elements| elements.to_vec(Order::C)) };
        }
        // SAFETY: rule 1.
        unsafe { crate::memory::copy::fetch::fetch_vec(&info, Order::C) }
    }

    /// Calls `see` with chunks of elements, in memory order: by address, independent of the indices. Works for any rank
    /// and strides, in host-accessible memory. Long contiguous runs are passed in place; other elements are copied into
    /// chunks. So a loop over a chunk is as fast as over any slice.
    ///
    /// # Errors
    ///
    /// As [`to_vec`](Self::to_vec), and `Device` for memory that the host cannot access. If a byte is not a valid
    /// `bool`, `see` has been called for the preceding chunks.
    ///
    /// ```
    /// use interop_core::CudaArray;
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(shape = [rows, 2])]
    /// struct Table { #[cuda_array(data)] cells: Vec<u8>, rows: usize }
    ///
    /// let table = Table { cells: vec![1, 7, 7, 3], rows: 2 };
    /// let mut histogram = [0; 256];
    /// table.for_each_chunk::<u8>(|chunk| {
    ///     for value in chunk {
    ///         histogram[usize::from(value.get())] += 1;
    ///     }
    /// })?;
    /// assert_eq!((histogram[1], histogram[7]), (1, 2));
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    fn for_each_chunk<T: Element>(&self, see: impl FnMut(&[ReadOnlyCell<T>])) -> Result<()>
    where
        Self: Sized,
    {
        // SAFETY: rule 1.
        unsafe { with_elements(&self.info()?, false, |elements| elements.for_each_chunk(see)) }
    }

    /// Folds all elements into one value, in memory order, which ignores the indices. Works for any rank and strides, in
    /// host-accessible memory.
    ///
    /// # Errors
    ///
    /// As [`to_vec`](Self::to_vec), except `OutOfMemory`, and `Device` for memory that the host cannot access. If a
    /// byte is not a valid `bool`, `add` has been called for the elements before it.
    #[inline]
    fn fold<T: Element, A>(&self, start: A, add: impl FnMut(A, T) -> A) -> Result<A>
    where
        Self: Sized,
    {
        // SAFETY: rule 1.
        unsafe { with_elements(&self.info()?, false, |elements| elements.fold(start, add)) }
    }

    /// As [`fold`](Self::fold), on the threads of rayon. Each part is folded from `identity` on, and `reduce` combines
    /// the results. The parts are combined in memory order; their number is not specified.
    ///
    /// # Errors
    ///
    /// As [`fold`](Self::fold).
    ///
    /// ```
    /// use interop_core::CudaArray;
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(shape = [len])]
    /// struct Samples { #[cuda_array(data)] values: Vec<u32>, len: usize }
    ///
    /// let samples = Samples { values: (0..100_000).collect(), len: 100_000 };
    /// let sum = samples.par_fold(|| 0_u64, |sum, value: u32| sum + u64::from(value), |one, other| one + other)?;
    /// assert_eq!(sum, 4_999_950_000);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    #[cfg(feature = "rayon")]
    fn par_fold<T: Element, A: Send>(
        &self,
        identity: impl Fn() -> A + Sync,
        add: impl Fn(A, T) -> A + Sync,
        reduce: impl Fn(A, A) -> A + Sync,
    ) -> Result<A>
    where
        Self: Sized,
    {
        let fold = |elements: Strided<'_, T>| elements.par_fold(&identity, &add, &reduce);
        // SAFETY: rule 1.
        unsafe { with_elements(&self.info()?, false, fold) }
    }

    /// Replaces each element by the result of `change`, in memory order. Works for any rank and strides, in
    /// host-accessible memory.
    ///
    /// # Errors
    ///
    /// As [`view_mut`](Self::view_mut), for any rank, and [`ArrayViewMut::host_view_mut`], except for the
    /// alignment; [`ErrorKind::DType`](crate::error::ErrorKind::DType) for a byte that is not a valid `bool`, after the
    /// elements before it have been changed.
    #[inline]
    fn map_inplace<T: Element>(&mut self, change: impl FnMut(T) -> T) -> Result<()>
    where
        Self: Sized,
    {
        // SAFETY: rule 1; the borrow is exclusive.
        unsafe { with_elements_mut(&self.info()?, |mut elements| elements.map_inplace(change)) }
    }

    /// As [`map_inplace`](Self::map_inplace), on the threads of rayon.
    ///
    /// # Errors
    ///
    /// As [`map_inplace`](Self::map_inplace). Any other elements may have been changed.
    ///
    /// ```
    /// use interop_core::{CudaArray, HostVec};
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(shape = [len])]
    /// struct Samples { #[cuda_array(data)] values: HostVec<f32>, len: usize }
    ///
    /// let mut samples = Samples { values: HostVec::zeroed(100_000), len: 100_000 };
    /// samples.par_map_inplace(|value: f32| value + 1.0)?;
    /// assert_eq!(samples.to_vec::<f32>()?, vec![1.0; 100_000]);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    #[cfg(feature = "rayon")]
    fn par_map_inplace<T: Element>(&mut self, change: impl Fn(T) -> T + Sync) -> Result<()>
    where
        Self: Sized,
    {
        // SAFETY: as in `map_inplace`.
        unsafe { with_elements_mut(&self.info()?, |mut elements| elements.par_map_inplace(change)) }
    }

    /// As [`map_inplace`](Self::map_inplace). `change` also gets the element at the same index of another array of the
    /// same shape.
    ///
    /// # Errors
    ///
    /// As [`map_inplace`](Self::map_inplace), and as [`fold`](Self::fold) for the other array; `Shape` if the shapes
    /// differ.
    ///
    /// ```
    /// use interop_core::{CudaArray, HostVec};
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(shape = [len])]
    /// struct Samples<S> { #[cuda_array(data)] values: S, len: usize }
    ///
    /// let x = Samples { values: vec![1.0_f32, 2.0], len: 2 };
    /// let mut y = Samples { values: HostVec::from([10.0_f32, 20.0]), len: 2 };
    /// y.zip_map_inplace(&x, |y: f32, x: f32| 3.0 * x + y)?;
    /// assert_eq!(y.to_vec::<f32>()?, [13.0, 26.0]);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    #[inline]
    fn zip_map_inplace<T: Element, U: Element>(
        &mut self,
        other: &impl CudaArray,
        change: impl FnMut(T, U) -> T,
    ) -> Result<()>
    where
        Self: Sized,
    {
        let zip = |other: Strided<'_, U>| {
            // SAFETY: as in `map_inplace`.
            unsafe {
                with_elements_mut(&self.info()?, |mut elements| elements.zip_map_inplace(&other, change))
            }
        };
        // SAFETY: rule 1, for the other array.
        unsafe { with_elements(&other.info()?, false, zip) }
    }

    /// Writes `value` to all elements.
    ///
    /// # Errors
    ///
    /// As [`map_inplace`](Self::map_inplace).
    fn fill<T: Element>(&mut self, value: T) -> Result<()>
    where
        Self: Sized,
    {
        let fill = |mut elements: StridedMut<'_, T>| {
            elements.fill(value);
            Ok(())
        };
        // SAFETY: as in `map_inplace`.
        unsafe { with_elements_mut(&self.info()?, fill) }
    }

    /// Copies the elements of a slice, in row-major order, into the array.
    ///
    /// # Errors
    ///
    /// As [`map_inplace`](Self::map_inplace); `Shape` if the lengths differ.
    fn copy_from_slice<T: Element>(&mut self, slice: &[T]) -> Result<()>
    where
        Self: Sized,
    {
        // SAFETY: as in `map_inplace`.
        unsafe { with_elements_mut(&self.info()?, |mut elements| elements.copy_from_slice(slice)) }
    }

    /// Returns the CUDA Array Interface of the array as plain data. The address is the one that kernels use
    /// ([`cuda::device_address`](crate::cuda::device_address)). The interface owns nothing: keep the struct while it is in use.
    ///
    /// If it is unknown on which stream the memory was last written, the interface names a stream of this crate that waits
    /// for all work of the memory's context.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Device`](crate::error::ErrorKind::Device) for memory that CUDA cannot access,
    /// [`ErrorKind::DType`](crate::error::ErrorKind::DType) for element types without a typestr;
    /// [`ErrorKind::AlreadyBorrowed`](crate::error::ErrorKind::AlreadyBorrowed) while a [`LaunchScope`](crate::LaunchScope) writes to
    /// the memory on another stream; as [`info`](Self::info), and for pinned memory as [`cuda::device_address`](crate::cuda::device_address) if there is a driver.
    fn to_cai(&self) -> Result<CudaArrayInterface> {
        let mut info = self.info()?;
        info.state.placement = Placement::on(stream_for_interface(&info)?);
        let mut interface = CudaArrayInterface::try_from(&info)?;
        interface.data.0 = address_for_kernels(info.unwatched_address, info.device())?;
        Ok(interface)
    }

    /// Makes later work on `stream` wait for pending work on the array. Call it before you launch a kernel on another
    /// stream than the array's own. It does nothing for [`NothingPending`](StreamHandle::NothingPending).
    ///
    /// Use it also before you return an import: call it after your work, with the stream on which the producer will
    /// write the memory. (For Python objects, `make_producer_wait` of the feature `python` determines that stream.)
    ///
    /// # Errors
    ///
    /// As [`info`](Self::info) and [`cuda::stream_wait`](crate::cuda::stream_wait);
    /// [`ErrorKind::AlreadyBorrowed`](crate::error::ErrorKind::AlreadyBorrowed) while a [`LaunchScope`](crate::LaunchScope) writes to
    /// the memory on another stream, because its kernels are not queued yet.
    fn make_stream_wait(&self, stream: StreamHandle) -> Result<()> {
        let info = self.info()?;
        if stream == StreamHandle::NothingPending {
            poll_in_passing();
            return Ok(());
        }
        hand_over(&info, info.consumer(stream))
    }

    /// Makes the array's own stream wait for the work that is now on `stream`. Call it after you launch a kernel that
    /// uses the array on another stream than its own.
    ///
    /// An export advertises only the array's own stream, so its consumer waits for other streams only after such a call
    /// for each. The host does not wait. Nothing happens for CPU memory.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Stream`](crate::error::ErrorKind::Stream) if the array states that nothing is pending: it has no
    /// stream that could wait, and would be exported as ready. If its stream is unknown, nothing has to wait, because an
    /// export waits for all work then. Otherwise as [`info`](Self::info) and
    /// [`cuda::stream_wait`](crate::cuda::stream_wait).
    ///
    /// ```no_run
    /// use interop_core::cuda::CudaBuffer;
    /// use interop_core::{CudaArray, StreamHandle};
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(shape = [len], export)]
    /// struct Samples {
    ///     #[cuda_array(data)]
    ///     values: CudaBuffer,
    ///     len: usize,
    ///     #[cuda_array(stream)]
    ///     stream: StreamHandle,
    /// }
    ///
    /// # fn launch(half: usize, stream: StreamHandle) {}
    /// fn halves(samples: &Samples, other: StreamHandle) -> interop_core::Result<()> {
    ///     samples.make_stream_wait(other)?;
    ///     launch(0, samples.stream);
    ///     launch(1, other);
    ///     samples.wait_for_stream(other) // an export is ready when both are done
    /// }
    /// ```
    fn wait_for_stream(&self, stream: StreamHandle) -> Result<()> {
        let info = self.info()?;
        hand_back(&info, Stream::named(stream, info.device()))
    }

    /// Exports the array; the tensor owns the struct. It is writable unless the memory is read-only.
    ///
    /// The consumer is assumed to use the legacy default stream, as DLPack defines it for a consumer that names none.
    ///
    /// | for | call |
    /// | --- | --- |
    /// | a consumer that uses another stream | [`into_dlpack_as`](Self::into_dlpack_as) |
    /// | a consumer that does not know DLPack 1.0 | [`into_dlpack_as::<Legacy>`](Self::into_dlpack_as) |
    /// | a struct that stays usable | [`share_dlpack`](Self::share_dlpack) |
    ///
    /// # Errors
    ///
    /// The struct is returned with the reason: as [`info`](Self::info), [`dlpack::export`](crate::protocols::dlpack::export) and
    /// [`cuda::stream_wait`](crate::cuda::stream_wait), and [`ErrorKind::AlreadyBorrowed`](crate::error::ErrorKind::AlreadyBorrowed) as
    /// [`make_stream_wait`](Self::make_stream_wait).
    #[inline]
    fn into_dlpack(self) -> Result<ManagedTensor<Versioned>, Refused<Self>>
    where
        Self: Sized + Send + 'static,
    {
        self.into_dlpack_as(StreamHandle::LegacyDefault)
    }

    /// As [`into_dlpack`](Self::into_dlpack), for a consumer that uses `stream`, which is made to wait for pending work. With
    /// [`NothingPending`](StreamHandle::NothingPending) the host waits.
    ///
    /// The tensor has the form `A`: [`Versioned`] or [`Legacy`](crate::protocols::dlpack::Legacy), which cannot say that an array is
    /// read-only.
    ///
    /// # Errors
    ///
    /// As [`into_dlpack`](Self::into_dlpack).
    ///
    /// ```
    /// use interop_core::protocols::dlpack::Legacy;
    /// use interop_core::{CudaArray, HostVec, StreamHandle};
    ///
    /// #[derive(Debug, CudaArray)]
    /// #[cuda_array(shape = [len])]
    /// struct Samples { #[cuda_array(data)] values: HostVec<f32>, len: usize }
    ///
    /// let samples = Samples { values: HostVec::zeroed(3), len: 3 };
    /// let tensor = samples.into_dlpack_as::<Legacy>(StreamHandle::LegacyDefault)?;
    /// assert_eq!(tensor.info()?.shape(), [3]);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    #[inline]
    fn into_dlpack_as<A: TensorAbi>(self, stream: StreamHandle) -> Result<ManagedTensor<A>, Refused<Self>>
    where
        Self: Sized + Send + 'static,
    {
        let whole = MaybeDangling::new(ExportedValue::<_, true>(self));
        let info = match whole.get().0.info() {
            Ok(info) => info,
            Err(error) => return Err(Refused::new(whole.into_inner().0, error)),
        };
        let consumer = info.consumer(stream);
        let exported = match hand_over(&info, consumer) {
            // SAFETY: rules 1 to 3 for as long as the export owns the struct, which nothing else can reach.
            Ok(()) => unsafe { export_described(&info, whole, Ownership::Owned) }
                .map(|tensor: ManagedTensor<A>| tensor.ready_on(consumer)),
            Err(error) => Err(Refused::new(whole.into_inner(), error)),
        };
        exported.map_err(|Refused { value, error }| Refused::new(value.0, error))
    }

    /// Exports the array and keeps the struct. Each call returns a new tensor.
    ///
    /// The tensor is read-only if Rust code could hold references to the elements (`Vec`). It is writable if it could
    /// not (device memory, [`HostVec`](crate::HostVec), a writable lease). The consumer is assumed to use the legacy
    /// default stream.
    ///
    /// # Errors
    ///
    /// As [`info`](Self::info), [`dlpack::export`](crate::protocols::dlpack::export) and
    /// [`cuda::stream_wait`](crate::cuda::stream_wait), and [`ErrorKind::AlreadyBorrowed`](crate::error::ErrorKind::AlreadyBorrowed) as
    /// [`make_stream_wait`](Self::make_stream_wait).
    fn share_dlpack(self: &Arc<Self>) -> Result<ManagedTensor<Versioned>>
    where
        Self: Sized + Send + Sync + 'static,
    {
        self.share_dlpack_as(StreamHandle::LegacyDefault)
    }

    /// As [`share_dlpack`](Self::share_dlpack), for a consumer that uses `stream`, in the form `A`.
    ///
    /// # Errors
    ///
    /// As [`share_dlpack`](Self::share_dlpack).
    fn share_dlpack_as<A: TensorAbi>(self: &Arc<Self>, stream: StreamHandle) -> Result<ManagedTensor<A>>
    where
        Self: Sized + Send + Sync + 'static,
    {
        let info = self.info()?;
        let consumer = info.consumer(stream);
        hand_over(&info, consumer)?;
        // SAFETY: rules 1 to 3 while the handle exists, because nothing can borrow the struct mutably then.
        let tensor: ManagedTensor<A> =
            unsafe { export_kept(&info, InReach::new(Arc::clone(self), None), Ownership::Shared) }?;
        Ok(tensor.ready_on(consumer))
    }
}
