//! An index of a thread cannot be made, kept, sent, or used by another rule.

#![allow(unused)]

use std::cell::Cell;

use interop_kernel::{Atomic, Index, Thread, Tiles, View, ViewMut, kernel};

#[kernel]
fn made(thread: Thread<'_>, mut row: ViewMut<'_, f32, 1>) {
    row.set([0], 1.0);
}

#[kernel]
fn number(thread: Thread<'_>, row: View<'_, f32, 1>) {
    row.get(0_usize);
}

#[kernel]
fn other_rule(thread: Thread<'_>, mut row: ViewMut<'_, f32, 1, Tiles<4>>) {
    for at in thread.elements(row.shape()) {
        row.set(at, 1.0);
    }
}

#[kernel]
fn other_rank(thread: Thread<'_>, mut row: ViewMut<'_, f32, 1>) {
    for at in thread.elements([2, 2]) {
        row.set(at, 1.0);
    }
}

#[kernel]
fn sent(thread: Thread<'_>, row: ViewMut<'_, f32, 1>) {
    for at in thread.elements(row.shape()) {
        std::thread::scope(|scope| scope.spawn(move || at.at()).join().unwrap());
    }
}

#[kernel]
fn copied(thread: Thread<'_>, row: ViewMut<'_, f32, 1>) {
    let two = (row.clone(), row);
}

#[kernel]
fn read_of_atomic(thread: Thread<'_>, row: ViewMut<'_, f32, 1, Atomic>) {
    row.get([0]);
}

#[kernel]
fn atomic_of_bytes(thread: Thread<'_>, row: ViewMut<'_, u8, 1, Atomic>) {
    row.add([0], 1);
}

fn main() {}
