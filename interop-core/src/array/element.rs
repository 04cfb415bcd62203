//! The Rust types that array elements can be, and what each is in the protocols.

#![expect(unsafe_code, reason = "this room declares an unsafe trait and implements it for the number types")]

use core::mem::{align_of, size_of};
use core::ops::Range;

use crate::array::dtype::DType;
use crate::array::struct_type::{StructField, StructType};
use crate::error::{Error, ErrorKind, Result, text};

/// A Rust type whose values can be the elements of an array.
///
/// The number types, `bool`, arrays `[T; N]` (which become trailing axes), and with features `f16`, `bf16` and `Complex`
/// are elements. `#[derive(Element)]` makes one of a `#[repr(C)]` struct or a `#[repr(transparent)]` newtype.
///
/// # Safety
///
/// 1. `TYPE` describes the memory of `Self` truly: size and alignment are those of `Self`, and items and fields lie where it
///    says.
/// 2. Where `TYPE` does not say otherwise (as it does for `bool`), every bit pattern is a valid value.
/// 3. Every byte of a value is initialized. `Self` has no padding, unless `TYPE` is that of a struct with
///    `#[derive(Element)]`, whose fields say which bytes there are.
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
    note = "elements are `i8`…`i64`, `u8`…`u64`, `isize`, `usize`, `f32`, `f64`, `bool`, and `[T; N]` of an element",
    note = "`f16` and `bf16` need the feature `half` of `interop-core`, `Complex` the feature `num-complex`",
    note = "for a struct of your own: `#[derive(Clone, Copy, Element)] #[repr(C)]`",
    note = "for a type of another crate: a `#[repr(transparent)]` struct around it, with `unsafe impl Element` by `ElementType::same_as`"
)]
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// What the type is in the protocols.
    const TYPE: ElementType;

    /// The fields of a struct element.
    #[doc(hidden)]
    const FIELDS: &'static [Field] = &[];
}

/// The greatest depth of `[[T; N]; M]` that is an element.
const MAX_AXES: usize = 4;

/// What an [`Element`] is in the protocols: an item, and the trailing axes of a `[T; N]`.
///
/// The item of a struct is a blob of its size, with the fields beside it.
#[derive(Clone, Copy, Debug)]
pub struct ElementType {
    pub(crate) dtype: DType,
    pub(crate) axes: [usize; MAX_AXES],
    pub(crate) ndim: usize,
    /// One lane takes whole bytes although it has fewer bits.
    pub(crate) padded: bool,
    /// Every bit pattern is a value.
    pub(crate) any_bits: bool,
    pub(crate) fields: Option<&'static [Field]>,
    pub(crate) size: usize,
    pub(crate) align: usize,
}

impl ElementType {
    /// The type of a scalar `T` with the bits of `dtype`: for newtypes of your own around types that this crate does not know.
    ///
    /// # Panics
    ///
    /// At compile time, when `T` has another size than the dtype.
    ///
    /// ```
    /// use interop_core::{DType, Element, ElementType};
    ///
    /// #[derive(Clone, Copy)]
    /// #[repr(transparent)]
    /// struct Float8(u8);
    ///
    /// // SAFETY: a transparent byte has the size of float8_e4m3fn, and every bit pattern is a value.
    /// unsafe impl Element for Float8 {
    ///     const TYPE: ElementType = ElementType::from_dtype::<Self>(DType::F8_E4M3FN);
    /// }
    /// assert_eq!(Float8::TYPE.dtype().name(), "float8_e4m3fn");
    /// ```
    #[must_use]
    pub const fn from_dtype<T>(dtype: DType) -> Self {
        let padded = dtype.bits() % 8 != 0 && dtype.lanes() == 1;
        assert!(
            dtype.item_bits(padded) == 8 * size_of::<T>(),
            "the size of the Rust type is not that of the dtype"
        );
        Self { padded, align: align_of::<T>(), ..Self::of_bytes(dtype, size_of::<T>()) }
    }

