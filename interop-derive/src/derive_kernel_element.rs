//! `#[derive(KernelElement)]`: a struct of numbers that kernels read, write and take as an argument.
//!
//! The derive checks the layout, and the compiler that the fields are such elements and that nothing is between them.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::DeriveInput;
use syn::spanned::Spanned;

use crate::element_fields::{self, Part};
use crate::errors::Errors;
use crate::hygiene::own;
use crate::repr;

const NAME: &str = "KernelElement";

pub(crate) fn derive(input: &DeriveInput) -> TokenStream {
    let mut errors = Errors::new();
    let parts = element_fields::read(input, NAME, &mut errors);
    if !parts.is_empty() {
        repr::read(input, NAME, &mut errors);
    }
    if !input.generics.params.is_empty() {
        let help = "write a struct for each type: whether there is padding depends on the type";
        errors.push(&input.generics.params, "found generics", help);
    }
    errors.finish().unwrap_or_else(|| expand(&input.ident, &parts))
}

fn expand(ident: &Ident, parts: &[Part<'_>]) -> TokenStream {
    let types = parts.iter().map(|part| &part.field.ty);
    // The spans are the types, so that the compiler's errors point to the wrong one.
    let sizes = types.map(|ty| {
        let ty = ty.to_token_stream();
        quote_spanned!(ty.span()=> ::interop_kernel::__private::size_of_element::<#ty>())
    });
    let check = quote_spanned!(ident.span()=> ::interop_kernel::__private::assert_no_padding::<#ident>(&[#(#sizes),*]));
    let destructure = element_fields::destructure(ident, parts);
    own! {
        const _: () = {
            #[automatically_derived]
            unsafe impl ::interop_kernel::KernelElement for #ident {}
            #check;
            #destructure
        };
    }
}
