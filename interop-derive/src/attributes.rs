//! The attributes of a struct and its fields as options, each with the keyword that set it.
//!
//! Every attribute is read to its end, whatever its errors. No default is chosen here.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::parse::Parser;
use syn::{Attribute, LitStr, Path};

use crate::attribute_syntax::{self, KeywordEntry, Set, Value, flag, set};
use crate::device_names;
use crate::errors::Errors;
use crate::keyword_options::{self, DataOptions};
use crate::keywords::{self, Position};
use crate::model::{MemoryOrder, MemoryType};
use crate::shape_list::{self, WrittenExtent};

/// The content of `#[cuda_array(...)]` on the struct.
#[derive(Default)]
pub(crate) struct ContainerAttrs {
    pub(crate) shape: Option<Set<Vec<WrittenExtent>>>,
    pub(crate) order: Option<Set<MemoryOrder>>,
    pub(crate) devices: Option<Set<Vec<MemoryType>>>,
    pub(crate) readonly: Option<Set<()>>,
    pub(crate) export: Option<Set<()>>,
    pub(crate) import: Option<Set<()>>,
    pub(crate) python: Option<Set<()>>,
    pub(crate) pyclass: Option<Set<()>>,
    pub(crate) krate: Option<Set<Path>>,
}

/// The content of `#[cuda_array(...)]` on a field.
#[derive(Default)]
pub(crate) struct FieldAttrs {
    pub(crate) data: Option<Set<DataOptions>>,
    pub(crate) inner: Option<Set<()>>,
    pub(crate) shape: Option<Set<()>>,
    /// Whether the strides are in bytes.
    pub(crate) strides: Option<Set<bool>>,
    pub(crate) stream: Option<Set<()>>,
    pub(crate) device: Option<Set<()>>,
    pub(crate) owner: Option<Set<()>>,
    /// `default`, or the expression of `default = expression`.
    pub(crate) default: Option<Set<Option<TokenStream>>>,
}

impl ContainerAttrs {
    pub(crate) fn read(attrs: &[Attribute], errors: &mut Errors) -> Self {
        let mut read = Self::default();
        for entry in attribute_syntax::read(attrs, "shape = [height, width]", errors) {
            read.take(entry, errors);
        }
        read
    }

    fn take(&mut self, entry: KeywordEntry, errors: &mut Errors) {
        match entry.word.to_string().as_str() {
            "shape" => {
                let value = listed(&entry, errors).and_then(|tokens| shape_list::read(&tokens, errors));
                set(&mut self.shape, entry.word, value, errors);
            }
            "order" => {
                let value =
                    text(&entry, "\"C\"` or `order = \"F\"", errors).and_then(|text| order(&text, errors));
                set(&mut self.order, entry.word, value, errors);
            }
            "device" => {
                let value = device_names::read(&entry, errors);
                set(&mut self.devices, entry.word, value, errors);
            }
            "crate" => {
                let value = krate(&entry, errors);
                set(&mut self.krate, entry.word, value, errors);
            }
            "readonly" => flag(&mut self.readonly, entry, errors),
            "export" => flag(&mut self.export, entry, errors),
            "import" => flag(&mut self.import, entry, errors),
            "python" => flag(&mut self.python, entry, errors),
            "pyclass" => flag(&mut self.pyclass, entry, errors),
            _ => unknown(&entry.word, Position::Struct, errors),
        }
    }
}

impl FieldAttrs {
    pub(crate) fn read(attrs: &[Attribute], errors: &mut Errors) -> Self {
        let mut read = Self::default();
        for entry in attribute_syntax::read(attrs, "data", errors) {
            read.take(entry, errors);
        }
        read
    }

    fn take(&mut self, entry: KeywordEntry, errors: &mut Errors) {
        match entry.word.to_string().as_str() {
            "data" => {
                if self.data.is_some() {
                    // The missing option may be in the other occurrence of the keyword.
                    for option in keywords::DATA_OPTIONS {
                        errors.mark_uncertain(Some(option));
                    }
                }
                let value = keyword_options::data(&entry, errors);
                set(&mut self.data, entry.word, Some(value), errors);
            }
            "shape" if matches!(entry.value, Value::Given(_)) => {
                let help =
                    "write `#[cuda_array(shape = [height, width])]` on the struct; on a field write `shape`";
                errors.push(&entry.word, "`shape = [...]` belongs on the struct, not on a field", help);
                errors.mark_uncertain(Some("shape"));
            }
            "shape" => flag(&mut self.shape, entry, errors),
            "strides" => {
                let value = keyword_options::strides(&entry, errors);
                set(&mut self.strides, entry.word, Some(value), errors);
            }
            "inner" => flag(&mut self.inner, entry, errors),
            "stream" => flag(&mut self.stream, entry, errors),
            "device" if matches!(entry.value, Value::Given(_)) => {
                let help = "write `#[cuda_array(device = \"cuda\")]` on the struct; on the field with the device of a raw \
                            pointer write `device`";
                errors.push(&entry.word, "`device = ...` belongs on the struct, not on a field", help);
                errors.mark_uncertain(Some("device"));
            }
            "device" => flag(&mut self.device, entry, errors),
            "owner" => {
                if !matches!(entry.value, Value::None) {
                    // The value may be the one with which an import fills the field.
                    errors.mark_uncertain(Some("default"));
                }
                flag(&mut self.owner, entry, errors);
            }
            "default" => default(&mut self.default, entry, errors),
            _ => {
                unknown(&entry.word, Position::Field, errors);
                // The keyword may be the one that tells how an import fills the field.
                errors.mark_uncertain(Some("default"));
            }
        }
    }

