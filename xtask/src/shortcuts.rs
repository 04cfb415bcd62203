//! Checks that the shortcuts which ARCHITECTURE.md lists are there, and the tests that it names for them.

use std::path::PathBuf;

use crate::{files, workspace};

/// Returns the cells of the rows of all tables in a section.
fn rows(page: &str, section: &str) -> Vec<Vec<String>> {
    let body = page.split(&format!("## {section}\n")).nth(1).expect("the section").split("\n## ").next();
    let rows =
        body.unwrap_or_default().lines().filter(|line| line.starts_with("| ") && !line.starts_with("| ---"));
    rows.map(|row| row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// Returns what stands in backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[test]
fn every_shortcut_has_its_code_and_its_test() {
    let root = workspace::root();
    let page = files::read(&root.join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let code = files::texts_below(&root.join("interop-core/src"), &["rs"]);
    let tests = files::texts_below(&root.join("tests"), &["rs", "py"]);
    let mut seen = 0;
    for row in rows(&page, "Shortcuts") {
        let (first, last) = (&row[0], &row[row.len() - 1]);
        if !last.contains('`') {
            continue;
        }
        // What the row quotes first is an item or a file; other words of the row may be those of Python.
        let name = quoted(first).next().unwrap_or_else(|| panic!("a row without code: {first}"));
        let name = name.rsplit("::").next().unwrap_or(name);
        let is_there = |(path, text): &(PathBuf, String)| text.contains(name) || path.ends_with(name);
        assert!(code.iter().any(is_there), "`{name}` is not in the code");
        for test in quoted(last) {
            let is_test =
                |(path, _): &(PathBuf, String)| path.to_string_lossy().replace('\\', "/").contains(test);
            assert!(code.iter().chain(&tests).any(is_test), "`{test}` is no test");
        }
        seen += 1;
    }
    assert!(seen > 20, "{seen} rows were found");
}
