//! The Rust types that can be array elements, and their counterparts in the protocols.
#![expect(unsafe_code, reason = "declares an unsafe trait and implements it for number types")]

use core::mem::{align_of, size_of};
use core::ops::Range;

use crate::array::dtype::DType;
use crate::array::struct_type::{StructField, StructType};
use crate::error::{Error, ErrorKind, Result, text};

/// A Rust type whose values can be the elements of an array.
///
/// Number types, `bool` and arrays `[T; N]` of elements are elements; `[T; N]` adds a trailing axis. The features
/// `half` and `num-complex` add `f16`, `bf16` and `Complex`. Use `#[derive(Element)]` for a `#[repr(C)]` struct or a
/// `#[repr(transparent)]` newtype.
///
/// # Safety
///
/// 1. `TYPE` describes the memory of `Self` correctly: its size, its alignment, and the offsets of items and fields.
/// 2. Every bit pattern is a valid value, unless `TYPE` says otherwise (as it does for `bool`).
/// 3. Every byte of a value is initialized. `Self` has no padding, unless `TYPE` comes from `#[derive(Element)]`, which
///    records the bytes of all fields.
///
/// ```
/// use interop_core::{DType, Element};
///
/// assert_eq!(<[f32; 3]>::TYPE.dtype(), DType::F32);
/// assert_eq!(<[f32; 3]>::TYPE.axes(), [3]);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an array element",
    label = "not a number type, an array of one, or a type with `#[derive(Element)]`",
    note = "for `Vec<Vec<T>>` use one flat `Vec<T>` and put the shape in fields",
    note = "elements are `i8`…`i64`, `u8`…`u64`, `isize`, `usize`, `f32`, `f64`, `bool`, and `[T; N]` of an element",
    note = "for a struct of your own: `#[derive(Clone, Copy, Element)] #[repr(C)]`",
    note = "for a type of another crate: a `#[repr(transparent)]` struct around it, with `unsafe impl Element` by `ElementType::same_as`"
)]
#[cfg_attr(
    not(feature = "half"),
    diagnostic::on_unimplemented(note = "`f16` and `bf16` need the feature `half` of `interop-core`")
)]
#[cfg_attr(
    not(feature = "num-complex"),
    diagnostic::on_unimplemented(note = "`Complex` needs the feature `num-complex` of `interop-core`")
)]
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// The type in the protocols.
    const TYPE: ElementType;

    /// The fields of a struct element.
    #[doc(hidden)]
    const FIELDS: &'static [Field] = &[];
}

/// The greatest nesting depth of `[[T; N]; M]`.
const MAX_AXES: usize = 4;

/// The protocol type of an [`Element`]: an item type, and the trailing axes of a `[T; N]`.
///
/// The item type of a struct is opaque bytes of its size, with the fields listed separately.
#[derive(Clone, Copy, Debug)]
pub struct ElementType {
    pub(crate) dtype: DType,
    pub(crate) axes: [usize; MAX_AXES],
    pub(crate) ndim: usize,
    /// A lane takes whole bytes although it has fewer bits.
    pub(crate) padded: bool,
    /// Every bit pattern is a valid value.
    pub(crate) any_bits: bool,
    pub(crate) fields: Option<&'static [Field]>,
    pub(crate) size: usize,
    pub(crate) align: usize,
}

impl ElementType {
    /// The type of a scalar `T` with the given dtype, for your own newtypes around types that this crate does not know.
    ///
    /// # Panics
    ///
    /// At compile time, if the sizes of `T` and the dtype differ.
    ///
    /// ```
    /// use interop_core::element::ElementType;
    /// use interop_core::{DType, Element};
    ///
    /// #[derive(Clone, Copy)]
    /// #[repr(transparent)]
    /// struct Float8(u8);
    ///
    /// // SAFETY: a transparent byte has the size of float8_e4m3fn, and every bit pattern is a value.
    /// unsafe impl Element for Float8 {
    ///     const TYPE: ElementType = ElementType::from_dtype::<Self>(DType::F8_E4M3FN);
    /// }
    /// assert_eq!(Float8::TYPE.dtype().to_string(), "float8_e4m3fn");
    /// ```
    #[must_use]
    pub const fn from_dtype<T>(dtype: DType) -> Self {
        let padded = dtype.bits % 8 != 0 && dtype.lanes == 1;
        assert!(dtype.item_bits(padded) == 8 * size_of::<T>(), "the Rust type and the dtype differ in size");
        Self { padded, align: align_of::<T>(), ..Self::from_size(dtype, size_of::<T>()) }
    }

