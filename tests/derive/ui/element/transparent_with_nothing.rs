use interop_core::Element;

#[derive(Clone, Copy, Element)]
#[repr(transparent)]
struct Meters(std::marker::PhantomData<f32>);

fn main() {}
