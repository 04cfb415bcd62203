//! Exponentials and logarithms on the CPU. They have no branches, calls and tables, so that the compiler computes several at once. Each is
//! wrong by less than one unit in the last place, which the test of this file measures.
//!
//! The polynomials are those of Stephen Moshier's library Cephes.
#![expect(clippy::excessive_precision, reason = "the coefficients as Cephes has them")]
#![expect(
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "bits of floats are shifted as integers; exponents are small"
)]

use core::f32::consts::LOG2_E;

/// A number whose last place is 1: what is added to it is rounded to an integer, of which the last bits are those of the sum.
const INTEGER: f32 = 12_582_912.0;

/// ln 2, in a part of few digits, by which a product is exact, and the rest.
const LN_2: [f32; 2] = [0.693_359_375, -2.121_944_4e-4];

/// log2 e, as [`LN_2`].
const LOG2_E_IN_PARTS: [f32; 2] = [1.442_382_812_5, 3.122_283_89e-4];

/// Returns e to the power `x`.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    let x = between(x, -104.0, 89.0);
    let power = x * LOG2_E + INTEGER;
    let n = power - INTEGER;
    let x = (x - n * LN_2[0]) - n * LN_2[1];
    let sum = polynomial(
        x,
        [1.987_569_15e-4, 1.398_199_95e-3, 8.333_451_9e-3, 4.166_579_6e-2, 1.666_666_55e-1, 0.5],
    );
    scaled(sum * x * x + x + 1.0, power)
}

/// Returns 2 to the power `x`.
#[inline(always)]
pub(crate) fn exp2(x: f32) -> f32 {
    let x = between(x, -151.0, 129.0);
    let power = x + INTEGER;
    let x = x - (power - INTEGER);
    let sum = polynomial(
        x,
        [1.535_336_188e-4, 1.339_887_440e-3, 9.618_437_358e-3, 5.550_332_471e-2, 2.402_264_791e-1],
    );
    // 1 + first · ln 2 is exact, but for the rest of ln 2.
    let first = (x + 1536.0) - 1536.0;
    let rest = sum * x * x + x * LN_2[1] + (x - first) * LN_2[0];
    scaled((1.0 + first * LN_2[0]) + rest, power)
}

/// Returns the natural logarithm.
#[inline(always)]
pub(crate) fn ln(x: f32) -> f32 {
    let (f, exponent) = split(x);
    let rest = f * (f * f * logarithm(f)) + exponent * LN_2[1] - 0.5 * (f * f);
    of_a_logarithm(x, (f + rest) + exponent * LN_2[0])
}

/// Returns the logarithm to the base 2.
#[inline(always)]
pub(crate) fn log2(x: f32) -> f32 {
    let (f, exponent) = split(x);
    // The first two terms of the series, f - f² / 2, without the end of f², are exact.
    let first = (f + 3072.0) - 3072.0;
    let sum = f - 0.5 * (first * first);
    let rest = f * (f * f * logarithm(f)) - 0.5 * ((f + first) * (f - first));
    // So is the product of its first digits.
    let first = (sum + 3072.0) - 3072.0;
    let [high, low] = LOG2_E_IN_PARTS;
    let rest = (rest + (sum - first)) * high + (sum + rest) * low;
    of_a_logarithm(x, (first * high + rest) + exponent)
}

/// Returns the number, or the limit that is nearer. NaN stays.
#[inline(always)]
fn between(x: f32, low: f32, high: f32) -> f32 {
    let x = if x > high { high } else { x };
    if x < low { low } else { x }
}

/// Evaluates a polynomial, of which the first coefficient is that of the highest power.
#[inline(always)]
fn polynomial<const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut sum = coefficients[0];
    for coefficient in &coefficients[1..] {
        sum = sum * x + coefficient;
    }
    sum
}

/// Returns x · 2ⁿ, where `power` is [`INTEGER`] + n, and n is between -152 and 130.
#[inline(always)]
fn scaled(x: f32, power: f32) -> f32 {
    let n = power.to_bits().wrapping_sub(INTEGER.to_bits()) as i32;
    // In two steps, because no `f32` may be as large, or as small.
    let half = n >> 1;
    let factor = |n: i32| f32::from_bits((n.wrapping_add(127) as u32) << 23);
    x * factor(half) * factor(n.wrapping_sub(half))
}

