//! Hygiene: generated names do not clash with the user's names.

use std::iter;

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::{Data, DeriveInput, Path, Type};

use crate::errors::Errors;
use crate::fields::{self, bare};

/// `quote!` with spans of the macro ([`proc_macro2::Span::mixed_site`]).
///
/// An expression of the user cannot name these local variables. Lints such as `unsafe_code` treat the tokens as those
/// of a foreign macro. Every path starts with `__p`, which the `const _` around an expansion imports, or with `::`. So
/// nothing depends on the prelude or on the user's imports.
macro_rules! own {
    ($($tokens:tt)*) => {
        ::quote::quote_spanned!(::proc_macro2::Span::mixed_site()=> $($tokens)*)
    };
}

pub(crate) use own;

/// `use path::__interop_core as __p;`, the start of every expansion.
///
/// It has the span of the user's path: if that is wrong, the compiler's error points to it.
pub(crate) fn runtime(krate: &Path) -> TokenStream {
    let place = krate.segments.last().map_or_else(Span::mixed_site, |last| last.ident.span());
    quote_spanned!(Span::mixed_site().located_at(place)=> use #krate::__interop_core as __p;)
}

/// Rejects the one generated name that a type of the user could mean: it would refer to the runtime.
pub(crate) fn refuse_own_name(input: &DeriveInput, errors: &mut Errors) -> bool {
    let types = match &input.data {
        Data::Struct(data) => data.fields.iter().find_map(|field| own_name(&field.ty)),
        Data::Enum(_) | Data::Union(_) => None,
    };
    let is_ours = |name: &&Ident| **name == "__p";
    let parameters = input.generics.type_params().map(|parameter| &parameter.ident);
    let constants = input.generics.const_params().map(|parameter| &parameter.ident);
    let found = iter::once(&input.ident).chain(parameters).chain(constants).find(is_ours).or(types);
    if let Some(name) = found {
        let found = "the name `__p` is reserved for generated code";
        errors.push(name, found, "write another name, or import it by `use __p as other;`");
    }
    found.is_some()
}

/// The name `__p` at the start of a path in the type or its arguments.
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
