//! The expansion of a struct with errors: the messages, and impls that are never run.
//!
//! With the impls the compiler adds no error at each use of the struct.

use proc_macro2::{Ident, TokenStream};
use syn::{DeriveInput, Generics, Path};

use crate::generics;
use crate::hygiene::{self, own};
use crate::model::Python;
use crate::python;

/// Empty `impl CudaArray` and `impl FromArray`, and the Python macros if they can be called.
pub(crate) fn array(input: &DeriveInput, krate: &Path, python: &Python) -> TokenStream {
    let generics = generics::bare(&input.generics);
    let (parameters, arguments, clause) = generics::split(&generics);
    let ident = &input.ident;
    let runtime = hygiene::runtime(krate);
    let python = python::calls(krate, ident, &generics, python, None, (true, true));
    own! {
        const _: () = {
            #runtime
            #[automatically_derived]
            unsafe impl #parameters __p::CudaArray for #ident #arguments #clause {
                fn info(&self) -> __p::Result<__p::ArrayInfo> {
                    ::core::unreachable!()
                }
            }
            #[automatically_derived]
            impl #parameters __p::FromArray for #ident #arguments #clause {
                unsafe fn assemble(_: &mut __p::Extraction<'_>) -> __p::Result<Self> {
                    ::core::unreachable!()
                }
            }
            #(#python)*
        };
    }
}

/// An empty `impl Element`, for generics with which the struct can be an element.
pub(crate) fn element(ident: &Ident, generics: &Generics, krate: &Path) -> TokenStream {
    let (parameters, arguments, clause) = generics::split(generics);
    let runtime = hygiene::runtime(krate);
    own! {
        const _: () = {
            #runtime
            #[automatically_derived]
            unsafe impl #parameters __p::Element for #ident #arguments #clause {
                const TYPE: __p::ElementType = <::core::primitive::u8 as __p::Element>::TYPE;
            }
        };
    }
}
