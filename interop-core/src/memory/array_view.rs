//! Typed views with `N` axes: element type and rank are checked, and no element is read. As kernel arguments they are those
//! of `interop-kernel`.
#![expect(
    unsafe_code,
    reason = "makes views of memory whose lifetime the caller promises, and arguments of views"
)]
#![expect(clippy::inline_always, reason = "fields of a view that are not read are not computed")]

use core::any::type_name;
use core::marker::PhantomData;
use core::mem::align_of;
use core::{fmt, ptr};
use std::sync::Arc;

use interop_kernel::{DynKernelView, KernelView, KernelViewMut};

use crate::array::element::Element;
use crate::array::info::ArrayInfo;
use crate::array::layout::Layout;
use crate::array::layout::errors::wrong_rank;
use crate::array::mutability::Mutability;
use crate::cuda;
use crate::driver::device::Device;
use crate::driver::stream_handle::{PendingWork, StreamHandle};
use crate::driver::uses::Uses;
use crate::error::{Cure, Error, ErrorKind, Result, text};

/// A borrowed array of elements `T` with `N` axes, in memory of any device.
///
/// A view provides the address, shape and strides. Read elements of host-accessible memory through
/// [`host_view`](Self::host_view).
///
/// ```
/// use interop_core::CudaArray;
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [rows, 3])]
/// struct Points {
///     #[cuda_array(data)]
///     coordinates: Vec<f32>,
///     rows: usize,
/// }
///
/// let points = Points { coordinates: (0..6).map(|at| at as f32).collect(), rows: 2 };
/// let view = points.view::<f32, 2>()?;
/// assert_eq!((view.shape(), view.strides()), ([2, 3], [3, 1]));
/// assert_eq!(view.host_view()?.read([1, 2])?, 5.0);
///
/// // The trailing axis may be taken as one element.
/// assert_eq!(points.view::<[f32; 3], 1>()?.host_view()?.read([1])?, [3.0, 4.0, 5.0]);
///
/// let error = points.view::<f64, 2>().unwrap_err();
/// assert_eq!(error.to_string(), "`dtype`: found float32, allowed: float64");
/// # Ok::<(), interop_core::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct ArrayView<'a, T, const N: usize> {
    pub(crate) raw: RawView<N>,
    marker: PhantomData<&'a T>,
}

/// A mutably borrowed array of elements `T` with `N` axes, in memory of any device.
///
/// No other Rust code may write to the elements during the borrow.
///
/// Rust's borrow rules do not bind other libraries that share the memory. So this type makes no `&` or `&mut`
/// references to elements without `unsafe`.
pub struct ArrayViewMut<'a, T, const N: usize> {
    pub(crate) raw: RawView<N>,
    marker: PhantomData<&'a mut T>,
}

/// The data of both views.
#[derive(Clone, Copy)]
pub(crate) struct RawView<const N: usize> {
    pub(crate) address: usize,
    pub(crate) shape: [usize; N],
    pub(crate) strides: [isize; N],
    pub(crate) device: Device,
    pub(crate) pending: PendingWork,
    /// How the memory was used. It lives as long as the owner of the memory, and so as the view.
    pub(crate) uses: Option<&'static Uses>,
    /// Where the elements begin and end, if other Rust code may reach them too.
    pub(crate) shared: Option<(usize, usize)>,
}

impl<const N: usize> RawView<N> {
    /// # Safety
    ///
    /// The memory is live for the lifetime of the result.
    #[inline(always)]
    unsafe fn new<T: Element>(info: &ArrayInfo) -> Result<Self> {
        // SAFETY: the owner of the memory keeps the record, which it never replaces.
        let uses = info.uses.as_ref().map(|uses| unsafe { &*Arc::as_ptr(uses) });
        if info.has_scalar_type(&T::TYPE) {
            return Self::over(info, info.layout(), uses);
        }
        let joined = info.join(T::TYPE)?;
        Self::over(info, joined.as_ref().unwrap_or(info.layout()), uses)
    }

    #[inline(always)]
    fn over(info: &ArrayInfo, layout: &Layout, uses: Option<&'static Uses>) -> Result<Self> {
        let axes = |what: &[usize]| <[usize; N]>::try_from(what).ok();
        let Some(shape) = axes(layout.shape()) else {
            return Err(wrong_rank(layout.shape(), N));
        };
        let mut strides = [0; N];
        strides.copy_from_slice(layout.strides());
        let (address, device) = (info.unwatched_address, info.device());
        let pending = info.pending_on_one_stream();
        Ok(Self { address, shape, strides, device, pending, uses, shared: shared_range(info) })
    }

    /// Notes that the memory may be used in a way that this crate does not see.
    fn note_unknown(&self) {
        self.uses.into_iter().for_each(Uses::note_unknown);
    }

