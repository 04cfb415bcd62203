//! What `#[kernel]` does not know.

#![allow(unused)]

use interop_kernel::{Thread, View, kernel};

#[kernel(same_shape(left, right))]
fn one_parameter(thread: Thread<'_>, left: View<'_, f32, 1>) {}

#[kernel(fast)]
fn unknown_word(thread: Thread<'_>) {}

fn main() {}
