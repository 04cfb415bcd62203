//! The calls of the macros that make Python objects, for the words `python` and `pyclass`.
//!
//! Both macros are always there. Without the feature `python` of the runtime they expand to one message that names it.

use proc_macro2::{Ident, TokenStream};
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
) -> TokenStream {
    let (_, arguments, _) = generics.split_for_impl();
    let conversions = python.conversions.then(|| {
        let parameters = generics::parameters(generics);
        let bounds = generics::python_bounds(generics);
        own! {
            __p::python_conversions! {
                export: #export, import: #import, generics: [#parameters], type: #ident #arguments, bounds: [#bounds]
            }
        }
    });
    let class = python.class.then(|| own!(__p::python_class! { export: #export, type: #ident }));
    own!(#conversions #class)
}
