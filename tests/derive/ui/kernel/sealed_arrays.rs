//! Only the crates say what a tuple of arrays holds: safe code could pass other arrays than it states.
use interop_kernel::{Out, Views};
use interop_core::launch::ElementwiseArrays;

struct Elsewhere;

impl<'a> ElementwiseArrays<'a, (Out<f32>,)> for Elsewhere {}

impl<'a, const N: usize> Views<'a, (Out<u64>,), N> for Elsewhere {}

fn main() {}
