//! Checks that the folders of `interop-core/src` depend on one another in one direction, and that no files form a
//! cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::{files, workspace};

/// Each folder may use the folders before it.
const ORDER: [&str; 10] =
    ["error", "process", "array", "cuda", "memory", "protocols", "derive", "adapters", "python", "guide"];

/// The cycle that is allowed: `CudaArray` has methods that return a `Relabeled`, which is a `CudaArray` itself.
const CYCLE: [&str; 2] = ["derive/cuda_array", "derive/relabel"];

/// Returns the modules of the core with their code, by path without `.rs`.
fn modules() -> BTreeMap<String, String> {
    let root = workspace::root().join("interop-core/src");
    let mut found = BTreeMap::new();
    collect(&root, &root, &mut found);
    found
}

fn collect(root: &Path, folder: &Path, found: &mut BTreeMap<String, String>) {
    for path in files::entries(folder).expect("a folder with sources") {
        if path.is_dir() {
            collect(root, &path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root).expect("below the root").with_extension("");
            let text = files::read(&path).expect("a file of the repository");
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
            found.insert(name.to_string_lossy().replace('\\', "/"), lines.collect::<Vec<_>>().join("\n"));
        }
    }
}

/// Returns the paths from the crate root that occur in the code.
fn paths(code: &str) -> impl Iterator<Item = Vec<&str>> {
    code.split("crate::").skip(1).map(|rest| {
        let end = rest.find(|letter: char| !letter.is_alphanumeric() && !matches!(letter, '_' | ':'));
        rest[..end.unwrap_or(rest.len())].split("::").filter(|name| !name.is_empty()).collect()
    })
}

/// Returns the modules that a module uses.
fn used(modules: &BTreeMap<String, String>, module: &str) -> BTreeSet<String> {
    let longest = |path: Vec<&str>| {
        (1..=path.len()).rev().find_map(|count| {
            let name = path[..count].join("/");
            [name.clone(), format!("{name}/mod")].into_iter().find(|name| modules.contains_key(name))
        })
    };
    paths(&modules[module]).filter_map(longest).filter(|name| name != module).collect()
}

#[test]
fn folders_are_used_in_one_direction() {
    let modules = modules();
    let rank = |name: &str| ORDER.iter().position(|folder| name.split('/').next() == Some(folder));
    for name in modules.keys().filter(|name| *name != "lib") {
        let own = rank(name).unwrap_or_else(|| panic!("{name} is in no folder of the order"));
        for other in used(&modules, name) {
            let is_below = rank(&other).is_some_and(|other| other <= own);
            assert!(is_below, "{name} uses {other}");
        }
    }
}

#[test]
fn no_files_use_one_another_in_a_circle() {
    let modules = modules();
    let mut left: BTreeMap<_, _> = modules.keys().map(|name| (name.clone(), used(&modules, name))).collect();
    for name in CYCLE {
        let used = left.get_mut(name).unwrap_or_else(|| panic!("{name} is not there"));
        used.retain(|other| !CYCLE.contains(&other.as_str()));
    }
    left.retain(|name, _| name != "lib");
    while !left.is_empty() {
        let free = left.iter().find(|(_, used)| used.iter().all(|name| !left.contains_key(name)));
        let Some(free) = free.map(|(name, _)| name.clone()) else {
            panic!("in a circle, or above one: {:?}", left.keys().collect::<Vec<_>>());
        };
        left.remove(&free);
    }
}

#[test]
fn numbers_touch_no_memory() {
    let modules = modules();
    let lifted =
        modules.iter().filter(|(name, code)| name.starts_with("array/") && code.contains("unsafe_code"));
    let names: Vec<_> = lifted.map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["array/element", "array/minifloat", "array/stream"]);
}
