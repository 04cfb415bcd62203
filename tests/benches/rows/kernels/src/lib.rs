//! Kernels in which a team of threads owns a row.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx))]

use interop_kernel::half::bf16;
use interop_kernel::{Real, Rows, Team, View, ViewMut, kernel, math};

/// Divides each row by the root of the mean of its squares, and multiplies it by a weight.
#[kernel(T = [f32, bf16], same_shape(x, out), same_columns(x, weight))]
pub fn rms_norm<T: Real>(
    mut team: Team<'_>,
    x: View<'_, T, 2>,
    weight: View<'_, T, 1>,
    mut out: ViewMut<'_, T, 2, Rows>,
    eps: f32,
) {
    for row in team.rows(&x) {
        let x = row.keep(&x);
        let scale = math::rsqrt(row.sum(&x, |x| x * x) / row.columns() + eps);
        row.write(&mut out, (&x, &weight), move |(x, weight)| x * scale * weight);
    }
}

/// Softmax of each row.
#[kernel(T = [f32, bf16], same_shape(x, out))]
pub fn softmax<T: Real>(mut team: Team<'_>, x: View<'_, T, 2>, mut out: ViewMut<'_, T, 2, Rows>) {
    for row in team.rows(&x) {
        let x = row.keep(&x);
        let max = row.max(&x, |x| x);
        let scale = 1.0 / row.sum(&x, move |x| math::exp(x - max));
        row.write(&mut out, &x, move |x| math::exp(x - max) * scale);
    }
}

/// Softmax of each row, which reads the row once for its maximum and its sum.
#[kernel(T = [f32, bf16], same_shape(x, out))]
pub fn online_softmax<T: Real>(mut team: Team<'_>, x: View<'_, T, 2>, mut out: ViewMut<'_, T, 2, Rows>) {
    for row in team.rows(&x) {
        let x = row.keep(&x);
        let merge = |[max, sum]: [f32; 2], [other, others]: [f32; 2]| {
            let most = if other > max { other } else { max };
            [most, sum * math::exp(max - most) + others * math::exp(other - most)]
        };
        let [max, sum] = row.reduce(&x, [f32::MIN, 0.0], move |own, x| merge(own, [x, 1.0]), merge);
        let scale = 1.0 / sum;
        row.write(&mut out, &x, move |x| math::exp(x - max) * scale);
    }
}

/// A number of each row that depends on the order in which its elements are combined.
#[kernel(same_rows(x, chains))]
pub fn chain(mut team: Team<'_>, x: View<'_, f32, 2>, mut chains: ViewMut<'_, f32, 1, Rows>) {
    for row in team.rows(&x) {
        let merge = |[first, last, count]: [f32; 3], [others, other, more]: [f32; 3]| match [count, more] {
            [_, 0.0] => [first, last, count],
            [0.0, _] => [others, other, more],
            _ => [0.75 * first + 0.5 * others, last - 0.25 * other, count + more],
        };
        let step = move |own, x: f32| merge(own, [x, 1.0 - x, 1.0]);
        let [first, last, count] = row.reduce(&x, [0.0; 3], step, merge);
        row.set(&mut chains, first + 3.0 * last + count);
    }
}

/// Scales each row to the mean 0 and the variance 1, then by a weight and a bias.
#[kernel(T = [f32, bf16], same_shape(x, out), same_columns(x, weight, bias))]
pub fn layer_norm<T: Real>(
    mut team: Team<'_>,
    x: View<'_, T, 2>,
    weight: View<'_, T, 1>,
    bias: View<'_, T, 1>,
    mut out: ViewMut<'_, T, 2, Rows>,
    eps: f32,
) {
    for row in team.rows(&x) {
        let x = row.keep(&x);
        let mean = row.sum(&x, |x| x) / row.columns();
        let variance = row.sum(&x, move |x| (x - mean) * (x - mean)) / row.columns();
        let scale = math::rsqrt(variance + eps);
        row.write(&mut out, (&x, &weight, &bias), move |(x, weight, bias)| {
            (x - mean) * scale * weight + bias
        });
    }
}

/// The sum of each row.
#[kernel(T = [f32, bf16], same_rows(x, sums))]
pub fn row_sum<T: Real>(mut team: Team<'_>, x: View<'_, T, 2>, mut sums: ViewMut<'_, T, 1, Rows>) {
    for row in team.rows(&x) {
        row.set(&mut sums, T::from_f32(row.sum(&x, |x| x)));
    }
}

/// The maximum of each row and its column.
#[kernel(T = [f32, bf16], same_rows(x, values, columns))]
pub fn row_max<T: Real>(
    mut team: Team<'_>,
    x: View<'_, T, 2>,
    mut values: ViewMut<'_, T, 1, Rows>,
    mut columns: ViewMut<'_, i64, 1, Rows>,
) {
    for row in team.rows(&x) {
        let (max, column) = row.argmax(&x, |x| x);
        row.set(&mut values, T::from_f32(max));
        row.set(&mut columns, column as i64);
    }
}

/// Subtracts from each row its mean, in place, in two loops.
#[kernel(T = [f32, bf16], same_rows(x, means))]
pub fn center<T: Real>(
    mut team: Team<'_>,
    mut x: ViewMut<'_, T, 2, Rows>,
    mut means: ViewMut<'_, f32, 1, Rows>,
) {
    for row in team.rows(&x) {
        row.set(&mut means, row.sum(&x, |x| x) / row.columns());
    }
    for row in team.rows(&x) {
        let mean = row.sum(&x, |x| x) / row.columns();
        row.change(&mut x, (), move |x, ()| x - mean);
    }
}
