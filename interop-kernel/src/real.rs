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

/// A value for an element that a [`Row`](crate::Row) sets: `f32` for each [`Real`], and integers for arrays of the same integers.
#[diagnostic::on_unimplemented(
    message = "an element `{E}` is not set to a value `{Self}`",
    note = "elements `f32`, `f16` and `bf16` are set to an `f32`, and integers to one of the same type, as in `column as i64`"
)]
pub trait ElementValue<E>: sealed::ElementValue<E> {}

pub(crate) mod sealed {
    pub trait RowElement: Copy {
        /// The number of elements that a thread moves at once, in 16 bytes at most.
        const UNIT: usize = if size_of::<Self>() > 2 { 4 } else { 8 };
        fn to_f32(self) -> f32;
    }

    pub trait Real {
        /// Returns the nearest number.
        fn from_f32(value: f32) -> Self;
    }

    pub trait ElementValue<E> {
        fn to_element(self) -> E;
    }
}

macro_rules! elements {
    ($($type:ty: $x:ident => $to:expr $(, $value:ident => $from:expr)?;)*) => {
        $(
            impl RowElement for $type {}

            impl sealed::RowElement for $type {
                #[inline(always)]
                fn to_f32(self) -> f32 {
                    let $x = self;
                    $to
                }
            }

            $(
                impl Real for $type {}

                impl sealed::Real for $type {
                    #[inline(always)]
                    fn from_f32($value: f32) -> Self {
                        $from
                    }
                }
            )?
        )*
    };
}

elements! {
    f32: x => x, value => value;
    u8: x => f32::from(x);
}
#[cfg(feature = "half")]
elements! {
    half::bf16: x => f32::from_bits(u32::from(x.to_bits()) << 16), value => nearest_bf16(value);
    half::f16: x => crate::math::from_f16(x), value => crate::math::to_f16(value);
}

/// `bf16::from_f32` has a branch for NaN, which a device would take.
#[cfg(feature = "half")]
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the upper half")]
fn nearest_bf16(value: f32) -> half::bf16 {
    let bits = value.to_bits();
    // Of two that are as near, the even one.
    let rounded = bits.wrapping_add(0x7FFF + ((bits >> 16) & 1)) >> 16;
    half::bf16::from_bits(if value.is_nan() { 0x7FC0 } else { rounded as u16 })
}

impl<E: Real> ElementValue<E> for f32 {}

impl<E: Real> sealed::ElementValue<E> for f32 {
    #[inline(always)]
    fn to_element(self) -> E {
        E::from_f32(self)
    }
}

macro_rules! integers {
    ($($integer:ty)*) => {
        $(
            impl ElementValue<$integer> for $integer {}

            impl sealed::ElementValue<$integer> for $integer {
                #[inline(always)]
                fn to_element(self) -> $integer {
                    self
                }
            }
        )*
    };
}

integers!(u8 u32 u64 i32 i64);
