//! A checked description of an array, with the state of its memory.
#![expect(clippy::inline_always, reason = "of a description that is inlined, unused fields are not written")]

use core::ops::{Deref, Range};

use interop_kernel::DynKernelView;

use crate::array::description::Description;
use crate::array::device::Device;
use crate::array::mutability::Mutability;
use crate::array::stream_handle::StreamHandle;
use crate::array::validate::RawDescriptor;
use crate::driver::pointer::address_for_kernels;
use crate::error::{Cure, Error, ErrorKind, Result, text};
use crate::order::memory_state::{MemoryState, StorageState};
use crate::order::placement::Placement;

/// A checked description of an array: address, element type, layout, device, mutability and stream.
///
/// These hold for every value:
///
/// - The bits of the element type are valid for its code; an unknown code has whole bytes.
/// - The device is host or CUDA memory, or unknown.
/// - Extents, strides and addresses do not overflow.
/// - An array with elements has an address that is not null, and all its elements lie in
///   [`byte_range`](Self::byte_range).
///
/// It does not prove that the memory is live; the creator of the [`RawDescriptor`](crate::protocols::RawDescriptor) is responsible
/// for that.
///
/// ```
/// use interop_core::{CudaArray, DType, Device};
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [rows, 3], order = "F", readonly)]
/// struct Points { #[cuda_array(data)] coordinates: Vec<f32>, rows: usize }
///
/// let info = Points { coordinates: vec![0.0; 12], rows: 4 }.info()?;
/// assert_eq!((info.dtype(), info.shape(), info.strides()), (DType::F32, &[4, 3][..], &[1, 4][..]));
/// assert_eq!((info.device(), info.nbytes(), info.is_read_only()), (Device::CPU, 48, true));
/// # Ok::<(), interop_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ArrayInfo {
    pub(crate) description: Description,
    pub(crate) state: MemoryState,
}

impl Deref for ArrayInfo {
    type Target = Description;

    #[inline(always)]
    fn deref(&self) -> &Description {
        &self.description
    }
}

impl Eq for ArrayInfo {}

impl PartialEq for ArrayInfo {
    /// For arrays without elements, the location of the memory is not compared.
    fn eq(&self, other: &Self) -> bool {
        let place = |info: &Self| (info.device, info.mutability, info.state.placement);
        place(self) == place(other) && self.has_elements_of(other)
    }
}

impl ArrayInfo {
    #[inline(always)]
    pub(crate) const fn new(description: Description, state: MemoryState) -> Self {
        Self { description, state }
    }

    /// Drops the fields one by one. These drops are inlined, and that of a field that is known to be empty disappears, while the
    /// drop of a description is a function, for which all of it is written to memory. What may panic comes last.
    #[inline(always)]
    pub(crate) fn dissolve(self) {
        let Self {
            description: Description { layout, struct_type, .. },
            state: MemoryState { uses, of_storage, .. },
        } = self;
        drop((layout, of_storage));
        drop(struct_type);
        drop(uses);
    }

    /// The address of element \[0, …, 0\], or 0 for an array without elements.
    #[inline]
    #[must_use]
    pub fn address(&self) -> usize {
        self.state.note_used();
        self.unwatched_address
    }

    /// The addresses from the lowest element to one past the highest, including gaps, because an import of the array
    /// may use other strides. The range starts below [`address`](Self::address) if strides are negative. It is empty
    /// for an array without elements.
    #[inline]
    #[must_use]
    pub fn byte_range(&self) -> Range<usize> {
        self.state.note_used();
        self.unwatched_range()
    }

    /// Whether no work is pending, also none that the storage knows of beside a `stream` field.
    #[cfg(feature = "python")]
    pub(crate) fn is_idle(&self) -> bool {
        self.state.placement.is_nothing() && self.state.of_storage.is_none()
    }

    /// The same memory with another state of its work.
    pub(crate) fn with_work(mut self, placement: Placement) -> Self {
        self.state.set_work(placement);
        self
    }

    /// Declares whether other fields of a struct around the array have a drop. It may need the context of the memory.
    #[doc(hidden)]
    #[must_use]
    pub fn with_other_drops(mut self, needs_drop: bool) -> Self {
        self.state.release_is_ordered &= !needs_drop;
        self
    }

    /// The same array, which nobody may write to.
    #[doc(hidden)]
    #[must_use]
    pub fn readonly(mut self) -> Self {
        self.description.mutability = Mutability::ReadOnly;
        self
    }

