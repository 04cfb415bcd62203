//! Kernels in which a team of threads owns a row, on the CPU.
#![expect(clippy::cast_precision_loss, reason = "small numbers")]

use interop_kernel::{Columns, LaunchSize, Real, RowElement, Rows, Team, View, ViewMut, kernel, math};

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
        row.write(&mut out, (&x, &weight), |(x, w)| x * scale * w);
    }
}

#[kernel(same_shape(x, out))]
fn softmax(mut team: Team<'_, 2>, x: View<'_, f32, 2>, mut out: ViewMut<'_, f32, 2, Rows>) {
    for row in team.rows(&x) {
        let x = row.keep(&x);
        let max = row.max(&x, |x| x);
        let sum = row.sum(&x, |x| math::exp(x - max));
        row.write(&mut out, &x, |x| math::exp(x - max) / sum);
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
        let variance = row.sum(&x, |x| (x - mean) * (x - mean)) / row.columns();
        let scale = math::rsqrt(variance + eps);
        row.write(&mut out, (&x, &weight, &bias), |(x, w, b)| (x - mean) * scale * w + b);
    }
}

/// The sum of each row in its type.
#[inline(always)]
fn sum_rows<T: Real>(mut team: Team<'_>, x: &View<'_, T, 2>, sums: &mut ViewMut<'_, f32, 1, Rows>) {
    for row in team.rows(x) {
        let sum: f32 = row.sum(x, |x| x);
        row.set(sums, sum);
    }
}

#[kernel]
fn sum(team: Team<'_>, x: View<'_, f32, 2>, mut sums: ViewMut<'_, f32, 1, Rows>) {
    sum_rows(team, &x, &mut sums);
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
        row.change(&mut x, &weight, |x, weight| x * weight + sum);
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
    sizes.into_iter().map(|(grid, block)| LaunchSize { grid, block }).filter(|size| !cfg!(miri) || size.block.0 < 32)
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
    if cfg!(miri) { &[[2, 7], [1, 40]] } else { &[[1, 1], [5, 7], [7, 100], [3, 128], [4, 1026], [2, 4000], [9, 1], [0, 5]] }
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
                    row.iter().zip(out).for_each(|(x, found)| assert_close(*found, (x - max).exp() / sum, 1e-6, &what));
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
                sum::run(size, view(), ViewMut::new(&mut sums, [n]));
                wide().zip(&sums).for_each(|(row, found)| assert_close(*found, row.iter().sum(), 1e-4, &what));
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
                for column in 0..d {
                    let at = row * d + column;
                    assert_eq!(x[at], 2.0 * (before[at] * weight[column] + sum), "{size:?}");
                }
            }
        }
    }
}
