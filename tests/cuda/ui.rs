//! Mistakes with the types of `cust` and `cudarc`. `cargo xtask bless` writes the messages anew.

#[test]
fn messages() {
    trybuild::TestCases::new().compile_fail("ui/*.rs");
}
