//! The macros of [`interop-core`](https://docs.rs/interop-core) and [`interop-kernel`](https://docs.rs/interop-kernel).
//!
//! `interop-core` has `#[derive(CudaArray)]` for structs that hold array memory, and `#[derive(Element)]` for element types.
//! `interop-kernel` has `#[kernel]` and `#[derive(KernelElement)]`. Depend on these crates: they re-export the macros and contain
//! the functions that the generated code calls. Each derive has a manual: [`CudaArray`](macro@CudaArray),
//! [`Element`](macro@Element).

// `attribute_syntax` and `attributes` read tokens, `cross_rules` and `resolve` make a checked `model` of them, and `expand` code of that.
// `tests/golden` has examples of the code.
mod attribute_syntax;
mod attributes;
mod cross_rules;
mod derive_cuda_array;
mod derive_element;
mod derive_kernel_element;
mod device_names;
mod element_fields;
mod errors;
mod expand;
mod exported_function;
mod fields;
mod generics;
#[cfg(test)]
#[path = "../tests/golden/mod.rs"]
mod golden;
mod hygiene;
mod kernel;
#[cfg(test)]
#[path = "../tests/keyword_combinations.rs"]
mod keyword_combinations;
mod keyword_options;
mod keywords;
mod model;
mod operator_expression;
mod operators;
mod pointer_rules;
mod python;
mod rejected_by_rustc;
mod repr;
mod resolve;
mod shape_constants;
mod shape_list;
mod shape_rules;
#[cfg(test)]
#[path = "../tests/single_mistakes.rs"]
mod single_mistakes;
mod struct_spec;
mod stub_impls;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

// Before the references of the file, which lead to other files of the repository: the first definition wins.
#[doc = "[core]: https://docs.rs/interop-core"]
#[doc = "[memory]: https://docs.rs/interop-core/latest/interop_core/guide/memory/\n"]
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
/// let particles = HostVec::from([Particle { position: [0.0; 3], charge: 1.0 }; 5]);
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

/// Makes a struct an element of arrays in kernels, and an argument of them.
///
/// ```
/// use interop_kernel::{KernelElement, LaunchSize, Thread, ViewMut, kernel};
///
/// #[derive(Clone, Copy, KernelElement)]
/// #[repr(C)]
/// struct Point {
///     x: f32,
///     y: f32,
/// }
///
/// #[kernel]
/// fn shift(thread: Thread<'_>, mut points: ViewMut<'_, Point, 1>, by: Point) {
///     for at in thread.elements(points.shape()) {
///         let Point { x, y } = points.get(at);
///         points.set(at, Point { x: x + by.x, y: y + by.y });
///     }
/// }
///
/// let mut points = [Point { x: 0.0, y: 1.0 }; 3];
/// shift::run(LaunchSize::for_units(3), ViewMut::new(&mut points, [3]), Point { x: 2.0, y: 3.0 });
/// assert_eq!((points[2].x, points[2].y), (2.0, 4.0));
/// ```
///
/// The struct is `Copy` and has no generics. It is `#[repr(C)]` or `#[repr(transparent)]`, its fields are elements of kernels, and
/// there is no padding between them: a launch passes bytes. The code that is generated is `unsafe impl KernelElement` and these
/// checks. It needs `core` only, so it is the same on a device.
///
/// Arrays of a scope need `interop_core::Element`, too, which has a derive of its own, for the host.
#[proc_macro_derive(KernelElement)]
pub fn derive_kernel_element(input: TokenStream) -> TokenStream {
    derive_kernel_element::derive(&parse_macro_input!(input as DeriveInput)).into()
}

/// Makes a function a CUDA kernel: an entry point on the device, and on the host a type of the same name.
///
/// ```
/// use interop_kernel::{LaunchSize, Thread, View, ViewMut, kernel};
///
/// /// Adds the elements of one array to those of another.
/// #[kernel(same_shape(to, from))]
/// pub fn add(thread: Thread<'_>, mut to: ViewMut<'_, f32, 2>, from: View<'_, f32, 2>, factor: f32) {
///     for at in thread.elements(to.shape()) {
///         to.set(at, to.get(at) + factor * from.get(at));
///     }
/// }
///
/// let (mut to, from) = ([1.0; 6], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
/// add::run(LaunchSize::for_units(6), ViewMut::new(&mut to, [2, 3]), View::new(&from, [2, 3]), 10.0);
/// assert_eq!(to, [11.0, 21.0, 31.0, 41.0, 51.0, 61.0]);
/// ```
///
/// The first parameter is `Thread<'_>`, `BlockThread<'_>` or `Team<'_>`. Up to twelve others are views, `Elementwise`, numbers and
/// structs with `#[derive(KernelElement)]`. `same_shape(a, b)`, `same_rows(a, b)` and `same_columns(a, b)` name views of which a
/// launch compares all, the first or the last extents. `T = [f32, bf16]` lists the types of a generic kernel. `crate = "path"`
/// says where `interop-kernel` is.
///
/// # Generated code
///
/// For the target `nvptx64-nvidia-cuda`, an `extern "ptx-kernel"` function. For all others, the function as it is written, and an
/// empty enum of its name:
///
/// | function | what it does |
/// | --- | --- |
/// | `add::run(size, …)` | runs the kernel on the CPU, one thread after the other |
/// | `add::run_in_threads(size, …)` | the same with one thread of the system for each thread of a block |
/// | `add::with(…)` | returns the arguments of a launch, with the types of the parameters |
/// | `add::try_with(…)` | the same, of the results that a scope returns for arrays; an error names the parameter |
///
/// The entry point is `#[unsafe(no_mangle)]`. Beside it, the PTX gets a constant that says what the parameters are in bytes, which
/// the first launch compares with the program. All of it compiles under `#![forbid(unsafe_code)]`.
#[proc_macro_attribute]
pub fn kernel(options: TokenStream, item: TokenStream) -> TokenStream {
    kernel::expand(options.into(), item.into()).into()
}

/// The name of an identifier as a string: `"type"` for `r#type`, of which `stringify!` keeps the `r#`.
#[doc(hidden)]
#[proc_macro]
pub fn __name(identifier: TokenStream) -> TokenStream {
    exported_function::name(&identifier.into()).into()
}

/// The body of an exported function, for `export!` of `interop-tvm-ffi`: `__body!(name(parameter, …))`.
#[doc(hidden)]
#[proc_macro]
pub fn __body(function: TokenStream) -> TokenStream {
    parse_macro_input!(function as exported_function::Function).body().into()
}

/// The list `operators "namespace"; …` of `export!` of `interop-tvm-ffi`: `__operators!($crate, "namespace"; #[rule(…)] name(parameter, …); …)`.
#[doc(hidden)]
#[proc_macro]
pub fn __operators(list: TokenStream) -> TokenStream {
    parse_macro_input!(list as operators::Operators).expand().into()
}
