//! `cargo xtask guard lists`: the lists of places that a new keyword, element type, storage and so on touches.
//!
//! Each list is a comment at the top of the file that one opens first. It has an item for each place: files and folders, and what to
//! do there. Examples find the places: things of that kind that are there already. A file that names an example must be below a place
//! of the list, and each place must name an example. A word in backticks in an item must be in its place. So a list stays true while
//! files are added, moved and split.

use crate::failure::Failure;
use crate::test_counts::Counts;
use crate::{files, workspace};

/// A kind of thing that is added often.
struct Checklist {
    /// The file with the list.
    home: &'static str,
    examples: &'static [Example],
}

/// Something of the kind that is there already.
struct Example {
    /// How code and tests spell it. No spelling is a part of a longer word.
    spellings: &'static [&'static str],
    /// The folders and files in which these spellings mean the example.
    below: &'static [&'static str],
}

const EVERYWHERE: &[&str] = &[""];

const CHECKLISTS: [Checklist; 6] = [
    Checklist {
        home: "interop-derive/src/keywords.rs",
        examples: &[
            Example {
                spellings: &["readonly"],
                below: &[
                    "interop-derive",
                    "interop-core/src/derive",
                    "interop-core/src/guide",
                    "tests/derive",
                ],
            },
            Example { spellings: &["owner"], below: &["interop-derive", "tests/derive"] },
        ],
    },
    Checklist {
        home: "interop-core/src/array/dtype.rs",
        examples: &[
            Example {
                spellings: &["float8_e5m2", "F8_E5M2", "float4_e2m1fn", "F4_E2M1FN", "MiniFloat"],
                below: EVERYWHERE,
            },
            Example { spellings: &["complex64", "COMPLEX64", "Complex64", "num-complex"], below: EVERYWHERE },
            Example { spellings: &["bf16"], below: &["interop-kernel", "interop-core/src/guide"] },
        ],
    },
    Checklist {
        home: "interop-core/src/protocols/dlpack/abi.rs",
        examples: &[
            Example {
                spellings: &["FLAG_IS_COPIED", "DLPACK_FLAG_BITMASK_IS_COPIED", "IS_COPIED"],
                below: EVERYWHERE,
            },
            Example {
                spellings: &["FLAG_SUBBYTE_PADDED", "DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED", "PADDED"],
                below: EVERYWHERE,
            },
            Example { spellings: &["padded", "is_padded"], below: &["interop-core/src"] },
            Example { spellings: &["manager_ctx", "MINOR_VERSION"], below: EVERYWHERE },
            Example { spellings: &["is_padded"], below: &["interop-ipc/src/message.rs"] },
        ],
    },
    Checklist {
        home: "interop-core/src/adapters/mod.rs",
        examples: &[
            Example { spellings: &["CudaSlice", "cudarc::", "\"cudarc\"", "dep:cudarc"], below: EVERYWHERE },
            Example { spellings: &["ndarray::", "feature = \"ndarray\"", "dep:ndarray"], below: EVERYWHERE },
        ],
    },
    Checklist {
        home: "interop-core/src/driver/functions.rs",
        examples: &[
            Example { spellings: &["cuStreamGetCtx"], below: EVERYWHERE },
            Example { spellings: &["cuCtxRecordEvent"], below: EVERYWHERE },
        ],
    },
    Checklist {
        home: "tests/gpu/partners.py",
        examples: &[
            Example { spellings: &["dali", "Dali", "DALI"], below: EVERYWHERE },
            Example {
                spellings: &["Package::CuPy", "\"CuPy\"", "CUPY_ARRAY", "Self::Warp"],
                below: &["interop-core/src/python"],
            },
        ],
    },
];

/// What is no place: builds, what was true of earlier versions, and the spellings above.
const LEFT_OUT: [&str; 4] = ["target", "__pycache__", "CHANGELOG.md", "checklists.rs"];

/// The endings of the files that are read.
const TEXTS: [&str; 11] = ["rs", "py", "pyi", "toml", "yml", "md", "txt", "c", "cpp", "h", "sh"];

/// A file of the repository.
struct Source {
    /// Its path with slashes.
    path: String,
    text: String,
}

