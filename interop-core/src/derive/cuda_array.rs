//! What a derived struct can do: describe itself, lend views, and be exported.
#![expect(unsafe_code, reason = "the traits are promises about memory, on which exports and views rely")]

use std::sync::Arc;

use crate::array::device::DeviceType;
use crate::array::element::Element;
use crate::array::info::ArrayInfo;
use crate::array::layout::order::Order;
use crate::array::stream::StreamHandle;
use crate::cuda;
use crate::derive::relabel::Relabeled;
use crate::error::{Refused, Result};
use crate::memory::array_view::{ArrayView, ArrayViewMut};
use crate::memory::host::elements::{HostElements, HostElementsMut};
use crate::memory::kernel_view::{KernelView, KernelViewMut};
use crate::memory::maybe_dangling::MaybeDangling;
use crate::protocols::cai::CudaArrayInterface;
use crate::protocols::dlpack::abi::TensorAbi;
use crate::protocols::dlpack::export::{Ownership, export, export_described};
use crate::protocols::dlpack::managed_tensor::ManagedTensor;

/// A struct around array memory. Derived: `#[derive(CudaArray)]`.
///
/// # Safety
///
/// 1. The memory that [`info`](Self::info) describe, all of their [`byte_range`](ArrayInfo::byte_range), is live and initialized
///    as long as `self` is, where they say, and may be written if they say so; of host memory, their address is that of a
///    pointer that was exposed.
/// 2. Moving `self` does not move it, and only a method that takes `&mut self` frees or replaces it.
/// 3. Where the facts say [`Mutability::Writable`](crate::array::mutability::Mutability::Writable), no plain reference to any of it is handed out from
///    `&self`.
///
/// # Example
///
/// ```
/// use std::sync::Arc;
/// use interop_core::dlpack::Versioned;
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
/// let tensor = image.share_dlpack::<Versioned>()?;              // a fresh export, as often as you like
/// let borrowed: Image<Lease<f32>> = Image::from_dlpack(tensor)?; // another struct, the same memory
/// assert_eq!((borrowed.height, borrowed.width), (2, 4));
/// assert_eq!(borrowed.info()?.address(), image.info()?.address());
/// # Ok::<(), interop_core::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `CudaArray`",
    label = "not a struct that describes array memory",
    note = "write `#[derive(CudaArray)]` on the struct, with one field marked `#[cuda_array(data)]`"
)]
pub unsafe trait CudaArray {
    /// What the struct holds, checked.
    ///
    /// # Errors
    ///
    /// When the fields contradict each other: [`ErrorKind::OutOfBounds`](crate::error::ErrorKind::OutOfBounds) for a shape that needs
    /// more memory than there is, and as [`RawDescriptor::validate`](crate::array::raw_descriptor::RawDescriptor::validate).
    fn info(&self) -> Result<ArrayInfo>;

