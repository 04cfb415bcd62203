//! Checks on the CPU what the kernels compute.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    reason = "elements are bits, and results are exact"
)]

use half::{bf16, f16};
use interop_demo_extension_kernels::kind::{BFLOAT, FLOAT, SIGNED, UNSIGNED};
use interop_demo_extension_kernels::{
    fill, scale_8, scale_16, scale_32, scale_64, sum_8, sum_16, sum_32, sum_64,
};
use interop_kernel::{Elementwise, LaunchSize, View, ViewMut};

/// Whole, small, large and other factors.
const FACTORS: [f64; 14] =
    [0.0, 1.0, 2.0, -1.0, -3.0, 0.5, 0.29, -1.75, 32_767.0, 65_536.0, 1e9, -1e30, f64::NAN, f64::INFINITY];

/// Integers of 64 bits: small ones, and those at the limits of each type.
fn integers() -> Vec<i64> {
    let limits = [7, 8, 15, 16, 31, 32, 53, 62].map(|bits| 1_i64 << bits);
    let near = limits.iter().flat_map(|limit| [limit - 1, *limit, limit + 1, -limit, -limit - 1]);
    near.chain([0, 1, 2, 5, 77, -1, -2, -77, i64::MAX, i64::MIN]).collect()
}

/// The product, rounded towards zero, within the limits; 0 for NaN.
fn product(number: i128, factor: f64, [least, most]: [i128; 2]) -> i128 {
    if factor == factor.trunc() && factor.abs() < 1e15 {
        return (number * factor as i128).clamp(least, most);
    }
    ((number as f64 * factor) as i128).clamp(least, most)
}

macro_rules! check_scale {
    ($kernel:ident, $bits:ty, $kind:expr, $elements:expr, |$element:ident, $factor:ident| $expected:expr) => {
        let elements: Vec<$bits> = $elements.collect();
        for $factor in FACTORS {
            let mut to: Vec<$bits> = vec![0; elements.len()];
            let views =
                (ViewMut::<_, 1>::new(&mut to, [elements.len()]), View::new(&elements, [elements.len()]));
            $kernel::run(LaunchSize::for_units(1), Elementwise::new(views).unwrap(), $factor, $kind);
            for (&$element, found) in elements.iter().zip(to) {
                let expected: $bits = $expected;
                assert_eq!(found, expected, "{:#x} * {} as kind {}", $element, $factor, $kind);
            }
        }
    };
}

macro_rules! check_integers {
    ($($kernel:ident: $bits:ty, $signed:ty;)*) => {$(
        check_scale!($kernel, $bits, UNSIGNED, integers().into_iter().map(|number| number as $bits), |element, factor| {
            product(element.into(), factor, [0, <$bits>::MAX.into()]) as $bits
        });
        check_scale!($kernel, $bits, SIGNED, integers().into_iter().map(|number| number as $bits), |element, factor| {
            product((element as $signed).into(), factor, [<$signed>::MIN.into(), <$signed>::MAX.into()]) as $bits
        });
    )*};
}

#[test]
#[expect(clippy::cast_possible_wrap, reason = "elements are bits")]
fn integers_saturate() {
    check_integers! {
        scale_8: u8, i8;
        scale_16: u16, i16;
        scale_32: u32, i32;
        scale_64: u64, i64;
    }
}

/// Rounds a number to 16 bits once. That it is NaN is all that a NaN says.
fn rounded(number: f64, of_bits: impl Fn(u16) -> f64, found: u16) -> bool {
    let (value, step) = (of_bits(found), |by: i16| of_bits(found.wrapping_add_signed(by)));
    if number.is_nan() {
        return value.is_nan();
    }
    if value == number || value.is_infinite() {
        return value == number || number.abs() > of_bits(found - 1).abs();
    }
    // No neighbour is nearer, and of two that are as near the even one wins.
    [1, -1].iter().all(|by| {
        let (own, other) = ((value - number).abs(), (step(*by) - number).abs());
        own < other || other.is_nan() || (own == other && found % 2 == 0)
    })
}