    /// The end of a description by an `inner` field. No function of the user can take its place.
    ///
    /// # Errors
    ///
    /// None.
    #[doc(hidden)]
    #[inline]
    pub fn finish(self) -> Result<Self> {
        Ok(self)
    }

    /// The stream with pending work on the data. `None` if it is unknown: work may be pending on any stream, and an
    /// export waits for all work of the memory's context.
    ///
    /// It is also `None` for a default stream of a context that is not current on this thread, because no handle means
    /// that stream here.
    ///
    /// Nothing is ever pending on CPU memory.
    #[inline]
    #[must_use]
    pub fn stream(&self) -> Option<StreamHandle> {
        self.state.placement.handle_here(self.device)
    }

    /// The same array with structs of equal fields expressed as a trailing axis, as DLPack requires.
    pub(crate) fn without_struct_type(&self) -> Result<Self> {
        let Some(struct_type) = self.struct_type() else { return Ok(self.clone()) };
        let (dtype, count) = struct_type.as_single_scalar(self.dtype.packed_bits() / 8)?;
        let layout = self.layout.split_elements(&[count])?;
        let description = Description { dtype, struct_type: None, layout, ..self.description.clone() };
        Ok(Self::new(description, self.state.clone()))
    }

    /// Describes the array for [`KernelArrays`](interop_kernel::KernelArrays), at the address that kernels use.
    ///
    /// # Errors
    ///
    /// As [`ArrayView::kernel_view`](crate::memory::array_view::ArrayView::kernel_view); [`ErrorKind::DType`] for
    /// packed sub-byte elements.
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

/// Returns the address at which kernels access the memory of an array.
pub(crate) fn kernel_address(address: usize, device: Device, align: usize) -> Result<u64> {
    if !device.device_type.is_cuda_accessible() {
        let allowed =
            "memory that a kernel reaches: CUDA (2), CUDAHost (3) or CUDAManaged (13); copy the array there";
        let error = Error::new(ErrorKind::Device, "device", device, allowed);
        return Err(error.with_python_hint(Cure::ToDevice));
    }
    aligned_address(address, device, align)
}

/// As [`kernel_address`], for an argument of a scope: over arrays of the CPU a kernel runs there.
pub(crate) fn launch_address(address: usize, device: Device, align: usize) -> Result<u64> {
    if cfg!(feature = "host-launch") && device == Device::CPU {
        return aligned_address(address, device, align);
    }
    kernel_address(address, device, align)
}

fn aligned_address(address: usize, device: Device, align: usize) -> Result<u64> {
    let address = address_for_kernels(address, device)? as u64;
    if address % align as u64 != 0 {
        let allowed = text!(
            "a multiple of {align}, the alignment of the element; copy the array into memory that is aligned"
        );
        return Err(Error::new(ErrorKind::Alignment, "data", format_args!("{address:#x}"), allowed));
    }
    Ok(address)
}

impl RawDescriptor<'_> {
    /// Checks the description and returns an [`ArrayInfo`].
    ///
    /// # Errors
    ///
    /// - `DType`, `Device`: the element type or device is invalid or not supported.
    /// - `Rank`, `Shape`: more than [`MAX_NDIM`](crate::protocols::MAX_NDIM) axes, or a negative extent.
    /// - `Strides`: the number of strides is wrong, or a byte stride is not a multiple of the element size.
    /// - `Overflow`: sizes or addresses do not fit the address space.
    /// - `NullPointer`: an array with elements has the address 0, or one below 4096, where no system has memory: a part of
    ///   an array whose memory was freed.
    /// - `OutOfBounds`: elements lie outside `memory`.
    pub fn validate(self) -> Result<ArrayInfo> {
        let placement = self.stream.map_or(Placement::Unknown, Placement::on);
        self.validate_with(StorageState::new(placement), None)
    }

    /// As [`validate`](Self::validate), inlined into the caller, with the state that the caller knows. In one piece, because a
    /// description that is moved into place afterwards is written twice.
    #[inline(always)]
    pub(crate) fn validate_with(
        self,
        state: StorageState<'_>,
        field: Option<StreamHandle>,
    ) -> Result<ArrayInfo> {
        // A device that is not stated may be any.
        let device = self.device.unwrap_or(Device::UNKNOWN);
        let Some(steps) = self.steps() else {
            let description = self.describe_in_bytes()?;
            return Ok(ArrayInfo { description, state: state.beside(field, device) });
        };
        let found = self.check(steps)?;
        Ok(ArrayInfo { description: self.description(steps, found), state: state.beside(field, device) })
    }
}
