//! The threads of a team make the same calls: `run_in_threads` has a thread of the system for each, and finds out if they do not.
#![forbid(unsafe_code)]
#![expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "small numbers")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use interop_kernel::{LaunchSize, Rows, Team, View, ViewMut, kernel, math};

/// What no type can refuse: a variable of the program that a thread changes.
#[kernel]
fn other_calls(mut team: Team<'_>, x: View<'_, f32, 2>, mut out: ViewMut<'_, f32, 1, Rows>) {
    static THREADS: AtomicU32 = AtomicU32::new(0);
    for row in team.rows(&x) {
        if THREADS.fetch_add(1, Relaxed) == 0 {
            row.set(&mut out, row.sum(&x, |x| x));
        } else {
            row.set(&mut out, row.max(&x, |x| x));
        }
    }
}

/// As above, in a function of elements.
#[kernel]
fn fewer_calls(mut team: Team<'_>, x: View<'_, f32, 2>, mut out: ViewMut<'_, f32, 2, Rows>) {
    static ELEMENTS: AtomicU32 = AtomicU32::new(0);
    for row in team.rows(&x) {
        let _ = row.sum(&x, |x| {
            ELEMENTS.fetch_add(1, Relaxed);
            x
        });
        if ELEMENTS.fetch_add(1, Relaxed) == 32 {
            row.write(&mut out, &x, |x| x);
        }
    }
}

/// One row of 32 columns, for a team of 8 threads.
const TEAM: LaunchSize = LaunchSize { grid: (1, 1, 1), block: (8, 1, 1) };

fn panic_of(run: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("a divided team");
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).expect("a text").to_owned()
}

#[test]
fn threads_that_make_different_calls_panic() {
    let (x, mut out) = ([1.0; 32], [0.0]);
    let text = panic_of(|| {
        other_calls::run_in_threads(TEAM, View::new(&x, [1, 32]), ViewMut::new(&mut out, [1]));
    });
    assert!(text.contains("the threads of a team make different calls: one at"), "{text}");
    assert_eq!(text.matches(file!()).count(), 2, "{text}");
}

#[test]
fn a_thread_that_makes_no_call_panics() {
    let (x, mut out) = ([1.0; 32], [0.0; 32]);
    let text = panic_of(|| {
        fewer_calls::run_in_threads(TEAM, View::new(&x, [1, 32]), ViewMut::new(&mut out, [1, 32]));
    });
    assert!(
        text.contains("a thread of the team does not make this call, for which the others wait"),
        "{text}"
    );
}

/// Two loops, of which the second reads what the first has written, as another thread's elements.
#[kernel(same_shape(x, bytes, out))]
fn all_calls(
    mut team: Team<'_, 2>,
    x: View<'_, f32, 2>,
    bytes: View<'_, u8, 2>,
    mut out: ViewMut<'_, f32, 2, Rows>,
    mut sums: ViewMut<'_, f32, 1, Rows>,
) {
    for row in team.rows(&x) {
        let x = row.keep(&x);
        let max = row.max(&x, |x| x);
        let [sum, squares] = row.sums(&x, move |x| [math::exp(x - max), x * x]);
        let (_, column) = row.argmax(&x, |x| -x);
        row.write(&mut out, &x, move |x| x / sum + squares + column as f32);
        row.set(&mut sums, row.sum(&out, |x| x));
    }
    for row in team.rows(&bytes) {
        row.change(&mut out, &bytes, |out, byte| out + byte);
    }
}

#[test]
fn threads_of_the_system_compute_the_bits_of_one_that_plays_them() {
    let blocks = if cfg!(miri) {
        &[(2, 1, 1)][..]
    } else {
        &[(1, 1, 1), (4, 3, 1), (8, 2, 2), (32, 1, 1), (96, 1, 1)]
    };
    let (rows, columns) = if cfg!(miri) { (2, 7) } else { (7, 203) };
    let x: Vec<f32> = (0..rows * columns).map(|at| ((at * 37 + at / 7) % 101) as f32 / 7.0).collect();
    let bytes: Vec<u8> = (0..rows * columns).map(|at| at as u8).collect();
    for &block in blocks {
        let results = [all_calls::run, all_calls::run_in_threads].map(|run| {
            let (mut out, mut sums) = (vec![0.0; rows * columns], vec![0.0; rows]);
            let shape = [rows, columns];
            let (x, bytes) = (View::new(&x, shape), View::new(&bytes, shape));
            let (out_view, sums_view) = (ViewMut::new(&mut out, shape), ViewMut::new(&mut sums, [rows]));
            run(LaunchSize { grid: (2, 1, 1), block }, x, bytes, out_view, sums_view);
            [out, sums].concat().into_iter().map(f32::to_bits).collect::<Vec<_>>()
        });
        assert_eq!(results[0], results[1], "{block:?}");
    }
}

/// Two rows at a time, of which one reads what the other keeps.
#[kernel]
fn kept_by_another_row(
    mut team: Team<'_>,
    x: View<'_, f32, 2>,
    mut sums: ViewMut<'_, f32, 1, Rows>,
    keeps_again: u32,
) {
    let mut rows = team.rows(&x);
    while let (Some(one), Some(two)) = (rows.next(), rows.next()) {
        let kept = one.keep(&x);
        let own = one.sum(&kept, |x| x);
        one.set(&mut sums, own);
        let other = if keeps_again > 0 { two.sum(&two.keep(&kept), |x| x) } else { two.sum(&kept, |x| x) };
        two.set(&mut sums, other);
    }
}

#[test]
fn what_a_row_keeps_is_not_read_as_another_row() {
    let x: Vec<f32> = (0..64_u8).map(f32::from).collect();
    for keeps_again in [0, 1] {
        for width in [1, 4, 32] {
            let mut sums = [0.0; 2];
            let text = panic_of(|| {
                let size = LaunchSize { grid: (1, 1, 1), block: (width, 1, 1) };
                kept_by_another_row::run(
                    size,
                    View::new(&x, [2, 32]),
                    ViewMut::new(&mut sums, [2]),
                    keeps_again,
                );
            });
            let told =
                "kernel `kept_by_another_row`: row 1 reads what row 0 keeps; keep the array in row 1, too";
            assert_eq!(text, told);
        }
    }
}
