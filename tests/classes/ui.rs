//! Compile errors of `#[cuda_array(python)]` and `#[cuda_array(pyclass)]`. `cargo xtask bless` regenerates the
//! messages.

#[cfg(unix)]
#[path = "../support/sysroot.rs"]
mod sysroot;

#[test]
fn messages() {
    #[cfg(unix)]
    sysroot::without_sources();
    trybuild::TestCases::new().compile_fail("ui/*.rs");
}