    /// The type of a `T` with the memory layout of `E`.
    ///
    /// Use it for your own newtypes around types of other crates, such as vectors of `glam` and pixels of `image`. Host
    /// views require the alignment of `T`, which may be greater than that of `E`.
    ///
    /// # Panics
    ///
    /// At compile time, if the sizes of `T` and `E` differ.
    ///
    /// ```
    /// # mod glam { #[derive(Clone, Copy)] #[repr(C, align(16))] pub struct Vec4 { x: f32, y: f32, z: f32, w: f32 } }
    /// use interop_core::element::ElementType;
    /// use interop_core::{DType, Element};
    ///
    /// #[derive(Clone, Copy)]
    /// #[repr(transparent)]
    /// struct Plane(glam::Vec4);
    ///
    /// // SAFETY: a `Vec4` is four `f32` one after another, and every bit pattern of theirs is a value.
    /// unsafe impl Element for Plane {
    ///     const TYPE: ElementType = ElementType::same_as::<Self, [f32; 4]>();
    /// }
    /// assert_eq!((Plane::TYPE.dtype(), Plane::TYPE.axes(), Plane::TYPE.align()), (DType::F32, &[4][..], 16));
    /// ```
    #[must_use]
    pub const fn same_as<T, E: Element>() -> Self {
        assert!(size_of::<T>() == size_of::<E>(), "the size of the Rust type is not that of the element");
        Self { align: align_of::<T>(), ..E::TYPE }
    }

    /// The type of elements whose size is known only at run time. It requires no alignment.
    pub(crate) const fn from_size(dtype: DType, size: usize) -> Self {
        let axes = [0; MAX_AXES];
        Self { dtype, axes, ndim: 0, padded: false, any_bits: true, fields: None, size, align: 1 }
    }

    /// As [`from_size`](Self::from_size), for elements that begin at a byte.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DType`] for an invalid type, and for types packed below the byte.
    pub(crate) fn from_whole_bytes(dtype: DType, padded: bool) -> Result<Self> {
        dtype.check()?;
        let bits = dtype.item_bits(padded);
        if bits % 8 != 0 {
            return Err(Error::new(ErrorKind::DType, "dtype", dtype, "elements of whole bytes"));
        }
        Ok(Self { padded, ..Self::from_size(dtype, bits / 8) })
    }

    /// The error for more elements than the address space can hold.
    #[cold]
    pub(crate) fn too_large(&self, len: usize) -> Error {
        let found = text!("{len} elements of {} bytes", self.size);
        Error::new(ErrorKind::Overflow, "shape", found, "a size that fits the address space")
    }

    /// Whether an element is a single item, neither a struct nor an array.
    #[inline]
    pub(crate) const fn is_scalar(&self) -> bool {
        self.ndim == 0 && self.fields.is_none()
    }

    /// The type of a struct, from its fields. `#[derive(Element)]` calls this.
    #[doc(hidden)]
    #[must_use]
    pub const fn of_struct<T: Element>() -> Self {
        Self { fields: Some(T::FIELDS), ..Self::blob::<T>() }
    }

    /// The type of a newtype, which is that of its only field. `#[derive(Element)]` calls this if it sees
    /// `#[repr(transparent)]`; the compiler decides whether that attribute is valid.
    ///
    /// # Panics
    ///
    /// At compile time, if `T` and the field differ in size or alignment.
    #[doc(hidden)]
    #[must_use]
    pub const fn newtype<T>(field: Self) -> Self {
        let same = size_of::<T>() == field.size && align_of::<T>() == field.align;
        assert!(same, "the struct is not transparent: its size or alignment differs from that of its field");
        field
    }

