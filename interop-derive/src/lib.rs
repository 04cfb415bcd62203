//! The derives of [`interop-core`](https://docs.rs/interop-core): `#[derive(CudaArray)]` for structs that hold array
//! memory, `#[derive(Element)]` for element types.
//!
//! Depend on `interop-core`, which re-exports both and contains the functions that they call. Each macro has a manual:
//! [`CudaArray`](macro@CudaArray), [`Element`](macro@Element).

mod attribute_syntax;
mod attributes;
mod cross_rules;
mod derive_cuda_array;
mod derive_element;
mod device_names;
mod element_fields;
mod errors;
mod expand;
mod field_types;
mod fields;
mod generics;
#[cfg(test)]
mod golden;
mod hygiene;
#[cfg(test)]
mod keyword_combinations;
mod keyword_options;
mod keywords;
mod model;
mod pointer_rules;
mod python;
mod rejected_by_rustc;
mod repr;
mod resolve;
mod shape_constants;
mod shape_list;
mod shape_rules;
#[cfg(test)]
mod single_mistakes;
mod stub_impls;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

#[doc = include_str!("../manual.md")]
#[proc_macro_derive(CudaArray, attributes(cuda_array))]
pub fn derive_cuda_array(input: TokenStream) -> TokenStream {
    derive_cuda_array::derive(&parse_macro_input!(input as DeriveInput)).into()
}

/// Makes a struct an element type of arrays.
///
/// ```
/// use interop_core::{CudaArray, Element, HostVec};
///
/// #[derive(Clone, Copy, Element)]
/// #[repr(C)]
/// struct Particle {
///     position: [f32; 3],
///     charge: f32,
/// }
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len])]
/// struct Cloud {
///     #[cuda_array(data)]
///     particles: HostVec<Particle>,
///     len: usize,
/// }
///
/// let particles = HostVec::from_slice(&[Particle { position: [0.0; 3], charge: 1.0 }; 5]);
/// let info = Cloud { particles, len: 5 }.info()?;
/// assert_eq!(info.shape(), [5]);
/// assert_eq!(info.struct_type().map(|record| record.fields.len()), Some(2));
/// # Ok::<(), interop_core::Error>(())
/// ```
///
/// # Generated code
///
/// `unsafe impl Element`. It is sound for every struct: each field must be an element, offsets come from the compiler,
/// and a struct that an attribute macro below the derive changed does not compile.
///
/// The struct must be `Copy` and have one of two layouts:
///
/// - `#[repr(C)]`: with the CUDA Array Interface, an array of such elements is a structured array. Its `descr` has the
///   names of the fields (`f0`, `f1`, … in a tuple struct). With DLPack it has one more axis, if all fields are of one
///   scalar type and there is no padding.
/// - `#[repr(transparent)]`: an array of such elements is like an array of the only field.
///
/// Fields of type `PhantomData` do not count. Type parameters are elements or markers; the derive adds the necessary
/// bounds. `#[cuda_array(crate = "path")]` gives the path of the runtime if it is not `::interop_core`.
///
/// The derive rejects:
///
/// - layouts that the compiler may change, and packed structs;
/// - types with invalid bit patterns: enums, unions, pointers, and `bool` in a struct;
/// - 6-bit floats in a struct;
/// - arrays of length 0, or nested more than four deep.
///
/// An element must be `Send` and `Sync`, and so must its markers. `PhantomData<fn() -> T>` is both for every `T`.
#[proc_macro_derive(Element, attributes(cuda_array))]
pub fn derive_element(input: TokenStream) -> TokenStream {
    derive_element::derive(&parse_macro_input!(input as DeriveInput)).into()
}

/// Compiles the example of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
