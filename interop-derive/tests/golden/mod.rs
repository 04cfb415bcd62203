//! The expansions of structs. Each file beside this one holds a struct and, below a line, its expansion.
//!
//! A new case is a new file with a struct. `BLESS=1 cargo test -p interop-derive --lib` writes the expansions.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{env, fs};

use proc_macro2::{TokenStream, TokenTree};
use syn::{DeriveInput, File};

/// Between the struct and its expansion.
const LINE: &str = "\n// ---- expands to ----\n\n";

struct Case {
    path: PathBuf,
    input: String,
    expected: String,
}

/// All cases, read once: blessing writes the files while other tests run.
fn cases() -> &'static [Case] {
    static CASES: OnceLock<Vec<Case>> = OnceLock::new();
    CASES.get_or_init(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut cases: Vec<Case> = files.filter(|path| !path.ends_with("mod.rs")).map(read).collect();
        cases.sort_by(|a, b| a.path.cmp(&b.path));
        assert!(cases.len() > 20, "some files were not found");
        cases
    })
}

fn read(path: PathBuf) -> Case {
    let text = fs::read_to_string(&path).unwrap();
    let (input, expected) = text.split_once(LINE).unwrap_or((&text, ""));
    Case { input: input.trim_end().to_string() + "\n", expected: expected.to_string(), path }
}

fn expand(input: &str) -> TokenStream {
    let mut input: DeriveInput = syn::parse_str(input).unwrap();
    // rustc does not show a derive the attribute that it stands in.
    let at = input.attrs.iter().position(|attr| attr.path().is_ident("derive")).unwrap();
    let derives = input.attrs.remove(at).parse_args::<TokenStream>().unwrap().to_string();
    if derives.contains("Element") {
        crate::derive_element::derive(&input)
    } else {
        crate::derive_cuda_array::derive(&input)
    }
}

#[test]
fn expansions() {
    for Case { path, input, expected } in cases() {
        let expansion: File = syn::parse2(expand(input)).unwrap();
        let expansion = prettyplease::unparse(&expansion);
        if env::var_os("BLESS").is_some() {
            fs::write(path, format!("{input}{LINE}{expansion}")).unwrap();
        } else {
            assert_eq!(&expansion, expected, "{}: run with BLESS=1 if this is meant", path.display());
        }
    }
}

#[test]
fn expansions_depend_on_no_name_in_scope() {
    for Case { path, input, .. } in cases() {
        let mut own = BTreeSet::new();
        // Also what is written in strings: the path of a renamed runtime.
        visit(input.replace('"', " ").parse().unwrap(), &mut |_, ident| {
            own.insert(ident.to_string());
        });
        visit(expand(input), &mut |before, ident| {
            let is_part = matches!(before, "::" | ".");
            let is_known = own.contains(ident) || NAMES.contains(&ident) || ident.starts_with("__");
            assert!(is_part || is_known, "{}: `{ident}` is looked up in the user's scope", path.display());
        });
    }
}

/// The names that an expansion may use without a path: keywords, what it defines itself, attributes, fields of the runtime, keys of the
/// Python macros.
const NAMES: [&str; 40] = [
    "Self",
    "self",
    "as",
    "const",
    "dyn",
    "fn",
    "for",
    "impl",
    "let",
    "match",
    "mut",
    "return",
    "true",
    "false",
    "static",
    "unsafe",
    "use",
    "where",
    "_",
    "info",
    "note_read",
    "note_write",
    "assemble",
    "TYPE",
    "REQUIREMENTS",
    "DATA_FIELD",
    "FIELDS",
    "automatically_derived",
    "inline",
    "always",
    "allow",
    "axes",
    "order",
    "export",
    "import",
    "generics",
    "type",
    "bounds",
    "pyo3",
    "storage",
];

/// Calls `see` with each identifier and the punctuation before it.
fn visit(tokens: TokenStream, see: &mut impl FnMut(&str, &str)) {
    let mut before = String::new();
    for token in tokens {
        match token {
            TokenTree::Punct(punct) => {
                before.push(punct.as_char());
                continue;
            }
            TokenTree::Group(group) => visit(group.stream(), see),
            TokenTree::Ident(ident) => {
                see(if before.ends_with("::") { "::" } else { &before }, &ident.to_string());
            }
            TokenTree::Literal(_) => {}
        }
        before.clear();
    }
}

#[test]
fn a_renamed_runtime_is_the_only_one_named() {
    for Case { path, input, .. } in cases() {
        let names_ours = expand(input).to_string().contains(":: interop_core");
        assert_eq!(names_ours, !input.contains("crate ="), "{}", path.display());
    }
}
