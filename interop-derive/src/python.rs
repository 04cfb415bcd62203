//! The calls of the macros that make Python objects, for the keywords `python` and `pyclass`.
//!
//! Both macros always exist. Without the feature `python` of the runtime they expand to an error that names it.

use proc_macro2::{Delimiter, Group, Ident, Literal, Span, TokenStream};
use quote::{ToTokens as _, quote_spanned};
use syn::{Generics, Path, Type};

use crate::generics;
use crate::hygiene::own;
use crate::model::Python;

/// The macro calls for a struct with these halves.
pub(crate) fn calls(
    krate: &Path,
    ident: &Ident,
    generics: &Generics,
    python: &Python,
    storage: Option<&Type>,
    (export, import): (bool, bool),
) -> impl Iterator<Item = TokenStream> {
    let arguments = generics::arguments(generics);
    let quiet = python.is_reported.then(|| own!(quiet));
    let conversions = python.conversions.map(|place| {
        let parameters = generics::parameters(generics);
        let bounds = generics::python_bounds(ident, generics);
        let input = own! {
            #quiet export: #export, import: #import, generics: [#parameters], type: #ident #arguments, bounds: [#bounds]
        };
        call(place, "python_conversions", input)
    });
    let class = python.class.map(|place| {
        let pyo3 = pyo3(krate);
        let storage = storage.map(|ty| own!(, storage: #ty));
        call(place, "python_class", own!(#quiet type: #ident, pyo3: #pyo3 #storage))
    });
    conversions.into_iter().chain(class)
}

/// `__p::name! { input }`, with the span of the user's keyword, so that errors of the macro point to it.
fn call(place: Span, name: &str, input: TokenStream) -> TokenStream {
    let name = Ident::new(name, place);
    let mut input = Group::new(Delimiter::Brace, input);
    input.set_span(place);
    quote_spanned!(place=> __p::#name! #input)
}

/// The path of PyO3 in the runtime, as a string literal, which PyO3's attributes require. The user's crate may name
/// PyO3 differently.
fn pyo3(krate: &Path) -> Literal {
    let path = krate.to_token_stream().to_string().replace(' ', "");
    Literal::string(&format!("{path}::__interop_core::python::pyo3"))
}
