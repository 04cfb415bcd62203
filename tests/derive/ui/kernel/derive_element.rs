//! Structs that are no elements of kernels.

#![allow(unused)]

use interop_kernel::KernelElement;

#[derive(Clone, Copy, KernelElement)]
#[repr(C)]
struct Padded {
    kind: u8,
    mass: f32,
}

#[derive(Clone, Copy, KernelElement)]
#[repr(C)]
struct WithFlag {
    is_set: bool,
}

#[derive(Clone, Copy, KernelElement)]
#[repr(C)]
struct WithSize(usize);

#[derive(Clone, Copy, KernelElement)]
struct WithoutLayout {
    mass: f32,
}

#[derive(Clone, Copy, KernelElement)]
#[repr(C)]
struct Generic<T> {
    mass: T,
}

#[derive(Clone, Copy, KernelElement)]
#[repr(C, packed)]
struct Packed {
    mass: f32,
}

#[derive(Clone, Copy, KernelElement)]
#[repr(u8)]
enum Kind {
    Light,
}

#[derive(Clone, Copy, KernelElement)]
#[repr(C)]
struct Empty;

fn main() {}
