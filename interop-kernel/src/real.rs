//! Elements that kernels of rows compute with as `f32`.

use crate::element::KernelElement;

/// An element that a [`Row`](crate::Row) reads as an `f32`: each [`Real`], and `u8`, such as the bytes of a mask.
#[diagnostic::on_unimplemented(
    message = "a row has no elements `{Self}`",
    note = "rows have `f32`, `f16`, `bf16` of `interop_kernel::half`, and `u8` to read; convert others first"
)]
pub trait RowElement: KernelElement + sealed::RowElement {}

/// A real number that a [`Row`](crate::Row) reads and writes, and computes with as an `f32`: `f32`, and `f16` and `bf16` of the
/// crate `half`.
#[diagnostic::on_unimplemented(
    message = "a kernel of rows does not compute with `{Self}`",
    note = "the real numbers of rows are `f32`, and `f16` and `bf16` of `interop_kernel::half`, with the feature `half`"
)]
pub trait Real: RowElement + sealed::Real {}

pub(crate) mod sealed {
    pub trait RowElement: Copy {
        /// The number of elements that a thread moves at once, 16 bytes at most.
        const UNIT: usize = if size_of::<Self>() > 2 { 4 } else { 8 };
        /// Returns the value of the lower bits of a word.
        fn from_word(word: u32) -> f32;
    }

    pub trait Real {
        /// Returns a word with the nearest number in the lower bits, and zeros.
        fn to_word(value: f32) -> u32;
    }
}

impl RowElement for f32 {}

impl sealed::RowElement for f32 {
    #[inline(always)]
    fn from_word(word: u32) -> f32 {
        f32::from_bits(word)
    }
}

impl Real for f32 {}

impl sealed::Real for f32 {
    #[inline(always)]
    fn to_word(value: f32) -> u32 {
        value.to_bits()
    }
}

impl RowElement for u8 {}

impl sealed::RowElement for u8 {
    #[inline(always)]
    #[expect(clippy::cast_precision_loss, reason = "8 bits")]
    fn from_word(word: u32) -> f32 {
        (word & 0xFF) as f32
    }
}

#[cfg(feature = "half")]
impl RowElement for half::bf16 {}

#[cfg(feature = "half")]
impl sealed::RowElement for half::bf16 {
    #[inline(always)]
    fn from_word(word: u32) -> f32 {
        f32::from_bits(word << 16)
    }
}

#[cfg(feature = "half")]
impl Real for half::bf16 {}

#[cfg(feature = "half")]
impl sealed::Real for half::bf16 {
    /// `bf16::from_f32` has a branch for NaN, and a device would take it.
    #[inline(always)]
    fn to_word(value: f32) -> u32 {
        const NAN: u32 = 0x7FC0;
        let bits = value.to_bits();
        // To the nearest, of two the even one.
        let rounded = bits.wrapping_add(0x7FFF + ((bits >> 16) & 1)) >> 16;
        if value.is_nan() { NAN } else { rounded }
    }
}

#[cfg(feature = "half")]
impl RowElement for half::f16 {}

#[cfg(feature = "half")]
impl sealed::RowElement for half::f16 {
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the lower bits")]
    fn from_word(word: u32) -> f32 {
        crate::math::from_f16(half::f16::from_bits(word as u16))
    }
}

#[cfg(feature = "half")]
impl Real for half::f16 {}

#[cfg(feature = "half")]
impl sealed::Real for half::f16 {
    #[inline(always)]
    fn to_word(value: f32) -> u32 {
        crate::math::to_f16(value).to_bits().into()
    }
}

/// A value for an element that a [`Row`](crate::Row) sets: `f32` for each [`Real`], and integers for arrays of the same integers.
#[diagnostic::on_unimplemented(
    message = "an element `{E}` is not set to a value `{Self}`",
    note = "elements `f32`, `f16` and `bf16` are set to an `f32`, and integers to one of the same type, as in `column as i64`"
)]
pub trait ElementValue<E>: value::ElementValue<E> {}

pub(crate) mod value {
    pub trait ElementValue<E> {
        fn to_element(self) -> E;
    }
}

impl<E: Real> ElementValue<E> for f32 {}

impl<E: Real> value::ElementValue<E> for f32 {
    #[inline(always)]
    fn to_element(self) -> E {
        crate::row_source::element_of_word(E::to_word(self))
    }
}

macro_rules! integers {
    ($($integer:ty)*) => {
        $(
            impl ElementValue<$integer> for $integer {}

            impl value::ElementValue<$integer> for $integer {
                #[inline(always)]
                fn to_element(self) -> $integer {
                    self
                }
            }
        )*
    };
}

integers!(u8 u32 u64 i32 i64);
