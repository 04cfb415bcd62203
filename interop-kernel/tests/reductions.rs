//! Reductions of one's own, on the CPU.
#![forbid(unsafe_code)]
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    reason = "small numbers, of which the bits are known"
)]

use interop_kernel::{LaunchSize, Rows, Team, View, ViewMut, kernel, math};

/// Softmax, which reads each row once for its maximum and its sum.
#[kernel(same_shape(x, out))]
fn online_softmax(mut team: Team<'_>, x: View<'_, f32, 2>, mut out: ViewMut<'_, f32, 2, Rows>) {
    for row in team.rows(&x) {
        let x = row.keep(&x);
        let merge = |[max, sum]: [f32; 2], [other, others]: [f32; 2]| {
            let most = if other > max { other } else { max };
            [most, sum * math::exp(max - most) + others * math::exp(other - most)]
        };
        let [max, sum] = row.reduce(&x, [f32::MIN, 0.0], move |own, x| merge(own, [x, 1.0]), merge);
        row.write(&mut out, &x, move |x| math::exp(x - max) / sum);
    }
}

/// The mean and the variance of each row, by Welford's way.
#[kernel(same_rows(x, means, variances))]
fn welford(
    mut team: Team<'_>,
    x: View<'_, f32, 2>,
    mut means: ViewMut<'_, f32, 1, Rows>,
    mut variances: ViewMut<'_, f32, 1, Rows>,
) {
    for row in team.rows(&x) {
        let step = |[count, mean, squares]: [f32; 3], x: f32| {
            let (count, off) = (count + 1.0, x - mean);
            let mean = mean + off / count;
            [count, mean, squares + off * (x - mean)]
        };
        let merge = |own: [f32; 3], other: [f32; 3]| {
            let count = own[0] + other[0];
            if other[0] == 0.0 {
                return own;
            }
            let off = other[1] - own[1];
            let mean = own[1] + off * other[0] / count;
            [count, mean, own[2] + other[2] + off * off * own[0] * other[0] / count]
        };
        let [count, mean, squares] = row.reduce(&x, [0.0; 3], step, merge);
        row.set(&mut means, mean);
        row.set(&mut variances, squares / count);
    }
}

/// The numbers of the rows, by a table: a function of elements may hold a view.
#[kernel(same_rows(x, last))]
fn digits(
    mut team: Team<'_>,
    x: View<'_, f32, 2>,
    table: View<'_, f32, 1>,
    mut last: ViewMut<'_, f32, 1, Rows>,
) {
    for row in team.rows(&x) {
        // The last element and a hash of all, both of which depend on the order.
        let step = move |[_, hash, count]: [f32; 3], x: f32| {
            let digit = table.get([x as usize]);
            [digit, (hash * 31.0 + digit) % 8191.0, count + 1.0]
        };
        let merge = |own: [f32; 3], other: [f32; 3]| {
            if own[2] == 0.0 {
                return other;
            }
            if other[2] == 0.0 {
                return own;
            }
            [other[0], (own[1] * 57.0 + other[1]) % 8191.0, own[2] + other[2]]
        };
        let [digit, hash, count] = row.reduce(&x, [0.0; 3], step, merge);
        row.set(&mut last, digit + 16.0 * hash + count / 65536.0);
    }
}

/// What `digits` computes, in the order of the device: each thread its units of 4 elements, the lanes of each warp, the warps.
fn digits_in_order(row: &[f32], head: usize, threads: usize) -> f32 {
    let (head, units) = (head.min(row.len()), row.len().saturating_sub(head) / 4);
    let mut own = vec![[0.0_f32; 3]; threads];
    let mut step = |thread: usize, x: f32| {
        let [_, hash, count] = own[thread % threads];
        own[thread % threads] = [15.0 - x, (hash * 31.0 + 15.0 - x) % 8191.0, count + 1.0];
    };
    row[..head].iter().chain(&row[head + units * 4..]).enumerate().for_each(|(at, x)| step(at, *x));
    row[head..head + units * 4].iter().enumerate().for_each(|(at, x)| step(at / 4, *x));
    let merge = |own: [f32; 3], other: [f32; 3]| match [own[2], other[2]] {
        [0.0, _] => other,
        [_, 0.0] => own,
        [own_count, count] => [other[0], (own[1] * 57.0 + other[1]) % 8191.0, own_count + count],
    };
    let halve = |values: &[[f32; 3]]| {
        let mut values = [values, &vec![[0.0; 3]; values.len().next_power_of_two() - values.len()]].concat();
        while values.len() > 1 {
            let (left, right) = values.split_at(values.len() / 2);
            values = left.iter().zip(right).map(|(left, right)| merge(*left, *right)).collect();
        }
        values[0]
    };
    let [digit, hash, count] = halve(&own.chunks(32).map(halve).collect::<Vec<_>>());
    digit + 16.0 * hash + count / 65536.0
}

