//! Generated tokens that neither see the user's names nor are seen by the user's code.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Data, DeriveInput, Generics, Path};

use crate::errors::Errors;

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
    let Generics { params, where_clause, .. } = &input.generics;
    let mut tokens = quote!(#params #where_clause);
    input.ident.to_tokens(&mut tokens);
    if let Data::Struct(data) = &input.data {
        data.fields.iter().for_each(|field| field.ty.to_tokens(&mut tokens));
    }
    let found = own_name(tokens);
    if let Some(name) = &found {
        let found = "`__p` is the runtime in generated code, and here something of yours";
        errors.push(name, found, "write another name, with `use __p as other;` if it is not yours to choose");
    }
    found.is_some()
}

fn own_name(tokens: TokenStream) -> Option<Ident> {
    tokens.into_iter().find_map(|token| match token {
        TokenTree::Group(group) => own_name(group.stream()),
        TokenTree::Ident(name) => (name == "__p").then_some(name),
        TokenTree::Punct(_) | TokenTree::Literal(_) => None,
    })
}
