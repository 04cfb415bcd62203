//! The kernels of this project. They run on a GPU, and in the tests below on the CPU.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx))]

use interop_kernel::{Elementwise, In, Out, Thread, kernel};

/// Multiplies every element in place.
#[kernel]
pub fn scale_elements(thread: Thread<'_>, arrays: Elementwise<'_, (Out<f32>,)>, factor: f32) {
    arrays.map_inplace(&thread, |value| value * factor);
}

/// Writes every element of an array, multiplied, to another array.
#[kernel]
pub fn scaled_elements(thread: Thread<'_>, arrays: Elementwise<'_, (Out<f32>, In<f32>)>, factor: f32) {
    arrays.map(&thread, |value| value * factor);
}

/// The kernels for a GPU, as the README says how to compile them.
#[cfg(not(target_arch = "nvptx64"))]
pub const PTX: &str = include_str!("../kernels.ptx");
