//! What is no kernel.

#![allow(unused)]

use interop_kernel::{KernelElement, Thread, View, kernel};

#[kernel]
fn without_thread() {}

#[kernel]
fn generic<T: KernelElement>(thread: Thread<'_>, row: View<'_, T, 1>) {}

#[kernel]
fn lifetime<'a>(thread: Thread<'_>, row: View<'a, f32, 1>) {}

#[kernel]
fn without_name(thread: Thread<'_>, _: f32) {}

#[kernel]
fn returns(thread: Thread<'_>) -> f32 { 0.0 }

#[kernel]
unsafe fn not_safe(thread: Thread<'_>) {}

#[kernel]
fn pattern(thread: Thread<'_>, (a, b): [f32; 2]) {}

#[kernel]
struct NoFunction;

fn main() {}
