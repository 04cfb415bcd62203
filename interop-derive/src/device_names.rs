//! The device names of `device = ...`.

use syn::parse::{Parse, ParseStream};
use syn::token::Bracket;
use syn::{LitStr, Token, bracketed};

use crate::attribute_syntax::{KeywordEntry, Value};
use crate::errors::Errors;
use crate::keywords::{self, nearest};
use crate::model::MemoryType;

/// Names that other libraries use, and the device name for each.
const SYNONYMS: [(&str, &str); 5] = [
    ("gpu", "cuda"),
    ("host", "cpu"),
    ("managed", "cuda_managed"),
    ("pinned", "cuda_host"),
    ("unified", "cuda_managed"),
];

const HELP: &str = "write `device = \"cuda\"`, or `device = [\"cuda\", \"cuda_managed\"]` to accept several";
const HELP_ABOUT_FIELDS: &str = "write `device = \"cuda\"` for the required device of imports, or `#[cuda_array(device)]` on the \
                                 field that says where a raw pointer leads";

/// One name, or several in brackets.
pub(crate) fn read(entry: &KeywordEntry, errors: &mut Errors) -> Option<Vec<MemoryType>> {
    match &entry.value {
        Value::None => errors.push(&entry.word, "`device` on the struct has no value", HELP_ABOUT_FIELDS),
        Value::List(_) => errors.push(&entry.word, "`device` takes no options", HELP),
        Value::Given(tokens) => match syn::parse2::<Names>(tokens.clone()) {
            Ok(Names(names)) if names.is_empty() => {
                errors.push(&entry.word, "`device = []` allows no device", HELP);
            }
            Ok(Names(names)) => {
                twice(&names, errors);
                let devices: Vec<_> = names.iter().map(|name| named(name, errors)).collect();
                return devices.into_iter().collect();
            }
            Err(_) => {
                let found = format!("`device` takes strings, found `{}`", keywords::shown(tokens));
                errors.push(tokens, found, HELP);
            }
        },
    }
    errors.mark_uncertain(Some("device"));
    None
}

/// Reports a name that is listed twice.
fn twice(names: &[LitStr], errors: &mut Errors) {
    for (at, name) in names.iter().enumerate() {
        let text = name.value();
        if names[..at].iter().any(|other| other.value() == text) {
            errors.push(name, format_args!("`{text}` is listed twice"), "remove one of the two");
        }
    }
}

fn named(text: &LitStr, errors: &mut Errors) -> Option<MemoryType> {
    let name = text.value();
    let device = MemoryType::from_name(&name);
    if device.is_none() {
        let names = || MemoryType::NAMES.iter().map(|(name, _)| *name);
        let synonym = SYNONYMS.iter().find(|(other, _)| *other == name);
        let list = keywords::list(names());
        let help = match synonym.map(|(_, intended)| *intended).or_else(|| nearest(&name, names())) {
            Some(intended) => format!("write `device = \"{intended}\"`; a device is {list}"),
            None => format!("a device is {list}"),
        };
        errors.push(text, format_args!("unknown device `{name}`"), help);
    }
    device
}

/// A string, or several in brackets.
struct Names(Vec<LitStr>);

impl Parse for Names {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if !input.peek(Bracket) {
            return Ok(Self(vec![input.parse()?]));
        }
        let list;
        bracketed!(list in input);
        let names = list.parse_terminated(<LitStr as Parse>::parse, Token![,])?;
        Ok(Self(names.into_iter().collect()))
    }
}