    /// Formats a view of this name. The elements need not implement `Debug`.
    pub(crate) fn describe<T>(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, shape, strides, device, pending, .. } = self;
        write!(f, "{name}({} {shape:?} at {address:#x}, strides {strides:?}, {device}", type_name::<T>())?;
        match pending.name() {
            Some(StreamHandle::NothingPending) => {}
            Some(stream) => write!(f, ", work pending on the {stream}")?,
            None => f.write_str(", work pending on an unknown stream")?,
        }
        f.write_str(")")
    }

    /// The layout, which was checked when the view was made.
    pub(crate) fn layout(&self) -> Layout {
        Layout::strided(&self.shape, &self.strides)
            .unwrap_or_else(|_| unreachable!("a view has a checked layout"))
    }
}

impl<T: Element, const N: usize> ArrayView<'_, T, N> {
    /// Creates a view of the array that `info` describes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DType`] or [`ErrorKind::Rank`] if the array has another element type or number of axes.
    /// [`ErrorKind::Shape`] or [`ErrorKind::Strides`] if the last axes are not the trailing axes of `T`, or are not
    /// contiguous.
    ///
    /// # Safety
    ///
    /// The memory that `info` describes is live and initialized for the lifetime of the view, on the device that it
    /// names. For host memory, the provenance of the address has been exposed.
    #[inline(always)]
    pub unsafe fn from_info(info: &ArrayInfo) -> Result<Self> {
        // SAFETY: as the caller promises.
        let raw = unsafe { RawView::new::<T>(info) }?;
        Ok(Self { raw, marker: PhantomData })
    }
}

impl<T: Element, const N: usize> ArrayViewMut<'_, T, N> {
    /// Creates a mutable view of the array that `info` describes.
    ///
    /// # Errors
    ///
    /// As [`ArrayView::from_info`]; [`ErrorKind::ReadOnly`] for a read-only array; [`ErrorKind::Strides`] if two
    /// indices may refer to one element, as in a broadcast array.
    ///
    /// # Safety
    ///
    /// As for [`ArrayView::from_info`]. In addition, the memory may be written if `info` says so, and no other Rust
    /// code accesses the elements for the lifetime of the view.
    #[inline(always)]
    pub unsafe fn from_info(info: &ArrayInfo) -> Result<Self> {
        check_writable(info)?;
        // SAFETY: as the caller promises.
        let raw = unsafe { RawView::new::<T>(info) }?;
        Ok(Self { raw, marker: PhantomData })
    }

    /// A read-only view of the same elements.
    #[must_use]
    pub fn as_view(&self) -> ArrayView<'_, T, N> {
        ArrayView { raw: self.raw, marker: PhantomData }
    }
}

/// The address range of the elements if two structs may share them. Memory that only a sole owner may write is borrowed
/// like any Rust value, so the compiler checks it.
#[inline]
pub(crate) fn shared_range(info: &ArrayInfo) -> Option<(usize, usize)> {
    let range = info.unwatched_range();
    (info.mutability() != Mutability::UniqueOwner && !range.is_empty()).then_some((range.start, range.end))
}

/// Returns an error for arrays that their struct must not write, and for those in which two indices may refer to one element.
pub(crate) fn check_writable(info: &ArrayInfo) -> Result<()> {
    if info.mutability() == Mutability::ReadOnly {
        // In most cases the struct is the reason, and not the array that it was made of.
        let found = "a struct that only reads its array, or a read-only array";
        let allowed = "a writable array in a struct that writes: `LeaseMut<T>` in place of `Lease<T>`, `HostVec<T>` in place \
                       of `Arc<[T]>` or `&[T]`, and no `readonly`";
        let error = Error::new(ErrorKind::ReadOnly, "readonly", found, allowed);
        return Err(error.with_rust_hint("shared memory that Rust writes is an `Arc<HostVec<T>>`"));
    }
    if !info.layout().is_injective() {
        let found = text!("{:?} for shape {:?}", info.strides(), info.shape());
        let allowed = "strides under which no two indices share an element; copy the array to write to it";
        return Err(Error::new(ErrorKind::Strides, "strides", found, allowed));
    }
    Ok(())
}

macro_rules! getters {
    ($view:ident) => {
        impl<T, const N: usize> $view<'_, T, N> {
            /// The address of element \[0, …, 0\], or 0 for a view without elements.
            #[must_use]
            pub fn address(&self) -> usize {
                self.raw.note_unknown();
                self.raw.address
            }

            /// The extents.
            #[must_use]
            pub fn shape(&self) -> [usize; N] {
                self.raw.shape
            }

            /// The strides, in elements.
            #[must_use]
            pub fn strides(&self) -> [isize; N] {
                self.raw.strides
            }
        }
    };
}

getters!(ArrayView);

getters!(ArrayViewMut);

/// `Debug` for views whose elements need not implement it.
macro_rules! printed {
    ($of:ident: $($view:ident)*) => {
        $(
            impl<T, const N: usize> ::core::fmt::Debug for $view<'_, T, N> {
                fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                    self.$of.describe::<T>(stringify!($view), f)
                }
            }
        )*
    };
}

printed!(raw: ArrayView ArrayViewMut);

pub(crate) use printed;

