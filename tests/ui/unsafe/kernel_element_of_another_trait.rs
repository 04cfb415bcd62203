//! Safe code cannot implement another unsafe trait by the name of `KernelElement`.
extern crate self as interop_kernel;

pub use core::marker::Sync as KernelElement;
pub use interop_core::kernel::__private;

#[derive(interop_core::kernel::KernelElement)]
#[repr(C)]
struct Counter {
    count: core::cell::Cell<u32>,
}

fn main() {}
