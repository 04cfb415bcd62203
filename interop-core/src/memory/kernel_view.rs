//! Views that are passed to kernels by value. `interop.cuh` declares them for C++.

use core::any::type_name;
use core::fmt;
use core::marker::PhantomData;
use core::mem::{align_of, offset_of, size_of};

use crate::array::device::Device;
use crate::array::element::Element;
use crate::array::layout::product;
use crate::cuda;
use crate::error::{Cure, Error, ErrorKind, Result, text};
use crate::memory::array_view::{ArrayView, ArrayViewMut, RawView, printed};

/// The C++ header that declares [`KernelView`] and [`KernelViewMut`] for kernels, as `interop::view<const T, N>` and
/// `interop::view<T, N>`, and [`KernelArrays`](crate::KernelArrays) as `interop::elementwise<N, T...>`.
///
/// It needs C++17 and includes nothing, so it can be handed to NVRTC as a header in memory. `nvcc`, and C++ on the
/// host, find it in the folder `include` of this crate.
///
/// ```
/// assert!(interop_core::KERNEL_HEADER.contains("namespace interop"));
/// ```
pub const KERNEL_HEADER: &str = include_str!("../../include/interop.cuh");

/// An array of elements `T` with `N` axes that a kernel reads. It is passed by value; in C++ it is `interop::view<const
/// T, N>`.
///
/// [`CudaArray::kernel_view`](crate::derive::cuda_array::CudaArray::kernel_view) makes it from any struct with memory
/// that a CUDA device can access: exported or imported, device, pinned or managed memory. It has `8 + 16 * N` bytes,
/// aligned to 8, in this order: the device address of element \[0, …, 0\]; the `N` extents; the `N` strides in
/// elements, which may be negative. All are 64-bit integers.
///
/// # Lifetime of the memory
///
/// A view borrows the struct for `'a`, so safe code cannot free or replace the memory before the launch. A copy of the
/// view borrows as long.
///
/// The borrow ends when the launch has *queued* the kernel, and the kernel runs later. The caller of the unsafe launch
/// promises that the memory lives, and that nothing else writes to it, until the kernel is done. Keep the struct until
/// the stream has been waited for, or free its memory in the order of that stream.
///
/// The view has no stream. A [`LaunchScope`](crate::LaunchScope) makes views and orders the launch with all its arrays.
///
/// # Example
///
/// ```
/// use interop_core::{CudaArray, Device};
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [height, width], export)]
/// struct Image {
///     // A `DeviceBuffer`, a `CudaSlice` or a `LeaseMut` needs neither the word nor the device.
///     #[cuda_array(data(unsafe_raw))]
///     pixels: *mut f32,
///     height: usize,
///     width: usize,
///     #[cuda_array(device)]
///     device: Device,
/// }
///
/// // An address that nothing here follows.
/// let pixels = std::ptr::without_provenance_mut(0x7F00_0000_0000);
/// let mut image = Image { pixels, height: 480, width: 640, device: Device::cuda(0) };
/// let view = image.kernel_view::<f32, 2>()?;
/// assert_eq!((view.shape(), view.strides()), ([480, 640], [640, 1]));
/// assert_eq!(size_of_val(&view), 40);
///
/// let target = image.kernel_view_mut::<f32, 2>()?;
/// assert_eq!(target.address(), 0x7F00_0000_0000);
/// # Ok::<(), interop_core::Error>(())
/// ```
///
/// A kernel with such arguments, which includes [`KERNEL_HEADER`]:
///
/// ```cuda
/// #include "interop.cuh"
///
/// extern "C" __global__ void threshold(interop::view<const float, 2> from, interop::view<unsigned char, 2> to) {
///     long long at = blockIdx.x * (long long)blockDim.x + threadIdx.x;
///     if (at < from.size()) to[at] = from[at] > 0.5f;
/// }
/// ```
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub struct KernelView<'a, T, const N: usize> {
    fields: Fields<N>,
    marker: PhantomData<&'a T>,
}

/// An array of elements `T` with `N` axes that a kernel writes. It is passed by value; in C++ it is `interop::view<T,
/// N>`.
///
/// [`CudaArray::kernel_view_mut`](crate::derive::cuda_array::CudaArray::kernel_view_mut) makes it from writable memory.
/// Its bytes and lifetime are those of [`KernelView`], but the borrow is exclusive. It is `Copy`, because launch
/// functions need that. Host code cannot access the elements through a view, and every copy keeps the exclusive borrow.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub struct KernelViewMut<'a, T, const N: usize> {
    fields: Fields<N>,
    marker: PhantomData<&'a mut T>,
}

/// The fields of both views. They have 64 bits even if host pointers are smaller, because device addresses have 64
/// bits.
#[derive(Clone, Copy)]
#[repr(C)]
struct Fields<const N: usize> {
    address: u64,
    shape: [i64; N],
    strides: [i64; N],
}

