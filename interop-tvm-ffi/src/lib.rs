//! Rust functions over arrays that PyTorch (also compiled), JAX (under `jit`), NumPy, CuPy and C call, from one shared library.
//!
//! ```
//! use interop_core::lent::{Borrowed, BorrowedMut};
//! use interop_core::{CudaArray, Result};
//!
//! #[derive(CudaArray)]
//! #[cuda_array(shape = [len])]
//! struct Row<S> {
//!     #[cuda_array(data)]
//!     values: S,
//!     len: usize,
//! }
//!
//! /// Adds a row, multiplied by a factor, to another row.
//! fn axpy_(mut to: Row<BorrowedMut<'_, f32>>, from: Row<Borrowed<'_, f32>>, factor: f32) -> Result<()> {
//!     to.zip_map_inplace(&from, |to: f32, from: f32| to + from * factor)
//! }
//!
//! interop_tvm_ffi::export! { axpy_(to, from, factor) }
//! ```
//!
//! ```python
//! import numpy as np, tvm_ffi
//!
//! functions = tvm_ffi.load_module("target/release/libmine.so")
//! functions["axpy_"](np.zeros(3, np.float32), np.ones(3, np.float32), 2.0)
//! ```
//!
//! * **Checked.** A wrong element type, rank, layout, device or number of arguments is a Python exception that says what was found
//!   and what is allowed. Arguments that overlap are refused if one is written.
//! * **In order.** A function runs on the stream of its caller, so it needs no wait, and works in CUDA graphs. If nothing tells the
//!   stream, it is ordered with all work.
//! * **Nothing is kept.** A struct over `Borrowed<'_, T>` cannot outlive the call: that does not compile. A panic becomes an exception.
//! * **Nothing is linked.** The ABI is that of [TVM FFI](https://tvm.apache.org/ffi/) 0.1, whose functions are found in the process.
//!   Building needs neither Python nor a CUDA toolkit. Your code may contain `#![forbid(unsafe_code)]`.
//!
//! | item | purpose |
//! | --- | --- |
//! | [`export!`](macro@crate::export) | makes the symbols |
//! | [`Argument`], [`ReturnValue`] | the types of parameters and results |
//! | [`Call`] | new arrays in memory of the caller, and the caller's stream |
//! | [`NewArray`] | a result in memory of the caller |
//! | [`CallError`] | an error with the class of its exception |
//! | [`guide`] | PyTorch, JAX, kernels of Hugging Face, C |
//!
//! The project `examples/hello-functions` in the repository is one to copy. Its functions are kernels in Rust, which run where the arrays
//! are: on the CPU or on a GPU.

pub mod abi;
// `abi` has the C structs, `runtime` finds the functions of `libtvm_ffi` in the process, `entry` runs a function and catches its
// panics. An argument is a `BorrowedTensor` of the core on the stream of its caller. So is a new array, whose tensor the `call` keeps
// until it ends or returns it. What `macro_rules!` cannot do is in `exported_function.rs` of `interop-derive`.
//
// `operator` has the lists of operators, their types (`signature`) and two programs of Python for their shapes, gradients and JAX.
// `torch` registers them by the stable C ABI of PyTorch: `stack` turns what the dispatcher passes into arguments of TVM FFI, so a
// kernel runs the same body. `kernel` says how errors leave it, and why an operator with gradients calls one of two others.
mod argument;
mod arguments;
mod call;
mod device_name;
mod entry;
mod error;
// Before the references of the file, which lead to other files of the repository: the first definition wins.
#[doc = "[kernels]: https://docs.rs/interop-core/latest/interop_core/guide/kernels/"]
#[doc = "[python]: https://docs.rs/interop-core/latest/interop_core/guide/python_extension/\n"]
#[doc = include_str!("guide.md")]
pub mod guide {}
mod new_array;
mod operator;
mod owned_object;
mod return_value;
mod runtime;
mod torch;

pub use argument::Argument;
pub use call::Call;
pub use entry::interop_tvm_ffi_last_error;
pub use error::CallError;
pub use new_array::NewArray;
pub use operator::list::{interop_jax_functions, interop_load_operators};
pub use return_value::ReturnValue;

#[doc(hidden)]
pub mod __private {
    //! What expanded code calls. The interface is not stable.

    pub use crate::argument::{ArrayKind, ListKind, OptionKind, ValueKind};
    pub use crate::arguments::Arguments;
    pub use crate::entry::{call_with, run};
    pub use crate::operator::list::OperatorList;
    pub use crate::operator::signature::{ItemKind, Kind, PresentKind, SchemaKind, Signature};
    pub use crate::operator::{Operation, Operator, Outcome};
    pub use interop_derive::{__body as body, __name as name, __operators as operators};
}

