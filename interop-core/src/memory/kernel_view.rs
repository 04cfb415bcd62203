//! Arrays as arguments of kernels: what the host checks. The arguments themselves are those of `interop-kernel`.
#![expect(unsafe_code, reason = "makes arguments of views that the borrow checker follows")]

use core::mem::align_of;
use core::ptr;

use interop_kernel::{DynKernelView, KernelView, KernelViewMut};

use crate::array::device::Device;
use crate::array::element::Element;
use crate::array::info::ArrayInfo;
use crate::cuda;
use crate::error::{Cure, Error, ErrorKind, Result, text};
use crate::memory::array_view::{ArrayView, ArrayViewMut, RawView};

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

/// Returns the pointer, the extents and the strides of an argument.
fn parts<T: Element, const N: usize>(raw: &RawView<N>) -> Result<(*mut T, [i64; N], [i64; N])> {
    let address = address(raw.address, raw.device, align_of::<T>())?;
    let pointer = ptr::with_exposed_provenance_mut(cuda::driver::to_usize(address));
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
        let address = address(self.address(), self.device(), align)?;
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
        self.raw.note_used();
        self.kernel_view_in_scope()
    }

    /// As [`kernel_view`](Self::kernel_view), for a launch that is ordered with the array.
    pub(crate) fn kernel_view_in_scope(&self) -> Result<KernelView<'a, T, N>> {
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
        self.raw.note_used();
        self.kernel_view_mut_in_scope()
    }

    /// As [`kernel_view_mut`](Self::kernel_view_mut), for a launch that is ordered with the array.
    pub(crate) fn kernel_view_mut_in_scope(self) -> Result<KernelViewMut<'a, T, N>> {
        let (pointer, shape, strides) = parts::<T, N>(&self.raw)?;
        // SAFETY: as for reading; the borrow is exclusive.
        Ok(unsafe { KernelViewMut::from_raw_parts(pointer, shape, strides) })
    }
}
