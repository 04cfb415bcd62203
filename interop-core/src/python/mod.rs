//! Imports arrays from Python objects and exports arrays to Python, through PyO3 (feature `python`).
//!
//! There are three ways to use this module:
//!
//! * `#[cuda_array(python)]`: the struct is an argument and a return value of `#[pyfunction]`s. As an argument it is
//!   [imported](import) from any object that supports DLPack, the CUDA Array Interface or the buffer protocol. As a return
//!   value it becomes an [`ExportedArray`], a handle that supports these protocols. [`ArrayLike`] converts an argument that
//!   does not fit.
//! * `#[cuda_array(pyclass)]` on a frozen `#[pyclass]`: the class gets the methods of the protocols in addition to your own
//!   `#[pymethods]`: `__dlpack__`, `__dlpack_device__`, `__dlpack_c_exchange_api__`, `__cuda_array_interface__`, the buffer
//!   protocol, `__array__` and `__jax_array__` unless yours have it, and `__float__` and `__int__` that only raise. [`view`] is for its
//!   `__getitem__`.
//! * By hand: call [`import_as`], [`import`], [`import_capsule`] and [`export`].
//!
//! The Python object is frozen, but its memory is not: libraries write to it if the array is writable.
//!
//! A function can return an array of a library: set its return type to [`NumPy`], [`PyTorch`], [`CuPy`] or [`Jax`].
//! A [`WithLibrary`] is an argument or a result with the library of the caller's array, which can also allocate the memory for a
//! result ([`WithLibrary::new_like`]).
//!
//! With the feature `stubs`, `maturin generate-stubs` writes the types of derived structs. They refer to
//! `python/interop_core-stubs` in this crate: copy that folder to your project, as `examples/hello-python` does.
//!
//! Take an argument by value: the struct is a handle and does not contain the elements. In `py.detach`, pass it to the
//! closure by reference. A struct that is moved into the closure is dropped while the thread is detached from the
//! interpreter. If its array is an object of a class of this crate, the reference to that object is then deferred. The
//! next import or export of the extension module that created the object drops it, or [`release_deferred_refs`] in that
//! module.
//!
//! Use a module in only one interpreter of a process. `PyO3` lets a second interpreter import it, but both interpreters
//! share its classes. From Python 3.12 on, the two interpreters mix up the methods of such classes, whichever module
//! they belong to.
//!
//! ```no_run
//! use interop_core::{CudaArray, HostVec, LeaseMut};
//! use pyo3::prelude::*;
//!
//! #[derive(CudaArray)]
//! #[cuda_array(shape = [height, width], python)]
//! struct Gray<S> { #[cuda_array(data)] pixels: S, height: usize, width: usize }
//!
//! /// Works on the caller's memory.
//! #[pyfunction]
//! fn invert(mut image: Gray<LeaseMut<f32>>) -> PyResult<()> {
//!     image.map_inplace(|value: f32| 1.0 - value)?;
//!     Ok(())
//! }
//!
//! /// Hands out memory that Rust made.
//! #[pyfunction]
//! fn black(height: usize, width: usize) -> PyResult<Gray<HostVec<f32>>> {
//!     let pixels = HostVec::try_zeroed(height.saturating_mul(width))?;
//!     Ok(Gray { pixels, height, width })
//! }
//! ```
//!
//! A class of arrays is frozen, so its methods take `&self` and can only read, for example with
//! [`to_vec`](crate::CudaArray::to_vec), [`fold`](crate::CudaArray::fold) or views. A method that writes takes
//! the Python object and imports it, as other code does.
//!
//! ```no_run
//! use interop_core::python::import_as;
//! use interop_core::{CudaArray, HostVec, LeaseMut};
//! use pyo3::prelude::*;
//!
//! #[pyclass(frozen)]
//! #[derive(CudaArray)]
//! #[cuda_array(shape = [len], export, pyclass)]
//! struct Samples { #[cuda_array(data)] values: HostVec<f32>, len: usize }
//!
//! #[derive(CudaArray)]
//! #[cuda_array(shape = [len])]
//! struct InPlace { #[cuda_array(data)] values: LeaseMut<f32>, len: usize }
//!
//! #[pymethods]
//! impl Samples {
//!     fn loudest(&self) -> PyResult<f32> {
//!         Ok(self.fold(0.0, |loudest: f32, value: f32| loudest.max(value.abs()))?)
//!     }
//!
//!     fn amplify(slf: &Bound<'_, Self>, factor: f32) -> PyResult<()> {
//!         let mut own: InPlace = import_as(slf)?;
//!         own.map_inplace::<f32>(|value| value * factor)?;
//!         Ok(())
//!     }
//! }
//! ```
//!
//! A class that contains arrays, but is not an array, returns them from getters. The data of the array struct is an
//! [`Arc`](std::sync::Arc) around the storage, and each read of the attribute clones the `Arc`. All Python objects then
//! share the same memory. It is freed when the last of them is gone, even if the field has been replaced. Such a class
//! need not be frozen.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use interop_core::{CudaArray, HostVec};
//! use pyo3::prelude::*;
//!
//! #[derive(Clone, CudaArray)]
//! #[cuda_array(shape = [len], python)]
//! struct Weights<S> { #[cuda_array(data)] values: S, len: usize }
//!
//! #[pyclass]
//! struct Layer {
//!     #[pyo3(get)]
//!     weights: Weights<Arc<HostVec<f32>>>,
//! }
//!
//! #[pymethods]
//! impl Layer {
//!     /// Takes a copy of the caller's array.
//!     #[setter]
//!     fn set_weights(&mut self, weights: Weights<HostVec<f32>>) {
//!         self.weights = Weights { values: Arc::new(weights.values), len: weights.len };
//!     }
//! }
//! ```

