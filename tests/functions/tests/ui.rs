//! What the compiler says about functions that cannot be exported.

use std::fs;

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

#[test]
fn one_mistake_is_one_message() {
    for case in
        ["wrong_types", "borrowed_result", "outlives_the_call", "names_of_functions", "list_of_functions"]
    {
        let path = |extension| format!("{}/tests/ui/{case}.{extension}", env!("CARGO_MANIFEST_DIR"));
        let [code, messages] = ["rs", "stderr"].map(|extension| fs::read_to_string(path(extension)).unwrap());
        // One mistake in each entry of the lists, which have a line of their own.
        let (_, entries) = code.split_once("interop_tvm_ffi::export! {").unwrap();
        let entries = entries.lines().filter(|line| line.contains('(') || line.contains("export!")).count();
        let messages = messages.lines().filter(|line| line.starts_with("error")).count();
        assert_eq!(messages, entries.saturating_sub(1), "{case}");
    }
}
