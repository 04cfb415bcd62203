//! Compile errors of `#[cuda_array(python)]` and `#[cuda_array(pyclass)]`. `cargo xtask bless` regenerates the
//! messages.

#[test]
fn messages() {
    trybuild::TestCases::new().compile_fail("ui/*.rs");
}
