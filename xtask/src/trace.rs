//! `cargo xtask trace`: prints which tests prove each protocol rule, and which find each fault of other libraries.

mod ledger;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use crate::failure::Failure;
use crate::{files, workspace};
use ledger::{Entry, Proof, Section};

const LEDGER: &str = "tests/conformance/traceability.toml";

/// Prints the table as Markdown: of all rules, or of those whose ids are given.
pub(crate) fn run(ids: &[String]) -> Result<(), Failure> {
    let entries = checked()?;
    if let Some(unknown) = ids.iter().find(|id| entries.iter().all(|entry| entry.id != **id)) {
        return Err(Failure::new(format!("{LEDGER} has no rule `{unknown}`")));
    }
    println!("{}", table(&entries, ids));
    Ok(())
}

/// Returns the entries, after checking that every id is known and unique, and that every test exists.
fn checked() -> Result<Vec<Entry>, Failure> {
    let entries =
        ledger::parse(&read(LEDGER)?).map_err(|error| Failure::new(format!("{LEDGER}: {error}")))?;
    let mut faults = faults_of_ids(&entries);
    for entry in &entries {
        for proof in &entry.proofs {
            let answer = match proof {
                Proof::Test { file, function } => {
                    exists(file, function.as_deref()).map_err(|why| format!("{file}: {why}"))
                }
                Proof::Command(command) => is_command(command),
                Proof::NotApplicable(_) | Proof::Open(_) => Ok(()),
            };
            faults.extend(answer.err().map(|why| format!("{}: {why}", entry.id)));
        }
    }
    if !faults.is_empty() {
        return Err(Failure::new(format!("{LEDGER}:\n    {}", faults.join("\n    "))));
    }
    Ok(entries)
}

/// Returns the problems with ids: missing, duplicate, or of an unknown section.
fn faults_of_ids(entries: &[Entry]) -> Vec<String> {
    let mut missing: BTreeSet<(Section, u32)> = Section::ALL
        .into_iter()
        .flat_map(|section| (1..=section.last()).map(move |number| (section, number)))
        .collect();
    let mut faults = Vec::new();
    for entry in entries {
        let Entry { section, id, .. } = entry;
        let number = id.strip_prefix(section.letter()).and_then(|number| number.parse().ok());
        if !number.is_some_and(|number| missing.remove(&(*section, number))) {
            faults.push(format!("{id}: unknown in this section, or there twice"));
        }
    }
    faults.extend(missing.iter().map(|(section, number)| format!("{}{number}: missing", section.letter())));
    faults
}

/// Checks that a test exists. The error states what is wrong.
fn exists(file: &str, function: Option<&str>) -> Result<(), String> {
    let path = workspace::root().join(file);
    let text = fs::read_to_string(&path).map_err(|error| error.to_string())?;
    let extension = path.extension().and_then(|extension| extension.to_str());
    match (extension, function) {
        (Some("rs"), None) if path.with_extension("stderr").exists() => Ok(()),
        (Some("rs"), None) => Err("no message of the derive, so it needs `::function`".into()),
        (Some("rs"), Some(name)) if is_rust_test(&text, name) => Ok(()),
        (Some("py"), Some(name)) if text.contains(&format!("\ndef {name}(")) => Ok(()),
        (_, name) => Err(format!("no test `{}` in it", name.unwrap_or_default())),
    }
}

/// Checks that the project has this command. The error states what is wrong.
fn is_command(command: &str) -> Result<(), String> {
    let name = command.split_whitespace().next().unwrap_or_default();
    let known = crate::COMMANDS.iter().any(|command| command.name == name);
    if known { Ok(()) } else { Err(format!("there is no command `cargo xtask {name}`")) }
}

/// Whether a source contains a function with this name and `#[test]` in the lines above it.
fn is_rust_test(text: &str, name: &str) -> bool {
    let head = format!("fn {name}(");
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.iter().enumerate().filter(|(_, line)| line.starts_with(&head)).any(|(at, _)| {
        let above = lines[..at].iter().rev().take_while(|line| !line.is_empty() && !line.ends_with('}'));
        above.clone().any(|line| *line == "#[test]")
    })
}

/// How far an entry is proven.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Proven,
    /// By tests that run only on a GPU.
    OnGpu,
    /// By a separate command, in addition to what every test run checks.
    ByCommand,
    InPart,
    Open,
    NotApplicable,
}

impl State {
    const ALL: [Self; 6] =
        [Self::Proven, Self::OnGpu, Self::ByCommand, Self::InPart, Self::Open, Self::NotApplicable];

    fn word(self) -> &'static str {
        match self {
            Self::Proven => "proven",
            Self::OnGpu => "proven on a GPU",
            Self::ByCommand => "proven by a command",
            Self::InPart => "in part",
            Self::Open => "open",
            Self::NotApplicable => "cannot apply",
        }
    }
}

