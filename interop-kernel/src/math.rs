//! Functions of `f32` that a kernel cannot call as methods, because on a device there is only `core`, or that are slow as methods.
//!
//! On a device each is one or two instructions. On the CPU the exponentials and logarithms are wrong by less than one unit in the last
//! place, and a loop computes several at once. The results of [`sqrt`], [`floor`] and [`mul_add`] are the same on both, bit for bit. Those of
//! the others differ in the last digits.
//!
//! ```
//! use interop_kernel::math;
//!
//! assert_eq!((math::sqrt(9.0), math::floor(-1.5), math::mul_add(2.0, 3.0, 1.0)), (3.0, -2.0, 7.0));
//! let sigmoid = |x: f32| 1.0 / (1.0 + math::exp2(-x * core::f32::consts::LOG2_E));
//! assert_eq!(sigmoid(0.0), 0.5);
//! ```
#![cfg_attr(target_arch = "nvptx64", expect(unsafe_code, reason = "instructions of the device"))]

#[cfg(not(target_arch = "nvptx64"))]
use crate::math_on_host;

macro_rules! functions {
    ($($(#[doc = $doc:literal])* $name:ident($($argument:ident)*) = $instruction:literal, $on_host:expr;)*) => {
        $(
            $(#[doc = $doc])*
            #[inline(always)]
            #[must_use]
            pub fn $name($($argument: f32),*) -> f32 {
                #[cfg(not(target_arch = "nvptx64"))]
                return $on_host;
                #[cfg(target_arch = "nvptx64")]
                {
                    let result: f32;
                    // SAFETY: the instruction computes a number of numbers.
                    unsafe {
                        core::arch::asm!($instruction, $(in(reg32) $argument,)* out = out(reg32) result, options(pure, nomem, nostack));
                    }
                    result
                }
            }
        )*
    };
}

functions! {
    /// Returns the square root, rounded to the nearest number; NaN of a negative number.
    sqrt(x) = "sqrt.rn.f32 {out}, {};", x.sqrt();
    /// Returns 1 / √x. On a device it is wrong by at most 3e-7 of the result.
    rsqrt(x) = "rsqrt.approx.f32 {out}, {};", x.sqrt().recip();
    /// Returns e to the power `x`. On a device it is wrong by at most (4 + |x|) · 1e-7 of the result.
    exp(x) = "{{ .reg .f32 power; mul.rn.f32 power, {}, 0f3FB8AA3B; ex2.approx.f32 {out}, power; }}", math_on_host::exp(x);
    /// Returns the natural logarithm. On a device it is wrong by at most 4e-7, of the result outside of (0.5, 2).
    ln(x) = "{{ .reg .f32 power; lg2.approx.f32 power, {}; mul.rn.f32 {out}, power, 0f3F317218; }}", math_on_host::ln(x);
    /// Returns 2 to the power `x`. On a device it is wrong by at most 3e-7 of the result.
    exp2(x) = "ex2.approx.f32 {out}, {};", math_on_host::exp2(x);
    /// Returns the logarithm to the base 2. On a device it is wrong by at most 3e-7, of the result outside of (0.5, 2).
    log2(x) = "lg2.approx.f32 {out}, {};", math_on_host::log2(x);
    /// Returns the greatest integer that is not greater than `x`.
    floor(x) = "cvt.rmi.f32.f32 {out}, {};", x.floor();
    /// Returns `x * factor + summand`, rounded once.
    mul_add(x factor summand) = "fma.rn.f32 {out}, {}, {}, {};", x.mul_add(factor, summand);
}

/// Returns an `f16` as `f32`. On a device it is one instruction, and `f16::to_f32` is many.
#[cfg(feature = "half")]
#[inline(always)]
#[must_use]
pub fn from_f16(x: half::f16) -> f32 {
    #[cfg(not(target_arch = "nvptx64"))]
    return x.to_f32();
    #[cfg(target_arch = "nvptx64")]
    {
        let result: f32;
        // SAFETY: the instruction converts a number.
        unsafe {
            core::arch::asm!("cvt.f32.f16 {out}, {};", in(reg16) x.to_bits(), out = out(reg32) result, options(pure, nomem, nostack));
        }
        result
    }
}

/// Returns the nearest `f16`. On a device it is one instruction, and `f16::from_f32` is many.
#[cfg(feature = "half")]
#[inline(always)]
#[must_use]
pub fn to_f16(x: f32) -> half::f16 {
    #[cfg(not(target_arch = "nvptx64"))]
    return half::f16::from_f32(x);
    #[cfg(target_arch = "nvptx64")]
    {
        let bits: u16;
        // SAFETY: the instruction converts a number.
        unsafe {
            core::arch::asm!("cvt.rn.f16.f32 {out}, {};", in(reg32) x, out = out(reg16) bits, options(pure, nomem, nostack));
        }
        half::f16::from_bits(bits)
    }
}

/// What no float of a device is.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a device has no `std`, which has this method of `{Self}`",
    label = "not in a kernel",
    note = "`interop_kernel::math` has the functions `sqrt`, `rsqrt`, `exp`, `exp2`, `ln`, `log2`, `floor` and `mul_add`; the crate `libm` has all others"
)]
pub trait FloatOfStd {}

macro_rules! methods_of_std {
    ($($name:ident($($argument:ty),*);)*) => {
        /// The methods of floats that are in `std`. In a kernel for a device these are found instead, and the error says what there
        /// is. They take a reference, so that those of a trait which has them, such as `num_traits::Float`, come first.
        #[doc(hidden)]
        pub trait MethodsOfStd: Sized {
            $(
                #[must_use]
                fn $name(&self $(, _: $argument)*) -> Self
                where
                    Self: FloatOfStd,
                {
                    unreachable!()
                }
            )*
        }
    };
}

methods_of_std! {
    sqrt(); cbrt(); exp(); exp2(); exp_m1(); ln(); ln_1p(); log2(); log10(); log(Self); powf(Self); powi(i32); hypot(Self);
    sin(); cos(); tan(); asin(); acos(); atan(); atan2(Self); sinh(); cosh(); tanh();
    floor(); ceil(); round(); round_ties_even(); trunc(); fract(); rem_euclid(Self); div_euclid(Self); mul_add(Self, Self);
}

impl MethodsOfStd for f32 {}

impl MethodsOfStd for f64 {}
