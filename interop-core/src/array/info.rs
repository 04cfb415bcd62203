//! The checked description of an array.
#![expect(clippy::inline_always, reason = "of a description that is inlined, unused fields are not written")]

use core::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use interop_kernel::DynKernelView;

use crate::array::dtype::{COMPLEX, DType};
use crate::array::element::ElementType;
use crate::array::layout::Layout;
use crate::array::mutability::Mutability;
use crate::array::struct_type::StructType;
use crate::driver::device::Device;
use crate::driver::memory_state::MemoryState;
use crate::driver::placement::Placement;
use crate::driver::pointer::address_for_kernels;
use crate::driver::stream_handle::StreamHandle;
use crate::error::{Cure, Error, ErrorKind, Result, text};
use crate::process::record::elements::Elements;

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
/// It does not prove that the memory is live; the creator of the [`RawDescriptor`](crate::descriptor::RawDescriptor) is responsible
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

/// The numbers of an array: what its check has found. They say nothing of the use of the memory.
#[derive(Clone, Debug)]
pub struct Description {
    pub(crate) unwatched_address: usize,
    /// For an array without elements: the empty range at the start of its memory, which still has an owner.
    pub(crate) range: Range<usize>,
    pub(crate) dtype: DType,
    pub(crate) padded: bool,
    /// The elements are a Rust struct with padding, whose content is arbitrary. Rust code may leave it uninitialized.
    pub(crate) has_stale_padding: bool,
    pub(crate) struct_type: Option<Arc<StructType>>,
    pub(crate) layout: Layout,
    pub(crate) device: Device,
    pub(crate) mutability: Mutability,
}

impl Deref for ArrayInfo {
    type Target = Description;

    #[inline(always)]
    fn deref(&self) -> &Description {
        &self.description
    }
}

impl DerefMut for ArrayInfo {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Description {
        &mut self.description
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
        self.mutability = Mutability::ReadOnly;
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

impl Description {
    /// A placeholder without elements. Not a constant, of which all bytes would be copied: most of them are zero.
    #[inline(always)]
    pub(crate) const fn empty() -> Self {
        Self {
            unwatched_address: 0,
            range: 0..0,
            dtype: DType::U8,
            padded: false,
            has_stale_padding: false,
            struct_type: None,
            layout: Layout::empty(),
            device: Device::UNKNOWN,
            mutability: Mutability::ReadOnly,
        }
    }

    /// Whether both describe the same elements: one address, element type and layout.
    pub(crate) fn has_elements_of(&self, other: &Self) -> bool {
        (self.unwatched_address, self.unwatched_range(), self.dtype, self.padded)
            == (other.unwatched_address, other.unwatched_range(), other.dtype, other.padded)
            && (&self.struct_type, &self.layout) == (&other.struct_type, &other.layout)
    }

    /// Replaces the address by another one of the same memory.
    pub(crate) fn move_to(&mut self, address: usize) {
        let relocated = |end: usize| end.wrapping_sub(self.unwatched_address).wrapping_add(address);
        (self.range, self.unwatched_address) =
            (relocated(self.range.start)..relocated(self.range.end), address);
    }

    /// Returns a part of the array with this layout. Its first element is `byte_offset` bytes after that of the array.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfBounds`] if the part does not lie within the array, for example because the array has changed
    /// since it was queried.
    #[cfg(feature = "python")]
    pub(crate) fn part(self, layout: Layout, byte_offset: isize) -> Result<Self> {
        if layout.is_empty() {
            let range = self.range.start..self.range.start;
            return Ok(Self { unwatched_address: 0, range, layout, ..self });
        }
        let bits = self.dtype.item_bits(self.padded) as isize;
        let address = self.unwatched_address.wrapping_add_signed(byte_offset);
        let offsets = layout.offsets();
        let (first, last) = ((offsets.start * bits).div_euclid(8), (offsets.end * bits + 7).div_euclid(8));
        let range = address.wrapping_add_signed(first)..address.wrapping_add_signed(last);
        if range.start < self.range.start || range.end > self.range.end {
            let found = format!("bytes {range:?}");
            return Err(Error::new(
                ErrorKind::OutOfBounds,
                "view",
                found,
                format!("those of the array, {:?}", self.range),
            ));
        }
        Ok(Self { unwatched_address: address, range, layout, ..self })
    }

    /// As [`ArrayInfo::byte_range`], for this crate.
    #[inline]
    pub(crate) fn unwatched_range(&self) -> Range<usize> {
        if self.range.is_empty() { 0..0 } else { self.range.clone() }
    }