fn state(entry: &Entry) -> State {
    let has = |wanted: fn(&Proof) -> bool| entry.proofs.iter().any(wanted);
    let (open, command) =
        (has(|proof| matches!(proof, Proof::Open(_))), has(|proof| matches!(proof, Proof::Command(_))));
    let tests = entry.proofs.iter().filter_map(|proof| match proof {
        Proof::Test { file, .. } => Some(file.starts_with("tests/gpu/")),
        _ => None,
    });
    let (some, here) = (tests.clone().count() > 0, tests.clone().any(|gpu| !gpu));
    match (some || command, open) {
        (true, true) => State::InPart,
        (true, false) if command => State::ByCommand,
        (true, false) if here => State::Proven,
        (true, false) => State::OnGpu,
        (false, true) => State::Open,
        (false, false) => State::NotApplicable,
    }
}

/// Returns the number of entries in each state.
fn summary(entries: &[Entry]) -> String {
    let count = |wanted| entries.iter().filter(|entry| state(entry) == wanted).count();
    let words = State::ALL.map(|state| format!("{} {}", count(state), state.word()));
    format!("{} rules: {}", entries.len(), words.join(", "))
}

/// Returns the table as Markdown, of all rules if no ids are given.
fn table(entries: &[Entry], ids: &[String]) -> String {
    let mut text = format!("{}\n", summary(entries));
    for section in Section::ALL {
        let wanted = |entry: &&Entry| entry.section == section && (ids.is_empty() || ids.contains(&entry.id));
        if entries.iter().any(|entry| wanted(&entry)) {
            let _ = write!(
                text,
                "\n## {}\n\n| id | rule | state | proof |\n|---|---|---|---|\n",
                section.title()
            );
        }
        for entry in entries.iter().filter(wanted) {
            let proofs: Vec<String> = entry.proofs.iter().map(cell).collect();
            let (rule, state) = (escaped(&entry.rule), state(entry).word());
            let _ = writeln!(text, "| {} | {rule} | {state} | {} |", entry.id, proofs.join("<br>"));
        }
    }
    text
}

/// Formats a proof for the table.
fn cell(proof: &Proof) -> String {
    match proof {
        Proof::Test { file, function } => {
            let function = function.as_ref().map(|name| format!("::{name}")).unwrap_or_default();
            format!("`{file}{function}`")
        }
        Proof::Command(command) => format!("`cargo xtask {command}`"),
        Proof::NotApplicable(why) => escaped(why),
        Proof::Open(what) => format!("*open:* {}", escaped(what)),
    }
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

fn read(file: &str) -> Result<String, Failure> {
    files::read(&workspace::root().join(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_has_a_proof_that_exists() {
        let entries = checked().unwrap_or_else(|failure| panic!("{failure}"));
        let is_row = |line: &&str| line.starts_with("| R") || line.starts_with("| B");
        let rows = |ids: &[String]| table(&entries, ids).lines().filter(is_row).count();
        assert_eq!(rows(&[]), entries.len());
        assert_eq!(rows(&["R9".into(), "B1".into()]), 2);
    }

    #[test]
    fn ids_are_there_once() {
        let entries = |text: &str| ledger::parse(text).expect("a ledger");
        let whole: String = (1..=180).fold("[requirements]\n".into(), |text, number| {
            format!("{text}R{number} = [\"a rule\", \"open: a test\"]\n")
        });
        let faults = faults_of_ids(&entries(&whole));
        assert_eq!((faults.len(), faults[0].as_str()), (189, "B1: missing"));
        let faults = faults_of_ids(&entries(&format!("{whole}R7 = [\"again\", \"open: a test\"]\n")));
        assert_eq!(faults[0], "R7: unknown in this section, or there twice");
        assert_eq!(faults_of_ids(&entries(&format!("{whole}R181 = [\"x\", \"n/a: y\"]"))).len(), 190);
    }

    #[test]
    fn tests_are_found_by_name() {
        assert!(exists("xtask/src/trace.rs", Some("tests_are_found_by_name")).is_ok());
        assert!(exists("xtask/src/trace.rs", Some("exists")).is_err(), "no test");
        assert!(exists("xtask/src/trace.rs", None).is_err(), "no message");
        assert!(exists("xtask/src/no_such_file.rs", Some("tests_are_found_by_name")).is_err());
        assert!(exists("tests/derive/ui/missing/owner.rs", None).is_ok());
        assert!(exists("tests/python/test_numpy.py", Some("test_there_and_back")).is_ok());
        assert!(exists("tests/python/test_numpy.py", Some("there_and_back")).is_err());
        assert!(is_command("fuzz 60 dict").is_ok());
        assert!(is_command("fizz").is_err() && is_command("").is_err());
    }
}
