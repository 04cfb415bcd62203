//! Kernels in which a team of threads owns a row, on the CPU.
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::float_cmp,
    reason = "small numbers, and sums of which the bits are known"
)]
#![expect(unsafe_code, reason = "describes arrays for launches that do not happen")]

use interop_kernel::{
    InScope, KernelView, KernelViewMut, LaunchSize, MistakeKind, RowElement, Rows, Team, View, ViewMut,
    kernel, math,
};

const EPS: f32 = 1e-5;

#[kernel(same_shape(x, out))]
fn rms_norm(
    mut team: Team<'_>,
    x: View<'_, f32, 2>,
    weight: View<'_, f32, 1>,
    mut out: ViewMut<'_, f32, 2, Rows>,
    eps: f32,
) {
    for row in team.rows(&x) {
        let x = row.keep(&x);
        let scale = math::rsqrt(row.sum(&x, |x| x * x) / row.columns() + eps);
        row.write(&mut out, (&x, &weight), move |(x, w)| x * scale * w);
    }
}

#[kernel(same_shape(x, out))]
fn softmax(mut team: Team<'_, 2>, x: View<'_, f32, 2>, mut out: ViewMut<'_, f32, 2, Rows>) {
    for row in team.rows(&x) {
        let x = row.keep(&x);
        let max = row.max(&x, |x| x);
        let sum = row.sum(&x, move |x| math::exp(x - max));
        row.write(&mut out, &x, move |x| math::exp(x - max) / sum);
    }
}

#[kernel(same_shape(x, out))]
fn layer_norm(
    mut team: Team<'_, 0>,
    x: View<'_, f32, 2>,
    weight: View<'_, f32, 1>,
    bias: View<'_, f32, 1>,
    mut out: ViewMut<'_, f32, 2, Rows>,
    eps: f32,
) {
    for row in team.rows(&out) {
        let x = row.keep(&x);
        let mean = row.sum(&x, |x| x) / row.columns();
        let variance = row.sum(&x, move |x| (x - mean) * (x - mean)) / row.columns();
        let scale = math::rsqrt(variance + eps);
        row.write(&mut out, (&x, &weight, &bias), move |(x, w, b)| (x - mean) * scale * w + b);
    }
}

#[kernel(T = [f32, u8], same_rows(x, sums))]
fn sum<T: RowElement>(mut team: Team<'_>, x: View<'_, T, 2>, mut sums: ViewMut<'_, f32, 1, Rows>) {
    for row in team.rows(&x) {
        let sum = row.sum(&x, |x| x);
        row.set(&mut sums, sum);
    }
}

/// Changes rows in place, and leaves their sums.
#[kernel]
fn scale_rows(
    mut team: Team<'_>,
    mut x: ViewMut<'_, f32, 2, Rows>,
    weight: View<'_, f32, 1>,
    mut sums: ViewMut<'_, f32, 1, Rows>,
) {
    for row in team.rows(&x) {
        let sum = row.sum(&row.keep(&x), |x| x);
        row.change(&mut x, &weight, move |x, weight| x * weight + sum);
        row.change(&mut x, (), |x, ()| 2.0 * x);
        row.set(&mut sums, sum);
    }
}

fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|at| ((at * 37 + at / 7) % 101) as f32 / 25.0 - 2.0).collect()
}

/// Launches with each kind of team.
fn launches() -> impl Iterator<Item = LaunchSize> {
    let sizes = [
        ((1, 1, 1), (1, 1, 1)),
        ((2, 1, 1), (4, 3, 1)),
        ((2, 1, 1), (32, 2, 1)),
        ((3, 2, 1), (16, 2, 2)),
        ((2, 1, 1), (64, 1, 1)),
        ((1, 1, 1), (96, 1, 1)),
        ((2, 1, 1), (256, 1, 1)),
    ];
    sizes
        .into_iter()
        .map(|(grid, block)| LaunchSize { grid, block })
        .filter(|size| !cfg!(miri) || size.block.0 < 16)
}

#[track_caller]
fn assert_close(found: f32, expected: f64, tolerance: f64, what: &str) {
    let difference = (f64::from(found) - expected).abs();
    assert!(difference <= tolerance * expected.abs().max(1.0), "{what}: found {found}, expected {expected}");
}

