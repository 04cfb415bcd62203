//! A generic kernel is compiled for the types of its list.

use interop_kernel::{KernelElement, LaunchSize, Thread, View, ViewMut, kernel};

#[kernel(T = [f32, u16, i64])]
fn copy<T: KernelElement>(thread: Thread<'_>, from: View<'_, T, 1>, mut to: ViewMut<'_, T, 1>) {
    for at in thread.elements(to.shape()) {
        to.set(at, from.get(at));
    }
}

fn not_in_the_list(from: View<'_, f64, 1>, to: ViewMut<'_, f64, 1>) {
    copy::<f64>::run(LaunchSize::for_units(1), from, to);
}

fn no_element(from: View<'_, f64, 1>, to: ViewMut<'_, f64, 1>) {
    copy::<bool>::run(LaunchSize::for_units(1), from, to);
}

fn bound_that_is_missing<T: KernelElement>(from: View<'_, T, 1>, to: ViewMut<'_, T, 1>) {
    copy::<T>::run(LaunchSize::for_units(1), from, to);
}

fn main() {}
