//! The layout that `#[repr(...)]` gives an element.

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::{Attribute, DeriveInput, Path, Token};

use crate::errors::Errors;

/// A layout that is the same for every compiler.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum StableRepr {
    /// Fields in the written order.
    C,
    /// The layout of the only field that is not empty.
    Transparent,
}

/// The argument `name` of `#[repr(...)]`, if present.
pub(crate) fn find(input: &DeriveInput, name: &str) -> Option<Path> {
    all(input).find(|word| word.is_ident(name))
}

/// The arguments of every `#[repr(...)]`.
fn all(input: &DeriveInput) -> impl Iterator<Item = Path> {
    input.attrs.iter().filter(|attr| attr.path().is_ident("repr")).flat_map(words)
}

/// The arguments that the compiler accepts on a struct and that do not fix the layout.
const OTHERS: [&str; 3] = ["align", "Rust", "simd"];

/// The layout, or `None` if it is not fixed. Reports an error then, unless the compiler rejects the attribute.
pub(crate) fn read(input: &DeriveInput, derive: &str, errors: &mut Errors) -> Option<StableRepr> {
    let find = |name| find(input, name);
    if let Some(packed) = find("packed") {
        if find("align").is_some() {
            return None;
        }
        let help = "remove `packed`; order the fields from large to small to avoid padding";
        let found = format!("`#[derive({derive})]` on a packed struct, whose fields are not aligned");
        errors.push(packed, found, help);
        return None;
    }
    if find("transparent").is_some() {
        return Some(StableRepr::Transparent);
    }
    if find("C").is_some() {
        return Some(StableRepr::C);
    }
    let is_refused = |word: Path| !OTHERS.iter().any(|other| word.is_ident(other));
    if all(input).any(is_refused) || input.attrs.iter().any(is_no_list) {
        return None;
    }
    let help = "write `#[repr(C)]`, or `#[repr(transparent)]` on a newtype";
    errors.push(&input.ident, format_args!("`#[derive({derive})]` on a struct without a fixed layout"), help);
    None
}

/// Whether this is `#[repr]`, `#[repr = "C"]` or `#[repr("C")]`, which the compiler rejects.
fn is_no_list(attr: &Attribute) -> bool {
    let is_text =
        |tokens: &TokenStream| tokens.clone().into_iter().any(|token| matches!(token, TokenTree::Literal(_)));
    attr.path().is_ident("repr") && attr.meta.require_list().map_or(true, |list| is_text(&list.tokens))
}

/// The arguments of one `#[repr(...)]`. The compiler reports errors in them.
fn words(attr: &Attribute) -> Vec<Path> {
    let mut words = Vec::new();
    let _: syn::Result<()> = attr.parse_nested_meta(|word| {
        if word.input.peek(syn::token::Paren) {
            let content;
            syn::parenthesized!(content in word.input);
            content.parse::<proc_macro2::TokenStream>()?;
        } else if word.input.peek(Token![=]) {
            return Err(syn::Error::new(word.path.span(), "no word of `repr` takes a value"));
        }
        words.push(word.path);
        Ok(())
    });
    words
}
