use interop_core::Element;

// Not the marker of `core`: its bytes could be anything.
#[derive(Clone, Copy)]
struct PhantomData<T>(T);

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Point {
    x: f32,
    marker: PhantomData<&'static str>,
}

fn main() {}
