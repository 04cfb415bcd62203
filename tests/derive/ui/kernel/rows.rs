//! A team owns its rows together: no thread of it learns what the others do not, and no row outlives its turn.

#![allow(unused)]

use std::cell::Cell;

use interop_kernel::{Elements, Rows, Team, Thread, View, ViewMut, kernel};

#[kernel]
fn value_that_leaves(mut team: Team<'_>, x: View<'_, f32, 2>) {
    let first = Cell::new(0.0);
    for row in team.rows(&x) {
        row.max(&x, |x| {
            first.set(x);
            x
        });
    }
}

#[kernel]
fn variable_that_changes(mut team: Team<'_>, x: View<'_, f32, 2>) {
    let mut last = 0.0;
    for row in team.rows(&x) {
        row.max(&x, |x| {
            last = x;
            x
        });
    }
}

#[kernel]
fn sum_in_a_sum(mut team: Team<'_>, x: View<'_, f32, 2>) {
    for row in team.rows(&x) {
        row.max(&x, move |own| own + row.max(&x, |x| x));
    }
}

#[kernel]
fn number_of_a_thread(mut team: Team<'_>, x: View<'_, f32, 2>) {
    if team.number_in_block() == 0 {}
}

#[kernel]
fn loop_in_a_loop(mut team: Team<'_>, x: View<'_, f32, 2>) {
    for row in team.rows(&x) {
        for row in team.rows(&x) {}
    }
}

#[kernel]
fn other_rule(mut team: Team<'_>, x: View<'_, f32, 2>, mut out: ViewMut<'_, f32, 2, Elements>) {
    for row in team.rows(&x) {
        row.write(&mut out, &x, |x| x);
    }
}

#[kernel]
fn row_that_is_kept_longer(mut team: Team<'_>, x: View<'_, f32, 2>, mut out: ViewMut<'_, f32, 2, Rows>) {
    let mut before = None;
    for row in team.rows(&x) {
        if let Some(before) = &before {
            row.write(&mut out, before, |x| x);
        }
        before = Some(row.keep(&x));
    }
}

#[kernel]
fn write_of_what_is_read(mut team: Team<'_>, mut x: ViewMut<'_, f32, 2, Rows>) {
    for row in team.rows(&x) {
        let kept = row.keep(&x);
        row.write(&mut x, &kept, |x| x + 1.0);
    }
}

#[kernel]
fn array_without_a_reference(mut team: Team<'_>, x: View<'_, f32, 2>) {
    for row in team.rows(&x) {
        row.max(x, |x| x);
    }
}

#[kernel]
fn three_axes(mut team: Team<'_>, x: View<'_, f32, 3>) {
    for row in team.rows(&x) {}
}

#[kernel]
fn one_axis(mut team: Team<'_>, x: View<'_, f32, 1>) {
    for row in team.rows(&x) {}
}

#[kernel]
fn double_precision(mut team: Team<'_>, x: View<'_, f64, 2>, mut out: ViewMut<'_, f64, 2, Rows>) {
    for row in team.rows(&x) {}
}

#[kernel]
fn sum_of_integers(mut team: Team<'_>, x: View<'_, f32, 2>) {
    for row in team.rows(&x) {
        let count = row.sum(&x, |x| 1);
    }
}

#[kernel]
fn float_in_integers(mut team: Team<'_>, x: View<'_, f32, 2>, mut columns: ViewMut<'_, i64, 1, Rows>) {
    for row in team.rows(&x) {
        row.set(&mut columns, row.max(&x, |x| x));
    }
}

#[kernel]
fn borrowed_team(team: &mut Team<'_>, x: View<'_, f32, 2>) {}

#[kernel]
fn second_place(thread: Thread<'_>, team: Team<'_>) {}

fn main() {}
