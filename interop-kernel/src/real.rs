//! Elements that kernels of rows compute with as `f32`.

use crate::element::KernelElement;

/// An element that a [`Row`](crate::Row) reads as an `f32`: each [`Real`], and `u8`, such as the bytes of a mask.
#[diagnostic::on_unimplemented(
    message = "a row has no elements `{Self}`",
    note = "rows have `f32`, `f16`, `bf16` of `interop_kernel::half`, and `u8` to read; convert others first"
)]
pub trait RowElement: KernelElement + sealed::RowElement {
    /// Returns the number as an `f32`.
    #[must_use]
    fn to_f32(self) -> f32;
}

/// A real number that a [`Row`](crate::Row) reads and writes, and computes with as an `f32`: `f32`, and `f16` and `bf16` of the
/// crate `half`.
#[diagnostic::on_unimplemented(
    message = "a kernel of rows does not compute with `{Self}`",
    note = "the real numbers of rows are `f32`, and `f16` and `bf16` of `interop_kernel::half`, with the feature `half`"
)]
pub trait Real: RowElement {
    /// Returns the nearest number.
    #[must_use]
    fn from_f32(value: f32) -> Self;
}

pub(crate) mod sealed {
    pub trait RowElement: Sized {
        /// The number of elements that a thread moves at once, in 16 bytes at most.
        const UNIT: usize = if size_of::<Self>() > 2 { 4 } else { 8 };
    }
}

macro_rules! elements {
    ($($type:ty: $to:expr $(, $from:expr)?;)*) => {
        $(
            impl sealed::RowElement for $type {}

            impl RowElement for $type {
                #[inline(always)]
                fn to_f32(self) -> f32 {
                    $to(self)
                }
            }

            $(
                impl Real for $type {
                    #[inline(always)]
                    fn from_f32(value: f32) -> Self {
                        $from(value)
                    }
                }
            )?
        )*
    };
}

elements! {
    f32: core::convert::identity, core::convert::identity;
    u8: f32::from;
}
#[cfg(feature = "half")]
elements! {
    half::bf16: |x: Self| f32::from_bits(u32::from(x.to_bits()) << 16), nearest_bf16;
    half::f16: crate::math::from_f16, crate::math::to_f16;
}

/// `bf16::from_f32` has a branch for NaN, which a device would take.
#[cfg(feature = "half")]
#[inline(always)]
fn nearest_bf16(value: f32) -> half::bf16 {
    let bits = value.to_bits();
    // Of two that are as near, the even one.
    let rounded = bits.wrapping_add(0x7FFF + ((bits >> 16) & 1)) >> 16;
    half::bf16::from_bits(if value.is_nan() { 0x7FC0 } else { rounded as u16 })
}