/// The C++ header that declares [`KernelView`] and [`KernelViewMut`] for kernels, as `interop::view<const T, N>` and
/// `interop::view<T, N>`, and [`KernelArrays`](crate::kernel::KernelArrays) as `interop::elementwise<N, T...>`.
///
/// It needs C++17 and includes nothing, so it can be handed to NVRTC as a header in memory. `nvcc`, and C++ on the
/// host, find it in the folder `include` of this crate.
///
/// ```
/// assert!(interop_core::launch::KERNEL_HEADER.contains("namespace interop"));
/// ```
pub const KERNEL_HEADER: &str = include_str!("../../include/interop.cuh");

/// Returns the address at which kernels access the memory of an array.
pub(crate) fn kernel_address(address: usize, device: Device, align: usize) -> Result<u64> {
    if !device.device_type.is_cuda_accessible() {
        let allowed =
            "memory that a kernel reaches: CUDA (2), CUDAHost (3) or CUDAManaged (13); copy the array there";
        let error = Error::new(ErrorKind::Device, "device", device, allowed);
        return Err(error.with_python_hint(Cure::ToDevice));
    }
    let address = cuda::address_for_kernels(address, device)? as u64;
    if address % align as u64 != 0 {
        let allowed = text!(
            "a multiple of {align}, the alignment of the element; copy the array into memory that is aligned"
        );
        return Err(Error::new(ErrorKind::Alignment, "data", format_args!("{address:#x}"), allowed));
    }
    Ok(address)
}

/// Returns the pointer, the extents and the strides of an argument.
fn parts<T: Element, const N: usize>(raw: &RawView<N>) -> Result<(*mut T, [i64; N], [i64; N])> {
    let address = kernel_address(raw.address, raw.device, align_of::<T>())?;
    let pointer = ptr::with_exposed_provenance_mut(crate::driver::functions::to_usize(address));
    // Layouts are checked to fit `isize`, which no host has wider than 64 bits.
    Ok((pointer, raw.shape.map(|extent| extent as i64), raw.strides.map(|stride| stride as i64)))
}

impl ArrayInfo {
    /// Describes the array for [`KernelArrays`](interop_kernel::KernelArrays), at the address that kernels use.
    ///
    /// # Errors
    ///
    /// As [`ArrayView::kernel_view`]; [`ErrorKind::DType`] for packed sub-byte elements.
    pub fn kernel_view(&self) -> Result<DynKernelView<'_>> {
        /// The maximum number of bytes that a thread loads at once.
        const MAX_LOAD: usize = 16;
        let bits = self.dtype().item_bits(self.is_padded());
        if bits % 8 != 0 {
            return Err(Error::new(ErrorKind::DType, "dtype", self.dtype(), "elements of whole bytes"));
        }
        let item_size = bits / 8;
        // The lowest set bit of the size: 4 for 12 bytes.
        let align = (item_size & item_size.wrapping_neg()).clamp(1, MAX_LOAD);
        let address = kernel_address(self.address(), self.device(), align)?;
        Ok(DynKernelView::new(address, item_size, self.shape(), self.strides())?)
    }
}

impl<'a, T: Element, const N: usize> ArrayView<'a, T, N> {
    /// Returns the view as a kernel argument.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Device`] for memory that no CUDA device can access; [`ErrorKind::Alignment`] if the address is not
    /// aligned for `T`, because a kernel that reads such an element makes the whole context unusable. For pinned memory
    /// also as [`cuda::device_address`](crate::cuda::device_address), if there is a driver.
    pub fn kernel_view(&self) -> Result<KernelView<'a, T, N>> {
        self.raw.note_unknown();
        self.kernel_view_unwatched()
    }

    /// As [`kernel_view`](Self::kernel_view), for a launch that is ordered with the array.
    pub(crate) fn kernel_view_unwatched(&self) -> Result<KernelView<'a, T, N>> {
        let (pointer, shape, strides) = parts::<T, N>(&self.raw)?;
        // SAFETY: the elements are those of the view, which borrows them.
        Ok(unsafe { KernelView::from_raw_parts(pointer, shape, strides) })
    }
}

impl<'a, T: Element, const N: usize> ArrayViewMut<'a, T, N> {
    /// Returns the view as a kernel argument.
    ///
    /// # Errors
    ///
    /// As [`ArrayView::kernel_view`].
    pub fn kernel_view_mut(self) -> Result<KernelViewMut<'a, T, N>> {
        self.raw.note_unknown();
        self.kernel_view_mut_unwatched()
    }

    /// As [`kernel_view_mut`](Self::kernel_view_mut), for a launch that is ordered with the array.
    pub(crate) fn kernel_view_mut_unwatched(self) -> Result<KernelViewMut<'a, T, N>> {
        let (pointer, shape, strides) = parts::<T, N>(&self.raw)?;
        // SAFETY: as for reading; the borrow is exclusive.
        Ok(unsafe { KernelViewMut::from_raw_parts(pointer, shape, strides) })
    }
}
