//! The runtime has another name here, and its own name refers to another crate.

// `::interop_core` is `core` here, so a path that the derive does not take from the attribute cannot be resolved.
#[allow(unused_extern_crates)]
extern crate core as interop_core;
extern crate interop_core as arrays;

use arrays::{CudaArray, Element, HostVec};

#[derive(CudaArray)]
#[cuda_array(crate = "arrays", shape = [len])]
struct Points {
    #[cuda_array(data)]
    points: HostVec<Point>,
    len: usize,
}

#[derive(Clone, Copy, Element)]
#[cuda_array(crate = "::arrays")]
#[repr(C)]
struct Point {
    x: f32,
    y: f32,
}

fn main() {
    let points = Points { points: HostVec::from([Point { x: 1.0, y: 2.0 }]), len: 1 };
    assert_eq!(points.info().map(|info| info.numel()), Ok(1));
    assert_eq!(::interop_core::mem::size_of::<Point>(), 8, "that is `core`");
}
