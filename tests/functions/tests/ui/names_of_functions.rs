//! Names and parameters that are not those of a function.

fn shift(value: f32, by: f32) -> f32 {
    value + by
}

interop_tvm_ffi::export! { shift(value) }
interop_tvm_ffi::export! { shift(value, by, more) }
interop_tvm_ffi::export! { shfit(value, by) }

fn main() {}