    /// Greater than 0 if a field of this type counts for `#[repr(transparent)]`: it has a size or an alignment above 1.
    #[doc(hidden)]
    #[must_use]
    pub const fn footprint<T>() -> usize {
        size_of::<T>() + align_of::<T>() - 1
    }

    /// Rejects a second field of a transparent struct, given the footprint of each. The compiler already rejects two
    /// fields with a footprint.
    ///
    /// # Panics
    ///
    /// At compile time, if at most one field has a footprint.
    #[doc(hidden)]
    pub const fn refuse_second(footprints: &[usize]) {
        let (mut at, mut counting) = (0, 0);
        while at < footprints.len() {
            counting += (footprints[at] > 0) as usize;
            at += 1;
        }
        assert!(counting > 1, "a transparent element with a second field: keep one, or write `#[repr(C)]`");
    }

    /// Opaque bytes of the size of `T`.
    #[expect(clippy::cast_possible_truncation, reason = "the assertion above bounds the size")]
    const fn blob<T>() -> Self {
        assert!(size_of::<T>() > 0, "an element has at least one byte");
        assert!(size_of::<T>() <= u16::MAX as usize, "an element of opaque bytes has 65535 at most");
        Self::from_dtype::<T>(DType::opaque(size_of::<T>() as u16))
    }

    const fn array<T: Element, const N: usize>() -> Self {
        let item = T::TYPE;
        assert!(item.ndim < MAX_AXES, "arrays nested more than four deep: write `[T; 6]` for `[[T; 2]; 3]`");
        assert!(N > 0, "an array of length 0 is not an element: write a length of 1 or more");
        let mut axes = [0; MAX_AXES];
        axes[0] = N;
        let mut inner = 0;
        while inner < item.ndim {
            axes[inner + 1] = item.axes[inner];
            inner += 1;
        }
        Self { axes, ndim: item.ndim + 1, size: size_of::<[T; N]>(), ..item }
    }

    /// The item type: that of the innermost `T` of a `[T; N]`, or opaque bytes for a struct.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// The trailing axes that this element type adds to an array.
    #[must_use]
    pub fn axes(&self) -> &[usize] {
        &self.axes[..self.ndim]
    }

    /// The size of an element in bytes.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// The alignment in bytes that host code requires.
    #[must_use]
    pub const fn align(&self) -> usize {
        self.align
    }

    /// The fields of a struct element.
    pub(crate) fn to_struct_type(self) -> Option<StructType> {
        let named = |field: &Field| StructField {
            name: field.name.into(),
            offset: field.offset,
            dtype: field.element.dtype,
            shape: field.element.axes().to_vec(),
            struct_type: field.element.to_struct_type(),
        };
        self.fields.map(|fields| StructType { fields: fields.iter().map(named).collect() })
    }

    /// Returns an error if `len` bytes at this address cannot be such elements.
    pub(crate) fn check_span(&self, address: usize, len: usize) -> Result<()> {
        let Self { align, size, .. } = *self;
        if len > 0 && address % align != 0 {
            let allowed = format!("a multiple of {align}, the alignment of {}", self.describe());
            return Err(Error::new(ErrorKind::Alignment, "address", format_args!("{address:#x}"), allowed));
        }
        if size == 0 || len % size != 0 {
            let allowed = format!("a multiple of {size}, the size of {}", self.describe());
            return Err(Error::new(ErrorKind::OutOfBounds, "bytes", len, allowed));
        }
        Ok(())
    }

    /// The padding bytes of an element, whose content is arbitrary.
    pub(crate) fn padding(&self) -> Vec<Range<usize>> {
        let item = self.dtype.packed_bits() / 8;
        let inner = self.to_struct_type().map_or_else(Vec::new, |struct_type| struct_type.padding(item));
        let items = (0..self.size).step_by(item.max(1));
        items.flat_map(|at| inner.iter().map(move |gap| at + gap.start..at + gap.end)).collect()
    }

    /// The description used in messages: `float32`, `float32 with trailing axes [3]`, or the fields of a struct.
    pub(crate) fn describe(&self) -> String {
        let item = self
            .to_struct_type()
            .map_or_else(|| self.dtype.name(), |struct_type| format!("struct {struct_type}"));
        if self.ndim == 0 { item } else { format!("{item} with trailing axes {:?}", self.axes()) }
    }
}

