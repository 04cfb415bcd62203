use interop_core::Element;

#[derive(Clone, Copy, Element)]
#[repr(c)]
struct Pair {
    left: f32,
    right: f32,
}

#[derive(Clone, Copy, Element)]
#[repr("C")]
struct Quoted {
    x: f32,
    y: f32,
}

#[derive(Clone, Copy, Element)]
#[repr = "C"]
struct Assigned {
    left: f32,
    right: f32,
}

fn main() {
    println!("{}", Pair::TYPE.size());
}
