//! Placeholder manual.

mod attrs;
mod axes;
mod check;
mod decide;
mod derive;
mod element;
mod entries;
mod errors;
mod expand;
mod extents;
mod fallback;
mod fields;
mod generics;
#[cfg(test)]
mod golden;
mod hygiene;
mod model;
mod python;
mod raw;
mod repr;
mod words;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// d
#[proc_macro_derive(CudaArray, attributes(cuda_array))]
pub fn derive_cuda_array(input: TokenStream) -> TokenStream {
    derive::derive(&parse_macro_input!(input as DeriveInput)).into()
}

/// d
#[proc_macro_derive(Element, attributes(cuda_array))]
pub fn derive_element(input: TokenStream) -> TokenStream {
    element::derive(&parse_macro_input!(input as DeriveInput)).into()
}
