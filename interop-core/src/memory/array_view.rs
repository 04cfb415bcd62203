//! Typed views with `N` axes: element type and rank are checked, and no element is read. As kernel arguments they are
//! those of `interop-kernel`.
#![expect(
    unsafe_code,
    reason = "makes views of memory whose lifetime the caller promises, and arguments of views"
)]
#![expect(clippy::inline_always, reason = "fields of a view that are not read are not computed")]

use core::marker::PhantomData;

use interop_kernel::{KernelView, KernelViewMut};

use crate::array::element::Element;
use crate::error::Result;
use crate::memory::host::view::{HostView, HostViewMut};
use crate::memory::raw_view::{RawView, viewed};
use crate::order::array_info::ArrayInfo;

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

impl<T: Element, const N: usize> ArrayView<'_, T, N> {
    /// Creates a view of the array that `info` describes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DType`](crate::error::ErrorKind::DType) or [`ErrorKind::Rank`](crate::error::ErrorKind::Rank) if
    /// the array has another element type or number of axes. [`ErrorKind::Shape`](crate::error::ErrorKind::Shape) or
    /// [`ErrorKind::Strides`](crate::error::ErrorKind::Strides) if the last axes are not the trailing axes of `T`, or
    /// are not contiguous.
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
    /// As [`ArrayView::from_info`]; [`ErrorKind::ReadOnly`](crate::error::ErrorKind::ReadOnly) for a read-only array;
    /// [`ErrorKind::Strides`](crate::error::ErrorKind::Strides) if two indices may refer to one element, as in a
    /// broadcast array.
    ///
    /// # Safety
    ///
    /// As for [`ArrayView::from_info`]. In addition, the memory may be written if `info` says so, and no other Rust
    /// code accesses the elements for the lifetime of the view.
    #[inline(always)]
    pub unsafe fn from_info(info: &ArrayInfo) -> Result<Self> {
        info.check_writable()?;
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

macro_rules! addressed {
    ($($view:ident)*) => {
        $(
            impl<T, const N: usize> $view<'_, T, N> {
                /// The address of element \[0, …, 0\], or 0 for a view without elements.
                #[must_use]
                pub fn address(&self) -> usize {
                    self.raw.note_unknown();
                    self.raw.address
                }
            }
        )*
    };
}

addressed!(ArrayView ArrayViewMut);

viewed!(ArrayView ArrayViewMut);

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

impl<'a, T: Element, const N: usize> ArrayView<'a, T, N> {
    /// Returns a view for reading on the host. Waits for pending work on pinned or managed memory.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Device`](crate::error::ErrorKind::Device) for memory that the host cannot access.
    /// - [`ErrorKind::Stream`](crate::error::ErrorKind::Stream) if work is pending on a stream although the memory is
    ///   plain CPU memory.
    /// - [`ErrorKind::Alignment`](crate::error::ErrorKind::Alignment) if the address is not aligned for `T`.
    /// - [`ErrorKind::AlreadyBorrowed`](crate::error::ErrorKind::AlreadyBorrowed) while Rust code writes to the memory
    ///   through another struct.
    /// - Any error of [`cuda::stream_synchronize`](crate::cuda::stream_synchronize).
    pub fn host_view(&self) -> Result<HostView<'a, T, N>> {
        HostView::new(self.raw)
    }

    /// Returns the view as a kernel argument.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Device`](crate::error::ErrorKind::Device) for memory that no CUDA device can access;
    /// [`ErrorKind::Alignment`](crate::error::ErrorKind::Alignment) if the address is not aligned for `T`, because a
    /// kernel that reads such an element makes the whole context unusable. For pinned memory also as
    /// [`cuda::device_address`](crate::cuda::device_address), if there is a driver.
    pub fn kernel_view(&self) -> Result<KernelView<'a, T, N>> {
        self.raw.note_unknown();
        let (pointer, shape, strides) = self.raw.kernel_argument::<T>()?;
        // SAFETY: the elements are those of the view, which borrows them.
        Ok(unsafe { KernelView::from_raw_parts(pointer, shape, strides) })
    }
}

impl<'a, T: Element, const N: usize> ArrayViewMut<'a, T, N> {
    /// Returns a view for reading and writing on the host.
    ///
    /// # Errors
    ///
    /// As [`ArrayView::host_view`]; also [`ErrorKind::AlreadyBorrowed`](crate::error::ErrorKind::AlreadyBorrowed) while
    /// Rust code reads the memory through another struct.
    pub fn host_view_mut(self) -> Result<HostViewMut<'a, T, N>> {
        HostViewMut::new(self.raw)
    }

    /// Returns the view as a kernel argument.
    ///
    /// # Errors
    ///
    /// As [`ArrayView::kernel_view`].
    pub fn kernel_view_mut(self) -> Result<KernelViewMut<'a, T, N>> {
        self.raw.note_unknown();
        let (pointer, shape, strides) = self.raw.kernel_argument::<T>()?;
        // SAFETY: as for reading; the borrow is exclusive.
        Ok(unsafe { KernelViewMut::from_raw_parts(pointer, shape, strides) })
    }
}