    /// The keywords that give the field a role, in the order of the manual, with their spans.
    pub(crate) fn roles(&self) -> impl Iterator<Item = (&'static str, &Ident)> {
        ROLES.iter().filter_map(|(role, keyword)| Some((*role, keyword(self)?)))
    }

    /// The keyword that gives the field this role.
    pub(crate) fn role(&self, role: &str) -> Option<&Ident> {
        ROLES.iter().find(|(name, _)| *name == role).and_then(|(_, keyword)| keyword(self))
    }
}

/// A keyword that gives a field a role, and its slot in the attributes.
type RoleKeyword = (&'static str, fn(&FieldAttrs) -> Option<&Ident>);

pub(crate) const ROLES: [RoleKeyword; 7] = [
    ("data", |attrs| keyword(attrs.data.as_ref())),
    ("inner", |attrs| keyword(attrs.inner.as_ref())),
    ("shape", |attrs| keyword(attrs.shape.as_ref())),
    ("strides", |attrs| keyword(attrs.strides.as_ref())),
    ("stream", |attrs| keyword(attrs.stream.as_ref())),
    ("device", |attrs| keyword(attrs.device.as_ref())),
    ("owner", |attrs| keyword(attrs.owner.as_ref())),
];

fn keyword<T>(set: Option<&Set<T>>) -> Option<&Ident> {
    set.map(|set| &set.word)
}

/// Reads the attributes of a struct whose derive accepts only the keyword `crate`.
pub(crate) fn read_crate(attrs: &[Attribute], errors: &mut Errors) -> Option<Path> {
    let mut read = ContainerAttrs::default();
    for entry in attribute_syntax::read(attrs, "crate = \"path::to::interop_core\"", errors) {
        if entry.word == "crate" {
            read.take(entry, errors);
        } else {
            let found = format!("unknown keyword `{}` for `#[derive(Element)]`", entry.word);
            errors.push(&entry.word, found, "remove it: an element takes only `crate = \"path\"`");
        }
    }
    read.krate.map(|set| set.value)
}

fn unknown(word: &Ident, position: Position, errors: &mut Errors) {
    let unknown = position.explain(&word.to_string());
    errors.push(word, unknown.found, unknown.help);
    errors.mark_uncertain(unknown.intended);
}

/// The tokens after `shape =`.
fn listed(entry: &KeywordEntry, errors: &mut Errors) -> Option<TokenStream> {
    let (found, help) = match &entry.value {
        Value::Given(tokens) => return Some(tokens.clone()),
        Value::List(group) if !group.stream().is_empty() => {
            ("the extents follow `shape =`, in brackets", format!("write `shape = [{}]`", group.stream()))
        }
        Value::List(_) | Value::None => (
            "`shape` on the struct has no extents",
            "write `shape = [height, width, 3]`, or `#[cuda_array(shape)]` on the field that holds the shape"
                .to_string(),
        ),
    };
    errors.push(&entry.word, found, help);
    errors.mark_uncertain(Some("shape"));
    None
}

/// The string of `keyword = "text"`; `form` is how it is written.
fn text(entry: &KeywordEntry, form: &str, errors: &mut Errors) -> Option<LitStr> {
    let word = &entry.word;
    let help = format!("write `{word} = {form}`");
    match &entry.value {
        Value::Given(tokens) => {
            let text = syn::parse2(tokens.clone()).ok();
            if text.is_none() {
                errors.push(
                    tokens,
                    format_args!("`{word}` takes a string, found `{}`", keywords::shown(tokens)),
                    help,
                );
            }
            text
        }
        Value::None | Value::List(_) => {
            errors.push(word, format_args!("`{word}` has no value"), help);
            None
        }
    }
}

fn order(text: &LitStr, errors: &mut Errors) -> Option<MemoryOrder> {
    match text.value().as_str() {
        "C" => Some(MemoryOrder::C),
        "F" => Some(MemoryOrder::F),
        other => {
            let help =
                "write `order = \"C\"` (the last axis is contiguous) or `order = \"F\"` (the first axis is)";
            errors.push(text, format_args!("unknown order `{other}`"), help);
            None
        }
    }
}

/// The path after `crate =`, with or without quotes. In a macro, `$crate` works only without quotes.
fn krate(entry: &KeywordEntry, errors: &mut Errors) -> Option<Path> {
    if let Value::Given(tokens) = &entry.value {
        if let Ok(path) = Path::parse_mod_style.parse2(tokens.clone()) {
            return Some(path);
        }
    }
    let text = text(entry, "\"path::to::interop_core\"", errors)?;
    let path = text.parse_with(Path::parse_mod_style).ok();
    if path.is_none() {
        let value = text.value();
        let help = if value.starts_with('$') {
            format!("write it without quotes, `crate = {value}`")
        } else {
            "write the path of the crate as it is in your code, `crate = \"path::to::interop_core\"`".into()
        };
        errors.push(text, format_args!("`{value}` is not a path"), help);
        errors.mark_uncertain(Some("crate"));
    }
    path
}

/// The keyword `default`. With options it is reported, and counts as one without a value.
fn default(slot: &mut Option<Set<Option<TokenStream>>>, entry: KeywordEntry, errors: &mut Errors) {
    let KeywordEntry { word, value } = entry;
    let list = match value {
        Value::None => return set(slot, word, Some(None), errors),
        Value::Given(expression) => return set(slot, word, Some(Some(expression)), errors),
        Value::List(group) => group.stream(),
    };
    let value = if list.is_empty() { quote!(expression) } else { list };
    let help = format!("write `default`, or `default = {value}`");
    errors.push(&word, "`default` takes a value, not options", help);
    slot.get_or_insert(Set { word, value: None, is_reported: true }).is_reported = true;
}
