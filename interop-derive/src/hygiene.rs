//! Generated tokens that neither see the user's names nor are seen by the user's code.

use std::iter;

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::{Data, DeriveInput, Path, Type};

use crate::errors::Errors;
use crate::fields::{self, bare};
use crate::generics;

/// `quote!` with spans of the macro's own ([`proc_macro2::Span::mixed_site`]).
///
/// Local variables cannot be named by an expression of the user's. Lints, `unsafe_code` among them, take the tokens for
/// those of a foreign macro. Every path starts with `__p`, which the `const _` around an expansion imports, or with `::`:
/// nothing depends on the prelude or on what the user has in scope.
macro_rules! own {
    ($($tokens:tt)*) => {
        ::quote::quote_spanned!(::proc_macro2::Span::mixed_site()=> $($tokens)*)
    };
}

pub(crate) use own;

/// `use path::__interop_core as __p;`, with which an expansion begins.
///
/// Placed on the path that the user writes: if something else is there, rustc says there that it has no such name.
pub(crate) fn runtime(krate: &Path) -> TokenStream {
    let place = krate.segments.last().map_or_else(Span::mixed_site, |last| last.ident.span());
    quote_spanned!(Span::mixed_site().located_at(place)=> use #krate::__interop_core as __p;)
}

/// Refuses the one name that generated code has in the scope of the user's types, where it would stand for the runtime.
pub(crate) fn refuse_own_name(input: &DeriveInput, errors: &mut Errors) -> bool {
    let types = match &input.data {
        Data::Struct(data) => data.fields.iter().find_map(|field| own_name(&field.ty)),
        Data::Enum(_) | Data::Union(_) => None,
    };
    let is_ours = |name: &&Ident| **name == "__p";
    let found = iter::once(&input.ident).chain(generics::names(&input.generics)).find(is_ours).or(types);
    if let Some(name) = found {
        let found = "`__p` is the runtime in generated code, and here something of yours";
        errors.push(name, found, "write another name, with `use __p as other;` if it is not yours to choose");
    }
    found.is_some()
}

/// The name where a type can begin with it: in a path, or in one of its arguments.
fn own_name(ty: &Type) -> Option<&Ident> {
    match bare(ty) {
        Type::Path(path) => {
            let first = path.path.segments.first().map(|first| &first.ident);
            let arguments = || path.path.segments.iter().flat_map(|part| fields::arguments(&part.arguments));
            first.filter(|first| *first == "__p").or_else(|| arguments().find_map(own_name))
        }
        Type::Array(array) => own_name(&array.elem),
        Type::Slice(slice) => own_name(&slice.elem),
        Type::Ptr(pointer) => own_name(&pointer.elem),
        Type::Reference(reference) => own_name(&reference.elem),
        _ => None,
    }
}
