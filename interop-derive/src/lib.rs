//! The derives of [`interop-core`](https://docs.rs/interop-core): `#[derive(CudaArray)]` for structs around array memory,
//! `#[derive(Element)]` for the types of their elements.
//!
//! Depend on `interop-core`, which re-exports both and holds the code that they call. The manual is at the macros:
//! [`CudaArray`](macro@CudaArray), [`Element`](macro@Element).

mod attrs;
mod axes;
mod check;
#[cfg(test)]
mod combinations;
mod decide;
mod derive;
mod devices;
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
mod ill_formed;
mod model;
mod parts;
mod python;
mod raw;
mod repr;
mod words;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Makes a struct an array that other libraries use in place, and that is filled with theirs.
///
/// ```
/// use std::sync::Arc;
/// use interop_core::dlpack::Versioned;
/// use interop_core::{CudaArray, FromArray, HostVec, Lease, StreamHandle};
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [height, width, 3])]
/// struct Image<S> {
///     #[cuda_array(data)]
///     pixels: S,
///     height: usize,
///     width: usize,
///     #[cuda_array(stream)]
///     stream: StreamHandle,
///     #[cuda_array(default)]
///     title: String,
/// }
///
/// let pixels = HostVec::<f32>::zeroed(2 * 4 * 3);
/// let image = Image { pixels, height: 2, width: 4, stream: StreamHandle::NothingPending, title: "dawn".into() };
/// assert_eq!(image.facts()?.strides(), [12, 3, 1]);
///
/// let image = Arc::new(image);
/// let tensor = image.share_dlpack::<Versioned>()?;               // out, as often as you like
/// let copy: Image<Vec<f32>> = Image::from_dlpack(tensor)?;       // and in: fields are filled, literals compared
/// assert_eq!((copy.height, copy.width, copy.title.as_str()), (2, 4, ""));
/// # Ok::<(), interop_core::Error>(())
/// ```
///
/// # What is generated
///
/// `unsafe impl CudaArray`, whose one method describes the struct, and `impl FromArray`, whose one function makes the
/// struct from what arrived. Everything else is a method of these traits: the CUDA Array Interface and DLPack, both ways.
/// The generated code is a list of calls into the runtime, one for each field that has a role. It is checked for overflow,
/// bounds and contradictions when it runs; a struct that lies about its memory returns an error.
///
/// # The words
///
/// Several words go in one attribute, or in several. Each is written once; an attribute without any, `#[cuda_array()]`, as
/// a macro may make it, says nothing.
///
/// | on the struct | meaning | if it is absent |
/// | --- | --- | --- |
/// | `shape = [height, width, 3]` | the extents: integer fields (`height`, or `self.0` in a tuple struct), integer literals, const generics and constants (`CHANNELS`, `Self::CHANNELS`, `sizes::CHANNELS`) | a field is `shape` |
/// | `order = "C"`, `order = "F"` | strides where no field has them, and what an import must have | `"C"`; with a `strides` field an import may have any |
/// | `device = "cuda"`, `device = ["cpu", "cuda_host"]` | where an import must be: `"cpu"`, `"cuda"`, `"cuda_host"`, `"cuda_managed"` | wherever the storage can use it |
/// | `readonly` | every export is read-only; the legacy form of DLPack, which cannot say so, is refused | the storage decides |
/// | `export`, `import` | only this half is generated | both are |
/// | `python` | arguments and return values of `PyO3` functions (feature `python` of the runtime) | |
/// | `pyclass` | the protocol methods of a `#[pyclass]` (feature `python` of the runtime), once its module calls `interop_core::python::install` | |
/// | `crate = "path"` | where the runtime is, if not at `::interop_core` | |
///
/// | on a field | meaning | type |
/// | --- | --- | --- |
/// | `data` | the memory; exactly one | a storage: `Vec<T>`, `HostVec<T>`, `Lease<T>`, a device buffer … |
/// | `data(unsafe_raw)` | the memory, behind a pointer that you vouch for | `*mut T`, `*const T`, `NonNull<T>` |
/// | `data(unsafe_raw, element = f32)` | the same, for a pointer that does not say what it points to | `u64`, `usize`, `*mut c_void`, `*const c_void` |
/// | `shape` | the extents | `[usize; N]`, `Vec<usize>`, `Dims<usize>`, of any integer type |
/// | `strides` | the strides in elements, `strides(bytes)` in bytes | `[isize; N]`, `Vec<isize>`, `Option` of these |
/// | `stream` | the stream on which the data was last written | `StreamHandle`, a stream, `Option` of these |
/// | `device` | where the memory of a raw pointer is | `Device` |
/// | `owner` | what keeps the memory alive | anything; beside a raw pointer `Owner` |
/// | `default`, `default = expression` | how an import fills a field that has no role | one with `Default`, or that of the expression |
///
/// # Data
///
/// The type of the `data` field says who owns the memory, and so what an import does. Owners (`Vec<T>`, a device buffer)
/// copy what arrives; leases use it in place and release it when they are dropped. A type that can only be exported, such
/// as `&[T]`, needs `export` on the struct; one that borrows can be viewed and not be handed out.
///
/// A raw pointer is no owner, so three things must be said: that you vouch for it, where it is, and what an import is kept
/// alive by. Without a `stream` field nothing can say that work is pending on the memory, so an import waits for it.
///
/// ```
/// # use interop_core::{CudaArray, Device, Owner};
/// // SAFETY: `owner` keeps the memory behind the pointer until the struct is dropped.
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len])]
/// struct Samples {
///     #[cuda_array(data(unsafe_raw))]
///     values: *mut f32,
///     len: usize,
///     #[cuda_array(device)]
///     device: Device,
///     #[cuda_array(owner)]
///     owner: Owner,
/// }
///
/// // An export can be dropped on any thread, and a raw pointer is `Send` only when somebody says so. For `share_dlpack` and
/// // `python` it takes `Sync` too.
/// // SAFETY: the memory may be used and released on any thread.
/// unsafe impl Send for Samples {}
/// ```
///
/// The word `unsafe_raw` is where the `unsafe` of the generated code is: with `#![forbid(unsafe_code)]` rustc rejects that
/// word, and clippy asks for a `// SAFETY:` comment above it. Everything else that is generated passes under
/// `#![forbid(unsafe_code)]`.
///
/// # Imports
///
/// An import makes a whole struct. Roles are filled from what arrives: extents, shape, strides, stream, device, and at
/// last the data. Literals, const generics and constants in `shape = [...]` are compared; a name that stands there twice
/// must have met the same extent twice. Whatever does not fit is an error that gives the import back, before anything was
/// taken.
///
/// A field without a role needs `default`, and has none on a struct with `export`; `default = expression` takes any
/// expression, and an error that leaves it by `?`
/// gives the import back. It also goes with two roles that can be the struct's own: with `stream, default = expression`
/// the import is ordered on that stream and not on the caller's, which is for stream types that cannot hold a handle of
/// somebody else, and waits on the host if the expression is no stream (`None`); `owner, default` is for an owner beside
/// a storage, which owns the memory of an import by itself.
///
/// # Generics
///
/// Type parameters, lifetimes, const generics, defaults and where-clauses are all repeated. For a field whose type is
/// generic, the impl asks for the role of the type (`S: Storage`) by itself; write no bounds for the derive.
///
/// # Lints
///
/// Generated code is silent under rustc's and clippy's lints. `#[allow(deprecated)]` and `#[allow(unsafe_code)]` on the
/// struct or a field reach the generated impls.
///
/// # Errors
///
/// All mistakes of a struct are reported in one compile, each on the word that is wrong and with what to write. A struct
/// with mistakes still has both traits, so there are no further errors where it is used. Some messages, and what they are
/// about:
///
/// | message | reason |
/// | --- | --- |
/// | an import cannot fill the field `x` | it has no role; say how to fill it (`default`), or that there are no imports (`export`) |
/// | `X` cannot be the `data` of a `CudaArray` | the type does not say where its memory is; implement `Storage` for types of your own |
/// | `X` cannot be filled by an import | the type is a storage that only exports |
/// | `X` cannot hold the stream of an import | it owns its stream; `stream, default = expression` |
/// | nothing would keep the memory of an import alive | a raw pointer needs a field with `owner` |
/// | usage of an `unsafe` block | the crate denies unsafe code, and `unsafe_raw` is some |
#[proc_macro_derive(CudaArray, attributes(cuda_array))]
pub fn derive_cuda_array(input: TokenStream) -> TokenStream {
    derive::derive(&parse_macro_input!(input as DeriveInput)).into()
}

