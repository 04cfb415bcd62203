//! What a struct with mistakes gets: the messages, and impls that are never run.
//!
//! With the impls the struct can be used as if it were right, so that rustc does not add an error at every use.

use proc_macro2::{Ident, TokenStream};
use syn::{DeriveInput, Generics, Path};

use crate::generics;
use crate::hygiene::{self, own};
use crate::model::Python;
use crate::python;

/// `impl CudaArray` and `impl FromArray` that say nothing; with the Python macros, where those can be called.
pub(crate) fn array(input: &DeriveInput, krate: &Path, python: &Python) -> TokenStream {
    let generics = generics::bare(&input.generics);
    let (parameters, arguments, clause) = generics::split(&generics);
    let ident = &input.ident;
    let runtime = hygiene::runtime(krate);
    let python = python::calls(ident, &generics, python, true, true);
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
                fn assemble(_: &mut __p::Extraction<'_>) -> __p::Result<Self> {
                    ::core::unreachable!()
                }
            }
            #(#python)*
        };
    }
}

/// `impl Element` that says nothing, for generics with which the struct can be an element.
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