/// Checks all lists, each as a test.
pub(crate) fn check(counts: &mut Counts) -> Result<(), Failure> {
    let mut sources = Vec::new();
    read_below("", &mut sources)?;
    let faults: Vec<_> = CHECKLISTS.iter().map(|list| list.faults(&sources)).collect();
    counts.failed = faults.iter().filter(|faults| !faults.is_empty()).count() as u64;
    counts.passed = faults.len() as u64 - counts.failed;
    let faults = faults.concat();
    if faults.is_empty() {
        return Ok(());
    }
    let advice =
        "an item says what a new thing of that kind needs there, if only \"nothing\": * `path`: what to do";
    Err(Failure::new(format!("{advice}\n    {}", faults.join("\n    "))))
}

/// Reads the files of a folder of the repository.
fn read_below(folder: &str, sources: &mut Vec<Source>) -> Result<(), Failure> {
    for file in files::entries(&workspace::root().join(folder))? {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let is_hidden = name.starts_with('.') && name != ".github" && name != ".cargo";
        if is_hidden || LEFT_OUT.contains(&&*name) {
            continue;
        }
        let path = if folder.is_empty() { name.to_string() } else { format!("{folder}/{name}") };
        if file.is_dir() {
            read_below(&path, sources)?;
        } else if TEXTS.iter().any(|ending| file.extension().is_some_and(|extension| extension == *ending)) {
            sources.push(Source { path, text: files::read(&file)? });
        }
    }
    Ok(())
}

impl Checklist {
    /// Returns what is wrong with the list.
    fn faults(&self, sources: &[Source]) -> Vec<String> {
        let home = sources.iter().find(|source| source.path == self.home);
        let items = home.map(|home| items(&home.text)).unwrap_or_default();
        if items.is_empty() {
            return vec![format!("{}: there is no list of places", self.home)];
        }
        let places: Vec<&String> = items.iter().flat_map(|item| &item.places).collect();
        let named = sources.iter().filter_map(|source| Some((&source.path, self.named_in(source)?)));
        let named: Vec<_> = named.collect();
        let mut faults = Vec::new();
        for (path, spelling) in &named {
            if *path != self.home && !places.iter().any(|place| is_below(path, place)) {
                faults.push(format!("no item for {path}, which has `{spelling}`"));
            }
        }
        for place in places {
            if !named.iter().any(|(path, _)| is_below(path, place)) {
                faults.push(format!("nothing in {place} names an example"));
            }
        }
        faults.extend(items.iter().flat_map(|item| item.unknown_words(self.home, sources)));
        faults.into_iter().map(|fault| format!("{}: {fault}", self.home)).collect()
    }

    /// Returns the first spelling of an example that a file has.
    fn named_in(&self, source: &Source) -> Option<&'static str> {
        let examples = self.examples.iter();
        let examples =
            examples.filter(|example| example.below.iter().any(|place| is_below(&source.path, place)));
        let mut spellings = examples.flat_map(|example| example.spellings).copied();
        spellings.find(|spelling| has_word(&source.text, spelling))
    }
}

/// Whether a path is this file or folder, or below it.
fn is_below(path: &str, place: &str) -> bool {
    path.strip_prefix(place).is_some_and(|rest| place.is_empty() || rest.is_empty() || rest.starts_with('/'))
}

/// Whether a text has a spelling that is no part of a longer word.
fn has_word(text: &str, spelling: &str) -> bool {
    let is_letter =
        |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    let (first, last) = (is_letter(spelling.chars().next()), is_letter(spelling.chars().next_back()));
    text.match_indices(spelling).any(|(at, _)| {
        let (before, after) = (text[..at].chars().next_back(), text[at + spelling.len()..].chars().next());
        !(first && is_letter(before) || last && is_letter(after))
    })
}

/// Returns what stands in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// A line of a list: `` * `place`, `place`: what to do there ``.
struct Item {
    /// The files and folders; none for the file of the list itself.
    places: Vec<String>,
    /// What to do there.
    text: String,
}

/// Splits off the list of a file: the lines of a comment from the one with `To add a` to an empty one. The rest follows them.
fn split_list(text: &str) -> (Vec<&str>, String) {
    let (before, list) = text.split_once("To add a").unwrap_or((text, ""));
    let is_empty = |line: &&str| line.trim_start_matches(['/', '!', '#']).trim().is_empty();
    let lines: Vec<&str> = list.lines().take_while(|line| !is_empty(line)).collect();
    let after = list.lines().skip(lines.len());
    let rest = before.lines().chain(after).collect::<Vec<_>>().join("\n");
    (lines, rest)
}

