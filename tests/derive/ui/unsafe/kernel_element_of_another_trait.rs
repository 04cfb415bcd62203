//! Safe code cannot implement another unsafe trait by the name of `KernelElement`.
extern crate self as interop_kernel;

pub use core::marker::Sync as KernelElement;

pub mod __private {
    pub use interop_core::kernel::__private::*;

    pub const fn size_of_element<T>() -> usize {
        4
    }

    pub const fn assert_no_padding<T>(_: &[usize]) {}
}

#[derive(interop_core::kernel::KernelElement)]
#[repr(C)]
struct Counter {
    count: core::cell::Cell<u32>,
}

fn main() {}
