//! Safe code cannot describe a field by a module in the place of this crate.
use interop_core::Element;

mod facade {
    pub mod __interop_core {
        pub use interop_core::__interop_core::*;

        pub struct FieldProbe<T>(T);

        impl<T> FieldProbe<T> {
            pub const FIELD: KnownField<u64> = interop_core::__interop_core::FieldProbe::<u64>::FIELD;
        }
    }
}

#[derive(Clone, Copy, Element)]
#[cuda_array(crate = "facade")]
#[repr(C)]
struct Point {
    at: Pointer,
}

#[derive(Clone, Copy)]
struct Pointer(&'static u64);

fn main() {}