/// Returns f and an exponent n of a positive number: x = (1 + f) · 2ⁿ, with 1 + f between √½ and √2.
#[inline(always)]
fn split(x: f32) -> (f32, f32) {
    const SQRT_HALF: u32 = core::f32::consts::FRAC_1_SQRT_2.to_bits();
    const TWO_TO_25: f32 = 33_554_432.0;
    let is_subnormal = x < f32::MIN_POSITIVE;
    let bits = if is_subnormal { x * TWO_TO_25 } else { x }.to_bits().wrapping_sub(SQRT_HALF);
    let exponent = (bits as i32 >> 23) as f32 - if is_subnormal { 25.0 } else { 0.0 };
    (f32::from_bits((bits & 0x7F_FFFF).wrapping_add(SQRT_HALF)) - 1.0, exponent)
}

/// Returns (ln(1 + f) - f + f² / 2) / f³.
#[inline(always)]
fn logarithm(f: f32) -> f32 {
    polynomial(
        f,
        [
            7.037_683_629e-2,
            -1.151_461_031e-1,
            1.167_699_874e-1,
            -1.242_014_085e-1,
            1.424_932_279e-1,
            -1.666_805_767e-1,
            2.000_071_477e-1,
            -2.499_999_399e-1,
            3.333_333_117e-1,
        ],
    )
}

/// Returns the logarithm of a number, which is known for those that are positive and finite.
#[inline(always)]
fn of_a_logarithm(x: f32, logarithm: f32) -> f32 {
    let logarithm = if x == f32::INFINITY { x } else { logarithm };
    let logarithm = if x == 0.0 { f32::NEG_INFINITY } else { logarithm };
    if x >= 0.0 { logarithm } else { f32::NAN }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, clippy::float_cmp, reason = "rounds to an `f32`; the same number")]
mod tests {
    use super::*;

    /// Compares with the function of `f64`, for numbers of all magnitudes.
    fn assert_within_one_ulp(name: &str, function: fn(f32) -> f32, exact: fn(f64) -> f64) {
        let step = if cfg!(miri) { 100_000_007 } else { 4001 };
        for x in (0..=u32::MAX).step_by(step).map(f32::from_bits) {
            let (found, exact) = (function(x), exact(x.into()));
            if exact.is_nan() || found.is_nan() {
                assert!(exact.is_nan() && found.is_nan(), "{name}({x}) = {found}");
                continue;
            }
            let nearest = exact as f32;
            if nearest.is_infinite() || found.is_infinite() {
                assert!(nearest == found, "{name}({x}) = {found}");
                continue;
            }
            let next = f32::from_bits(nearest.abs().to_bits() & 0x7F80_0000);
            let ulp = f64::from(next.max(f32::MIN_POSITIVE)) * f64::from(f32::EPSILON);
            assert!((f64::from(found) - exact).abs() < ulp, "{name}({x}) = {found}, which is {exact}");
        }
    }

    #[test]
    fn functions_are_wrong_by_less_than_one_ulp() {
        assert_within_one_ulp("exp", exp, f64::exp);
        assert_within_one_ulp("exp2", exp2, f64::exp2);
        assert_within_one_ulp("ln", ln, f64::ln);
        assert_within_one_ulp("log2", log2, f64::log2);
    }

    #[test]
    fn results_that_a_float_has_are_exact() {
        for n in -149..128 {
            let power = (f64::from(n)).exp2() as f32;
            assert_eq!((exp2(n as f32), log2(power)), (power, n as f32));
        }
        assert_eq!((exp(0.0), exp(-0.0), ln(1.0), exp(f32::NEG_INFINITY)), (1.0, 1.0, 0.0, 0.0));
        assert_eq!([ln(0.0), log2(-0.0)], [f32::NEG_INFINITY; 2]);
        assert!(ln(-1.0).is_nan() && log2(f32::NEG_INFINITY).is_nan() && exp(f32::NAN).is_nan());
    }
}
