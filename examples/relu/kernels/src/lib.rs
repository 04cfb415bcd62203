//! The kernel of `relu-rust`. It runs on a GPU, and on the CPU.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx))]

use interop_kernel::{Elementwise, In, Out, Thread, kernel};

/// Writes the positive elements of an array, and zeros in place of the negative ones, to another array.
#[kernel]
pub fn relu_elements(thread: Thread<'_>, arrays: Elementwise<'_, (Out<f32>, In<f32>)>) {
    // Not `max`: NaN stays, as in PyTorch.
    arrays.map(&thread, |x| if x < 0.0 { 0.0 } else { x });
}

/// The kernel for a GPU, which `cargo xtask ptx` writes.
#[cfg(not(target_arch = "nvptx64"))]
pub const PTX: &str = include_str!("../kernels.ptx");
