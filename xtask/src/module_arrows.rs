//! Checks that the folders of `interop-core/src` depend on one another in one direction, and that no files of the core, of
//! the simulated driver or of xtask form a cycle. A file uses another by a path, or by a method that the other adds to a
//! type of a third.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::{files, workspace};

/// Each folder may use the folders before it.
const ORDER: [&str; 12] = [
    "error",
    "process",
    "array",
    "driver",
    "order",
    "memory",
    "cuda",
    "protocols",
    "derive",
    "adapters",
    "python",
    "guide",
];

/// Methods whose names types of the standard library have too. Calls of them cannot be told apart.
const COMMON: [&str; 2] = ["iter", "wait"];

/// The sources of the core.
const CORE: &str = "interop-core/src";

/// Returns the modules in a folder of sources with their code, by path without `.rs`.
fn modules(sources: &str) -> BTreeMap<String, String> {
    let root = workspace::root().join(sources);
    let module = |(path, text): (PathBuf, String)| {
        let name = path.strip_prefix(&root).expect("below the root").with_extension("");
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        (name.to_string_lossy().replace('\\', "/"), lines.collect::<Vec<_>>().join("\n"))
    };
    files::texts_below(&root, &["rs"]).into_iter().map(module).collect()
}

/// Returns the paths from the crate root that occur in the code.
fn paths(code: &str) -> Vec<Vec<&str>> {
    code.split("crate::").skip(1).flat_map(branches).collect()
}

/// Returns the paths at the start of a text: one, or several for `a::{b, c::d}`.
fn branches(text: &str) -> Vec<Vec<&str>> {
    let text = text.trim_start();
    if let Some(group) = text.strip_prefix('{') {
        return parts(group).into_iter().flat_map(branches).collect();
    }
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    let mut paths = rest.strip_prefix("::").map_or_else(|| vec![Vec::new()], branches);
    for path in &mut paths {
        path.insert(0, name);
    }
    paths
}

