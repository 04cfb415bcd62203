//! `#[derive(CudaArray)]`: attributes, rules, model, code. A struct with errors gets messages and stub impls.

use proc_macro2::TokenStream;
use syn::DeriveInput;

use crate::attributes::ContainerAttrs;
use crate::cross_rules;
use crate::errors::Errors;
use crate::model::Python;
use crate::struct_spec::StructSpec;
use crate::{expand, fields, hygiene, rejected_by_rustc, resolve, stub_impls};

pub(crate) fn derive(input: &DeriveInput) -> TokenStream {
    let mut errors = Errors::new();
    if let Some(again) = rejected_by_rustc::derived_again(input) {
        errors.push(again, "`CudaArray` is derived twice", "remove one of the two");
        return errors.finish().unwrap_or_default();
    }
    let attrs = ContainerAttrs::read(&input.attrs, &mut errors);
    // With an unreadable path to the runtime, a stub would add an error about the path.
    let has_crate_path = errors.is_absent("crate");
    let fields = fields::read(input, &mut errors);
    let spec = StructSpec { input, attrs: &attrs, fields: &fields };
    let has_own_name = hygiene::refuse_own_name(input, &mut errors);
    let is_refused = rejected_by_rustc::is_refused(&fields, &input.generics);
    let is_unread = rejected_by_rustc::has_misspelt_attribute(input, &fields);
    if is_refused || is_unread {
        // The compiler's own error may explain what seems to be missing.
        errors.mark_uncertain(None);
    }
    cross_rules::rules(&spec, &mut errors);
    // A stub is also impossible if its name is hidden by another item, or if the struct has no size.
    let has_stub = has_crate_path
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

/// The Python keywords that are valid in spite of the errors.
fn stub_python(spec: &StructSpec<'_>) -> Python {
    let StructSpec { attrs, .. } = spec;
    let generics = spec.generics();
    let conversions = attrs.python.as_ref().filter(|_| generics.lifetimes().next().is_none());
    let class = attrs.pyclass.as_ref().filter(|_| generics.params.is_empty() && attrs.import.is_none());
    // One of the two keywords is wrong, and it is not known which one.
    let (conversions, class) =
        if conversions.is_some() && class.is_some() { (None, None) } else { (conversions, class) };
    let is_reported = conversions.or(class).is_some_and(|word| word.is_reported);
    Python {
        conversions: conversions.map(resolve::keyword_span),
        class: class.map(resolve::keyword_span),
        is_reported,
    }
}