/// A row-major array in a layout: elements, the first one, and the strides.
type Stored = (Vec<f32>, usize, [isize; 2]);

/// Dense, transposed, with gaps and misaligned, and turned around with gaps.
fn layouts(x: &[f32], rows: usize, columns: usize) -> [Stored; 4] {
    let mut stored: [Stored; 4] = [
        (vec![], 0, [columns as isize, 1]),
        (vec![], 0, [1, rows as isize]),
        (vec![], 1, [columns as isize + 3, 1]),
        (vec![], (rows * columns).saturating_sub(1) * 2, [-2 * columns as isize, -2]),
    ];
    for (elements, first, [down, right]) in &mut stored {
        elements.resize(2 * rows * (columns + 3) + 1, 9.0);
        for (row, numbers) in x.chunks(columns.max(1)).enumerate() {
            for (column, number) in numbers.iter().enumerate() {
                let at = *first as isize + row as isize * *down + column as isize * *right;
                elements[usize::try_from(at).expect("inside")] = *number;
            }
        }
    }
    stored
}

fn shapes() -> &'static [[usize; 2]] {
    if cfg!(miri) {
        &[[2, 7], [1, 20]]
    } else {
        &[[1, 1], [5, 7], [7, 100], [3, 128], [4, 1026], [2, 4000], [9, 1], [0, 5]]
    }
}

#[test]
fn rows_of_any_length_layout_and_team() {
    for &[n, d] in shapes() {
        let (x, weight, bias) = (numbers(n * d), numbers(d), numbers(d + 9)[9..].to_vec());
        for (stored, first, strides) in layouts(&x, n, d) {
            for size in launches() {
                let view = || View::strided(&stored, first, [n, d], strides);
                let (weights, biases) = (View::new(&weight, [d]), View::new(&bias, [d]));
                let what = format!("{n} x {d} {strides:?} {size:?}");
                let wide = || x.chunks(d).map(|row| row.iter().map(|x| f64::from(*x)).collect::<Vec<f64>>());
                let (mut out, mut sums) = (vec![0.0; n * d], vec![0.0; n]);
                rms_norm::run(size, view(), weights, ViewMut::new(&mut out, [n, d]), EPS);
                for (row, out) in wide().zip(out.chunks(d)) {
                    let squares: f64 = row.iter().map(|x| x * x).sum();
                    let scale = 1.0 / (squares / d as f64 + 1e-5).sqrt();
                    for ((x, w), found) in row.iter().zip(&weight).zip(out) {
                        assert_close(*found, x * scale * f64::from(*w), 1e-5, &what);
                    }
                }
                softmax::run_in_threads(size, view(), ViewMut::new(&mut out, [n, d]));
                for (row, out) in wide().zip(out.chunks(d)) {
                    let max = row.iter().copied().fold(f64::MIN, f64::max);
                    let sum: f64 = row.iter().map(|x| (x - max).exp()).sum();
                    row.iter()
                        .zip(out)
                        .for_each(|(x, found)| assert_close(*found, (x - max).exp() / sum, 1e-6, &what));
                }
                layer_norm::run(size, view(), weights, biases, ViewMut::new(&mut out, [n, d]), EPS);
                for (row, out) in wide().zip(out.chunks(d)) {
                    let mean = row.iter().sum::<f64>() / d as f64;
                    let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / d as f64;
                    for (((x, w), b), found) in row.iter().zip(&weight).zip(&bias).zip(out) {
                        let expected = (x - mean) / (variance + 1e-5).sqrt() * f64::from(*w) + f64::from(*b);
                        assert_close(*found, expected, 2e-5, &what);
                    }
                }
                sum::<f32>::run(size, view(), ViewMut::new(&mut sums, [n]));
                wide()
                    .zip(&sums)
                    .for_each(|(row, found)| assert_close(*found, row.iter().sum(), 1e-4, &what));
            }
        }
    }
}

