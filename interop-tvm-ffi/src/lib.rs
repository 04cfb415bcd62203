#![doc = include_str!("../README.md")]

pub mod abi;
mod answer;
mod argument;
mod call;
mod error;
#[doc = include_str!("guide.md")]
pub mod guide {}
mod new_array;
mod runtime;

pub use answer::Answer;
pub use argument::Argument;
pub use call::{Call, interop_tvm_ffi_last_error};
pub use error::CallError;
pub use new_array::NewArray;

#[doc(hidden)]
pub mod __private {
    //! What expanded code calls. The interface is not stable.

    pub use crate::answer::answer;
    pub use crate::argument::{ArrayKind, ListKind, OptionKind, ValueKind};
    pub use crate::call::{Arguments, run};
}

/// Exports functions under the symbols by which TVM FFI finds them, `__tvm_ffi_<name>`.
///
/// Each function is listed with the names of its parameters, for errors. It must be in scope, and its parameters and its
/// result have types of [`Argument`] and [`Answer`]. The crate needs `crate-type = ["cdylib"]`, and may contain
/// `#![forbid(unsafe_code)]`.
///
/// ```
/// use interop_core::{BorrowedMut, CudaArray, Result};
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
#[macro_export]
macro_rules! export {
    ($($name:ident($($argument:ident),* $(,)?));+ $(;)?) => { $(
        const _: () = {
            #[unsafe(export_name = concat!("__tvm_ffi_", stringify!($name)))]
            unsafe extern "C" fn entry(
                _: *mut ::core::ffi::c_void,
                arguments: *const $crate::abi::TVMFFIAny,
                count: i32,
                result: *mut $crate::abi::TVMFFIAny,
            ) -> i32 {
                // SAFETY: as the caller of a `TVMFFISafeCallType` promises.
                unsafe {
                    $crate::__private::run(stringify!($name), arguments, count, result, |from| {
                        // A parameter may have the name of the function.
                        let function = $name;
                        $(let $argument = from.read(stringify!($argument))?;)*
                        from.end()?;
                        $crate::__private::answer(function($($argument),*), from)
                    })
                }
            }
        };
    )+ };
}
