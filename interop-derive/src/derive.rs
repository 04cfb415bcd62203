//! The way of `#[derive(CudaArray)]`: attributes, rules, model, code. What fails on the way gets its messages and a stub.

use proc_macro2::TokenStream;
use syn::DeriveInput;

use crate::attrs::ContainerAttrs;
use crate::check::{self, Claims};
use crate::errors::Errors;
use crate::model::Python;
use crate::{decide, expand, fallback, fields};

pub(crate) fn derive(input: &DeriveInput) -> TokenStream {
    let mut errors = Errors::new();
    let attrs = ContainerAttrs::read(&input.attrs, &mut errors);
    let fields = fields::read(input, &mut errors);
    let claims = Claims { input, attrs: &attrs, fields: &fields };
    check::rules(&claims, &mut errors);
    // A runtime whose path could not be read cannot be named: the stub would add an error about it.
    let krate_is_known = errors.is_absent("crate");
    match (errors.finish(), decide::model(&claims)) {
        (None, Some(model)) => expand::expand(&model),
        (None, None) => unreachable!("what every rule accepts is a model"),
        (Some(messages), _) if krate_is_known => {
            let krate = decide::krate(attrs.krate.as_ref().map(|set| &set.value));
            let mut stub = fallback::array(input, &krate, &stub_python(&claims));
            stub.extend(messages);
            stub
        }
        (Some(messages), _) => messages,
    }
}

/// The Python words that can be obeyed in spite of the mistakes.
fn stub_python(claims: &Claims<'_>) -> Python {
    let Claims { attrs, .. } = claims;
    let generics = claims.generics();
    let conversions = attrs.python.as_ref().filter(|_| generics.lifetimes().next().is_none());
    let class = attrs.pyclass.as_ref().filter(|_| generics.params.is_empty() && attrs.import.is_none());
    // With both words one is too many, and it is not known which.
    let (conversions, class) =
        if conversions.is_some() && class.is_some() { (None, None) } else { (conversions, class) };
    Python { conversions: conversions.map(decide::place), class: class.map(decide::place) }
}
