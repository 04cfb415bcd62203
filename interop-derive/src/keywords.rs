//! The valid keywords and their positions, and suggestions for unknown ones.
//!
//! To add a word, follow the path of a struct through these places. `cargo xtask guard lists` finds them by `readonly` and `owner`.
//! * Here: the word in `STRUCT` or `FIELD`, and in `SYNONYMS` what users of other libraries would type.
//! * `interop-derive/src/attributes.rs`: an option that keeps the value with the word that set it. Don't return early, so that users
//!   see all mistakes. A word that gives a field a role is in `ROLES`.
//! * `interop-derive/src/cross_rules.rs`: one function for each rule that relates the word to others, listed at the top. A message
//!   states what was found and, as help, what to write.
//! * `interop-derive/src/pointer_rules.rs`: the same for the words beside a raw pointer.
//! * `interop-derive/src/struct_spec.rs`: `FILLING` if an import fills the field.
//! * `interop-derive/src/model.rs`, `interop-derive/src/resolve.rs`: what the word means once every default is chosen, and that choice.
//! * `interop-derive/src/expand.rs`: one more call of a hidden function of the core. Logic belongs there.
//! * `interop-core/src/derive`: that function, if it is for derived structs; one of all arrays is a method of `ArrayInfo`.
//! * `interop-derive/manual.md`: a row, which a test requires.
//! * `interop-core/src/guide`: the page of the subject, if somebody would look for the word there.
//! * `interop-derive/tests/golden`: a struct that uses the word; `cargo xtask bless expansions` writes its expansion.
//! * `interop-derive/tests/keyword_combinations.rs`, `interop-derive/tests/single_mistakes.rs`: the word among all others.
//! * `tests/derive`: structs that run, and in `tests/derive/ui` one struct for each mistake.

use quote::ToTokens;
use syn::Member;
use syn::ext::IdentExt;

/// The position of a `#[cuda_array(...)]` attribute.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Position {
    Struct,
    Field,
}

/// A keyword that is valid in one position.
pub(crate) struct Keyword {
    pub(crate) name: &'static str,
    /// How it is written.
    form: &'static str,
    /// Which struct or field it is written on.
    on: &'static str,
}

const fn on_struct(name: &'static str, form: &'static str) -> Keyword {
    Keyword { name, form, on: "the struct" }
}

const fn on_field(name: &'static str, on: &'static str) -> Keyword {
    Keyword { name, form: name, on }
}

const STRUCT: [Keyword; 9] = [
    on_struct("shape", "shape = [height, width, 3]"),
    on_struct("order", "order = \"C\""),
    on_struct("device", "device = \"cuda\""),
    on_struct("readonly", "readonly"),
    on_struct("export", "export"),
    on_struct("import", "import"),
    on_struct("python", "python"),
    on_struct("pyclass", "pyclass"),
    on_struct("crate", "crate = \"path\""),
];

const FIELD: [Keyword; 8] = [
    on_field("data", "the field that holds the memory"),
    on_field("inner", "the field that holds the array struct"),
    on_field("shape", "the field that holds the shape"),
    on_field("strides", "the field that holds the strides"),
    on_field("stream", "the field that holds the stream"),
    on_field("device", "the field that holds the device of the memory"),
    on_field("owner", "the field that keeps the memory alive"),
    on_field("default", "the field that an import fills with a default"),
];

/// The keywords, and the names that other libraries use for each.
const SYNONYMS: [(&str, &[&str]); 11] = [
    ("data", &["buffer", "memory", "pointer", "ptr", "storage"]),
    ("default", &["ignore", "skip"]),
    ("device", &["device_id", "ordinal"]),
    ("export", &["export_only", "no_import"]),
    ("import", &["import_only", "no_export"]),
    ("inner", &["flatten", "transparent"]),
    ("order", &["fortran", "layout", "row_major"]),
    ("owner", &["context", "keep_alive"]),
    ("python", &["py", "pyo3"]),
    ("shape", &["dim", "dims", "extent", "extents", "len", "length", "size"]),
    ("stream", &["cuda_stream"]),
];

