//! A generic type of a kernel has a bound, behind its name.

#![allow(unused)]

use interop_kernel::{KernelElement, Rows, Team, Thread, View, ViewMut, kernel};

#[kernel(T = [f32], same_shape(x, out))]
fn softmax<T>(mut team: Team<'_>, x: View<'_, T, 2>, mut out: ViewMut<'_, T, 2, Rows>) {
    for row in team.rows(&x) {
        let x = row.keep(&x);
        let max = row.max(&x, |x| x);
        row.write(&mut out, &x, move |x| x - max);
    }
}

#[kernel(T = [f32, u16])]
fn copy<T>(thread: Thread<'_>, from: View<'_, T, 1>, mut to: ViewMut<'_, T, 1>) {
    for at in thread.elements(to.shape()) {
        to.set(at, from.get(at));
    }
}

#[kernel(T = [f32])]
fn bound_in_another_place<T>(thread: Thread<'_>, from: View<'_, T, 1>) where T: KernelElement {}

fn main() {}
