//! Arrays that are not those of the kernel.

#![allow(unused)]

use interop_core::{CudaArray, HostVec, LaunchScope};
use interop_kernel::{Elementwise, In, Out, Thread, kernel};

#[kernel]
fn add(thread: Thread<'_>, arrays: Elementwise<'_, (Out<f32>, In<f32>)>) {}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Row { #[cuda_array(data)] values: HostVec<f32>, len: usize }

fn only_for_reading(left: Row, right: Row) -> interop_core::Result<()> {
    let scope = LaunchScope::new();
    add::with(scope.elementwise((&left, &right))?);
    Ok(())
}

fn main() {}
