//! Each generic type of a kernel has a list.

#![allow(unused)]

use interop_kernel::{KernelElement, Thread, View, kernel};

#[kernel]
fn no_list<T: KernelElement>(thread: Thread<'_>, x: View<'_, T, 1>) {}

#[kernel(T = [])]
fn empty<T: KernelElement>(thread: Thread<'_>, x: View<'_, T, 1>) {}

#[kernel(T = [f32], T = [f64])]
fn twice<T: KernelElement>(thread: Thread<'_>, x: View<'_, T, 1>) {}

#[kernel(S = [f32])]
fn misspelt<T: KernelElement>(thread: Thread<'_>, x: View<'_, T, 1>) {}

#[kernel(T = [f32])]
fn not_generic(thread: Thread<'_>, x: View<'_, f32, 1>) {}

#[kernel]
fn number<const N: usize>(thread: Thread<'_>, x: View<'_, f32, N>) {}

#[kernel(same_column(x, x))]
fn another_word(thread: Thread<'_>, x: View<'_, f32, 1>) {}

fn main() {}
