//! Exchanges between Python objects. See `interop_fuzz::python`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| interop_fuzz::python::run(data));

#[cfg(not(fuzzing))]
fn main() {
    interop_fuzz::replay(interop_fuzz::python::run);
}
