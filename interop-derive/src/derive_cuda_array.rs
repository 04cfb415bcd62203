//! The way of `#[derive(CudaArray)]`: attributes, rules, model, code. What fails on the way gets its messages and a stub.

use proc_macro2::TokenStream;
use syn::DeriveInput;

use crate::attributes::ContainerAttrs;
use crate::cross_rules::{self, StructSpec};
use crate::errors::Errors;
use crate::model::Python;
use crate::{expand, fields, hygiene, rejected_by_rustc, resolve, stub_impls};

pub(crate) fn derive(input: &DeriveInput) -> TokenStream {
    let mut errors = Errors::new();
    if let Some(again) = rejected_by_rustc::derived_again(input) {
        errors.push(again, "`CudaArray` is derived twice", "remove one of the two");
        return errors.finish().unwrap_or_default();
    }
    let attrs = ContainerAttrs::read(&input.attrs, &mut errors);
    // A runtime whose path could not be read cannot be named: a stub would add an error about it.
    let krate_is_known = errors.is_absent("crate");
    let fields = fields::read(input, &mut errors);
    let spec = StructSpec { input, attrs: &attrs, fields: &fields };
    let has_own_name = hygiene::refuse_own_name(input, &mut errors);
    let is_refused = rejected_by_rustc::is_refused(&fields, &input.generics);
    let is_unread = rejected_by_rustc::has_misspelt_attribute(input, &fields);
    if is_refused || is_unread {
        // What seems to be missing may be what rustc cannot make out.
        errors.lose(None);
    }
    cross_rules::rules(&spec, &mut errors);
    // Nor can it where its name stands for something else, and a struct without a size cannot have the traits.
    let has_stub = krate_is_known
        && !is_unread
        && !has_own_name
        && !fields.iter().any(|field| rejected_by_rustc::is_unsized(field.ty));
    match (errors.finish(), resolve::model(&spec)) {
        (None, Some(model)) if !is_refused => expand::expand(&model),
        (None, None) if !is_refused && !is_unread => unreachable!("what every rule accepts is a model"),
        (messages, _) if has_stub => {
            let krate = resolve::krate(attrs.krate.as_ref().map(|set| &set.value));
            let mut stub = stub_impls::array(input, &krate, &stub_python(&spec));
            stub.extend(messages);
            stub
        }
        (messages, _) => messages.unwrap_or_default(),
    }
}

/// The Python words that can be obeyed in spite of the mistakes.
fn stub_python(spec: &StructSpec<'_>) -> Python {
    let StructSpec { attrs, .. } = spec;
    let generics = spec.generics();
    let conversions = attrs.python.as_ref().filter(|_| generics.lifetimes().next().is_none());
    let class = attrs.pyclass.as_ref().filter(|_| generics.params.is_empty() && attrs.import.is_none());
    // With both words one is too many, and it is not known which.
    let (conversions, class) =
        if conversions.is_some() && class.is_some() { (None, None) } else { (conversions, class) };
    let is_reported = conversions.or(class).is_some_and(|word| word.is_reported);
    Python { conversions: conversions.map(resolve::place), class: class.map(resolve::place), is_reported }
}
