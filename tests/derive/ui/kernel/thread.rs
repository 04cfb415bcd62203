//! Threads in the wrong place, and not as themselves.

#![allow(unused)]

use interop_kernel::{BlockThread, Elementwise, Out, Thread, View, kernel};

#[kernel]
fn reference(thread: &Thread<'_>, row: View<'_, f32, 1>) {}

#[kernel]
fn last(row: View<'_, f32, 1>, thread: Thread<'_>) {}

#[kernel]
fn twice(thread: Thread<'_>, block: BlockThread<'_>) {}

#[kernel]
fn by_value(thread: Thread<'_>, array: Elementwise<'_, (Out<f32>,)>) {
    array.map_inplace(thread, |number| number + 1.0);
}

fn main() {}