    /// The bytes of the elements, for the record of accesses.
    #[inline]
    pub(crate) fn elements(&self) -> Elements {
        let (range, bits) = (self.unwatched_range(), self.dtype.item_bits(self.padded));
        let item = bits.div_ceil(8);
        if bits % 8 != 0 || range.len() == self.numel().saturating_mul(item) {
            return Elements::contiguous(range);
        }
        let steps = self.shape().iter().zip(self.strides()).filter(|(extent, _)| **extent > 1);
        Elements::strided(range, item, steps.map(|(_, step)| step.unsigned_abs().saturating_mul(item)))
    }

    /// The element type.
    #[inline]
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Whether an element of less than a byte takes a whole byte.
    #[inline]
    #[must_use]
    pub fn is_padded(&self) -> bool {
        self.padded
    }

    /// The fields of struct elements.
    #[inline]
    #[must_use]
    pub fn struct_type(&self) -> Option<&StructType> {
        self.struct_type.as_deref()
    }

    /// The shape and the strides.
    #[inline]
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The extents.
    #[inline]
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        self.layout.shape()
    }

    /// The strides, in elements. They are always present.
    #[inline]
    #[must_use]
    pub fn strides(&self) -> &[isize] {
        self.layout.strides()
    }

    /// The number of axes.
    #[inline]
    pub(crate) fn ndim(&self) -> usize {
        self.layout.ndim()
    }

    /// The number of elements.
    #[inline]
    #[must_use]
    pub fn numel(&self) -> usize {
        self.layout.numel()
    }

    /// The size of all elements in bytes, without gaps.
    ///
    /// Packed elements are summed in bits and rounded up once. An array that repeats elements by a stride of 0 can
    /// exceed `usize`; the result is then `usize::MAX`.
    #[inline]
    #[must_use]
    pub fn nbytes(&self) -> usize {
        // Repeated elements are not bounded by the byte range, so the product saturates. Eight packed elements take
        // whole bytes.
        let bits = self.dtype.item_bits(self.padded);
        if bits % 8 == 0 {
            self.numel().saturating_mul(bits / 8)
        } else {
            let rest = (self.numel() % 8 * bits).div_ceil(8);
            (self.numel() / 8).saturating_mul(bits).saturating_add(rest)
        }
    }

    /// The device of the memory.
    #[inline]
    #[must_use]
    pub fn device(&self) -> Device {
        self.device
    }

    /// The rule for writes.
    #[inline]
    #[must_use]
    pub fn mutability(&self) -> Mutability {
        self.mutability
    }

    /// Whether the sole owner of the array may write to it. False for a `bool` of a Rust `Vec`: a consumer could leave
    /// a byte that is not a `bool`, and dropping the owner may read it.
    #[inline]
    pub(crate) fn is_writable_by_owner(&self) -> bool {
        match self.mutability {
            Mutability::Writable => true,
            Mutability::UniqueOwner => self.dtype != DType::BOOL,
            Mutability::ReadOnly => false,
        }
    }

