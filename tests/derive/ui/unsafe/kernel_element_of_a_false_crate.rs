//! Safe code cannot make an element of a kernel by a crate in the place of `interop-kernel`.
extern crate self as interop_kernel;

pub use interop_core::kernel::*;

pub mod __private {
    pub use interop_core::kernel::__private::*;

    pub const fn size_of_element<T>() -> usize {
        0
    }

    pub const fn assert_no_padding<T>(_: &[usize]) {}
}

#[derive(Clone, Copy, KernelElement)]
#[repr(C)]
struct Text {
    text: &'static str,
}

#[derive(Clone, Copy, KernelElement)]
#[repr(C)]
struct Gaps {
    small: u8,
    large: u32,
}

#[derive(Clone, Copy, KernelElement)]
#[repr(C)]
struct Outer {
    inner: Inner,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Inner(bool);

fn main() {}