/// Returns the items of a list.
fn items(text: &str) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    for line in split_list(text).0 {
        let line = line.trim_start_matches(['/', '!', '#']).trim();
        if let Some(item) = line.strip_prefix("* ") {
            let (places, text) = item.split_once(':').unwrap_or((item, ""));
            items.push(Item { places: quoted(places).map(str::to_owned).collect(), text: text.to_owned() });
        } else if let Some(item) = items.last_mut() {
            item.text.push(' ');
            item.text.push_str(line);
        }
    }
    items
}

impl Item {
    /// Returns the words in backticks that are neither in a place of the item nor a file.
    fn unknown_words(&self, home: &str, sources: &[Source]) -> Vec<String> {
        let is_file = |word: &str| {
            let is_named = |source: &Source| source.path.ends_with(word) || is_below(&source.path, word);
            sources.iter().any(is_named)
        };
        let is_place = |path: &str| match self.places[..] {
            [] => path == home,
            _ => self.places.iter().any(|place| is_below(path, place)),
        };
        let here = sources.iter().filter(|source| is_place(&source.path));
        let texts: Vec<_> = here.map(|source| split_list(&source.text).1).collect();
        let is_there = |word: &str| {
            let name = word.rsplit("::").next().unwrap_or(word).trim_end_matches('!');
            texts.iter().any(|text| has_word(text, name))
        };
        let words = quoted(&self.text).filter(|word| !word.starts_with("cargo xtask "));
        let unknown = words.filter(|word| !is_there(word) && !is_file(word));
        unknown.map(|word| format!("`{word}` is not in {}", self.places.join(", "))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_list_has_the_places_of_its_examples() {
        let mut counts = Counts::default();
        check(&mut counts).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(counts.passed, 6);
    }

    /// Each list is at the place to which CONTRIBUTING leads.
    #[test]
    fn contributing_leads_to_every_list() {
        let page = files::read(&workspace::root().join("CONTRIBUTING.md")).expect("the page");
        for Checklist { home, .. } in &CHECKLISTS {
            assert!(page.contains(&format!("| `{home}` |")), "CONTRIBUTING.md has no row with `{home}`");
        }
    }

    const LIST: &str = "//! To add a fruit: by `apple`.\n//! * Here: a row of `FRUITS`.\n//! * `shop/a.rs`, `shop/b`: a\n//!   \
                        `price`.\n//!\n//! * `other`: no item\n\nconst FRUITS: u8 = 0;";

    /// Returns the faults of `LIST` with these files beside it.
    fn faults(list: &str, others: &[(&str, &str)]) -> Vec<String> {
        let sources = [("home.rs", list)].into_iter().chain(others.iter().copied());
        let sources = sources.map(|(path, text)| Source { path: path.to_owned(), text: text.to_owned() });
        let examples = &[Example { spellings: &["apple", "\"pear\""], below: &["shop", "yard.rs"] }];
        Checklist { home: "home.rs", examples }.faults(&sources.collect::<Vec<_>>())
    }

    #[test]
    fn places_and_lists_that_differ_are_found() {
        let (a, b) = (("shop/a.rs", "apple price"), ("shop/b/c.rs", "(\"pear\")"));
        assert_eq!(faults(LIST, &[a, b]), [""; 0]);
        assert_eq!(faults(LIST, &[a, b, ("shop/b/d.rs", ""), ("street.rs", "apple")]), [""; 0]);
        assert_eq!(
            faults(LIST, &[a, b, ("shop/bc.rs", "apple")]),
            ["home.rs: no item for shop/bc.rs, which has `apple`"]
        );
        assert_eq!(faults(LIST, &[a]), ["home.rs: nothing in shop/b names an example"]);
        assert_eq!(
            faults(LIST, &[("shop/a.rs", "apple_1 apples"), b]),
            [
                "home.rs: nothing in shop/a.rs names an example",
                "home.rs: `price` is not in shop/a.rs, shop/b"
            ]
        );
        assert_eq!(faults(&LIST.replace("FRUITS:", "FRUIT:"), &[a, b]), ["home.rs: `FRUITS` is not in "]);
        assert_eq!(faults("//! a fruit", &[a, b]), ["home.rs: there is no list of places"]);
    }
}