/// Returns the parts of a group, which starts after its `{`. Commas separate them.
fn parts(group: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0_u32, 0, Vec::new());
    for (at, letter) in group.char_indices() {
        match letter {
            ',' | '}' if depth == 0 => {
                parts.push(&group[start..at]);
                start = at + 1;
                if letter == '}' {
                    break;
                }
            }
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    parts
}

/// The modules that each module uses: by a path, or by a call of a method that another file adds to a type.
type Arrows = BTreeMap<String, BTreeSet<String>>;

fn arrows(modules: &BTreeMap<String, String>) -> Arrows {
    let mut arrows: Arrows = modules.keys().map(|name| (name.clone(), by_path(modules, name))).collect();
    for (method, file) in added_methods(modules) {
        let calls = [format!(".{method}("), format!(".{method}::<"), format!("::{method}(")];
        for (name, code) in modules {
            if *name != file && calls.iter().any(|call| code.contains(call.as_str())) {
                arrows.entry(name.clone()).or_default().insert(file.clone());
            }
        }
    }
    arrows
}

fn by_path(modules: &BTreeMap<String, String>, module: &str) -> BTreeSet<String> {
    let longest = |path: Vec<&str>| {
        (1..=path.len()).rev().find_map(|count| {
            let name = path[..count].join("/");
            [name.clone(), format!("{name}/mod")].into_iter().find(|name| modules.contains_key(name))
        })
    };
    paths(&modules[module]).into_iter().filter_map(longest).filter(|name| name != module).collect()
}

/// Returns the name of the function that a line defines.
fn function(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn ")?;
    let is_head = before.split_whitespace().all(|word| {
        matches!(word, "const" | "unsafe" | "extern" | "\"C\"") || word.starts_with("pub") || word == "crate)"
    });
    is_head.then(|| rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next()).flatten()
}

/// Returns the methods that a file adds to a type of another file, with that file. A name that several files define
/// cannot be told apart, and is left out.
fn added_methods(modules: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let mut definers: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut added = Vec::new();
    for (name, code) in modules {
        let mut extended = false;
        for line in code.lines() {
            if line.starts_with("impl") {
                extended = extended_type(line).is_some_and(|of| {
                    !["struct", "enum", "union"].iter().any(|kind| code.contains(&format!("{kind} {of}")))
                });
            } else if line == "}" {
                extended = false;
            }
            let Some(function) = function(line) else { continue };
            definers.entry(function).or_default().insert(name);
            if extended && line.starts_with("    ") && !line.starts_with("     ") {
                added.push((function, name));
            }
        }
    }
    let is_alone = |function: &str| definers[function].len() == 1 && !COMMON.contains(&function);
    let alone = added.into_iter().filter(|(function, _)| is_alone(function));
    alone.map(|(function, name)| (function.to_owned(), name.clone())).collect()
}

/// Returns the type of an `impl` block that implements no trait.
fn extended_type(line: &str) -> Option<&str> {
    let mut rest = line.strip_prefix("impl")?;
    if rest.starts_with('<') {
        let mut depth = 0;
        let end = rest.char_indices().find_map(|(at, letter)| {
            depth += i32::from(letter == '<') - i32::from(letter == '>');
            (depth == 0).then_some(at + 1)
        })?;
        rest = &rest[end..];
    }
    if rest.contains(" for ") {
        return None;
    }
    let path =
        rest.trim_start().split(|letter: char| !letter.is_alphanumeric() && !"_:".contains(letter)).next()?;
    path.rsplit("::").next().filter(|name| !name.is_empty())
}

#[test]
fn folders_are_used_in_one_direction() {
    let modules = modules(CORE);
    let arrows = arrows(&modules);
    let rank = |name: &str| ORDER.iter().position(|folder| name.split('/').next() == Some(folder));
    for name in modules.keys().filter(|name| *name != "lib") {
        let own = rank(name).unwrap_or_else(|| panic!("{name} is in no folder of the order"));
        for other in &arrows[name] {
            let is_below = rank(other).is_some_and(|other| other <= own);
            assert!(is_below, "{name} uses {other}");
        }
    }
}

/// The root is left out: it declares the modules, and `ci` runs every command of its table.
fn circle(sources: &str, root: &str) -> Vec<String> {
    let mut left = arrows(&modules(sources));
    assert!(left.remove(root).is_some(), "{sources} has the root {root}");
    while let Some(free) = left.iter().find(|(_, used)| used.iter().all(|name| !left.contains_key(name))) {
        let free = free.0.clone();
        left.remove(&free);
    }
    left.into_keys().collect()
}

#[test]
fn no_files_use_one_another_in_a_circle() {
    for (sources, root) in [(CORE, "lib"), ("simulated-cuda-driver/src", "lib"), ("xtask/src", "main")] {
        assert_eq!(circle(sources, root), [""; 0], "files of {sources} in a circle, or above one");
    }
}

#[test]
fn numbers_touch_no_memory() {
    let modules = modules(CORE);
    let lifted =
        modules.iter().filter(|(name, code)| name.starts_with("array/") && code.contains("unsafe_code"));
    let names: Vec<_> = lifted.map(|(name, _)| name.as_str()).collect();
    // The functions that turn a number into a stream are `unsafe`; they do nothing else.
    assert_eq!(names, ["array/element", "array/stream_handle"]);
}

#[test]
fn methods_that_are_added_to_types_are_seen() {
    let modules = BTreeMap::from(
        [
            ("a", "pub struct Row;\nimpl Row {\n    pub fn own(&self) {}\n}\n"),
            ("b", "use crate::a::Row;\nimpl<'a, T: Into<Vec<u8>>> Row {\n    pub(crate) const fn added(&self) {}\n}\n"),
            ("c", "use crate::a::Row;\nfn call(row: &Row) {\n    row.own();\n    row.added();\n}\n"),
        ]
        .map(|(name, code)| (name.to_owned(), code.to_owned())),
    );
    assert_eq!(added_methods(&modules), [("added".to_owned(), "b".to_owned())]);
    assert_eq!(arrows(&modules)["c"], ["a", "b"].map(str::to_owned).into());
    assert_eq!(extended_type("impl<T> fmt::Debug for Row<T> {"), None);
}

#[test]
fn paths_in_groups_are_seen() {
    let code =
        "use crate::{a, b::{self, C as D,\n    e::*}, f};\nlet g = crate::g::<T>(crate::H, crate::{});";
    let found: Vec<String> = paths(code).iter().map(|path| path.join("/")).collect();
    assert_eq!(found, ["a", "b/self", "b/C", "b/e/", "f", "g/", "H", ""]);
}