/// Names without a keyword: where the information comes from, and the keyword that becomes uncertain.
const NOT_KEYWORDS: [(&[&str], &str, &str); 3] = [
    (
        &["dtype", "type", "typestr"],
        "the storage determines the element type, such as `f32` for `Vec<f32>`",
        "element",
    ),
    (
        &["mut", "mutable", "writable"],
        "the type of the `data` field determines who may write; `readonly` forbids all writes",
        "readonly",
    ),
    (&["ndim", "rank"], "the number of axes is the number of extents in `shape`", "shape"),
];

/// The options, how each is written, and the keyword that becomes uncertain if an option is written as a keyword.
pub(crate) const OPTIONS: [(&str, &str, &str); 3] = [
    ("bytes", "strides(bytes)", "bytes"),
    ("element", "data(unsafe_raw, element = f32)", "unsafe_raw"),
    ("unsafe_raw", "data(unsafe_raw)", "unsafe_raw"),
];

/// The explanation of an unknown keyword.
pub(crate) struct Unknown {
    pub(crate) found: String,
    pub(crate) help: String,
    /// The keyword that was probably intended.
    pub(crate) intended: Option<&'static str>,
}

impl Keyword {
    /// The explanation if this keyword, of another position, was intended.
    pub(crate) fn intended(&self, found: String) -> Unknown {
        let help = format!("write `#[cuda_array({})]` on {}", self.form, self.on);
        Unknown { found, help, intended: Some(self.name) }
    }
}

impl Position {
    fn words(self) -> &'static [Keyword] {
        match self {
            Self::Struct => &STRUCT,
            Self::Field => &FIELD,
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::Struct => Self::Field,
            Self::Field => Self::Struct,
        }
    }

    const fn noun(self) -> &'static str {
        match self {
            Self::Struct => "the struct",
            Self::Field => "a field",
        }
    }

    pub(crate) fn find(self, name: &str) -> Option<&'static Keyword> {
        self.words().iter().find(|word| word.name == name)
    }

    fn nearest(self, name: &str) -> Option<&'static Keyword> {
        nearest(name, self.words().iter().map(|word| word.name)).and_then(|name| self.find(name))
    }

    fn synonym(self, name: &str) -> Option<&'static Keyword> {
        let (intended, _) = SYNONYMS.iter().find(|(_, others)| others.contains(&name))?;
        self.find(intended)
    }

    /// Explains a keyword that is not valid in this position.
    pub(crate) fn explain(self, name: &str) -> Unknown {
        let other = self.other();
        let (here, there) = (self.noun(), other.noun());
        let list = list(self.words().iter().map(|word| word.name));
        if let Some(word) = other.find(name) {
            return word.intended(format!("`{name}` belongs on {there}, not on {here}"));
        }
        if let Some((_, place, uncertain)) = NOT_KEYWORDS.iter().find(|(names, ..)| names.contains(&name)) {
            let found = format!("unknown keyword `{name}`");
            return Unknown { found, help: format!("remove it: {place}"), intended: Some(uncertain) };
        }
        if let Some((_, form, uncertain)) = OPTIONS.iter().find(|(option, ..)| *option == name) {
            let found = format!("`{name}` is an option, not a keyword");
            let of = if name == "element" { " for an address; a storage knows its element type" } else { "" };
            return Unknown { found, help: format!("write `{form}`{of}"), intended: Some(uncertain) };
        }
        let found = format!("unknown keyword `{name}` on {here}");
        if let Some(word) = self.synonym(name).filter(|word| self == Self::Field && word.name == "shape") {
            let help = "write `shape` on a list of extents; name an integer field in `#[cuda_array(shape = [height, \
                        width])]` on the struct";
            return Unknown { found, help: help.to_string(), intended: Some(word.name) };
        }
        // `no_import` is similar to `import` and means the opposite, so synonyms are tried before similar names.
        if let Some(word) = self.synonym(name).or_else(|| self.nearest(name)) {
            let help = format!("write `{}`; {here} takes {list}", word.form);
            return Unknown { found, help, intended: Some(word.name) };
        }
        if let Some(word) = other.synonym(name).or_else(|| other.nearest(name)) {
            return word.intended(found);
        }
        Unknown { found, help: format!("{here} takes {list}"), intended: None }
    }
}

