use interop_core::Element;

#[derive(Element)]
#[repr(C)]
struct Pixel {
    red: impl Element,
    green: f32,
}

impl Clone for Pixel {
    fn clone(&self) -> Self {
        *self
    }
}

impl Copy for Pixel {}

fn main() {}
