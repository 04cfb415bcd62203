//! What the compiler says about functions that cannot be exported.

#[cfg(unix)]
#[path = "../../support/sysroot.rs"]
mod sysroot;

/// `cargo xtask bless` writes the messages anew.
#[test]
fn messages() {
    #[cfg(unix)]
    sysroot::without_sources();
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