    /// A view of elements `T` with `N` axes.
    ///
    /// # Errors
    ///
    /// As [`info`](Self::info) and [`ArrayView::from_info`]: [`ErrorKind::DType`](crate::error::ErrorKind::DType) and
    /// [`ErrorKind::Rank`](crate::error::ErrorKind::Rank) for other elements or axes.
    fn view<T: Element, const N: usize>(&self) -> Result<ArrayView<'_, T, N>> {
        // SAFETY: rule 1, for the lifetime of the borrow.
        unsafe { ArrayView::from_info(&self.info()?) }
    }

    /// A view through which elements may be written.
    ///
    /// # Errors
    ///
    /// As [`view`](Self::view); [`ErrorKind::ReadOnly`](crate::error::ErrorKind::ReadOnly) for read-only memory, and
    /// [`ErrorKind::Strides`](crate::error::ErrorKind::Strides) for broadcast or overlapping elements.
    fn view_mut<T: Element, const N: usize>(&mut self) -> Result<ArrayViewMut<'_, T, N>> {
        // SAFETY: rule 1; the borrow is exclusive, so no other Rust code gets at the elements through the struct.
        unsafe { ArrayViewMut::from_info(&self.info()?) }
    }

    /// The array as an argument of a kernel that reads it.
    ///
    /// # Errors
    ///
    /// As [`view`](Self::view) and [`ArrayView::kernel_view`].
    fn kernel_view<T: Element, const N: usize>(&self) -> Result<KernelView<'_, T, N>> {
        self.view::<T, N>()?.kernel_view()
    }

    /// The array as an argument of a kernel that writes it.
    ///
    /// # Errors
    ///
    /// As [`view_mut`](Self::view_mut) and [`ArrayView::kernel_view`].
    fn kernel_view_mut<T: Element, const N: usize>(&mut self) -> Result<KernelViewMut<'_, T, N>> {
        self.view_mut::<T, N>()?.into_kernel_view()
    }

    /// The elements in row-major order of their indices, copied; any rank, any strides, any memory. Work that is pending on
    /// memory of CUDA is waited for.
    ///
    /// # Errors
    ///
    /// By [`ErrorKind`](crate::ErrorKind): `DType` for other elements than `T`, and for a byte that is no `bool`; `Rank`, `Shape`
    /// and `Strides` when the last axes are not those of a `T` that has some, or are not compact; `MemoryRegion` when there is no room
    /// for the copy; `Busy` while Rust code writes to the memory through another struct; `Stream` for a stream beside memory that
    /// is the host's alone; as [`info`](Self::info) and [`cuda::stream_synchronize`](crate::cuda::stream_synchronize).
    fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        let info = self.info()?;
        if info.device().device_type != DeviceType::CUDA {
            // SAFETY: rule 1.
            return unsafe { HostElements::<T>::of(&info, false) }?.to_vec(Order::C);
        }
        // SAFETY: rule 1.
        let staged = unsafe { cuda::stage(&info) }?;
        // SAFETY: the bytes live in `staged`.
        unsafe { HostElements::<T>::of(&staged.info, false) }?.to_vec(Order::C)
    }

    /// Calls `see` with every element, in row-major order; any rank, any strides, host memory.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Device`](crate::error::ErrorKind::Device) for memory that the host cannot reach; otherwise as
    /// [`to_vec`](Self::to_vec), but for `MemoryRegion`. What came before a byte that is no `bool` has been seen.
    fn for_each<T: Element>(&self, see: impl FnMut(T)) -> Result<()> {
        // SAFETY: rule 1.
        unsafe { HostElements::<T>::of(&self.info()?, false) }?.for_each(see)
    }

    /// Calls `see` with copies of all elements, some thousands at a time, in memory order; see
    /// [`HostView::for_each_chunk`](crate::memory::host::HostView::for_each_chunk).
    ///
    /// # Errors
    ///
    /// As [`for_each`](Self::for_each), and `MemoryRegion`.
    fn for_each_chunk<T: Element>(&self, see: impl FnMut(&[T])) -> Result<()> {
        // SAFETY: rule 1.
        unsafe { HostElements::<T>::of(&self.info()?, false) }?.for_each_chunk(see)
    }

    /// Puts all elements together, in memory order: by address, whatever the indices are.
    ///
    /// # Errors
    ///
    /// As [`for_each`](Self::for_each).
    fn fold<T: Element, A>(&self, start: A, add: impl FnMut(A, T) -> A) -> Result<A> {
        // SAFETY: rule 1.
        unsafe { HostElements::<T>::of(&self.info()?, false) }?.fold(start, add)
    }

    /// Replaces every element by `change` of it, in memory order; any rank, any strides, host memory.
    ///
    /// # Errors
    ///
    /// As [`view_mut`](Self::view_mut), for any rank, and [`ArrayViewMut::into_host_view_mut`], but for the alignment;
    /// [`ErrorKind::DType`](crate::error::ErrorKind::DType) for a byte that is no `bool`: what came before it has been changed.
    fn map_inplace<T: Element>(&mut self, change: impl FnMut(T) -> T) -> Result<()> {
        // SAFETY: rule 1; the borrow is exclusive.
        unsafe { HostElementsMut::<T>::of(&self.info()?) }?.map_inplace(change)
    }

    /// As [`map_inplace`](Self::map_inplace), with the counterparts of the elements in another array of the same shape.
    ///
    /// # Errors
    ///
    /// As there, and as [`for_each`](Self::for_each) for the other array; `Shape` for one of another shape.
    fn zip_map_inplace<T: Element, U: Element>(
        &mut self,
        other: &impl CudaArray,
        change: impl FnMut(T, U) -> T,
    ) -> Result<()> {
        // SAFETY: rule 1, of the other.
        let other = unsafe { HostElements::<U>::of(&other.info()?, false) }?;
        // SAFETY: as in `map_inplace`.
        unsafe { HostElementsMut::<T>::of(&self.info()?) }?.zip_map_inplace(&other, change)
    }

    /// Writes the same value to all elements.
    ///
    /// # Errors
    ///
    /// As [`map_inplace`](Self::map_inplace).
    fn fill<T: Element>(&mut self, value: T) -> Result<()> {
        // SAFETY: as in `map_inplace`.
        unsafe { HostElementsMut::<T>::of(&self.info()?) }?.fill(value);
        Ok(())
    }

    /// Copies the elements of a slice, which are in row-major order, into the array.
    ///
    /// # Errors
    ///
    /// As [`map_inplace`](Self::map_inplace); `Shape` for a slice of another length.
    fn copy_from_slice<T: Element>(&mut self, slice: &[T]) -> Result<()> {
        // SAFETY: as in `map_inplace`.
        unsafe { HostElementsMut::<T>::of(&self.info()?) }?.copy_from_slice(slice)
    }

    /// Copies the elements, in row-major order, into a slice of as many.
    ///
    /// # Errors
    ///
    /// As [`for_each`](Self::for_each); `Shape` for a slice of another length.
    fn copy_to_slice<T: Element>(&self, slice: &mut [T]) -> Result<()> {
        // SAFETY: rule 1.
        unsafe { HostElements::<T>::of(&self.info()?, false) }?.copy_to_slice(slice)
    }

    /// The CUDA Array Interface of the array, as plain data. Keep the struct while it is in use: the interface owns
    /// nothing. Its address is the one that kernels use ([`cuda::device_address`]).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Device`](crate::error::ErrorKind::Device) for memory that CUDA cannot reach,
    /// [`ErrorKind::DType`](crate::error::ErrorKind::DType) for element types that have no typestr; as [`info`](Self::info), and for
    /// pinned memory as [`cuda::device_address`], where there is a driver.
    fn to_cai(&self) -> Result<CudaArrayInterface> {
        let info = self.info()?;
        let mut interface = CudaArrayInterface::from_info(&info)?;
        interface.data.0 = cuda::address_for_kernels(info.address(), info.device())?;
        Ok(interface)
    }

    /// Makes work that is queued later on `stream` wait for the work that is pending on the array. Call it before you launch
    /// a kernel on another stream than the array's own.
    ///
    /// It also gives an import back in order: call it after your work, with the stream on which the producer will write the
    /// memory while you still have the import. (For Python objects the feature `python` has `make_producer_wait`, which finds that
    /// stream.)
    ///
    /// # Errors
    ///
    /// As [`info`](Self::info) and [`cuda::stream_wait`](crate::cuda::stream_wait).
    fn make_stream_wait(&self, stream: StreamHandle) -> Result<()> {
        cuda::make_consumer_wait(&self.info()?, stream)
    }

    /// Makes the array's own stream wait for the work that is on `stream` now. Call it after you have launched a kernel that
    /// uses the array on another stream than its own.
    ///
    /// An export names one stream. Its consumer waits for all pending work only if that work was joined there, with one such
    /// call for each other stream. Nothing waits on the host, and nothing is called for host memory.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Stream`](crate::error::ErrorKind::Stream) for an array that says that nothing is pending: it has no stream to
    /// join the work on, and would be exported as ready. As [`info`](Self::info) and
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
        cuda::wait_for_consumer(&self.info()?, stream)
    }

    /// The array with its managed memory called memory of the device that it was allocated for, on which kernels use it in
    /// place: for libraries that do not take `CUDAManaged` (13), such as `PyTorch`. Memory of a device stays what it is.
    ///
    /// # Errors
    ///
    /// The struct comes back with the reason: [`ErrorKind::Device`](crate::error::ErrorKind::Device) for memory of the host,
    /// [`ErrorKind::Driver`](crate::error::ErrorKind::Driver) without a driver; as [`info`](Self::info).
    ///
    /// ```no_run
    /// use interop_core::cuda::{CudaBuffer, MemoryKind};
    /// use interop_core::dlpack::Versioned;
    /// use interop_core::{CudaArray, DType};
    ///
    /// #[derive(Debug, CudaArray)]
    /// #[cuda_array(shape = [len], export)]
    /// struct Samples { #[cuda_array(data)] values: CudaBuffer, len: usize }
    ///
    /// let values = CudaBuffer::zeroed(MemoryKind::Managed, 0, DType::F32, 8)?;
    /// let tensor = Samples { values, len: 8 }.relabel_as_device()?.into_dlpack::<Versioned>()?;
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    fn relabel_as_device(self) -> Result<Relabeled<Self>, Refused<Self>>
    where
        Self: Sized,
    {
        Relabeled::to_device(self)
    }

    /// The array with its pinned or managed memory called host memory: for libraries that do not take `CUDAHost` (3) or
    /// `CUDAManaged` (13). Work that is pending on it is waited for whenever it is viewed or exported. Host memory stays what
    /// it is.
    ///
    /// # Errors
    ///
    /// The struct comes back with the reason: [`ErrorKind::Device`](crate::error::ErrorKind::Device) for memory that the host
    /// cannot reach; as [`info`](Self::info).
    fn relabel_as_host(self) -> Result<Relabeled<Self>, Refused<Self>>
    where
        Self: Sized,
    {
        Relabeled::to_host(self)
    }

    /// Exports the array with the struct as its owner. Writable unless the memory is read-only.
    ///
    /// The consumer is taken to work on the legacy default stream, as the DLPack standard has it for a consumer that names
    /// none: see [`into_dlpack_for_stream`](Self::into_dlpack_for_stream).
    ///
    /// # Errors
    ///
    /// The struct comes back with the reason: as [`info`](Self::info), [`dlpack::export`](crate::dlpack::export) and
    /// [`cuda::stream_wait`](crate::cuda::stream_wait).
    #[inline]
    fn into_dlpack<A: TensorAbi>(self) -> Result<ManagedTensor<A>, Refused<Self>>
    where
        Self: Sized + Send + 'static,
    {
        self.into_dlpack_for_stream(StreamHandle::LegacyDefault)
    }

    /// As [`into_dlpack`](Self::into_dlpack), for a consumer that works on `stream`: it waits for the work that is pending
    /// on the array. [`NothingPending`](StreamHandle::NothingPending): the caller has ordered the work.
    ///
    /// # Errors
    ///
    /// As [`into_dlpack`](Self::into_dlpack).
    #[inline]
    fn into_dlpack_for_stream<A: TensorAbi>(
        self,
        stream: StreamHandle,
    ) -> Result<ManagedTensor<A>, Refused<Self>>
    where
        Self: Sized + Send + 'static,
    {
        let whole = MaybeDangling::new(self);
        let info = match whole.get().info() {
            Ok(info) => info,
            Err(error) => return Err(Refused { value: whole.into_inner(), error }),
        };
        match cuda::make_consumer_wait(&info, stream) {
            // SAFETY: rules 1 to 3 for as long as the export owns the struct, which nothing else can reach.
            Ok(()) => unsafe { export_described(&info, whole, Ownership::Owned) },
            Err(error) => Err(Refused { value: whole.into_inner(), error }),
        }
    }

    /// Exports the array and keeps the struct: a fresh export each time.
    ///
    /// It is read-only when other Rust code could hold plain references to the elements (a `Vec`), and writable when it
    /// could not (device memory, [`HostVec`](crate::HostVec), a writable lease). The consumer is taken to work on the
    /// legacy default stream.
    ///
    /// # Errors
    ///
    /// As [`info`](Self::info), [`dlpack::export`](crate::dlpack::export) and [`cuda::stream_wait`](crate::cuda::stream_wait).
    fn share_dlpack<A: TensorAbi>(self: &Arc<Self>) -> Result<ManagedTensor<A>>
    where
        Self: Sized + Send + Sync + 'static,
    {
        self.share_dlpack_for_stream(StreamHandle::LegacyDefault)
    }

    /// As [`share_dlpack`](Self::share_dlpack), for a consumer that works on `stream`.
    ///
    /// # Errors
    ///
    /// As [`share_dlpack`](Self::share_dlpack).
    fn share_dlpack_for_stream<A: TensorAbi>(
        self: &Arc<Self>,
        stream: StreamHandle,
    ) -> Result<ManagedTensor<A>>
    where
        Self: Sized + Send + Sync + 'static,
    {
        let info = self.info()?;
        cuda::make_consumer_wait(&info, stream)?;
        // SAFETY: rules 1 to 3 while the handle exists: `&mut` to the struct cannot be had then.
        Ok(unsafe { export(&info, Arc::clone(self), Ownership::Shared) }?)
    }
}
