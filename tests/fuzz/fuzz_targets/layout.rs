//! Shapes, strides, and views of legal layouts. See `interop_fuzz::layout`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| interop_fuzz::layout::run(data));

#[cfg(not(fuzzing))]
fn main() {
    interop_fuzz::replay(interop_fuzz::layout::run);
}
