use interop_core::Element;

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Nothing {
    marker: std::marker::PhantomData<f32>,
}

fn main() {}
