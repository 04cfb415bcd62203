//! What a function of elements must not do: leave a value for the code around it, by which the threads of a team would part.
#![allow(unused)]

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use interop_kernel::{Rows, Team, View, ViewMut, kernel};

#[kernel]
fn atomic_that_is_borrowed(mut team: Team<'_>, x: View<'_, f32, 2>, mut out: ViewMut<'_, f32, 1, Rows>) {
    for row in team.rows(&x) {
        let own = AtomicU32::new(0);
        row.sum(&x, |x| {
            own.fetch_add(1, Relaxed);
            x
        });
        if own.load(Relaxed) > 1 {
            row.set(&mut out, row.sum(&x, |x| 2.0 * x));
        }
    }
}

#[kernel]
fn atomic_behind_a_reference(mut team: Team<'_>, x: View<'_, f32, 2>) {
    let found = AtomicBool::new(false);
    let found = &found;
    for row in team.rows(&x) {
        row.sum(&x, move |x| {
            found.store(x > 0.0, Relaxed);
            x
        });
    }
}

#[kernel]
fn atomic_that_moves(mut team: Team<'_>, x: View<'_, f32, 2>) {
    for row in team.rows(&x) {
        let own = AtomicU32::new(0);
        row.sum(&x, move |x| {
            own.fetch_add(1, Relaxed);
            x
        });
    }
}

#[kernel]
fn cell_behind_a_reference(mut team: Team<'_>, x: View<'_, f32, 2>, mut out: ViewMut<'_, f32, 2, Rows>) {
    let last = Cell::new(0.0);
    let last = &last;
    for row in team.rows(&x) {
        row.write(&mut out, &x, move |x| last.replace(x));
    }
}

#[kernel]
fn number_without_move(mut team: Team<'_>, x: View<'_, f32, 2>) {
    for row in team.rows(&x) {
        let max = row.max(&x, |x| x);
        row.sum(&x, |x| x - max);
    }
}

#[kernel]
fn call_of_the_team(mut team: Team<'_>, x: View<'_, f32, 2>) {
    for row in team.rows(&x) {
        row.max(&x, |own| own + row.max(&x, |x| x));
    }
}

/// A team does not live as long as a variable of the kernel.
fn helper<'t>(mut team: Team<'t>, x: View<'t, f32, 2>) {
    let count = AtomicU32::new(0);
    let mut team: Team<'_> = team;
    let count = &count;
    for row in team.rows(&x) {
        row.sum(&x, move |x| {
            count.fetch_add(1, Relaxed);
            x
        });
    }
}

fn main() {}