const POINTER_BITS: u8 = if cfg!(target_pointer_width = "64") { 64 } else { 32 };

macro_rules! elements {
    ($($type:ty => $dtype:expr;)*) => {
        $(
            // SAFETY: 1: the sizes are compared at compile time, and the protocols give the dtype the representation of
            // the type. 2: a number type has no invalid bit pattern.
            unsafe impl Element for $type {
                const TYPE: ElementType = ElementType::from_dtype::<Self>($dtype);
            }
        )*
    };
}

elements! {
    i8 => DType::I8;
    i16 => DType::I16;
    i32 => DType::I32;
    i64 => DType::I64;
    isize => DType::new(DType::I64.code, POINTER_BITS, 1);
    u8 => DType::U8;
    u16 => DType::U16;
    u32 => DType::U32;
    u64 => DType::U64;
    usize => DType::new(DType::U64.code, POINTER_BITS, 1);
    f32 => DType::F32;
    f64 => DType::F64;
}

#[cfg(feature = "half")]
elements! {
    half::f16 => DType::F16;
    half::bf16 => DType::BF16;
}

#[cfg(feature = "num-complex")]
elements! {
    num_complex::Complex<f32> => DType::COMPLEX64;
    num_complex::Complex<f64> => DType::COMPLEX128;
}

// SAFETY: 1: one byte, 0 or 1, in Rust and in the protocols. 2: `any_bits` is false, so values are checked before they
// are read as `bool`.
unsafe impl Element for bool {
    const TYPE: ElementType = ElementType { any_bits: false, ..ElementType::from_dtype::<Self>(DType::BOOL) };
}

// SAFETY: 1: an array is its items without gaps, and `array` prepends its length to their axes. 2: as for its items.
unsafe impl<T: Element, const N: usize> Element for [T; N] {
    const TYPE: ElementType = ElementType::array::<T, N>();
}

/// Opaque bytes, `|VN` in the CUDA Array Interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Opaque<const N: usize>(pub [u8; N]);

// SAFETY: 1: the type has `N` bytes, and `opaque` checks that size. 2: bytes have no invalid bit pattern.
unsafe impl<const N: usize> Element for Opaque<N> {
    const TYPE: ElementType = ElementType::blob::<Self>();
}

/// A float of 8, 6 or 4 bits: its bits, without arithmetic. Use a crate for such numbers to compute with them.
///
/// `CODE` is the type code of the [`DType`]. A float of 6 bits has a byte of its own (the padded form). Two of 4 bits are in one
/// byte, the first in the low bits: `float4_e2m1fn_x2` of `PyTorch`.
///
/// ```
/// use interop_core::element::MiniFloat;
/// use interop_core::{DType, Element};
///
/// type Float8 = MiniFloat<{ DType::F8_E4M3FN.code }>;
/// assert_eq!(Float8::TYPE.dtype(), DType::F8_E4M3FN);
/// assert_eq!(MiniFloat::<{ DType::F4_E2M1FN.code }>::TYPE.dtype().to_string(), "float4_e2m1fnx2");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct MiniFloat<const CODE: u8>(pub u8);

// SAFETY: 1: `from_dtype` compares the sizes. 2, 3: a byte has no invalid bit pattern and no padding.
unsafe impl<const CODE: u8> Element for MiniFloat<CODE> {
    const TYPE: ElementType = ElementType::from_dtype::<Self>(DType::minifloat(CODE));
}

/// A field of a struct element, as emitted by `#[derive(Element)]`.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Field {
    name: &'static str,
    offset: usize,
    element: ElementType,
}

impl Field {
    /// The field of this name and type at this offset.
    ///
    /// # Panics
    ///
    /// At compile time, for a type with invalid bit patterns.
    #[must_use]
    pub const fn new(name: &'static str, offset: usize, element: ElementType) -> Self {
        assert!(!element.padded, "a padded 6-bit float cannot be a field of a struct element: use `u8`");
        assert!(
            element.any_bits,
            "a `bool` cannot be a field of a struct element, because other libraries may write bytes that are not 0 or 1: use `u8`"
        );
        Self { name, offset, element }
    }
}
