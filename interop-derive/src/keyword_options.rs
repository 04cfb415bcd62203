//! The options of a keyword: `data(unsafe_raw, element = f32)` and `strides(bytes)`.

use syn::Type;

use crate::attribute_syntax::{self, KeywordEntry, Set, Value, flag, set};
use crate::errors::Errors;
use crate::keywords::{DATA_OPTIONS, OPTIONS, Position, STRIDES_OPTIONS, Unknown, list, nearest};

/// The options of `data(...)`.
#[derive(Default)]
pub(crate) struct DataOptions {
    pub(crate) unsafe_raw: Option<Set<()>>,
    pub(crate) element: Option<Set<Type>>,
}

pub(crate) fn data(entry: &KeywordEntry, errors: &mut Errors) -> DataOptions {
    let mut read = DataOptions::default();
    let Some(options) = options(entry, "data(unsafe_raw)` for a raw pointer", errors) else {
        return read;
    };
    for option in options {
        match option.word.to_string().as_str() {
            "unsafe_raw" => flag(&mut read.unsafe_raw, option, errors),
            "element" => {
                let ty = element(&option, errors);
                set(&mut read.element, option.word, ty, errors);
            }
            _ => unknown(&option, "data", &DATA_OPTIONS, errors),
        }
    }
    read
}

fn element(option: &KeywordEntry, errors: &mut Errors) -> Option<Type> {
    if let Value::Given(tokens) = &option.value {
        if let Ok(ty) = syn::parse2(tokens.clone()) {
            return Some(ty);
        }
    }
    errors.push(
        &option.word,
        "`element` has no type",
        "write `element = f32`, with the element type of the memory",
    );
    errors.mark_uncertain(Some("element"));
    None
}

/// Whether the strides are in bytes.
pub(crate) fn strides(entry: &KeywordEntry, errors: &mut Errors) -> bool {
    let mut bytes = None;
    for option in options(entry, "strides(bytes)` when they are in bytes", errors).unwrap_or_default() {
        match option.word.to_string().as_str() {
            "bytes" => flag(&mut bytes, option, errors),
            "elements" => errors.push(
                &option.word,
                "strides are in elements unless `bytes` is written",
                "write `strides`",
            ),
            _ => unknown(&option, "strides", &STRIDES_OPTIONS, errors),
        }
    }
    bytes.is_some()
}

/// The options in the parentheses of a keyword; `form` completes the help with another spelling.
fn options(entry: &KeywordEntry, form: &str, errors: &mut Errors) -> Option<Vec<KeywordEntry>> {
    let word = &entry.word;
    let found = match &entry.value {
        Value::None => return None,
        Value::List(group) if group.stream().is_empty() => {
            format!("`{word}` has empty parentheses")
        }
        Value::List(group) => return Some(attribute_syntax::entries(group.stream(), errors)),
        Value::Given(_) => format!("`{word}` takes no value"),
    };
    errors.push(word, found, format_args!("write `{word}`, or `{form}"));
    // This may be the intended option.
    errors.mark_uncertain(Some("unsafe_raw"));
    None
}

fn unknown(option: &KeywordEntry, word: &str, legal: &[&'static str], errors: &mut Errors) {
    let has_value = matches!(option.value, Value::Given(_));
    let unknown = explain(&option.word.to_string(), has_value, word, legal);
    errors.push(&option.word, unknown.found, unknown.help);
    errors.mark_uncertain(unknown.intended);
    if unknown.intended == Some("element") {
        // The two options belong together, so the help writes both.
        errors.mark_uncertain(Some("unsafe_raw"));
    }
}

/// The options, and common wrong names of each.
const OPTION_SYNONYMS: [(&str, &[&str]); 2] =
    [("element", &["dtype", "element_type", "item", "ty", "type", "typestr"]), ("unsafe_raw", &["raw"])];

/// Explains an option that `word` does not have.
fn explain(name: &str, has_value: bool, word: &str, legal: &[&'static str]) -> Unknown {
    let found = format!("unknown option `{name}` of `{word}`");
    let known = |option: &str| legal.iter().copied().find(|known| *known == option);
    let synonym = OPTION_SYNONYMS
        .iter()
        .find(|(_, others)| others.contains(&name))
        .and_then(|(intended, _)| known(intended));
    if let Some(intended) = synonym.or_else(|| nearest(name, legal.iter().copied())) {
        let form =
            OPTIONS.iter().find(|(option, ..)| *option == intended).map_or(intended, |(_, form, _)| form);
        return Unknown { found, help: format!("write `{form}`"), intended: Some(intended) };
    }
    if let Some(intended) = known("element").filter(|_| is_number(name)) {
        return Unknown {
            found,
            help: format!("write `data(unsafe_raw, element = {name})`"),
            intended: Some(intended),
        };
    }
    let places =
        if has_value { [Position::Struct, Position::Field] } else { [Position::Field, Position::Struct] };
    if let Some(other) = places.iter().find_map(|place| place.find(name)).filter(|other| other.name != word) {
        return other.intended(found);
    }
    let list = list(legal.iter().copied());
    Unknown { found, help: format!("`{word}` takes {list}"), intended: None }
}

/// Whether this is the name of a number type.
fn is_number(name: &str) -> bool {
    let bits = name.strip_prefix(['f', 'i', 'u']);
    bits.is_some_and(|bits| !bits.is_empty() && bits.bytes().all(|digit| digit.is_ascii_digit()))
}
