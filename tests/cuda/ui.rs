//! Compile errors of the types of `cust`, `cudarc` and `ndarray`. `cargo xtask bless` regenerates the messages.

#[test]
fn messages() {
    trybuild::TestCases::new().compile_fail("ui/*.rs");
}