    /// The type of a `T` that is in memory what the element `E` is: for newtypes of your own around types of other crates,
    /// such as vectors of `glam` and pixels of `image`. Views of the host want the alignment of `T`, which may be greater.
    ///
    /// # Panics
    ///
    /// At compile time, when `T` has another size than `E`.
    ///
    /// ```
    /// # mod glam { #[derive(Clone, Copy)] #[repr(C, align(16))] pub struct Vec4 { x: f32, y: f32, z: f32, w: f32 } }
    /// use interop_core::{DType, Element, ElementType};
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

    /// The type of elements of this size that is known at run time only; no alignment demanded.
    pub(crate) const fn of_bytes(dtype: DType, size: usize) -> Self {
        let axes = [0; MAX_AXES];
        Self { dtype, axes, ndim: 0, padded: false, any_bits: true, fields: None, size, align: 1 }
    }

    /// As [`of_bytes`](Self::of_bytes), for elements that each begin at a byte.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DType`] for a type that does not exist, and for types packed below the byte.
    pub(crate) fn of_whole_bytes(dtype: DType, padded: bool) -> Result<Self> {
        dtype.check()?;
        let bits = dtype.item_bits(padded);
        if bits % 8 != 0 {
            return Err(Error::new(ErrorKind::DType, "dtype", dtype, "elements of whole bytes"));
        }
        Ok(Self { padded, ..Self::of_bytes(dtype, bits / 8) })
    }

    /// What is said of more elements than an address space can hold.
    #[cold]
    pub(crate) fn too_large(&self, len: usize) -> Error {
        let found = text!("{len} elements of {} bytes", self.size);
        Error::new(ErrorKind::Overflow, "shape", found, "a size within the address space")
    }

    /// Whether an element is one item, and neither a struct nor a list.
    #[inline]
    pub(crate) const fn is_scalar(&self) -> bool {
        self.ndim == 0 && self.fields.is_none()
    }

    /// The type of a struct, from its fields. Called by `#[derive(Element)]`.
    #[doc(hidden)]
    #[must_use]
    pub const fn of_struct<T: Element>() -> Self {
        Self { fields: Some(T::FIELDS), ..Self::blob::<T>() }
    }

    /// The type of a newtype, which is that of its one part. Called by `#[derive(Element)]`, which goes by the
    /// `#[repr(transparent)]` that it sees; rustc knows what became of it.
    ///
    /// # Panics
    ///
    /// At compile time, when `T` has another size or alignment than the part.
    #[doc(hidden)]
    #[must_use]
    pub const fn newtype<T>(part: Self) -> Self {
        let same = size_of::<T>() == part.size && align_of::<T>() == part.align;
        assert!(same, "the struct is not transparent: its size or alignment is not that of its one part");
        part
    }

    /// Whether a field of this type counts for `#[repr(transparent)]`: 0 where it neither takes bytes nor aligns any.
    #[doc(hidden)]
    #[must_use]
    pub const fn room<T>() -> usize {
        size_of::<T>() + align_of::<T>() - 1
    }

    /// Refuses a second field of a transparent struct, given the room of each. Where two take room rustc has refused them.
    ///
    /// # Panics
    ///
    /// At compile time, when at most one takes room.
    #[doc(hidden)]
    pub const fn refuse_second(rooms: &[usize]) {
        let (mut at, mut counting) = (0, 0);
        while at < rooms.len() {
            counting += (rooms[at] > 0) as usize;
            at += 1;
        }
        assert!(counting > 1, "a transparent element with a second field: keep one, or write `#[repr(C)]`");
    }

    /// Opaque bytes, as many as `T` has.
    #[expect(clippy::cast_possible_truncation, reason = "compared with the most that fits")]
    const fn blob<T>() -> Self {
        assert!(size_of::<T>() > 0, "an element has at least one byte");
        assert!(size_of::<T>() <= u16::MAX as usize, "an element of opaque bytes has 65535 at most");
        Self::from_dtype::<T>(DType::opaque(size_of::<T>() as u16))
    }