/// The options in the parentheses of `data(...)` and `strides(...)`.
pub(crate) const DATA_OPTIONS: [&str; 2] = ["unsafe_raw", "element"];
pub(crate) const STRIDES_OPTIONS: [&str; 1] = ["bytes"];

/// The name, if it is a keyword or an option of any position.
pub(crate) fn legal_name(name: &str) -> Option<&'static str> {
    let words = STRUCT.iter().chain(&FIELD).map(|word| word.name);
    words.chain(DATA_OPTIONS).chain(STRIDES_OPTIONS).find(|word| *word == name)
}

/// An example value of the keyword.
pub(crate) fn example(name: &str) -> &'static str {
    match name {
        "shape" => "[height, width, 3]",
        "order" => "\"C\"",
        "device" => "\"cuda\"",
        "crate" => "\"path::to::interop_core\"",
        "element" => "f32",
        "default" => "expression",
        _ => "value",
    }
}

/// The name of a field without `r#`, or its index in a tuple struct.
pub(crate) fn member_name(member: &Member) -> String {
    match member {
        Member::Named(name) => name.unraw().to_string(),
        Member::Unnamed(index) => index.index.to_string(),
    }
}

/// Formats tokens without the spaces that a token stream puts between them.
pub(crate) fn shown(tokens: impl ToTokens) -> String {
    let mut text = tokens.to_token_stream().to_string();
    for (spaced, written) in [
        (" :: ", "::"),
        (" ::< ", "::<"),
        ("> (", ">("),
        (" : ", ": "),
        (" < ", "<"),
        (" >", ">"),
        (" ,", ","),
        ("* mut ", "*mut "),
        ("* const ", "*const "),
        ("& ", "&"),
        (" . ", "."),
    ] {
        text = text.replace(spaced, written);
    }
    // A call or an item: `rows()`, `sizes[0]`.
    let mut joined = String::new();
    for part in text.split(' ') {
        let before = joined.rsplit(' ').next().unwrap_or_default();
        let is_name = before.ends_with(|last: char| last.is_alphanumeric() || last == '_')
            && !before.contains('\'')
            && !["as", "const", "dyn", "mut"].contains(&before.trim_start_matches(['&', '*']));
        let is_call = part.starts_with(['(', '[']) && is_name;
        if !joined.is_empty() && !is_call {
            joined.push(' ');
        }
        joined += part;
    }
    joined
}

/// Formats `a`; `a` or `b`; `a`, `b` or `c`, each in backticks.
pub(crate) fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    join(names, "or")
}

/// Formats names in backticks with commas, the last two joined by `last`.
pub(crate) fn join<'a>(names: impl Iterator<Item = &'a str>, last: &str) -> String {
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    match names.split_last() {
        Some((end, rest)) if !rest.is_empty() => format!("{} {last} {end}", rest.join(", ")),
        _ => names.concat(),
    }
}

/// The name in `legal` of which `name` is a misspelling: at most one edit in three letters.
pub(crate) fn nearest<'a>(name: &str, legal: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    legal
        .map(|word| (distance(&name, &word.to_lowercase()), word))
        .filter(|(edits, word)| *edits <= word.chars().count().max(name.chars().count()).div_ceil(3))
        .filter(|(edits, word)| *edits < word.chars().count())
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, word)| word)
}

/// Whether `name` is a misspelling of `word`.
pub(crate) fn is_misspelt(name: &str, word: &str) -> bool {
    // Compare cheaply first: most names are equal or very different.
    name != word && name.len().abs_diff(word.len()) <= 2 && distance(&name.to_lowercase(), word) <= 2
}