/// Makes a struct the element type of arrays.
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
/// let facts = Cloud { particles, len: 5 }.facts()?;
/// assert_eq!(facts.shape(), [5]);
/// assert_eq!(facts.record().map(|record| record.fields.len()), Some(2));
/// # Ok::<(), interop_core::Error>(())
/// ```
///
/// # What is generated
///
/// `unsafe impl Element`. It is sound whatever the struct is: each field is an element of itself, offsets are those of the
/// compiler, and a struct that an attribute macro changed below the derive does not compile.
///
/// The struct is `Copy` and has one of two layouts:
///
/// | layout | an array of it |
/// | --- | --- |
/// | `#[repr(C)]` | CUDA Array Interface: a structured array, whose `descr` has the names of the fields (`f0`, `f1`, … in a tuple struct). DLPack: one more axis, when all fields are of one scalar type without padding |
/// | `#[repr(transparent)]` | what an array of the one field is |
///
/// Fields of type `PhantomData` do not count. Type parameters are elements, or only mark; the derive asks for what it
/// needs. `#[cuda_array(crate = "path")]` says where the runtime is, if not at `::interop_core`.
///
/// Refused are layouts that rustc may change, packed structs, and types that not all bytes are a value of: enums, unions,
/// pointers, and `bool` in a struct; and lists without items, or more than four in each other.
///
/// An element is `Send` and `Sync`, so a marker is one as well: `PhantomData<fn() -> T>` is, whatever `T` is.
#[proc_macro_derive(Element, attributes(cuda_array))]
pub fn derive_element(input: TokenStream) -> TokenStream {
    element::derive(&parse_macro_input!(input as DeriveInput)).into()
}

/// The example in the README, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