const fn assert_layout<const N: usize>() {
    assert!(size_of::<KernelView<'_, u8, N>>() == 8 + 16 * N);
    assert!(size_of::<KernelViewMut<'_, u8, N>>() == 8 + 16 * N);
    assert!(align_of::<KernelView<'_, u8, N>>() == 8 && align_of::<KernelViewMut<'_, u8, N>>() == 8);
    assert!(
        offset_of!(KernelView<'_, u8, N>, fields) == 0 && offset_of!(KernelViewMut<'_, u8, N>, fields) == 0
    );
    assert!(offset_of!(Fields<N>, address) == 0);
    assert!(offset_of!(Fields<N>, shape) == 8);
    assert!(offset_of!(Fields<N>, strides) == 8 + 8 * N);
}

const _: () = {
    assert_layout::<0>();
    assert_layout::<1>();
    assert_layout::<4>();
    assert_layout::<{ crate::MAX_NDIM }>();
};

printed!(fields: KernelView KernelViewMut);

impl<const N: usize> Fields<N> {
    fn describe<T>(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, shape, strides } = self;
        write!(f, "{name}({} {shape:?} at {address:#x}, strides {strides:?})", type_name::<T>())
    }

    fn of<T: Element>(raw: &RawView<N>) -> Result<Self> {
        let address = address(raw.address, raw.device, align_of::<T>())?;
        // Layouts are checked to fit `isize`, which no host has wider than 64 bits.
        Ok(Self {
            address,
            shape: raw.shape.map(|extent| extent as i64),
            strides: raw.strides.map(|stride| stride as i64),
        })
    }
}

/// Returns the address at which kernels access the memory of an array.
pub(crate) fn address(address: usize, device: Device, align: usize) -> Result<u64> {
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

impl<'a, T: Element, const N: usize> ArrayView<'a, T, N> {
    /// Returns the view as a kernel argument.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Device`] for memory that no CUDA device can access; [`ErrorKind::Alignment`] if the address is not
    /// aligned for `T`, because a kernel that reads such an element makes the whole context unusable. For pinned memory
    /// also as [`cuda::device_address`](crate::cuda::device_address), if there is a driver.
    pub fn kernel_view(&self) -> Result<KernelView<'a, T, N>> {
        self.raw.note_used();
        self.kernel_view_in_scope()
    }

    /// As [`kernel_view`](Self::kernel_view), for a launch that is ordered with the array.
    pub(crate) fn kernel_view_in_scope(&self) -> Result<KernelView<'a, T, N>> {
        Ok(KernelView { fields: Fields::of::<T>(&self.raw)?, marker: PhantomData })
    }
}

impl<'a, T: Element, const N: usize> ArrayViewMut<'a, T, N> {
    /// Returns the view as a kernel argument.
    ///
    /// # Errors
    ///
    /// As [`ArrayView::kernel_view`].
    pub fn kernel_view_mut(self) -> Result<KernelViewMut<'a, T, N>> {
        self.raw.note_used();
        self.kernel_view_mut_in_scope()
    }

    /// As [`kernel_view_mut`](Self::kernel_view_mut), for a launch that is ordered with the array.
    pub(crate) fn kernel_view_mut_in_scope(self) -> Result<KernelViewMut<'a, T, N>> {
        Ok(KernelViewMut { fields: Fields::of::<T>(&self.raw)?, marker: PhantomData })
    }
}

impl<'a, T, const N: usize> KernelViewMut<'a, T, N> {
    /// Returns a read-only view of the same elements, `interop::view<const T, N>` in C++.
    #[must_use]
    pub fn as_view(&self) -> KernelView<'a, T, N> {
        KernelView { fields: self.fields, marker: PhantomData }
    }
}

macro_rules! getters {
    ($view:ident) => {
        impl<T, const N: usize> $view<'_, T, N> {
            /// The address of element \[0, …, 0\] on the device; 0 for a view without elements.
            #[must_use]
            pub fn address(&self) -> u64 {
                self.fields.address
            }

            /// The extents.
            #[must_use]
            pub fn shape(&self) -> [i64; N] {
                self.fields.shape
            }

            /// The strides, in elements.
            #[must_use]
            pub fn strides(&self) -> [i64; N] {
                self.fields.strides
            }

            /// The number of elements, from which the grid of a launch is computed.
            #[must_use]
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "the extents came from `usize`"
            )]
            pub fn numel(&self) -> usize {
                // If one extent is 0, the product of the others may overflow.
                product(self.fields.shape.iter().map(|extent| *extent as usize)).unwrap_or(0)
            }
        }
    };
}

getters!(KernelView);

getters!(KernelViewMut);
