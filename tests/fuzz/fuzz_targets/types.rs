//! Typestrs, names and DLPack triples of element types. See `interop_fuzz::types`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| interop_fuzz::types::run(data));

#[cfg(not(fuzzing))]
fn main() {
    interop_fuzz::replay(interop_fuzz::types::run);
}