/// Exports functions under the symbols by which TVM FFI finds them, `__tvm_ffi_<name>`.
///
/// Each function is listed with the names of its parameters, for errors. It must be in scope, and its parameters and its
/// result have types of [`Argument`] and [`ReturnValue`]. The crate needs `crate-type = ["cdylib"]`, and may contain
/// `#![forbid(unsafe_code)]`.
///
/// ```
/// use interop_core::lent::BorrowedMut;
/// use interop_core::{CudaArray, Result};
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len])]
/// struct Row<S> { #[cuda_array(data)] values: S, len: usize }
///
/// fn shift_(mut row: Row<BorrowedMut<'_, f32>>, by: f32) -> Result<()> {
///     row.map_inplace(|value: f32| value + by)
/// }
///
/// fn largest(numbers: Vec<i64>, least: Option<i64>) -> i64 {
///     numbers.into_iter().chain(least).max().unwrap_or(0)
/// }
///
/// interop_tvm_ffi::export! {
///     shift_(row, by);
///     largest(numbers, least);
/// }
/// ```
///
/// A function cannot keep memory that it borrows. A struct that could outlive the call does not compile:
///
/// ```compile_fail
/// use interop_core::{CudaArray, LeaseMut};
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len])]
/// struct Row<S> { #[cuda_array(data)] values: S, len: usize }
///
/// fn keep(_: Row<LeaseMut<f32>>) {}
///
/// interop_tvm_ffi::export! { keep(row) }
/// ```
///
/// Neither does a result that borrows an argument: write to an argument, or return a [`NewArray`].
///
/// `operators;` before the functions also makes operators of PyTorch of them, in a namespace with the name of the crate, and functions for
/// JAX. The [`guide`] has the rules.
///
/// ```
/// use interop_core::CudaArray;
/// use interop_core::lent::{Borrowed, BorrowedMut};
/// use interop_tvm_ffi::{Call, CallError, NewArray};
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len], device = "cpu")]
/// struct Row<S> { #[cuda_array(data)] values: S, len: usize }
///
/// type New<'c> = NewArray<Row<BorrowedMut<'c, f32>>>;
///
/// fn doubled<'c>(call: &'c Call<'_>, row: Row<Borrowed<'_, f32>>) -> Result<New<'c>, CallError> {
///     let mut to: New<'_> = call.new_like(&row)?;
///     to.zip_map_inplace(&row, |_: f32, value: f32| 2.0 * value)?;
///     Ok(to)
/// }
///
/// interop_tvm_ffi::export! {
///     operators "mine";
///     #[elementwise(row)]
///     #[gradient(row = doubled(gradient))]
///     doubled(call, row);
/// }
/// ```
#[macro_export]
macro_rules! export {
    (operators; $($operators:tt)*) => {
        $crate::__private::operators! { $crate; $($operators)* }
    };
    (operators $namespace:literal; $($operators:tt)*) => {
        $crate::__private::operators! { $crate, $namespace; $($operators)* }
    };
    ($($name:ident($($argument:ident),* $(,)?));+ $(;)?) => { $(
        const _: () = {
            // An item is seen by the user's code, so its name is long. Local variables are not seen.
            #[unsafe(export_name = ::core::concat!("__tvm_ffi_", $crate::__private::name!($name)))]
            unsafe extern "C" fn __interop_entry(
                _: *mut ::core::ffi::c_void,
                arguments: *const $crate::abi::TVMFFIAny,
                count: ::core::primitive::i32,
                result: *mut $crate::abi::TVMFFIAny,
            ) -> ::core::primitive::i32 {
                // SAFETY: as the caller of a `TVMFFISafeCallType` promises.
                unsafe {
                    $crate::__private::run(
                        $crate::__private::name!($name),
                        arguments,
                        count,
                        result,
                        $crate::__private::body!($name($($argument),*)),
                    )
                }
            }
        };
    )+ };
    ($($unknown:tt)*) => {
        ::core::compile_error! {
            "expected the names of functions in scope with those of their parameters: write `export! { scale_(row, factor); largest(numbers) }`"
        }
    };
}

/// Calls [`load`](__private::OperatorList::load) of a list when the library is loaded. Expanded code calls this.
#[doc(hidden)]
#[macro_export]
macro_rules! __at_load {
    ($list:ident) => {
        #[cfg(panic = "abort")]
        ::core::compile_error! {
            "operators of PyTorch need `panic = \"unwind\"`: their errors are exceptions of C++, which pass through this library. Remove `panic = \"abort\"` from the profile, or `operators` from `export!`"
        }

        extern "C" fn __interop_at_load() {
            $list.load();
        }

        #[used]
        #[cfg_attr(any(target_os = "linux", target_os = "android"), unsafe(link_section = ".init_array"))]
        #[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
        static __INTEROP_AT_LOAD: extern "C" fn() = __interop_at_load;
    };
}
