#[derive(Clone, Copy, Element)]
struct Point {
    x: f32,
    y: f32,
}

// ---- expands to ----

const _: () = {
    use ::interop_core::__interop_core as __p;
    #[automatically_derived]
    unsafe impl __p::Element for Point {
        const TYPE: __p::ElementType = <::core::primitive::u8 as __p::Element>::TYPE;
    }
};
::core::compile_error! {
    "`#[derive(Element)]` on a struct without a fixed layout\n= help: write `#[repr(C)]`, or `#[repr(transparent)]` on a newtype"
}