/// The number of inserted, removed, replaced or swapped letters between `a` and `b`.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (row, left) in a.iter().enumerate() {
        let mut line = vec![row + 1];
        for (column, right) in b.iter().enumerate() {
            let replaced = above[column] + usize::from(left != right);
            let mut best = replaced.min(above[column + 1] + 1).min(line[column] + 1);
            if row > 0 && column > 0 && *left == b[column - 1] && a[row - 1] == *right {
                best = best.min(before[column - 1] + 1);
            }
            line.push(best);
        }
        before = std::mem::replace(&mut above, line);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use proc_macro2::TokenStream;
    use syn::parse_quote;

    use super::{Position, distance, join, nearest, shown};
    use crate::attributes::{ContainerAttrs, FieldAttrs};
    use crate::errors::Errors;

    #[test]
    fn distance_counts_edits_and_swaps() {
        for (a, b, edits) in
            [("", "", 0), ("", "abc", 3), ("data", "data", 0), ("daat", "data", 1), ("abc", "ca", 3)]
        {
            assert_eq!(distance(a, b), edits, "{a} {b}");
        }
    }

    #[test]
    fn nearest_finds_misspellings_and_nothing_else() {
        let words = ["height", "width", "n"];
        assert_eq!(nearest("heigth", words.into_iter()), Some("height"));
        assert_eq!(nearest("Width", words.into_iter()), Some("width"));
        assert_eq!(nearest("channels", words.into_iter()), None);
        assert_eq!(nearest("m", words.into_iter()), None);
    }

    #[test]
    fn every_misspelling_by_one_letter_is_understood() {
        for place in [Position::Struct, Position::Field] {
            for word in place.words() {
                for cut in 0..word.name.len() {
                    let name = format!("{}{}", &word.name[..cut], &word.name[cut + 1..]);
                    if place.find(&name).is_none() && place.other().find(&name).is_none() {
                        assert_eq!(place.explain(&name).intended, Some(word.name), "{name}");
                    }
                }
            }
        }
    }

    #[test]
    fn synonyms_lead_to_legal_words_and_are_none_themselves() {
        for (intended, names) in super::SYNONYMS {
            assert!(super::legal_name(intended).is_some(), "{intended}");
            assert!(names.iter().all(|name| super::legal_name(name).is_none()), "{intended}");
        }
    }

    #[test]
    fn every_word_is_read_as_it_is_written() {
        for place in [Position::Struct, Position::Field] {
            for word in place.words() {
                let form: TokenStream = word.form.parse().unwrap();
                let attrs = [parse_quote!(#[cuda_array(#form)])];
                let mut errors = Errors::new();
                match place {
                    Position::Struct => drop(ContainerAttrs::read(&attrs, &mut errors)),
                    Position::Field => drop(FieldAttrs::read(&attrs, &mut errors)),
                }
                assert!(errors.finish().is_none(), "`{form}` on {}", place.noun());
            }
        }
    }

    #[test]
    fn every_word_has_its_row_in_the_manual() {
        let (tables, _) = include_str!("../manual.md").split_once("\n# Data").expect("it follows the words");
        let (on_struct, on_field) = tables.split_once("\n| on a field ").expect("two tables");
        for (place, table) in [(Position::Struct, on_struct), (Position::Field, on_field)] {
            let named = table.lines().filter_map(|row| row.strip_prefix("| ")?.split('|').next());
            let named: Vec<&str> =
                named.flat_map(|cell| cell.split(|c: char| !c.is_alphanumeric())).collect();
            for word in place.words() {
                assert!(named.contains(&word.name), "no row for `{}` on {}", word.name, place.noun());
            }
        }
    }

    #[test]
    fn tokens_are_shown_as_they_are_written() {
        for written in [
            "*mut f32",
            "std::ptr::NonNull<f32>",
            "HashMap<String, Vec<u8>>",
            "&'static [f32]",
            "self.height",
            "self.rows(1)",
            "2 * self.sizes[0]",
        ] {
            let tokens: TokenStream = written.parse().unwrap();
            assert_eq!(shown(tokens), written);
        }
    }

    #[test]
    fn lists_read_as_english() {
        assert_eq!(join([].into_iter(), "and"), "");
        assert_eq!(join(["a"].into_iter(), "and"), "`a`");
        assert_eq!(join(["a", "b"].into_iter(), "and"), "`a` and `b`");
        assert_eq!(join(["a", "b", "c"].into_iter(), "or"), "`a`, `b` or `c`");
    }
}
