//! What is not a list of functions.

mod module {
    pub fn scale(by: f32) -> f32 {
        by
    }
}

fn shift(value: f32, by: f32) -> f32 {
    value + by
}

interop_tvm_ffi::export! { module::scale(by) }
interop_tvm_ffi::export! { shift(value: f32, by: f32) }
interop_tvm_ffi::export! { shift }
interop_tvm_ffi::export! {}

fn main() {}
