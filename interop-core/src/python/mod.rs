//! Python objects in and out, through PyO3 (feature `python`).
//!
//! Three ways, by how much of the Python face is your own:
//!
//! * `#[cuda_array(python)]`: the struct is an argument and a return value of `#[pyfunction]`s. As an argument it is
//!   [imported](import) from any object that speaks a protocol; as a return value it becomes an object of the
//!   class `interop_core.ExportedArray`, which speaks both protocols.
//! * `#[cuda_array(pyclass)]` on a frozen `#[pyclass]`: the class has the methods of an array beside those of your own
//!   `#[pymethods]`; [`add_class`] adds it to a module.
//! * By hand: [`import_as`], [`import`], [`import_capsule`] and [`export`].
//!
//! What Python gets is used as an array, of either class: `shape`, `dtype` and their like, `len()`, indices and slices (views in
//! place, on a device too), iteration, `T`, `transpose`, `reshape`; operators, comparisons by element, reductions and NumPy's
//! functions, which are NumPy's and for memory that the host can reach; `copy`, and pickles with the elements as NumPy's array;
//! the buffer protocol. It is frozen as an object and not as memory: `array[0] = 1` and `array += 1` write where that is allowed,
//! and like NumPy's it has no hash. What a class has of its own is kept.
//!
//! A function that is to return an array of a library says so in its return type: [`NumPy`], [`PyTorch`], [`CuPy`], [`Jax`], or
//! [`SameKind`] for the kind that the caller brought in a [`FromCaller`]. New memory for a result may come from the caller's
//! library as well ([`FromCaller::new_like`]).
//!
//! With the feature `stubs`, `maturin generate-stubs` says the types of derived structs, by those in
//! `python/interop_core-stubs` of this crate: copy that folder to your project, as `examples/hello-python` has it.
//!
//! Take an argument by value: the struct is a handle, not the elements. In `py.detach` lend it to the closure. One that is moved
//! in is dropped without the interpreter's lock, and if the array is of a class of this crate's, its object goes with the next
//! import or export of the extension module that made it, or by [`release_deferred_refs`] there.
//!
//! A module is for one interpreter of a process. `PyO3` lets a second one import it, but its classes are the same in both, and
//! from Python 3.12 on the two mix up the methods of such classes, whatever module they are of.
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
//!     image.view_mut::<f32, 2>()?.into_host_view_mut()?.map_inplace(|value| 1.0 - value)?;
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
//! A class of arrays is frozen, so its methods have `&self`, which reads: [`to_vec`](crate::CudaArray::to_vec),
//! [`for_each`](crate::CudaArray::for_each), views. A method that writes takes the Python object instead, and imports it as
//! everybody else does.
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
//!         let mut loudest = 0.0_f32;
//!         self.for_each::<f32>(|value| loudest = loudest.max(value.abs()))?;
//!         Ok(loudest)
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
//! A class that has arrays, and is none itself, hands them out by getters: the data of the struct is an
//! [`Arc`](std::sync::Arc) around the storage, of which each read of the attribute takes a clone. All objects that Python gets
//! are of the same memory, which stays until the last is gone, also if the field is replaced. Such a class need not be frozen.
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
//!     /// Takes a copy; with `LeaseMut<f32>` in the place of `HostVec<f32>` it keeps the caller's array.
//!     #[setter]
//!     fn set_weights(&mut self, weights: Weights<HostVec<f32>>) {
//!         self.weights = Weights { values: Arc::new(weights.values), len: weights.len };
//!     }
//! }
//! ```

pub(crate) mod capsule;
pub(crate) mod class;
pub(crate) mod convert;
pub(crate) mod detach;
pub(crate) mod errors;
pub(crate) mod exception_state;
pub(crate) mod export;
pub(crate) mod ffi_boundary;
#[cfg(feature = "stubs")]
#[doc(hidden)]
pub mod hints;
pub(crate) mod import;
pub(crate) mod interpreter;
pub(crate) mod py_owner;
pub(crate) mod shared_borrows;

pub use crate::python::class::array_class::ArrayClass;
pub use crate::python::class::index::{Indexed, index_basic};
pub use crate::python::class::install::add_class;
pub use crate::python::convert::{extract_integer, extract_stream};
pub use crate::python::errors::{array_error_type, stream_error_type};
pub use crate::python::export::allocate::NewArray;
pub use crate::python::export::dlpack::export;
pub use crate::python::export::request::DlpackArgs;
pub use crate::python::export::results::{CuPy, FromCaller, Jax, NumPy, PyTorch, SameKind, like};
pub use crate::python::import::argument::{import_as, import_as_unchecked};
pub use crate::python::import::capsule::import_capsule;
pub use crate::python::import::interface_dict::extract_interface;
pub use crate::python::import::pipeline::{import, import_unchecked};
pub use crate::python::import::producer_wait::make_producer_wait;
pub use crate::python::py_owner::{deferred_ref_count, release_deferred_refs};

/// What the expansions of `python` and `pyclass` call.
#[doc(hidden)]
pub mod expansion {
    pub use crate::python::class::array_class::ArrayMethods;
    pub use crate::python::class::install::install;
    pub use crate::python::class::install::into_object;
    #[cfg(feature = "stubs")]
    pub use crate::python::hints;
    pub use crate::python::import::argument::import_as;
    pub use core::primitive::str;
    pub use pyo3;
    pub use pyo3::Borrowed;
    pub use pyo3::PyAny;
    pub use pyo3::PyErr;
    pub use pyo3::prelude::Bound;
    pub use pyo3::prelude::FromPyObject;
    pub use pyo3::prelude::IntoPyObject;
    pub use pyo3::prelude::Python;
}