    /// Returns an error for arrays that their struct must not write, and for those in which two indices may refer to one
    /// element.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.mutability == Mutability::ReadOnly {
            // In most cases the struct is the reason, and not the array that it was made of.
            let found = "a struct that only reads its array, or a read-only array";
            let allowed = "a writable array in a struct that writes: `LeaseMut<T>` in place of `Lease<T>`, `HostVec<T>` in \
                           place of `Arc<[T]>` or `&[T]`, and no `readonly`";
            let error = Error::new(ErrorKind::ReadOnly, "readonly", found, allowed);
            return Err(error.with_rust_hint("shared memory that Rust writes is an `Arc<HostVec<T>>`"));
        }
        if !self.layout.is_injective() {
            let found = text!("{:?} for shape {:?}", self.strides(), self.shape());
            let allowed =
                "strides under which no two indices share an element; copy the array to write to it";
            return Err(Error::new(ErrorKind::Strides, "strides", found, allowed));
        }
        Ok(())
    }

    /// Returns an error for an import that must not be written.
    pub(crate) fn check_import_writable(&self) -> Result<()> {
        if self.mutability != Mutability::ReadOnly {
            return Ok(());
        }
        let error =
            Error::new(ErrorKind::ReadOnly, "readonly", "a read-only array", "a writable array, or a copy");
        let hint = "import into `Lease<T>` to read it, or copy it into `Vec<T>` or `HostVec<T>`; a legacy DLPack tensor, \
                    which cannot state who may write, is read-only";
        Err(error.with_rust_hint(hint).with_python_hint(Cure::Copy))
    }

    /// Returns true unless [`mutability`](Self::mutability) is `Writable`. The memory of a `Vec` counts as read-only
    /// here, although an export that consumes the struct may be written.
    #[inline]
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.mutability != Mutability::Writable
    }

    /// The strides in bytes, or `None` if elements are packed below the byte.
    #[inline]
    #[must_use]
    pub fn byte_strides(&self) -> Option<Vec<isize>> {
        let bits = self.dtype.item_bits(self.padded);
        (bits % 8 == 0).then(|| self.layout.strides_in_bytes(bits / 8))
    }

    /// The layout in units of `element`, without the trailing axes of `element`. `None` if it is the array's own
    /// layout.
    ///
    /// Called only if [`has_scalar_type`](Self::has_scalar_type) is false. `element` is passed by value so that the
    /// fast path keeps it out of memory.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DType`] for another element type, [`ErrorKind::Shape`] or [`ErrorKind::Strides`] if trailing axes
    /// are missing or not contiguous.
    #[cold]
    pub(crate) fn join(&self, element: ElementType) -> Result<Option<Layout>> {
        let wrong = || {
            let found = self
                .struct_type()
                .map_or_else(|| self.dtype.to_string(), |struct_type| format!("struct {struct_type}"));
            let (size, element_size) = (self.dtype.packed_bits() / 8, element.dtype.packed_bits() / 8);
            if self.struct_type().is_some() && self.struct_type() == element.to_struct_type().as_ref() {
                // The fields are equal, so padding at the end differs.
                let (found, allowed) =
                    (text!("{found} of {size} bytes"), text!("one of {element_size} bytes"));
                let error = Error::new(ErrorKind::DType, "dtype", found, allowed);
                return error.with_python_hint("make the dtype with `align=True`");
            }
            let error = Error::new(ErrorKind::DType, "dtype", found, element.describe());
            // No conversion makes numbers of bytes or structs, and one from complex numbers loses half of each.
            let loses_part = self.dtype.code == COMPLEX && element.dtype.code != COMPLEX;
            if element.to_struct_type().is_some() || self.dtype.is_opaque() || loses_part {
                return error;
            }
            error.with_python_hint(Cure::Convert(element.dtype.name()))
        };
        let lanes = self.dtype.lanes;
        let struct_type = element.to_struct_type();
        if self.struct_type() == struct_type.as_ref() && self.dtype == element.dtype {
            if self.padded != element.padded {
                return Err(wrong());
            }
            return self.layout.join_elements(element.axes()).map(Some);
        }
        if let (Some(struct_type), None) = (struct_type, self.struct_type()) {
            // DLPack expresses a struct of equal fields as a trailing axis of scalars.
            let (scalar, count) =
                struct_type.as_single_scalar(element.dtype.packed_bits() / 8).map_err(|_| wrong())?;
            // Padded lanes take a byte each; lanes of a field are packed.
            if scalar != self.dtype || self.padded {
                return Err(wrong());
            }
            return self.layout.join_elements(&[count])?.join_elements(element.axes()).map(Some);
        }
        let vector =
            lanes > 1 && !self.dtype.is_opaque() && self.dtype.item_bits(self.padded) == 8 * element.size;
        if vector
            && element.axes() == [usize::from(lanes)]
            && (DType { lanes: 1, ..self.dtype }) == element.dtype
        {
            // One element of a vector type is one `[T; lanes]`.
            return Ok(None);
        }
        Err(wrong())
    }

    /// As [`join`](Self::join), but always returns a layout.
    pub(crate) fn layout_of(&self, element: &ElementType) -> Result<Layout> {
        let joined = if self.has_scalar_type(element) { None } else { self.join(*element)? };
        Ok(joined.unwrap_or_else(|| self.layout.clone()))
    }

    /// Returns an error if the elements are not of type `element`.
    #[inline]
    pub(crate) fn check_element(&self, element: &ElementType) -> Result<()> {
        if self.has_scalar_type(element) { Ok(()) } else { self.join(*element).map(drop) }
    }

    /// The type of elements that are scalars, for memory that has no Rust type.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DType`] for structs, whose fields the memory would not know, and for types packed below the byte.
    pub(crate) fn scalar_type(&self) -> Result<ElementType> {
        let Some(fields) = self.struct_type() else {
            return ElementType::from_whole_bytes(self.dtype, self.padded);
        };
        let error =
            Error::new(ErrorKind::DType, "dtype", text!("struct {fields}"), "numbers, `bool` or bytes");
        Err(error.with_rust_hint("use `SharedBuffer`, or `Vec<T>` of a struct with `#[derive(Element)]`"))
    }

    /// The fast path: whether the elements are exactly these scalars, so that the layout needs no change.
    #[inline]
    pub(crate) fn has_scalar_type(&self, element: &ElementType) -> bool {
        let scalar = self.struct_type.is_none() && element.is_scalar();
        scalar && self.dtype == element.dtype && self.padded == element.padded
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
    let address = address_for_kernels(address, device)? as u64;
    if address % align as u64 != 0 {
        let allowed = text!(
            "a multiple of {align}, the alignment of the element; copy the array into memory that is aligned"
        );
        return Err(Error::new(ErrorKind::Alignment, "data", format_args!("{address:#x}"), allowed));
    }
    Ok(address)
}
