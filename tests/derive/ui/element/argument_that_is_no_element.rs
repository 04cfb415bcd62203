use interop_core::Element;

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Pair<T> {
    first: T,
    second: T,
}

fn size_of<T: Element>() -> usize {
    T::TYPE.size()
}

fn main() {
    println!("{}", size_of::<Pair<char>>());
}
