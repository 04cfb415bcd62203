//! A type with padding, which a launch would pass as bytes.

#![allow(unused)]

use interop_kernel::{Thread, kernel};

#[derive(Clone, Copy)]
#[repr(C)]
struct Padded(u8, u32);

#[kernel]
fn padded(thread: Thread<'_>, padded: Padded) {}

fn main() {}
