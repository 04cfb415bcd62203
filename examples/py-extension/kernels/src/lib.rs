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

use half::f16;
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

/// Multiplies integers of up to 16 bits.
#[derive(Clone, Copy)]
struct Product {
    factor: f64,
    /// The factor, if it is an integer whose products fit 32 bits. Arithmetic in `f64` would take longer than the memory accesses.
    whole: Option<i32>,
    /// The bit of the sign, or 0.
    sign: i32,
    least: i32,
    most: i32,
}

impl Product {
    #[inline(always)]
    fn new(factor: f64, kind: u32, bits: u32) -> Self {
        let (whole, sign) = (factor as i32, if kind == SIGNED { 1 << (bits - 1) } else { 0 });
        let is_whole = f64::from(whole) == factor && whole.unsigned_abs() <= 0x7FFF;
        Self { factor, whole: is_whole.then_some(whole), sign, least: -sign, most: (1 << bits) - 1 - sign }
    }

    /// Returns the product with an integer, given by its bits.
    #[inline(always)]
    fn of(self, bits: i32) -> i32 {
        // Without a branch for the sign.
        let number = bits - 2 * (bits & self.sign);
        let product = match self.whole {
            Some(whole) => number * whole,
            None => (f64::from(number) * self.factor) as i32,
        };
        product.max(self.least).min(self.most)
    }
}

/// Multiplies integers of 8 bits.
#[kernel]
pub fn scale_8(thread: Thread<'_>, arrays: Elementwise<'_, (Out<u8>, In<u8>), AXES>, factor: f64, kind: u32) {
    let product = Product::new(factor, kind, u8::BITS);
    arrays.map(&thread, |element| product.of(element.into()) as u8);
}

/// Multiplies numbers of 16 bits. Floats are rounded once.
#[kernel]
pub fn scale_16(
    thread: Thread<'_>,
    arrays: Elementwise<'_, (Out<u16>, In<u16>), AXES>,
    factor: f64,
    kind: u32,
) {
    let (product, short) = (Product::new(factor, kind, u16::BITS), short(factor));
    arrays.map(&thread, |element| match (kind, short) {
        (FLOAT, Some(factor)) => math::to_f16(math::from_f16(f16::from_bits(element)) * factor).to_bits(),
        (FLOAT | BFLOAT, _) => to_half(from_half(element, kind) * factor, kind),
        _ => product.of(element.into()) as u16,
    });
}

/// Returns the factor if its products with numbers of `f16` are exact in `f32`: it has at most 13 significant bits, as those have 11.
/// A product that is too small for `f32` is 0 in `f16`. Arithmetic in `f64` would take longer than the memory accesses.
#[inline(always)]
fn short(factor: f64) -> Option<f32> {
    let single = factor as f32;
    (f64::from(single) == factor && single.to_bits().trailing_zeros() >= 11).then_some(single)
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
    // Without a branch, which would be there for each element.
    let (float, bfloat) = (math::from_f16(f16::from_bits(bits)), f32::from_bits(u32::from(bits) << 16));
    f64::from(if kind == BFLOAT { bfloat } else { float })
}

/// Rounds to a float whose last bit is set unless it is exact. A second rounding, to nearest, then has the result of a single one.
#[inline(always)]
fn to_odd(number: f64) -> f32 {
    let nearest = number as f32;
    let back = f64::from(nearest);
    let (is_exact, is_above) = (back == number, back.abs() > number.abs());
    f32::from_bits((nearest.to_bits() - u32::from(is_above)) | u32::from(!is_exact))
}

/// Returns the nearest 16-bit float.
#[inline(always)]
fn to_half(number: f64, kind: u32) -> u16 {
    const NAN: u16 = 0x7FC0;
    let odd = to_odd(number);
    if kind != BFLOAT {
        return math::to_f16(odd).to_bits();
    }
    let bits = odd.to_bits();
    let nearest = bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16;
    if number.is_nan() { NAN } else { nearest as u16 }
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
        FLOAT | BFLOAT => from_half(element, kind),
        SIGNED => f64::from(element as i16),
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
