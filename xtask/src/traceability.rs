//! Checks `tests/conformance/traceability.toml`, which lists the tests of each rule of the protocols and of memory safety: every
//! rule is there, and every test exists. A line is `R1 = ["the rule", "file::function", …]`.

use std::collections::BTreeMap;

use crate::{COMMANDS, files, workspace};

const LEDGER: &str = "tests/conformance/traceability.toml";

/// The sections with the letter of their ids and the last number.
const SECTIONS: [(&str, char, usize); 3] =
    [("[requirements]", 'R', 180), ("[faults]", 'B', 190), ("[memory]", 'M', 43)];

/// The texts of a line: the rule, then what proves it.
fn texts(list: &str) -> Result<Vec<&str>, String> {
    let list =
        list.strip_prefix("[\"").and_then(|list| list.strip_suffix("\"]")).ok_or("no list of texts")?;
    let texts: Vec<&str> = list.split("\", \"").collect();
    if texts.iter().any(|text| text.is_empty() || text.contains(['"', '\\'])) {
        return Err("texts are not empty, and have no quotes and no backslashes".into());
    }
    let cannot_apply = texts.iter().any(|text| text.starts_with("n/a: "));
    let has_proof = texts[1..].iter().any(|text| !text.starts_with("in: "));
    if !has_proof || cannot_apply && texts.len() > 2 {
        return Err("a rule has tests or what is open, or else one reason why it cannot apply".into());
    }
    Ok(texts)
}

/// Checks one proof. The error says what is wrong with it.
fn check(proof: &str) -> Result<(), String> {
    if proof.starts_with("n/a: ") || proof.starts_with("open: ") {
        return Ok(());
    }
    if let Some(command) = proof.strip_prefix("run: cargo xtask ") {
        let name = command.split(' ').next().unwrap_or_default();
        let is_known = COMMANDS.iter().any(|command| command.name == name);
        return is_known.then_some(()).ok_or_else(|| format!("there is no command `{name}`"));
    }
    let (kind, place) = proof.split_once(": ").unwrap_or(("", proof));
    let (file, function) = place.split_once("::").unwrap_or((place, ""));
    let path = workspace::root().join(file);
    if kind == "in" {
        return path.exists().then_some(()).ok_or_else(|| format!("there is no {file}"));
    }
    let text = files::read(&path).map_err(|failure| failure.to_string())?;
    let is_there = match path.extension().and_then(|extension| extension.to_str()) {
        Some("rs") if kind == "row" => {
            ["\n", "\npub(crate) "].iter().any(|before| text.contains(&format!("{before}fn {function}(")))
        }
        Some("rs") if kind == "example" => has_example(&text, function),
        // A message of the derive.
        Some("rs") if function.is_empty() => path.with_extension("stderr").exists(),
        Some("rs") => is_rust_test(&text, function),
        Some("py") => !function.is_empty() && text.contains(&format!("\ndef {function}(")),
        _ => false,
    };
    is_there.then_some(()).ok_or_else(|| format!("{proof}: there is no such test"))
}

/// Whether a source has a function with this name and `#[test]` in the lines above it.
fn is_rust_test(text: &str, name: &str) -> bool {
    let head = format!("fn {name}(");
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.iter().enumerate().filter(|(_, line)| line.starts_with(&head)).any(|(at, _)| {
        let mut above = lines[..at].iter().rev().take_while(|line| !line.is_empty() && !line.ends_with('}'));
        above.any(|line| *line == "#[test]")
    })
}

/// Whether a source has a struct of this name whose documentation ends with an example.
fn has_example(text: &str, name: &str) -> bool {
    let is_item = |line: &&str| {
        let after = line.split_once("struct ").map(|(_, after)| after.strip_prefix(name));
        matches!(after, Some(Some(rest)) if !rest.starts_with(|next: char| next.is_alphanumeric()))
    };
    let lines: Vec<&str> = text.lines().collect();
    lines.iter().position(is_item).is_some_and(|at| {
        let mut above = lines[..at].iter().rev().skip_while(|line| line.starts_with("#["));
        above.find(|line| !line.is_empty()).is_some_and(|line| *line == "/// ```")
    })
}

