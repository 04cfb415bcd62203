//! The calls of the macros that make Python objects, for the words `python` and `pyclass`.
//!
//! Both macros are always there. Without the feature `python` of the runtime they expand to one message that names it.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::Generics;

use crate::generics;
use crate::hygiene::own;
use crate::model::Python;

/// The macro calls for a struct of which these halves exist.
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

/// `__p::name! { input }`, placed on the user's word, so that what the macro has to say is said there.
fn call(place: Span, name: &str, input: TokenStream) -> TokenStream {
    let name = Ident::new(name, place);
    let mut input = Group::new(Delimiter::Brace, input);
    input.set_span(place);
    quote_spanned!(place=> __p::#name! #input)
}
