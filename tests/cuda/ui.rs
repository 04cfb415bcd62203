//! Compile errors of the types of `cust` and `cudarc`. `cargo xtask bless` regenerates the messages.

#[test]
fn messages() {
    trybuild::TestCases::new().compile_fail("ui/*.rs");
}
