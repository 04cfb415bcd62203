//! The layout that `#[repr(...)]` fixes for an element.

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::{Attribute, DeriveInput, Path, Token};

use crate::errors::Errors;

/// A layout that is the same for every compiler.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repr {
    /// Fields in the order in which they are written.
    C,
    /// As the one field that is not empty.
    Transparent,
}

/// The word `name` of `#[repr(...)]`, if it is there.
pub(crate) fn find(input: &DeriveInput, name: &str) -> Option<Path> {
    all(input).find(|word| word.is_ident(name))
}

/// The words of every `#[repr(...)]`.
fn all(input: &DeriveInput) -> impl Iterator<Item = Path> {
    input.attrs.iter().filter(|attr| attr.path().is_ident("repr")).flat_map(words)
}

/// The words that rustc takes on a struct without fixing a layout by them.
const OTHERS: [&str; 3] = ["align", "Rust", "simd"];

/// The layout; none when it is not fixed, which is reported here unless rustc refuses what is written.
pub(crate) fn read(input: &DeriveInput, errors: &mut Errors) -> Option<Repr> {
    let find = |name| find(input, name);
    if let Some(packed) = find("packed") {
        if find("align").is_some() {
            return None;
        }
        let help = "remove `packed`; fields that are ordered from large to small have no gaps";
        errors.push(packed, "`#[derive(Element)]` on a packed struct, whose fields are not aligned", help);
        return None;
    }
    if find("transparent").is_some() {
        return Some(Repr::Transparent);
    }
    if find("C").is_some() {
        return Some(Repr::C);
    }
    let is_refused = |word: Path| !OTHERS.iter().any(|other| word.is_ident(other));
    if all(input).any(is_refused) || input.attrs.iter().any(is_no_list) {
        return None;
    }
    let help = "write `#[repr(C)]`, or `#[repr(transparent)]` on a newtype";
    errors.push(&input.ident, "`#[derive(Element)]` on a struct whose layout rustc may change", help);
    None
}

/// Whether this is `#[repr]`, `#[repr = "C"]` or `#[repr("C")]`, which rustc refuses.
fn is_no_list(attr: &Attribute) -> bool {
    let is_text =
        |tokens: &TokenStream| tokens.clone().into_iter().any(|token| matches!(token, TokenTree::Literal(_)));
    attr.path().is_ident("repr") && attr.meta.require_list().map_or(true, |list| is_text(&list.tokens))
}

/// The words of one `#[repr(...)]`. What is wrong with them, rustc reports.
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