#[test]
fn halves_are_rounded_once() {
    let elements: Vec<u16> = (0..=u16::MAX).step_by(7).collect();
    for factor in FACTORS {
        for kind in [FLOAT, BFLOAT] {
            let number = |bits| match kind {
                FLOAT => f16::from_bits(bits).to_f64(),
                _ => bf16::from_bits(bits).to_f64(),
            };
            let mut to = vec![0_u16; elements.len()];
            let views =
                (ViewMut::<_, 1>::new(&mut to, [elements.len()]), View::new(&elements, [elements.len()]));
            scale_16::run(LaunchSize::for_units(1), Elementwise::new(views).unwrap(), factor, kind);
            for (element, found) in elements.iter().zip(to) {
                let expected = number(*element) * factor;
                assert!(
                    rounded(expected, number, found),
                    "{element:#x} * {factor} as kind {kind}: {found:#x}"
                );
            }
        }
    }
}

#[test]
fn floats_are_multiplied() {
    let floats = [0.0_f32, -0.0, 1.5, -3e38, 1e-45, f32::INFINITY];
    check_scale!(scale_32, u32, FLOAT, floats.into_iter().map(f32::to_bits), |element, factor| {
        let found = (f64::from(f32::from_bits(element)) * factor) as f32;
        found.to_bits()
    });
    let doubles = [0.0_f64, -0.0, 1.5, -1e308, 5e-324, f64::INFINITY];
    check_scale!(scale_64, u64, FLOAT, doubles.into_iter().map(f64::to_bits), |element, factor| {
        (f64::from_bits(element) * factor).to_bits()
    });
}

macro_rules! check_sum {
    ($($kernel:ident $kind:ident $elements:expr, $expected:expr;)*) => {$(
        let elements = $elements;
        let (mut parts, size) = ([0.0; 2], LaunchSize { grid: (2, 1, 1), block: (32, 1, 1) });
        let array = Elementwise::new((View::new(&elements, [elements.len()]),)).unwrap();
        $kernel::run(size, array, ViewMut::new(&mut parts, [2]), $kind);
        assert_eq!(parts.iter().sum::<f64>(), $expected, "{} of kind {}", stringify!($kernel), $kind);
    )*};
}

#[test]
#[cfg_attr(miri, ignore = "a thread of the system for each thread of a block")]
fn sums_are_those_of_the_type() {
    let halves = [1.5, -2.0, 4.25].map(f16::from_f64).map(f16::to_bits);
    let bfloats = [1.5, -2.0, 4.25].map(bf16::from_f64).map(bf16::to_bits);
    check_sum! {
        sum_8 UNSIGNED [255_u8; 100], 25_500.0;
        sum_8 SIGNED [255_u8; 100], -100.0;
        sum_16 UNSIGNED [u16::MAX; 3], 196_605.0;
        sum_16 SIGNED [u16::MAX; 3], -3.0;
        sum_16 FLOAT halves, 3.75;
        sum_16 BFLOAT bfloats, 3.75;
        sum_32 UNSIGNED [u32::MAX; 3], 12_884_901_885.0;
        sum_32 SIGNED [u32::MAX; 3], -3.0;
        sum_32 FLOAT [1.5_f32, -2.0, 4.25].map(f32::to_bits), 3.75;
        sum_64 UNSIGNED [1_u64 << 63; 2], 18_446_744_073_709_551_616.0;
        sum_64 SIGNED [u64::MAX; 3], -3.0;
        sum_64 FLOAT [1.5_f64, -2.0, 4.25].map(f64::to_bits), 3.75;
    }
}

#[test]
fn fill_repeats_its_bytes() {
    let pattern: [u8; 16] = core::array::from_fn(|at| at as u8);
    for len in [0, 1, 15, 16, 17, 100] {
        let mut bytes = vec![99; len];
        fill::run(LaunchSize::for_units(2), ViewMut::new(&mut bytes, [len]), pattern);
        assert!(bytes.iter().enumerate().all(|(at, byte)| usize::from(*byte) == at % 16), "{bytes:?}");
    }
}

/// No argument is copied to local memory, and elements are loaded 16 bytes at a time.
#[test]
fn ptx_is_what_a_device_needs() {
    let ptx = include_str!("../kernels.ptx");
    assert!(!ptx.contains(".local"), "local memory");
    for name in ["scale_8", "scale_16", "scale_32", "scale_64", "sum_8", "sum_16", "sum_32", "sum_64"] {
        let (_, rest) = ptx.split_once(&format!(".entry {name}(")).expect("the PTX has the kernel");
        let text = rest.split(".entry").next().expect("its text");
        assert!(text.contains("ld.v4.b32") || text.contains("ld.v2.b64"), "{name}");
    }
}
