//! The lines of code that each published crate may have: a change that needs more raises the number, where a reviewer sees it.

use crate::published::published;
use crate::{files, workspace};

/// The folders of sources, and their most lines, in hundreds.
const BUDGETS: [(&str, usize); 7] = [
    ("interop-core/src", 21_220),
    ("interop-derive/src", 5_000),
    ("interop-ipc/src", 2_310),
    ("interop-kernel/src", 5_700),
    ("interop-tvm-ffi/src", 2_400),
    ("simulated-cuda/src", 400),
    ("simulated-cuda-driver/src", 5_500),
];

/// How many lines a crate may be below its budget: what is saved is not spent on something else without a word.
const UNSPENT: usize = 300;

/// Returns the number of lines that are neither empty, nor a comment or documentation, nor in an item for tests.
fn code_lines(text: &str) -> usize {
    let (mut count, mut is_test) = (0, false);
    for line in text.lines() {
        is_test |= line == "#[cfg(test)]";
        let code = line.trim_start();
        count += usize::from(!is_test && !code.is_empty() && !code.starts_with("//"));
        // The end of an item that is in no other one.
        if line == "}" || !line.starts_with([' ', '#']) && line.ends_with(';') {
            is_test = false;
        }
    }
    count
}

#[test]
fn each_crate_keeps_to_its_lines() {
    let mut wrong = Vec::new();
    for (folder, most) in BUDGETS {
        let sources = files::texts_below(&workspace::root().join(folder), &["rs"]);
        let found: usize = sources.iter().map(|(_, text)| code_lines(text)).sum();
        if found > most || found + UNSPENT < most {
            wrong.push(format!("{folder}: found {found} lines of code, the budget in {} is {most}", file!()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let budgeted = BUDGETS.map(|(folder, _)| folder.trim_end_matches("/src"));
    for package in published().expect("the packages") {
        assert!(budgeted.contains(&&*package), "{package} has no budget in {}", file!());
    }
}

#[test]
fn lines_of_code_are_counted() {
    let code = "//! Docs.\n\nuse a::{\n    b,\n};\n/// Docs.\nfn c() {\n    // Why.\n    d(); // e\n}\n";
    assert_eq!(code_lines(code), 6);
    let test = "#[cfg(test)]\n#[expect(f)]\nmod tests {\n    use g;\n}\n#[cfg(test)]\nmod h;\n#[cfg(test)]\nuse i;\n";
    assert_eq!(code_lines(&format!("{code}{test}{code}")), 12);
}
