//! An index of a thread does not outlive the kernel.

#![allow(unused)]

use std::cell::Cell;

use interop_kernel::{Index, Thread, ViewMut, kernel};

thread_local! {
    static KEPT: Cell<Option<Index<'static, 1>>> = const { Cell::new(None) };
}

#[kernel]
fn kept(thread: Thread<'_>, row: ViewMut<'_, f32, 1>) {
    for at in thread.elements(row.shape()) {
        KEPT.set(Some(at));
    }
}

fn main() {}
