//! The constants of `shape = [...]` as code.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote_spanned};

use crate::generics;
use crate::hygiene::own;
use crate::model::{Shape, ShapeEntry};

/// The constants whose value the compiler knows, as extents. An invalid extent is an error here, whether or not it is
/// used.
pub(crate) fn constants(shape: &Shape<'_>) -> Vec<TokenStream> {
    let Shape::Extents(axes) = shape else { return Vec::new() };
    let extents = axes.iter().enumerate().filter_map(|(at, axis)| {
        let ShapeEntry::Known(constant) = axis else { return None };
        let (name, (start, end)) = (constant_name(at), generics::ends(constant));
        let mut extent = quote_spanned!(start=> __p::constant);
        extent.extend(quote_spanned!(end=> (#constant).extent()));
        Some(own!(const #name: ::core::primitive::usize = #extent;))
    });
    extents.collect()
}

/// The name of a constant of [`constants`].
pub(crate) fn constant_name(axis: usize) -> Ident {
    format_ident!("__EXTENT{axis}", span = Span::mixed_site())
}

/// Checks the type of a constant, with its span, so that the compiler's error points to it and is the same in both
/// halves.
pub(crate) fn check_constant(constant: &TokenStream) -> TokenStream {
    let (start, _) = generics::ends(constant);
    quote_spanned!(start=> __p::Extent::describe_field(&#constant))
}
