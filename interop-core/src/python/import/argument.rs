//! Imports any object as a derived struct, for arguments of functions.
#![expect(unsafe_code, reason = "believes what an object says of its memory")]

use pyo3::prelude::*;

use crate::cuda::verify::Verification;
use crate::derive::from_array::FromArray;
use crate::memory::extraction::Extraction;
use crate::memory::import::Import;
use crate::python::detach::{AssertSend, detached};
use crate::python::errors::of;
use crate::python::import::step::Request;
use crate::python::import::type_cache::type_info;
use crate::python::py_owner::release_deferred_refs;

/// Imports any object as a derived struct.
///
/// `#[cuda_array(python)]` does this with an argument. Call this function yourself for example in a `#[new]` method of
/// a class.
///
/// # Errors
///
/// As [`import`](crate::python::import::pipeline::import()), `ArrayError` for an array that does not match the struct,
/// and `MemoryError` if a copy cannot be allocated.
///
/// ```no_run
/// use interop_core::python::import_as;
/// use interop_core::{CudaArray, Lease};
/// use pyo3::prelude::*;
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len])]
/// struct Samples<S> { #[cuda_array(data)] values: S, len: usize }
///
/// #[pyclass(frozen)]
/// struct Peak { #[pyo3(get)] height: f32 }
///
/// #[pymethods]
/// impl Peak {
///     #[new]
///     fn new(array: &Bound<'_, PyAny>) -> PyResult<Self> {
///         let samples: Samples<Lease<f32>> = import_as(array)?;
///         Ok(Self { height: samples.to_vec::<f32>()?.into_iter().fold(f32::NEG_INFINITY, f32::max) })
///     }
/// }
/// ```
///
/// If an argument may have one of several types, do not try one `import_as` after another, because that hides why the
/// first one failed. Instead [`import`](crate::python::import::pipeline::import()) the object, check
/// [`ArrayInfo::dtype`](crate::array::info::ArrayInfo::dtype), and create the struct with [`FromArray::from_import`].
/// Do that in `py.detach`, because a copy, or an import of pinned or managed memory, may wait for a device.
pub fn import_as<T: FromArray>(object: &Bound<'_, PyAny>) -> PyResult<T> {
    import_as_with(object, Verification::Full)
}

/// As [`import_as`], but does not verify what a DLPack tensor states about its memory, as
/// [`import_unchecked`](crate::python::import::pipeline::import_unchecked).
///
/// # Errors
///
/// As [`import_as`], for rules that need no driver.
///
/// # Safety
///
/// As [`import_unchecked`](crate::python::import::pipeline::import_unchecked).
pub unsafe fn import_as_unchecked<T: FromArray>(object: &Bound<'_, PyAny>) -> PyResult<T> {
    import_as_with(object, Verification::Skipped)
}

fn import_as_with<T: FromArray>(object: &Bound<'_, PyAny>, verification: Verification) -> PyResult<T> {
    let mut import = Import::EMPTY;
    import_to(object, verification, &mut import)?;
    let array = T::assemble(&mut Extraction::new(&mut import).waiting_in(take_detached));
    array.map_err(|error| of(object, error).into())
}

/// Fills an empty import. Not generic, so that it is compiled once.
fn import_to(object: &Bound<'_, PyAny>, verification: Verification, to: &mut Import) -> PyResult<()> {
    release_deferred_refs(object.py());
    let class = type_info(object)?;
    Request { object, class: &class, stream: None, verification }.import_to(to)
}

/// Runs a closure for the storage of an argument, [`detached`] from the interpreter.
pub(crate) fn take_detached(take: &mut dyn FnMut()) {
    // SAFETY: an import runs on a thread that is attached.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: a storage holds no references to Python objects, because its `take` may be called on any thread.
    let take = unsafe { AssertSend::new(take) };
    detached(py, move || take.run());
}

/// The bounds that Python needs apply to the struct, not to each of its type parameters. Compiled as a test.
///
/// ```no_run
/// use interop_core::{CudaArray, Lease};
/// use pyo3::prelude::*;
/// use std::marker::PhantomData;
///
/// trait Backend {
///     type Buffer;
/// }
///
/// struct Host;
///
/// impl Backend for Host {
///     type Buffer = Lease<f32>;
/// }
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len], python)]
/// struct Samples<B: Backend, M> {
///     #[cuda_array(data)]
///     values: B::Buffer,
///     len: usize,
///     #[cuda_array(default)]
///     marker: PhantomData<fn() -> M>,
/// }
///
/// #[pyfunction]
/// fn same(samples: Samples<Host, std::rc::Rc<u8>>) -> Samples<Host, std::rc::Rc<u8>> {
///     samples
/// }
/// ```
#[cfg(all(doctest, feature = "derive"))]
struct Parameters;
