//! What is known of an array once its claims were checked.

use core::ops::Range;
use std::sync::Arc;

use crate::array::device::Device;
use crate::array::dtype::DType;
use crate::array::element::ElementType;
use crate::array::layout::Layout;
use crate::array::mutability::Mutability;
use crate::array::stream::StreamHandle;
use crate::array::struct_type::StructType;
use crate::error::{Error, ErrorKind, Result};

/// An array whose description holds together.
///
/// Having one means: the bits of the element type are those that its code has, or whole bytes if nobody knows the code; the
/// device is of the host or of CUDA, or was not named; extents, strides and addresses do not overflow; an array with elements
/// has an address that is not null, and all elements lie within [`byte_range`](Self::byte_range). It does not mean that the
/// memory is live: who made the claims vouches for that.
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
#[derive(Clone, Debug, Eq)]
pub struct ArrayInfo {
    pub(crate) address: usize,
    /// For an array without elements: empty, at the start of the memory behind it, which has an owner all the same.
    pub(crate) range: Range<usize>,
    pub(crate) dtype: DType,
    pub(crate) padded: bool,
    /// The elements are a Rust struct with padding, in which there may be anything: Rust code copies it or not.
    #[cfg_attr(not(feature = "python"), expect(dead_code, reason = "the buffer protocol asks"))]
    pub(crate) has_stale_padding: bool,
    pub(crate) struct_type: Option<Arc<StructType>>,
    pub(crate) layout: Layout,
    pub(crate) device: Device,
    pub(crate) mutability: Mutability,
    pub(crate) stream: StreamHandle,
}

impl PartialEq for ArrayInfo {
    /// The place of the memory behind an array without elements does not count.
    fn eq(&self, other: &Self) -> bool {
        let array =
            |info: &Self| (info.address, info.byte_range(), info.device, info.mutability, info.stream);
        array(self) == array(other)
            && (self.dtype, self.padded, &self.struct_type) == (other.dtype, other.padded, &other.struct_type)
            && self.layout == other.layout
    }
}

impl ArrayInfo {
    /// An array without elements, to be replaced by what arrives.
    pub(crate) const EMPTY: Self = Self {
        address: 0,
        range: 0..0,
        dtype: DType::U8,
        padded: false,
        has_stale_padding: false,
        struct_type: None,
        layout: Layout::EMPTY,
        device: Device::UNKNOWN,
        mutability: Mutability::ReadOnly,
        stream: StreamHandle::NothingPending,
    };

    /// The address of element \[0, …, 0\]; 0 for an array without elements.
    #[inline]
    #[must_use]
    pub fn address(&self) -> usize {
        self.address
    }

    /// Names the same memory by another address.
    pub(crate) fn move_to(&mut self, address: usize) {
        let moved = |end: usize| end.wrapping_sub(self.address).wrapping_add(address);
        (self.range, self.address) = (moved(self.range.start)..moved(self.range.end), address);
    }

    /// The addresses from the lowest element to the highest, with all that lies between: who imports the array may use other
    /// strides. Below [`address`](Self::address) where strides are negative; empty for an array without elements.
    #[inline]
    #[must_use]
    pub fn byte_range(&self) -> Range<usize> {
        if self.range.is_empty() { 0..0 } else { self.range.clone() }
    }

    /// The element type.
    #[inline]
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Whether elements of less than a byte take a byte each.
    #[inline]
    #[must_use]
    pub fn is_padded(&self) -> bool {
        self.padded
    }

    /// The fields of structured elements.
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

    /// The strides, in elements; always given.
    #[inline]
    #[must_use]
    pub fn strides(&self) -> &[isize] {
        self.layout.strides()
    }

    /// The number of axes.
    #[inline]
    #[must_use]
    pub fn ndim(&self) -> usize {
        self.layout.ndim()
    }

    /// The number of elements.
    #[inline]
    #[must_use]
    pub fn numel(&self) -> usize {
        self.layout.numel()
    }

    /// The bytes that the elements would take without gaps; packed elements are counted together and rounded up once.
    /// Elements that repeat, by a stride of 0, can come to more than a `usize` holds, which is then `usize::MAX`.
    #[inline]
    #[must_use]
    pub fn nbytes(&self) -> usize {
        // An element of a strided array may repeat, so the product is not bounded by the range: saturate. What is packed
        // is counted in eights of elements, which take whole bytes.
        let bits = self.dtype.item_bits(self.padded);
        if bits % 8 == 0 {
            self.numel().saturating_mul(bits / 8)
        } else {
            let rest = (self.numel() % 8 * bits).div_ceil(8);
            (self.numel() / 8).saturating_mul(bits).saturating_add(rest)
        }
    }

