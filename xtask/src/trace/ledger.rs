//! Parses the ledger `traceability.toml`. Each line is an entry: `R1 = ["the rule", "file::function", "open: …"]`.
//!
//! The format is valid TOML, but only this subset is parsed, because a full TOML parser would be a dependency.

/// The two lists of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Section {
    Requirements,
    Faults,
}

impl Section {
    pub(super) const ALL: [Self; 2] = [Self::Requirements, Self::Faults];

    /// The first letter of the ids.
    pub(super) fn letter(self) -> &'static str {
        match self {
            Self::Requirements => "R",
            Self::Faults => "B",
        }
    }

    /// The number of the last id.
    pub(super) fn last(self) -> u32 {
        match self {
            Self::Requirements => 180,
            Self::Faults => 189,
        }
    }

    /// The heading in the table.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Requirements => "Requirements of the protocols",
            Self::Faults => "Faults that other libraries had",
        }
    }
}

/// One line of the ledger.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) section: Section,
    pub(super) id: String,
    /// The rule in a few words.
    pub(super) rule: String,
    pub(super) proofs: Vec<Proof>,
}

/// What proves a rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// A test that fails if the rule is broken. Without a function, it is a test of a compiler message of the derive.
    Test { file: String, function: Option<String> },
    /// A command of the project that fails if the rule is broken, but takes too long or needs too much for every test
    /// run. It is the part after `cargo xtask`.
    Command(String),
    /// The reason why the rule cannot be broken here.
    NotApplicable(String),
    /// A description of the missing proof.
    Open(String),
}

/// Parses the entries of a ledger. The error names the line and the problem.
pub(super) fn parse(text: &str) -> Result<Vec<Entry>, String> {
    let mut section = None;
    let mut entries = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let fail = |why: &str| format!("line {}: {why}", number + 1);
        match line.trim() {
            "" => {}
            comment if comment.starts_with('#') => {}
            "[requirements]" => section = Some(Section::Requirements),
            "[faults]" => section = Some(Section::Faults),
            line => {
                let section = section.ok_or_else(|| fail("an entry before the first section"))?;
                entries.push(entry(section, line).map_err(|why| fail(&why))?);
            }
        }
    }
    Ok(entries)
}

fn entry(section: Section, line: &str) -> Result<Entry, String> {
    let (id, list) = line.split_once(" = ").ok_or("no ` = `")?;
    let list =
        list.strip_prefix("[\"").and_then(|list| list.strip_suffix("\"]")).ok_or("no list of texts")?;
    let mut texts = list.split("\", \"");
    let rule = texts.next().filter(|rule| !rule.is_empty()).ok_or("no rule")?;
    let proofs: Vec<Proof> = texts.map(proof).collect();
    if proofs.is_empty() {
        return Err(format!("{id}: neither a test nor a reason"));
    }
    if list.contains('\\') || list.split("\", \"").any(|text| text.contains('"')) {
        return Err(format!("{id}: texts have no quotes and no backslashes"));
    }
    let alone = proofs.iter().any(|proof| matches!(proof, Proof::NotApplicable(_)));
    if alone && proofs.len() > 1 {
        return Err(format!("{id}: what cannot apply has no tests and nothing open"));
    }
    Ok(Entry { section, id: id.into(), rule: rule.into(), proofs })
}

fn proof(text: &str) -> Proof {
    if let Some(why) = text.strip_prefix("n/a: ") {
        return Proof::NotApplicable(why.into());
    }
    if let Some(command) = text.strip_prefix("run: cargo xtask ") {
        return Proof::Command(command.into());
    }
    if let Some(what) = text.strip_prefix("open: ") {
        return Proof::Open(what.into());
    }
    let (file, function) = text.split_once("::").map_or((text, None), |(file, name)| (file, Some(name)));
    Proof::Test { file: file.into(), function: function.map(Into::into) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_an_entry() {
        let text = "# a comment\n[faults]\nB7 = [\"a rule\", \"a.rs::b\", \"ui/c.rs\", \"run: cargo xtask fuzz 9\", \
                    \"open: a GPU\"]\n";
        let entries = parse(text).expect("a ledger");
        let [Entry { section, id, rule, proofs }] = entries.as_slice() else { panic!("{entries:?}") };
        assert_eq!((*section, id.as_str(), rule.as_str()), (Section::Faults, "B7", "a rule"));
        let named = |file: &str, function: Option<&str>| Proof::Test {
            file: file.into(),
            function: function.map(Into::into),
        };
        let [command, open] = [Proof::Command("fuzz 9".into()), Proof::Open("a GPU".into())];
        assert_eq!(*proofs, [named("a.rs", Some("b")), named("ui/c.rs", None), command, open]);
    }

    #[test]
    fn other_lines_are_refused_by_their_number() {
        for (text, why) in [
            ("R1 = [\"a\", \"b\"]", "line 1: an entry before the first section"),
            ("[faults]\nB1 [\"a\"]", "line 2: no ` = `"),
            ("[faults]\nB1 = \"a\"", "line 2: no list of texts"),
            ("[faults]\nB1 = [\"\", \"b\"]", "line 2: no rule"),
            ("[faults]\nB1 = [\"a\"]", "line 2: B1: neither a test nor a reason"),
            ("[faults]\nB1 = [\"a\", \"n/a: b\", \"c\"]", "line 2: B1: what cannot apply"),
            ("[faults]\nB1 = [\"a\",\"b\"]", "line 2: B1: neither"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.starts_with(why), "{text}: {error}");
        }
    }
}
