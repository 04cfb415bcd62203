//! A kernel without its thread.

#![allow(unused)]

use interop_kernel::{View, kernel};

#[kernel]
fn sum(row: View<'_, f32, 1>) {}

fn main() {}
