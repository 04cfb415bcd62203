use interop_core::Element;

// rustc says it of `Send` and of `Sync`. The derive cannot know better: with an `unsafe impl` of both this is right.
#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Handle {
    index: u32,
    marker: std::marker::PhantomData<*mut u8>,
}

fn main() {}
