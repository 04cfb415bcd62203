//! Launches with an argument that does not fit: of another type or rank, only for reading, in another order, one too few and one
//! too many.

#![allow(unused)]

use interop_core::kernel::{InScope, KernelView, KernelViewMut};
use interop_core::{CudaArray, HostVec, LaunchScope};
use interop_kernel::{Thread, View, ViewMut, kernel};

#[kernel]
fn add(thread: Thread<'_>, to: ViewMut<'_, f32, 1>, from: View<'_, f32, 1>, factor: f32) {}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Row { #[cuda_array(data)] values: HostVec<f32>, len: usize }

fn launches(mut to: Row, from: Row) -> interop_core::Result<()> {
    let scope = LaunchScope::new();
    add::with(scope.write(&mut to)?, scope.read::<f64, 1>(&from)?, 1.0);
    Ok(())
}

fn of_another_rank(to: InScope<KernelViewMut<'_, f32, 2>>, from: InScope<KernelView<'_, f32, 1>>) {
    add::with(to, from, 1.0);
}

fn only_for_reading(to: InScope<KernelView<'_, f32, 1>>, from: InScope<KernelView<'_, f32, 1>>) {
    add::with(to, from, 1.0);
}

fn in_another_order(to: InScope<KernelViewMut<'_, f32, 1>>, from: InScope<KernelView<'_, f32, 1>>) {
    add::with(to, 1.0, from);
}

fn too_few(to: InScope<KernelViewMut<'_, f32, 1>>, from: InScope<KernelView<'_, f32, 1>>) {
    add::with(to, from);
}

fn too_many(to: InScope<KernelViewMut<'_, f32, 1>>, from: InScope<KernelView<'_, f32, 1>>) {
    add::with(to, from, 1.0, 2.0);
}

fn without_a_scope(to: KernelViewMut<'_, f32, 1>, from: InScope<KernelView<'_, f32, 1>>) {
    add::with(to, from, 1.0);
}

fn main() {}
