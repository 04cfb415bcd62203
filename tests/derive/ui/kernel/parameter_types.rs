//! What is no parameter of a kernel.

#![allow(unused)]

use interop_kernel::{KernelElement, Thread, View, kernel};

#[kernel]
fn reference(thread: Thread<'_>, row: &[f32]) {}

#[kernel]
fn pointer(thread: Thread<'_>, row: *mut f32) {}

#[kernel]
fn flag(thread: Thread<'_>, flag: bool) {}

#[kernel]
fn flags(thread: Thread<'_>, flags: View<'_, bool, 1>) {}

#[kernel]
fn size(thread: Thread<'_>, len: usize) {}

#[kernel]
fn vector(thread: Thread<'_>, values: Vec<f32>) {}

#[kernel]
fn lease(thread: Thread<'_>, values: LeaseMut<f32>) {}

#[kernel]
fn nothing(thread: Thread<'_>, nothing: ()) {}

fn main() {}
