//! What a device build says about a method of a float that is in `std`. A kernel finds these methods there.

use interop_kernel::__private::MethodsOfStd;

fn root(x: f32) -> f32 {
    MethodsOfStd::sqrt(&x)
}

fn main() {}