#[test]
fn rows_change_in_place() {
    for [n, d] in [[3, 100], [2, 7], [2, 150]] {
        for size in launches() {
            let (mut x, weight, mut sums) = (numbers(n * d), numbers(d), vec![0.0; n]);
            let before = x.clone();
            let own = ViewMut::new(&mut x, [n, d]);
            scale_rows::run_in_threads(size, own, View::new(&weight, [d]), ViewMut::new(&mut sums, [n]));
            for (row, sum) in sums.iter().enumerate() {
                for (column, weight) in weight.iter().enumerate() {
                    let at = row * d + column;
                    assert_eq!(x[at], 2.0 * (before[at] * weight + sum), "{size:?}");
                }
            }
        }
    }
}

/// The largest element of each row, twice, and its column.
#[kernel]
fn maxima(
    mut team: Team<'_>,
    x: View<'_, f32, 2>,
    mut most: ViewMut<'_, f32, 1, Rows>,
    mut values: ViewMut<'_, f32, 1, Rows>,
    mut columns: ViewMut<'_, i64, 1, Rows>,
) {
    for row in team.rows(&x) {
        let (value, column) = row.argmax(&x, |x| x);
        row.set(&mut columns, column as i64);
        row.set(&mut values, value);
        row.set(&mut most, row.max(&x, |x| x));
    }
}

#[test]
fn the_maximum_is_the_first_one_and_a_nan_is_before_all() {
    let (nan, low) = (f32::NAN, f32::NEG_INFINITY);
    let rows: [([f32; 40], f32, i64); 6] = [
        (core::array::from_fn(|at| at as f32), 39.0, 39),
        (core::array::from_fn(|at| if at % 7 == 3 { 5.0 } else { -1.0 }), 5.0, 3),
        (core::array::from_fn(|at| if at == 17 || at == 33 { nan } else { at as f32 }), nan, 17),
        ([low; 40], low, 0),
        (core::array::from_fn(|at| if at == 39 { -9.0 } else { low }), -9.0, 39),
        ([nan; 40], nan, 0),
    ];
    let x: Vec<f32> = rows.iter().flat_map(|(row, ..)| *row).collect();
    for size in launches() {
        let (mut most, mut values, mut columns) = ([0.0; 6], [0.0; 6], [0; 6]);
        let own = ViewMut::new(&mut columns, [6]);
        maxima::run(
            size,
            View::new(&x, [6, 40]),
            ViewMut::new(&mut most, [6]),
            ViewMut::new(&mut values, [6]),
            own,
        );
        for (row, (_, value, column)) in rows.iter().enumerate() {
            let found = (most[row].to_bits(), values[row].to_bits(), columns[row]);
            assert_eq!(found, (value.to_bits(), value.to_bits(), *column), "{size:?} {row}");
        }
    }
}

#[test]
fn rows_without_columns_have_the_sum_0() {
    let (mut most, mut values, mut columns, mut sums) = ([7.0; 3], [7.0; 3], [7; 3], [7.0; 3]);
    for size in launches() {
        let (x, own) = (View::new(&[], [3, 0]), ViewMut::new(&mut columns, [3]));
        sum::<f32>::run(size, x, ViewMut::new(&mut sums, [3]));
        maxima::run(size, x, ViewMut::new(&mut most, [3]), ViewMut::new(&mut values, [3]), own);
        assert_eq!(
            (sums, most, values, columns),
            ([0.0; 3], [f32::NEG_INFINITY; 3], [f32::NEG_INFINITY; 3], [0; 3])
        );
        sum::<f32>::run(size, View::new(&[], [0, 3]), ViewMut::new(&mut [], [0]));
    }
}

/// Softmax of NaN and of infinities is that of PyTorch: `torch.softmax` of the same rows.
#[test]
fn nan_and_infinities_are_those_of_pytorch() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let x = [[0.0, -inf, 0.0], [-inf; 3], [0.0, inf, 0.0], [0.0, nan, 1.0]];
    let expected = [[0.5, 0.0, 0.5], [nan; 3], [nan; 3], [nan; 3]];
    let mut out = [0.0; 12];
    softmax::run(
        LaunchSize::for_rows::<f32>(4, 3),
        View::new(x.as_flattened(), [4, 3]),
        ViewMut::new(&mut out, [4, 3]),
    );
    for (found, expected) in out.iter().zip(expected.as_flattened()) {
        assert!(
            found == expected || found.is_nan() && expected.is_nan(),
            "found {out:?}, expected {expected:?}"
        );
    }
}

