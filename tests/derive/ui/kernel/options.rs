//! What `#[kernel]` does not know.

#![allow(unused)]

use interop_kernel::{Thread, View, kernel};

#[kernel(same_shape(left, right))]
fn one_parameter(thread: Thread<'_>, left: View<'_, f32, 1>) {}

#[kernel(fast)]
fn unknown_word(thread: Thread<'_>) {}

#[kernel(same_shape(row, factor))]
fn number(thread: Thread<'_>, row: View<'_, f32, 1>, factor: f32) {}

#[kernel(crate = somewhere)]
fn path_without_quotes(thread: Thread<'_>) {}

#[kernel(crate = "somewhere::else")]
fn no_path(thread: Thread<'_>) {}

fn main() {}