fn launches() -> impl Iterator<Item = LaunchSize> {
    let blocks = [(1, 1, 1), (4, 3, 1), (16, 2, 2), (32, 1, 1), (96, 1, 1), (256, 1, 1)];
    let blocks = blocks.into_iter().filter(|block| !cfg!(miri) || block.0 < 16);
    blocks.map(|block| LaunchSize { grid: (2, 1, 1), block })
}

fn shapes() -> &'static [[usize; 2]] {
    if cfg!(miri) { &[[2, 7]] } else { &[[1, 1], [5, 7], [7, 100], [3, 128], [4, 1026], [2, 4000]] }
}

fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|at| ((at * 37 + at / 7) % 101) as f32 / 25.0 - 2.0).collect()
}

#[track_caller]
fn assert_close(found: f32, expected: f64, what: &str) {
    let difference = (f64::from(found) - expected).abs();
    assert!(difference <= 1e-5 * expected.abs().max(1.0), "{what}: found {found}, expected {expected}");
}

#[test]
fn a_softmax_and_a_variance_need_one_pass() {
    for &[rows, columns] in shapes() {
        let x = numbers(rows * columns);
        for size in launches() {
            let what = format!("{rows} x {columns} {size:?}");
            let (mut out, mut means, mut variances) =
                (vec![0.0; rows * columns], vec![0.0; rows], vec![0.0; rows]);
            let view = View::new(&x, [rows, columns]);
            online_softmax::run(size, view, ViewMut::new(&mut out, [rows, columns]));
            welford::run(size, view, ViewMut::new(&mut means, [rows]), ViewMut::new(&mut variances, [rows]));
            for (row, x) in x.chunks(columns).enumerate() {
                let x: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
                let max = x.iter().copied().fold(f64::MIN, f64::max);
                let sum: f64 = x.iter().map(|x| (x - max).exp()).sum();
                for (x, out) in x.iter().zip(&out[row * columns..]) {
                    assert_close(*out, (x - max).exp() / sum, &what);
                }
                let mean = x.iter().sum::<f64>() / columns as f64;
                assert_close(means[row], mean, &what);
                let squares: f64 = x.iter().map(|x| (x - mean).powi(2)).sum();
                assert_close(variances[row], squares / columns as f64, &what);
            }
        }
    }
}

/// `torch.softmax` of the same rows.
#[test]
fn a_softmax_in_one_pass_has_the_nans_of_pytorch() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let x = [[0.0, -inf, 0.0], [-inf; 3], [0.0, inf, 0.0], [0.0, nan, 1.0]];
    let expected = [[0.5, 0.0, 0.5], [nan; 3], [nan; 3], [nan; 3]];
    for size in launches() {
        let mut out = [0.0; 12];
        online_softmax::run(size, View::new(x.as_flattened(), [4, 3]), ViewMut::new(&mut out, [4, 3]));
        for (found, expected) in out.iter().zip(expected.as_flattened()) {
            assert!(found == expected || found.is_nan() && expected.is_nan(), "{size:?} {out:?}");
        }
    }
}

#[test]
fn the_order_of_a_reduction_is_that_of_the_device() {
    let table: Vec<f32> = (0..16).rev().map(|digit| digit as f32).collect();
    for &[rows, columns] in shapes() {
        let x: Vec<f32> = (0..rows * columns).map(|at| ((at * at / 3) % 16) as f32).collect();
        for size in launches() {
            for run in [digits::run, digits::run_in_threads] {
                let mut last = vec![0.0; rows];
                let view = View::new(&x, [rows, columns]);
                run(size, view, View::new(&table, [16]), ViewMut::new(&mut last, [rows]));
                for (row, found) in last.iter().enumerate() {
                    // The elements before the first place that is aligned to 16 bytes.
                    let head = (row * columns).next_multiple_of(4) - row * columns;
                    let expected =
                        digits_in_order(&x[row * columns..][..columns], head, size.block.0 as usize);
                    assert_eq!(found.to_bits(), expected.to_bits(), "row {row} of {columns} {size:?}");
                }
            }
        }
    }
}

#[test]
fn rows_without_elements_have_the_start() {
    let (mut means, mut variances) = ([7.0; 2], [7.0; 2]);
    for size in launches() {
        let means_view = ViewMut::new(&mut means, [2]);
        welford::run(size, View::new(&[], [2, 0]), means_view, ViewMut::new(&mut variances, [2]));
        assert_eq!(means, [0.0; 2]);
        assert!(variances.iter().all(|variance| variance.is_nan()));
    }
}
