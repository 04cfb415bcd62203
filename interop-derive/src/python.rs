//! The calls of the macros that make Python objects, for the keywords `python` and `pyclass`.
//!
//! Both macros always exist. Without the feature `python` of the runtime they expand to an error that names it.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::Generics;

use crate::generics;
use crate::hygiene::own;
use crate::model::Python;

/// The macro calls for a struct with these halves.
pub(crate) fn calls(
    ident: &Ident,
    generics: &Generics,
    python: &Python,
    export: bool,
    import: bool,
) -> impl Iterator<Item = TokenStream> {
    let arguments = generics::arguments(generics);
    let quiet = python.is_reported.then(|| own!(quiet));
    let conversions = python.conversions.map(|place| {
        let parameters = generics::parameters(generics);
        let bounds = generics::python_bounds(generics);
        let input = own! {
            #quiet export: #export, import: #import, generics: [#parameters], type: #ident #arguments, bounds: [#bounds]
        };
        call(place, "python_conversions", input)
    });
    let class = python.class.map(|place| call(place, "python_class", own!(#quiet type: #ident)));
    conversions.into_iter().chain(class)
}

/// `__p::name! { input }`, with the span of the user's keyword, so that errors of the macro point to it.
fn call(place: Span, name: &str, input: TokenStream) -> TokenStream {
    let name = Ident::new(name, place);
    let mut input = Group::new(Delimiter::Brace, input);
    input.set_span(place);
    quote_spanned!(place=> __p::#name! #input)
}
