//! Every mistake is one message, on the word that is wrong, which says what to write.

/// `TRYBUILD=overwrite cargo test -p interop-tests --test ui` writes the messages anew. Read them before you commit.
#[test]
fn messages() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("ui/*/*.rs");
}
