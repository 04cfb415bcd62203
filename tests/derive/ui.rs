//! Every mistake is one message, on the word that is wrong, which says what to write.

#[cfg(unix)]
#[path = "../support/sysroot.rs"]
mod sysroot;

use std::fs;
use std::path::{Path, PathBuf};

/// The folders of mistakes, by theme.
const THEMES: [&str; 11] = [
    "attribute",
    "conflict",
    "duplicate",
    "element",
    "generics",
    "inner",
    "kernel",
    "missing",
    "shape",
    "type",
    "unsafe",
];

/// `cargo xtask bless` writes the messages anew. Read them before you commit.
///
/// No case that compiles is among them: beside one, trybuild asks the compiler about one case after the other.
#[test]
fn messages() {
    #[cfg(unix)]
    sysroot::without_sources();
    let cases = trybuild::TestCases::new();
    for theme in THEMES {
        cases.compile_fail(format!("ui/{theme}/*.rs"));
    }
}

/// The files of a folder that end in `.extension`.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui").join(folder);
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
}

#[test]
fn no_folder_and_no_message_is_forgotten() {
    let folders = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("ui")).unwrap();
    for folder in folders.map(|entry| entry.unwrap().file_name().into_string().unwrap()) {
        assert!(THEMES.contains(&folder.as_str()), "ui/{folder} is in no list");
    }
    for path in THEMES.iter().flat_map(|theme| files(theme, "rs")) {
        assert!(path.with_extension("stderr").exists(), "{} has no message", path.display());
    }
    for path in THEMES.iter().flat_map(|theme| files(theme, "stderr")) {
        assert!(path.with_extension("rs").exists(), "{} belongs to no case", path.display());
    }
}

/// The files in which a struct or a function has more than one mistake, and those of which rustc says more.
const SEVERAL: [&str; 23] = [
    "all_mistakes_in_one_compile",
    "beside_other_words",
    "borrowed_arrays",
    "computed",
    "default_beside_other_mistakes",
    "derive_twice_in_one_attribute",
    "device_and_owner",
    "element_types",
    "feature_for_python_beside_a_mistake",
    "form",
    "import_taken_by_safe_code",
    "index_kept",
    "kernel_element_of_another_trait",
    "marker_of_a_pointer",
    "misspelt_word_beside_an_unfilled_field",
    "references_to_elements",
    "rows",
    "sealed_arrays",
    "three_data",
    "three_wrong_types_that_go_both_ways",
    "two_devices_unknown",
    "unsafe_functions",
    "word_of_another_library",
];

#[test]
fn one_mistake_is_one_message() {
    for path in THEMES.iter().flat_map(|theme| files(theme, "stderr")) {
        let text = fs::read_to_string(&path).unwrap();
        let messages = text.lines().filter(|line| line.starts_with("error")).count();
        let code = fs::read_to_string(path.with_extension("rs")).unwrap();
        // A case about kernels has one mistake in each function, but not in `main`.
        let functions =
            if path.parent().unwrap().ends_with("kernel") { code.matches("fn ").count() - 1 } else { 1 };
        let structs = code.matches("#[derive(").count().max(functions);
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert_eq!(messages > structs, SEVERAL.contains(&name), "{}: {messages} messages", path.display());
    }
}

/// What the derive finds is said in lower case and without a full stop, and followed by what to write.
#[test]
fn messages_have_a_form() {
    let mut seen = 0;
    for path in THEMES.iter().flat_map(|theme| files(theme, "stderr")) {
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
        for pair in lines.windows(2) {
            let (Some(found), Some(help)) =
                (pair[0].strip_prefix("error: "), pair[1].strip_prefix("= help: "))
            else {
                continue;
            };
            seen += 1;
            for part in [found, help] {
                assert!(!part.ends_with('.'), "{}: full stop in `{part}`", path.display());
                assert!(
                    !part.starts_with(char::is_uppercase),
                    "{}: capital letter in `{part}`",
                    path.display()
                );
            }
        }
    }
    assert!(seen > 120, "only {seen} messages were found");
}