/// The order of additions that the device has: those of each thread, of the lanes of a warp, and of the warps.
fn sum_in_order(row: &[f32], head: usize, threads: usize) -> f32 {
    let (head, units) = (head.min(row.len()), row.len().saturating_sub(head) / 4);
    let singles = row[..head].iter().chain(&row[head + units * 4..]).enumerate();
    let mut own = vec![0.0; threads];
    singles.for_each(|(at, x)| own[at % threads] += x);
    for (unit, numbers) in row[head..head + units * 4].chunks(4).enumerate() {
        own[unit % threads] = numbers.iter().fold(own[unit % threads], |sum, x| sum + x);
    }
    let halve = |values: &[f32]| {
        let mut values = [values, &vec![0.0; values.len().next_power_of_two() - values.len()]].concat();
        while values.len() > 1 {
            let (left, right) = values.split_at(values.len() / 2);
            values = left.iter().zip(right).map(|(left, right)| left + right).collect();
        }
        values[0]
    };
    halve(&own.chunks(32).map(halve).collect::<Vec<f32>>())
}

#[test]
fn sums_have_the_order_of_the_device() {
    for [n, d] in [[4, 203], [2, 1024], [3, 3]] {
        let x: Vec<f32> = numbers(n * d).iter().map(|x| x * 1.1 + 0.01).collect();
        for size in launches() {
            let mut sums = vec![0.0; n];
            sum::<f32>::run(size, View::new(&x, [n, d]), ViewMut::new(&mut sums, [n]));
            for (row, found) in sums.iter().enumerate() {
                // The elements before the first place that is aligned to 16 bytes.
                let head = (row * d).next_multiple_of(4) - row * d;
                let expected = sum_in_order(&x[row * d..][..d], head, size.block.0 as usize);
                assert_eq!(found.to_bits(), expected.to_bits(), "row {row} of {d} {size:?}");
            }
        }
    }
}

/// Two loops, of which the second has other units: an element may be that of another thread.
#[kernel]
fn two_loops(
    mut team: Team<'_>,
    x: View<'_, f32, 2>,
    bytes: View<'_, u8, 2>,
    mut out: ViewMut<'_, f32, 2, Rows>,
) {
    for row in team.rows(&x) {
        row.write(&mut out, &x, |x| x);
    }
    for row in team.rows(&bytes) {
        row.change(&mut out, &bytes, |out, byte| out + byte);
    }
}

#[test]
fn a_second_loop_follows_the_first() {
    let (x, bytes) = (numbers(75), core::array::from_fn::<u8, 75, _>(|at| at as u8));
    for size in launches() {
        let mut out = vec![0.0; 75];
        two_loops::run(
            size,
            View::new(&x, [3, 25]),
            View::new(&bytes, [3, 25]),
            ViewMut::new(&mut out, [3, 25]),
        );
        assert!(
            out.iter().zip(&x).zip(&bytes).all(|((out, x), byte)| *out == x + f32::from(*byte)),
            "{size:?}"
        );
    }
}

#[test]
#[should_panic(expected = "found 3 columns, allowed: the 2 of the array")]
fn a_weight_that_is_too_short_is_refused() {
    let (x, weight) = ([1.0; 6], [1.0; 2]);
    rms_norm::run(
        LaunchSize::for_rows::<f32>(2, 3),
        View::new(&x, [2, 3]),
        View::new(&weight, [2]),
        ViewMut::new(&mut [0.0; 6], [2, 3]),
        EPS,
    );
}

#[test]
#[should_panic(expected = "the index [1] is outside of the shape [1]")]
fn a_result_with_too_few_rows_is_refused() {
    sum::<f32>::run(
        LaunchSize::for_rows::<f32>(2, 3),
        View::new(&[1.0; 6], [2, 3]),
        ViewMut::new(&mut [0.0], [1]),
    );
}

#[test]
fn a_block_that_is_no_team_is_refused() {
    for block in [(3, 1, 1), (48, 1, 1), (64, 2, 1), (64, 1, 2)] {
        let size = LaunchSize { grid: (1, 1, 1), block };
        let run = || sum::<f32>::run(size, View::new(&[1.0; 6], [2, 3]), ViewMut::new(&mut [0.0; 2], [2]));
        let panic = std::panic::catch_unwind(run).expect_err("no team");
        let text = panic.downcast_ref::<String>().expect("a text");
        assert!(text.contains("allowed: teams of 1, 2, 4, 8, 16 or 32 threads along x"), "{text}");
    }
}

