//! Mistakes with `#[cuda_array(python)]` and `#[cuda_array(pyclass)]`. `cargo xtask bless` writes the messages anew.

#[test]
fn messages() {
    trybuild::TestCases::new().compile_fail("ui/*.rs");
}
