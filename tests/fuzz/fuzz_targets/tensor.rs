//! DLPack structs on guarded pages. See `interop_fuzz::tensor`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| interop_fuzz::tensor::run(data));

#[cfg(not(fuzzing))]
fn main() {
    interop_fuzz::replay(interop_fuzz::tensor::run);
}