/// Returns what is wrong with a ledger.
fn faults(ledger: &str) -> Vec<String> {
    let ids = SECTIONS.iter().flat_map(|(section, letter, last)| {
        (1..=*last).map(move |number| (format!("{letter}{number}"), *section))
    });
    let mut missing: BTreeMap<String, &str> = ids.collect();
    let (mut section, mut faults) = ("", Vec::new());
    for line in ledger.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with('[') {
            section = line;
            continue;
        }
        let (id, list) = line.split_once(" = ").unwrap_or((line, ""));
        if missing.remove(id) != Some(section) {
            faults.push(format!("{id}: unknown in {section:?}, or there twice"));
        }
        let checked = texts(list).and_then(|texts| texts[1..].iter().try_for_each(|proof| check(proof)));
        faults.extend(checked.err().map(|why| format!("{id}: {why}")));
    }
    faults.extend(missing.into_keys().map(|id| format!("{id}: missing")));
    faults
}

#[test]
fn each_rule_has_a_proof_that_exists() {
    let ledger = files::read(&workspace::root().join(LEDGER)).expect("the ledger");
    let faults = faults(&ledger);
    assert!(faults.is_empty(), "{LEDGER}:\n{}", faults.join("\n"));
}

#[test]
fn ids_are_there_once() {
    let line = |letter, number| format!("{letter}{number} = [\"a rule\", \"open: a test\"]\n");
    let whole: String = SECTIONS.iter().fold(String::new(), |text, (section, letter, last)| {
        format!("{text}# a comment\n\n{section}\n")
            + &(1..=*last).map(|n| line(letter, n)).collect::<String>()
    });
    assert_eq!(faults(&whole), [""; 0]);
    for (text, fault) in [
        (whole.replace(&line(&'B', 7), ""), "B7: missing"),
        (whole.clone() + &line(&'M', 7), "M7: unknown in \"[memory]\", or there twice"),
        (whole.clone() + &line(&'M', 44), "M44: unknown in \"[memory]\", or there twice"),
        (whole.replacen(&line(&'B', 7), &line(&'R', 7), 1), "R7: unknown in \"[faults]\", or there twice"),
        (whole.replacen("[requirements]\n", "", 1), "R1: unknown in \"\", or there twice"),
    ] {
        assert!(faults(&text).iter().any(|found| found == fault), "{fault}: {:?}", faults(&text));
    }
}

#[test]
fn lines_are_rules_with_proofs() {
    assert_eq!(texts("[\"a rule\", \"a.rs::b\"]"), Ok(vec!["a rule", "a.rs::b"]));
    for list in [
        "\"a\"",
        "[\"a\"]",
        "[\"\", \"b\"]",
        "[\"a\", \"in: b\"]",
        "[\"a\", \"b\", \"n/a: c\"]",
        "[\"a\",\"b\"]",
        "[\"a\\\", \"b\"]",
    ] {
        assert!(texts(list).is_err(), "{list}");
    }
}

#[test]
fn tests_are_found_by_name() {
    for proof in [
        "xtask/src/traceability.rs::tests_are_found_by_name",
        "tests/derive/ui/missing/words_and_fields.rs",
        "tests/python/test_numpy.py::test_there_and_back",
        "run: cargo xtask fuzz 60 dict",
        "open: a GPU",
        "n/a: a reason",
        "in: xtask/src",
        "example: interop-core/src/adapters/cudarc/lend.rs::LentSlice",
        "row: interop-ipc/tests/gpu/rows.rs::growth",
    ] {
        assert_eq!(check(proof), Ok(()));
    }
    for proof in [
        "xtask/src/traceability.rs::check",
        "xtask/src/traceability.rs",
        "xtask/src/no_such_file.rs::tests_are_found_by_name",
        concat!("tests/python/test_numpy.py", "::there_and_back"),
        "tests/python/test_numpy.py",
        "run: cargo xtask fizz",
        "run: cargo xtask ",
        "in: xtask/src/no_such_file.rs",
        "example: interop-core/src/adapters/cudarc/lend.rs::Lent",
        "example: xtask/src/guard.rs::Guard",
        "row: interop-ipc/tests/gpu/rows.rs::grow",
    ] {
        assert!(check(proof).is_err(), "{proof}");
    }
}
