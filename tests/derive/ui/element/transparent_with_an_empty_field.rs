use interop_core::Element;

#[derive(Clone, Copy, Element)]
#[repr(transparent)]
struct Meters(f32, Unit);

#[derive(Clone, Copy)]
struct Unit;

#[derive(Clone, Copy, Element)]
#[repr(transparent)]
struct Quantity<T>(T, Unit);

fn main() {}
