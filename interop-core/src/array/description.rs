//! The checked description of an array, as numbers.
#![expect(clippy::inline_always, reason = "of a description that is inlined, unused fields are not written")]

use core::ops::{Deref, Range};
use std::sync::Arc;

use crate::array::device::Device;
use crate::array::dtype::{COMPLEX, DType};
use crate::array::element::ElementType;
use crate::array::elements::Elements;
use crate::array::layout::Layout;
use crate::array::mutability::Mutability;
use crate::array::struct_type::StructType;
use crate::error::{Cure, Error, ErrorKind, Result, text};

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

impl Deref for Description {
    type Target = Layout;

    #[inline(always)]
    fn deref(&self) -> &Layout {
        &self.layout
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

    /// Makes it a description of no elements.
    #[inline]
    pub(crate) fn forget_elements(&mut self) {
        (self.unwatched_address, self.range) = (0, 0..0);
        self.layout.forget_elements();
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
        if bits % 8 != 0 {
            return Elements::contiguous(range);
        }
        let axes = self.shape().iter().zip(self.strides());
        let in_bytes = |stride: &isize| stride.unsigned_abs().saturating_mul(bits / 8);
        Elements::of(range, self.numel(), bits / 8, axes.map(|(extent, stride)| (*extent, in_bytes(stride))))
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

    /// As [`join`](Self::join), quickly for the usual elements.
    #[inline]
    pub(crate) fn joined_layout(&self, element: &ElementType) -> Result<Option<Layout>> {
        if self.has_scalar_type(element) { Ok(None) } else { self.join(*element) }
    }

    /// As [`join`](Self::join), but always returns a layout.
    pub(crate) fn layout_of(&self, element: &ElementType) -> Result<Layout> {
        Ok(self.joined_layout(element)?.unwrap_or_else(|| self.layout.clone()))
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