pub(crate) mod capsule;
pub(crate) mod class;
pub(crate) mod convert;
pub(crate) mod errors;
pub(crate) mod export;
#[cfg(feature = "stubs")]
#[doc(hidden)]
pub mod hints;
pub(crate) mod import;
pub(crate) mod interface_dict;
pub(crate) mod interpreter;

pub use crate::python::class::array_class::{ArrayClass, DlpackArgs, dlpack_device, export};
pub use crate::python::class::exported_array::{ExportedArray, ExportedView, view};
#[doc(hidden)]
pub use crate::python::convert::extract_integer;
pub use crate::python::convert::extract_stream;
pub use crate::python::errors::{ArrayErrorClass, StreamErrorClass, array_error_type, stream_error_type};
pub use crate::python::export::library::make_producer_wait;
pub use crate::python::export::numpy::dtype;
pub use crate::python::export::results::{CuPy, Exported, Jax, NewArray, NumPy, PyTorch, WithLibrary};
pub use crate::python::import::array_like::ArrayLike;
pub use crate::python::import::dunder_dlpack::import_capsule;
pub use crate::python::import::object::{import, import_as, import_unchecked};
pub use crate::python::interface_dict::{cuda_array_interface, extract_cai};
#[doc(hidden)]
pub use crate::python::interpreter::deferred_ref_count;
pub use crate::python::interpreter::{drop_deferred_refs_soon, release_deferred_refs};

/// The items that the expansions of `python` and `pyclass` use.
#[doc(hidden)]
pub mod expansion {
    pub use crate::python::class::array_class::{ArrayMethods, dlpack, dlpack_device, struct_of};
    pub use crate::python::class::buffer::{get_buffer, release_buffer};
    pub use crate::python::class::exchange_table::exchange_api;
    pub use crate::python::class::exported_array::{into_object, method_of};
    #[cfg(feature = "stubs")]
    pub use crate::python::hints;
    pub use crate::python::import::object::import_as;
    pub use crate::python::interface_dict::{InterfaceDict, interface_dict};
    pub use pyo3;
    use pyo3::{Bound, PyAny, PyResult};

    /// The result of a method of a protocol.
    pub type MethodResult<'py> = PyResult<Bound<'py, PyAny>>;
}