    const fn array<T: Element, const N: usize>() -> Self {
        let item = T::TYPE;
        assert!(item.ndim < MAX_AXES, "more than four lists in each other: write `[T; 6]` for `[[T; 2]; 3]`");
        assert!(N > 0, "a list without items is no element: write a length of 1 or more");
        let mut axes = [0; MAX_AXES];
        axes[0] = N;
        let mut inner = 0;
        while inner < item.ndim {
            axes[inner + 1] = item.axes[inner];
            inner += 1;
        }
        Self { axes, ndim: item.ndim + 1, size: size_of::<[T; N]>(), ..item }
    }

    /// The type of an item: one part of a `[T; N]`, or the blob that a struct is.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// The trailing axes that an array of this element has.
    #[must_use]
    pub fn axes(&self) -> &[usize] {
        &self.axes[..self.ndim]
    }

    /// The size of an element in bytes.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// The alignment in bytes that host code needs.
    #[must_use]
    pub const fn align(&self) -> usize {
        self.align
    }

    /// The record that the item is, for a struct.
    pub(crate) fn to_struct_type(self) -> Option<StructType> {
        self.fields.map(StructType::of_fields)
    }

    /// The bytes of an element that are in no field of a struct, and may hold anything.
    pub(crate) fn padding(&self) -> Vec<Range<usize>> {
        let item = self.dtype.packed_bits() / 8;
        let inner = self.to_struct_type().map_or_else(Vec::new, |struct_type| struct_type.padding(item));
        let items = (0..self.size).step_by(item.max(1));
        items.flat_map(|at| inner.iter().map(move |gap| at + gap.start..at + gap.end)).collect()
    }

    /// What the messages call this element: `float32`, `float32 with trailing axes [3]`, a struct's descr.
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
            // SAFETY: 1: the sizes are compared at compile time; the representation of the type is the one that the
            // protocols give the dtype. 2: a number type has no invalid bit pattern.
            unsafe impl Element for $type {
                const TYPE: ElementType = ElementType::from_dtype::<Self>($dtype);
            }
        )*
    };
}

pub(crate) use elements;

elements! {
    i8 => DType::I8;
    i16 => DType::I16;
    i32 => DType::I32;
    i64 => DType::I64;
    isize => DType::new(DType::I64.code(), POINTER_BITS, 1);
    u8 => DType::U8;
    u16 => DType::U16;
    u32 => DType::U32;
    u64 => DType::U64;
    usize => DType::new(DType::U64.code(), POINTER_BITS, 1);
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

// SAFETY: 1: one byte, 0 or 1, in Rust as in the protocols. 2: `any_bits` is off, so values are checked before they are
// read as `bool`.
unsafe impl Element for bool {
    const TYPE: ElementType = ElementType { any_bits: false, ..ElementType::from_dtype::<Self>(DType::BOOL) };
}

// SAFETY: 1: an array is its items without gaps, and `array` puts its length before their axes. 2: as its items.
unsafe impl<T: Element, const N: usize> Element for [T; N] {
    const TYPE: ElementType = ElementType::array::<T, N>();
}

/// A blob of `N` bytes, `|VN` in the CUDA Array Interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Opaque<const N: usize>(pub [u8; N]);

// SAFETY: 1: `N` bytes, and `opaque` is checked against that size. 2: bytes.
unsafe impl<const N: usize> Element for Opaque<N> {
    const TYPE: ElementType = ElementType::blob::<Self>();
}

/// A field of a struct element, as `#[derive(Element)]` states it.
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
        assert!(
            !element.padded,
            "a 6-bit float in a byte of its own cannot be a field of a struct element: use `u8`"
        );
        assert!(
            element.any_bits,
            "a `bool` in a struct element can arrive with a value that is no bool: use `u8`"
        );
        Self { name, offset, element }
    }
}

impl StructType {
    pub(crate) fn of_fields(fields: &[Field]) -> Self {
        let fields = fields.iter().map(|field| StructField {
            name: field.name.into(),
            offset: field.offset,
            dtype: field.element.dtype,
            shape: field.element.axes().to_vec(),
            struct_type: field.element.to_struct_type(),
        });
        Self { fields: fields.collect() }
    }
}
