use interop_core::Element;

#[derive(Clone, Copy, Element)]
#[repr(c)]
struct Pair {
    left: f32,
    right: f32,
}

fn main() {
    println!("{}", Pair::TYPE.size());
}
