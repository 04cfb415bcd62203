//! Interface dicts of the CUDA Array Interface. See `interop_fuzz::dict`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| interop_fuzz::dict::run(data));

#[cfg(not(fuzzing))]
fn main() {
    interop_fuzz::replay(interop_fuzz::dict::run);
}
