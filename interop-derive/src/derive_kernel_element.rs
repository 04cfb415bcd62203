//! `#[derive(KernelElement)]`: a struct of numbers that kernels read, write and take as an argument.
//!
//! The derive checks the layout, and the compiler that the fields are such elements and that nothing is between them.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::DeriveInput;
use syn::spanned::Spanned;

use crate::element_fields::{self, ElementField};
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

fn expand(ident: &Ident, parts: &[ElementField<'_>]) -> TokenStream {
    // The spans are the types, so that the compiler's errors point to the wrong one.
    let fields = parts.iter().map(|part| {
        let (name, ty) = (part.name(), part.field.ty.to_token_stream());
        quote_spanned!(ty.span()=> (#name, <#ty as ::interop_kernel::KernelElement>::__LAYOUT))
    });
    // Names nothing but the trait: any other path could lead to a function without the checks.
    let layout = quote_spanned!(ident.span()=>
        <::core::primitive::u8 as ::interop_kernel::KernelElement>::__LAYOUT.of_element::<Self>(&[#(#fields),*])
    );
    let check = quote_spanned!(ident.span()=> let _ = <#ident as ::interop_kernel::KernelElement>::__LAYOUT;);
    let destructure = element_fields::destructure(ident, parts);
    own! {
        const _: () = {
            #[automatically_derived]
            unsafe impl ::interop_kernel::KernelElement for #ident {
                const __LAYOUT: ::interop_kernel::__private::Layout = #layout;
            }
            #check
            #destructure
        };
    }
}