#[test]
fn a_row_with_too_many_columns_is_refused() {
    const COLUMNS: usize = 1 << 31;
    let wide = View::strided(&[1_u8], 0, [1, COLUMNS], [0, 0]);
    let run = || sum::<u8>::run(LaunchSize::for_teams(1, 1), wide, ViewMut::new(&mut [0.0], [1]));
    let panic = std::panic::catch_unwind(run).expect_err("too many");
    let text = panic.downcast_ref::<String>().expect("a text");
    assert!(text.contains("found 2147483648 columns, allowed: the 2147483647"), "{text}");
}

/// Kernels of 16-bit numbers, with weights of the same and of another type.
#[cfg(feature = "half")]
mod half_types {
    use interop_kernel::half::{bf16, f16};
    use interop_kernel::{Compiled, Real};

    use super::*;

    #[kernel(T = [bf16, f16], W = [f32, bf16], same_shape(x, out), same_columns(x, weight))]
    pub(super) fn scale<T: Real, W: RowElement>(
        mut team: Team<'_>,
        x: View<'_, T, 2>,
        weight: View<'_, W, 1>,
        mut out: ViewMut<'_, T, 2, Rows>,
    ) {
        for row in team.rows(&x) {
            let x = row.keep(&x);
            let sum = row.sum(&x, |x| x);
            row.write(&mut out, (&x, &weight), move |(x, weight)| x * weight + sum);
        }
    }

    /// Each element is that of `f32`, rounded as the crate `half` does.
    #[track_caller]
    fn check<T: Real + Into<f32>, W: RowElement + Into<f32>>(of: fn(f32) -> T, weight_of: fn(f32) -> W)
    where
        scale<T, W>: Compiled,
    {
        for [n, d] in if cfg!(miri) { [[1, 19], [2, 8], [2, 5]] } else { [[4, 104], [3, 103], [2, 5]] } {
            let (x, weight): (Vec<T>, Vec<W>) = (
                numbers(n * d).into_iter().map(of).collect(),
                numbers(d).into_iter().map(weight_of).collect(),
            );
            for size in launches() {
                let (mut out, mut sums) = (vec![of(9.0); n * d], vec![0.0; n]);
                let wide: Vec<f32> = x.iter().map(|x| (*x).into()).collect();
                sum::<f32>::run(
                    LaunchSize::for_teams(n, 1),
                    View::new(&wide, [n, d]),
                    ViewMut::new(&mut sums, [n]),
                );
                scale::<T, W>::run(
                    size,
                    View::new(&x, [n, d]),
                    View::new(&weight, [d]),
                    ViewMut::new(&mut out, [n, d]),
                );
                for (at, found) in out.iter().enumerate() {
                    let expected = wide[at] * weight[at % d].into() + sums[at / d];
                    let (found, exact): (f32, f32) = ((*found).into(), of(expected).into());
                    // A sum in another order may round to the next number.
                    assert!(
                        (found - exact).abs() <= exact.abs() / 100.0,
                        "{at}: found {found}, expected {exact}"
                    );
                }
            }
        }
    }

    #[test]
    fn sixteen_bits_round_as_half_does() {
        check(bf16::from_f32, |weight| weight);
        check(bf16::from_f32, bf16::from_f32);
        check(f16::from_f32, |weight| weight);
        check(f16::from_f32, bf16::from_f32);
    }

    #[kernel]
    fn round(mut team: Team<'_>, x: View<'_, f32, 2>, mut out: ViewMut<'_, bf16, 2, Rows>) {
        for row in team.rows(&x) {
            row.write(&mut out, &x, |x| x);
        }
    }

