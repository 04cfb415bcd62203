//! One array in two arguments, of which the kernel writes one.

#![allow(unused)]

use interop_core::kernel::{InScope, KernelViewMut};
use interop_kernel::{Thread, ViewMut, kernel};

#[kernel]
fn swap(thread: Thread<'_>, left: ViewMut<'_, f32, 1>, right: ViewMut<'_, f32, 1>) {}

fn launch(row: InScope<KernelViewMut<'_, f32, 1>>) {
    swap::with(row, row);
}

fn main() {}
