//! Kernels for arrays whose element type is known only at run time, as Python's are.
//!
//! There is one kernel for each size of elements; its last parameter is one of the kinds in [`kind`]. `cargo xtask ptx`
//! compiles them to `kernels.ptx`, which the extension launches.
//!
//! | kernel | arguments | what it does |
//! | --- | --- | --- |
//! | `scale_S` | out, in; factor `f64`; kind | multiplies; integers are rounded towards zero and saturate, and NaN becomes 0 |
//! | `sum_S` | in; `f64` of 1 axis: out; kind | one partial sum for each block of the grid |
//! | `fill` | bytes of 1 axis: out; 16 bytes | repeats the bytes |
//!
//! `S` is the number of bits of an element: 8, 16, 32 or 64.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx))]
#![expect(unsafe_code, reason = "all threads of a block add to its sum")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    reason = "elements are bits; numbers are rounded and saturate; comparisons tell what was lost"
)]
#![expect(clippy::inline_always, reason = "parts of kernels")]
#![allow(clippy::missing_errors_doc, reason = "what the macro writes for the host is not used")]

use half::{bf16, f16};
use interop_kernel::{BlockThread, Blocks, Elementwise, In, Out, Packs, Thread, ViewMut, kernel, math};

use kind::{BFLOAT, FLOAT, SIGNED};

/// What the elements of a size are.
pub mod kind {
    /// Integers without a sign, and `bool` in a sum.
    pub const UNSIGNED: u32 = 0;
    /// Integers with a sign.
    pub const SIGNED: u32 = 1;
    /// IEEE 754 floats.
    pub const FLOAT: u32 = 2;
    /// bfloat16.
    pub const BFLOAT: u32 = 3;
}

/// The maximum number of axes of arrays that do not merge.
pub const AXES: usize = 8;

/// A factor.
#[derive(Clone, Copy)]
struct Factor {
    value: f64,
    /// The same, if it is an integer whose products with integers of up to 16 bits fit 32 bits. Arithmetic in `f64` would take
    /// longer than the memory accesses.
    small: Option<i32>,
}

impl Factor {
    #[inline(always)]
    fn new(value: f64) -> Self {
        let whole = value as i32;
        let is_small = f64::from(whole) == value && whole.unsigned_abs() <= 0x7FFF;
        Self { value, small: is_small.then_some(whole) }
    }
}

/// Multiplies an integer of up to 16 bits.
macro_rules! scaled {
    ($element:expr, $factor:expr, $type:ty) => {{
        let element = $element as $type;
        match $factor.small {
            Some(whole) => {
                (i32::from(element) * whole).clamp(<$type>::MIN.into(), <$type>::MAX.into()) as $type
            }
            None => (f64::from(element) * $factor.value) as $type,
        }
    }};
}

/// Multiplies integers of 8 bits.
#[kernel]
pub fn scale_8(thread: Thread<'_>, arrays: Elementwise<'_, (Out<u8>, In<u8>), AXES>, factor: f64, kind: u32) {
    let factor = Factor::new(factor);
    arrays.map(&thread, |element| {
        if kind == SIGNED { scaled!(element, factor, i8) as u8 } else { scaled!(element, factor, u8) }
    });
}

/// Multiplies numbers of 16 bits. Floats are rounded once.
#[kernel]
pub fn scale_16(
    thread: Thread<'_>,
    arrays: Elementwise<'_, (Out<u16>, In<u16>), AXES>,
    factor: f64,
    kind: u32,
) {
    let factor = Factor::new(factor);
    arrays.map(&thread, |element| match kind {
        SIGNED => scaled!(element, factor, i16) as u16,
        FLOAT => math::to_f16(to_odd(from_half(element, kind) * factor.value)).to_bits(),
        BFLOAT => bf16::from_f32(to_odd(from_half(element, kind) * factor.value)).to_bits(),
        _ => scaled!(element, factor, u16),
    });
}

/// Multiplies numbers of 32 bits. The product with an integer is exact in `f64` if it fits the type.
#[kernel]
pub fn scale_32(
    thread: Thread<'_>,
    arrays: Elementwise<'_, (Out<u32>, In<u32>), AXES>,
    factor: f64,
    kind: u32,
) {
    arrays.map(&thread, |element| match kind {
        SIGNED => (f64::from(element as i32) * factor) as i32 as u32,
        FLOAT => ((f64::from(f32::from_bits(element)) * factor) as f32).to_bits(),
        _ => (f64::from(element) * factor) as u32,
    });
}