    #[test]
    fn a_bf16_is_the_nearest_and_of_two_the_even_one() {
        let bits = [
            0x3F80_0000,
            0x3F80_8000,
            0x3F81_8000,
            0x3F80_8001,
            0x7F7F_FFFF,
            0x7F80_0000,
            0x0000_8001,
            0x8000_0000,
        ];
        let x: Vec<f32> = bits.into_iter().map(f32::from_bits).chain([f32::NAN]).collect();
        let mut out = [bf16::ZERO; 9];
        round::run(LaunchSize::for_rows::<f32>(1, 9), View::new(&x, [1, 9]), ViewMut::new(&mut out, [1, 9]));
        for (x, out) in x.iter().zip(out) {
            assert_eq!(out.to_bits(), bf16::from_f32(*x).to_bits(), "{x}");
        }
    }

    #[test]
    fn an_entry_point_has_the_names_of_its_types() {
        assert_eq!(<scale<bf16, f32> as Compiled>::NAME, "scale_bf16_f32");
        assert_eq!(<scale<f16, bf16> as interop_kernel::Kernel>::NAME, "scale_f16_bf16");
    }
}

/// An array of this shape as a launch passes it, without elements.
fn passed<V>(view: impl FnOnce(*mut f32) -> V) -> InScope<V> {
    // SAFETY: no kernel runs.
    unsafe { InScope::new(view(core::ptr::dangling_mut()), 0) }
}

#[test]
fn a_launch_is_refused_before_it_starts() {
    let view = |shape: [i64; 2]| {
        // SAFETY: no kernel runs.
        passed(|at| unsafe { KernelView::<f32, 2>::from_raw_parts(at, shape, [shape[1], 1]) })
    };
    let sums = |rows| {
        // SAFETY: as above.
        passed(|at| unsafe { KernelViewMut::<f32, 1>::from_raw_parts(at, [rows], [1]) })
    };
    let check = |shape, rows, size| sum::<f32>::with(view(shape), sums(rows)).check(size);
    let good = LaunchSize::for_rows::<f32>(4, 100);
    assert_eq!(check([4, 100], 4, good), Ok(()));
    let error = check([4, 100], 3, good).unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string()),
        (MistakeKind::Shape, "`sums`: found 3 rows, allowed: 4 rows, as in `x`".into())
    );
    let error = check([4, 1 << 31], 4, good).unwrap_err();
    assert_eq!((error.kind(), error.location()), (MistakeKind::Overflow, "x"));
    for block in [(3, 1, 1), (64, 2, 1), (0, 1, 1)] {
        let error = check([4, 100], 4, LaunchSize { block, ..good }).unwrap_err();
        assert_eq!((error.kind(), error.location()), (MistakeKind::Shape, "block"));
        assert!(error.allowed().starts_with("teams of 1, 2, 4, 8, 16 or 32 threads along x"), "{error}");
    }
}

/// What a kernel can print is the same in all threads of a team: a device has `core::fmt`, too.
#[kernel]
fn printed(mut team: Team<'_>, x: View<'_, f32, 2>) {
    assert_eq!(format!("{team:?}"), "Team { .. }");
    for row in team.rows(&x) {
        let text = format!("{row:?} {:?}", row.keep(&x));
        assert!(text.contains("team: Team { .. }") && text.ends_with(" KeptRow { .. }"), "{text}");
    }
}

#[test]
fn a_team_does_not_print_what_one_thread_has() {
    printed::run(LaunchSize::for_rows::<f32>(1, 4), View::new(&[1.0, 2.0, 3.0, 4.0], [1, 4]));
}

/// Threads that have seen other zeros would have other maxima, of which the reciprocals differ.
#[kernel]
fn reciprocal_of_the_maximum(mut team: Team<'_>, x: View<'_, f32, 2>, mut out: ViewMut<'_, f32, 2, Rows>) {
    for row in team.rows(&x) {
        let max = row.max(&x, |x| x);
        row.write(&mut out, (), move |()| 1.0 / max);
    }
}

#[test]
fn a_maximum_of_zeros_is_positive() {
    let mut out = [0.0; 32];
    let x = core::array::from_fn::<f32, 32, _>(|at| if at == 17 { 0.0 } else { -0.0 });
    for x in [x, [-0.0; 32]] {
        let size = LaunchSize::for_teams(1, 8);
        reciprocal_of_the_maximum::run(size, View::new(&x, [1, 32]), ViewMut::new(&mut out, [1, 32]));
        assert_eq!(out, [f32::INFINITY; 32]);
    }
}