    /// Where the memory is.
    #[inline]
    #[must_use]
    pub fn device(&self) -> Device {
        self.device
    }

    /// Who may write.
    #[inline]
    #[must_use]
    pub fn mutability(&self) -> Mutability {
        self.mutability
    }

    /// Whether somebody who has the array alone may write to it. Not so for a `bool` that plain Rust code owns: the owner's own
    /// drop may read it afterwards, and a consumer may have left a byte that is none.
    #[inline]
    pub(crate) fn is_writable_by_owner(&self) -> bool {
        match self.mutability {
            Mutability::Writable => true,
            Mutability::WhenOwned => self.dtype != DType::BOOL,
            Mutability::ReadOnly => false,
        }
    }

    /// Whether those who share the array must not write.
    #[inline]
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.mutability != Mutability::Writable
    }

    /// Where work on the data is pending.
    #[inline]
    #[must_use]
    pub fn stream(&self) -> StreamHandle {
        self.stream
    }

    /// The byte strides, `None` when elements are packed below the byte.
    #[inline]
    #[must_use]
    pub fn byte_strides(&self) -> Option<Vec<isize>> {
        let bits = self.dtype.item_bits(self.padded);
        (bits % 8 == 0).then(|| self.layout.strides_in_bytes(bits / 8))
    }

    /// The layout in units of `element`, without the trailing axes that `element` has; `None` where it is the array's own.
    ///
    /// Called for elements that [are not scalars](Self::is_of_scalars), and takes `element` by value: so the usual array
    /// needs no `element` in memory.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DType`] when the elements are of another type, [`ErrorKind::Shape`] and [`ErrorKind::Strides`] when
    /// trailing axes are missing or not compact.
    #[cold]
    pub(crate) fn join(&self, element: ElementType) -> Result<Option<Layout>> {
        let wrong = || {
            let found = self
                .struct_type()
                .map_or_else(|| self.dtype.to_string(), |struct_type| format!("struct {struct_type}"));
            Error::new(ErrorKind::DType, "dtype", found, element.describe())
        };
        let lanes = self.dtype.lanes();
        let struct_type = element.to_struct_type();
        if self.struct_type() == struct_type.as_ref() && self.dtype == element.dtype {
            if self.padded != element.padded {
                return Err(wrong());
            }
            return self.layout.join_elements(element.axes()).map(Some);
        }
        if let (Some(struct_type), None) = (struct_type, self.struct_type()) {
            // DLPack spells a struct of equal fields as a trailing axis of scalars.
            let (scalar, count) =
                struct_type.as_single_scalar(element.dtype.packed_bits() / 8).map_err(|_| wrong())?;
            // Lanes that take a byte each are apart, and those of a field are not.
            if scalar != self.dtype || self.padded {
                return Err(wrong());
            }
            return self.layout.join_elements(&[count])?.join_elements(element.axes()).map(Some);
        }
        let vector =
            lanes > 1 && !self.dtype.is_opaque() && self.dtype.item_bits(self.padded) == 8 * element.size;
        if vector && element.axes() == [usize::from(lanes)] && self.dtype.with_lanes(1) == element.dtype {
            // A vector type is one `[T; lanes]`.
            return Ok(None);
        }
        Err(wrong())
    }

    /// As [`join`](Self::join), always with a layout.
    pub(crate) fn layout_of(&self, element: &ElementType) -> Result<Layout> {
        let joined = if self.is_of_scalars(element) { None } else { self.join(*element)? };
        Ok(joined.unwrap_or_else(|| self.layout.clone()))
    }

    /// Refuses an array whose elements are of another type than `element`.
    #[inline]
    pub(crate) fn check_element(&self, element: &ElementType) -> Result<()> {
        if self.is_of_scalars(element) { Ok(()) } else { self.join(*element).map(drop) }
    }

    /// Whether the elements are exactly these scalars, as nearly always. The layout is then the array's own.
    #[inline]
    pub(crate) fn is_of_scalars(&self, element: &ElementType) -> bool {
        let scalar = self.struct_type.is_none() && element.is_scalar();
        scalar && self.dtype == element.dtype && self.padded == element.padded
    }

    /// The same array with records of equal fields spelled as a trailing axis, as DLPack needs it.
    pub(crate) fn without_struct_type(&self) -> Result<Self> {
        let Some(struct_type) = self.struct_type() else { return Ok(self.clone()) };
        let (dtype, count) = struct_type.as_single_scalar(self.dtype.packed_bits() / 8)?;
        let layout = self.layout.split_elements(&[count])?;
        Ok(Self { dtype, struct_type: None, layout, ..self.clone() })
    }
}