/// Multiplies numbers of 64 bits.
#[kernel]
pub fn scale_64(
    thread: Thread<'_>,
    arrays: Elementwise<'_, (Out<u64>, In<u64>), AXES>,
    factor: f64,
    kind: u32,
) {
    arrays.map(&thread, |element| match kind {
        FLOAT => (f64::from_bits(element) * factor).to_bits(),
        _ => scaled_word(element, factor, kind == SIGNED),
    });
}

/// Returns the number of a 16-bit float.
#[inline(always)]
fn from_half(bits: u16, kind: u32) -> f64 {
    f64::from(match kind {
        BFLOAT => f32::from_bits(u32::from(bits) << 16),
        _ => math::from_f16(f16::from_bits(bits)),
    })
}

/// Rounds to a float whose last bit is set unless it is exact. A second rounding, to nearest, then has the result of a single one.
#[inline(always)]
fn to_odd(number: f64) -> f32 {
    let nearest = number as f32;
    let back = f64::from(nearest);
    if back == number {
        return nearest;
    }
    f32::from_bits((nearest.to_bits() - u32::from(back.abs() > number.abs())) | 1)
}

/// Multiplies an integer of 64 bits. The result is exact if the factor is an integer. Not inlined, because the code is long.
#[inline(never)]
fn scaled_word(element: u64, factor: f64, is_signed: bool) -> u64 {
    let is_below = is_signed && (element as i64) < 0;
    let is_negative = is_below != (factor < 0.0);
    let limit = match (is_signed, is_negative) {
        (false, false) => u64::MAX,
        (false, true) => 0,
        (true, _) => (u64::MAX >> 1) + u64::from(is_negative),
    };
    let size = if is_below { element.wrapping_neg() } else { element };
    let times = factor.abs() as u64;
    let is_whole = times as f64 == factor.abs();
    let product = if is_whole { size.saturating_mul(times) } else { (size as f64 * factor.abs()) as u64 };
    let product = product.min(limit);
    if is_negative { product.wrapping_neg() } else { product }
}

macro_rules! sums {
    ($($(#[doc = $doc:literal])* $name:ident: $type:ty, |$element:ident, $kind:ident| $number:expr;)*) => {$(
        $(#[doc = $doc])*
        #[kernel]
        pub fn $name(
            thread: BlockThread<'_>,
            array: Elementwise<'_, (In<$type>,), AXES>,
            parts: ViewMut<'_, f64, 1, Blocks>,
            $kind: u32,
        ) {
            let mut sum = 0.0;
            array.for_each(&thread, |$element| sum += $number);
            leave(&thread, sum, parts);
        }
    )*};
}

sums! {
    /// Adds integers of 8 bits.
    sum_8: u8, |element, kind| if kind == SIGNED { f64::from(element as i8) } else { f64::from(element) };
    /// Adds numbers of 16 bits.
    sum_16: u16, |element, kind| match kind {
        SIGNED => f64::from(element as i16),
        FLOAT | BFLOAT => from_half(element, kind),
        _ => f64::from(element),
    };
    /// Adds numbers of 32 bits.
    sum_32: u32, |element, kind| match kind {
        SIGNED => f64::from(element as i32),
        FLOAT => f64::from(f32::from_bits(element)),
        _ => f64::from(element),
    };
    /// Adds numbers of 64 bits.
    sum_64: u64, |element, kind| match kind {
        SIGNED => element as i64 as f64,
        FLOAT => f64::from_bits(element),
        _ => element as f64,
    };
}

/// Writes the sum of a block.
#[inline(always)]
fn leave(thread: &BlockThread<'_>, sum: f64, mut parts: ViewMut<'_, f64, 1, Blocks>) {
    // SAFETY: all threads of the block get here, once; blocks have 256 threads.
    let sum = unsafe { thread.sum_of_block(sum) };
    if let Some(at) = thread.of_block(parts.shape()) {
        parts.set(at, sum);
    }
}

/// Repeats 16 bytes.
#[kernel]
pub fn fill(thread: Thread<'_>, mut bytes: ViewMut<'_, u8, 1, Packs<16>>, pattern: [u8; 16]) {
    for at in thread.packs(bytes.shape()) {
        bytes.set_pack(at, pattern);
    }
}
