//! Imports a Python object, as it is or as a derived struct.
#![expect(unsafe_code, reason = "does not verify what an object states about its memory")]

use std::rc::Rc;
use std::sync::Arc;

use pyo3::prelude::*;

use crate::array::stream::StreamHandle;
use crate::cuda::pointer::Verification;
use crate::derive::from_array::FromArray;
use crate::derive::kept::Kept;
use crate::memory::extraction::Extraction;
use crate::memory::import::Import;
use crate::python::detach::{AssertSend, detached};
use crate::python::errors::with_origin;
use crate::python::import::steps::Request;
use crate::python::import::type_cache::{TypeInfo, type_info};
use crate::python::py_ref::release_deferred_refs;

/// Imports any object that supports DLPack, the CUDA Array Interface or the buffer protocol, for work on `stream`.
///
/// `__dlpack__` is preferred to `__cuda_array_interface__`. If the tensor's strides are not valid, the interface dict
/// is used: `CuPy` loses the sign of negative strides in DLPack, but not in its dict.
///
/// Host memory without `__dlpack__` is imported by the buffer protocol: `bytearray`, `memoryview`, `array.array`, `ctypes`.
/// So is an array that a `__dlpack__` in C refuses, such as a structured array of `NumPy`. The buffer is released when the
/// import is dropped, so a `bytearray` cannot be resized meanwhile.
///
/// The import passes the stream to the producer: no argument for CPU memory, otherwise a number. If `stream` is `None`,
/// that is the legacy default stream. Some producers accept the stream but do not wait (arrays of nanobind, TVM FFI and
/// `cuda.core`). For these, make the stream wait for pending work before the call.
///
/// A `PyTorch` tensor that is conjugated or negated lazily is rejected, and so is a masked `NumPy` array with masked
/// elements. A tensor that requires a gradient is rejected unless gradients are not recorded (`torch.no_grad()`), because
/// `PyTorch` would not know what Rust did with it.
///
/// A legacy capsule cannot express whether its memory is writable, so it counts as read-only. It is writable if an
/// interface dict of the object (`__cuda_array_interface__`, or `__array_interface__` for host memory) states so for
/// the same address, as that of Warp does, and that of `NumPy` before 2.1. A read-only array, which such a `NumPy` does
/// not export, is imported by the buffer protocol.
///
/// The import keeps the object alive, or the object that it returned. The garbage collector does not see this
/// reference, as with NumPy arrays that are imported by DLPack. So an object that holds an array imported from itself
/// is freed only after it drops that array.
///
/// # Errors
///
/// - `TypeError` for an object that supports none of these protocols, or returns a value of the wrong type.
/// - `ArrayError` (a `BufferError` and a `ValueError`) for an array that cannot be used.
///
/// Both messages name the class of the object. Exceptions of the producer are passed on unchanged. If a `__dlpack__` and
/// the buffer protocol have failed, the first exception is the cause of the second (`__cause__`).
///
/// ```no_run
/// use interop_core::python::{extract_stream, import};
/// use pyo3::prelude::*;
///
/// #[pyfunction]
/// #[pyo3(signature = (array, stream=None))]
/// fn describe(array: &Bound<'_, PyAny>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<String> {
///     let import = import(array, stream.map(extract_stream).transpose()?)?;
///     let info = import.info();
///     Ok(format!("{} {:?} on {} by {:?}", info.dtype(), info.shape(), info.device(), import.protocol()))
/// }
/// ```
pub fn import(object: &Bound<'_, PyAny>, stream: Option<StreamHandle>) -> PyResult<Import> {
    import_with(object, stream, Verification::Full)
}

/// As [`import`], but does not ask the driver about the device and the size of the memory that a DLPack tensor states.
///
/// This saves one driver call for CUDA memory. An interface dict is always verified, because it does not contain the
/// device.
///
/// It is the only way to import memory that a graph allocates during capture, because the driver knows that memory only
/// after the graph has run.
///
/// # Errors
///
/// As [`import`], for rules that need no driver.
///
/// # Safety
///
/// The device and the extent that the object states are correct, and work on the memory is in primary contexts
/// ([`Import::from_dlpack_unchecked`]). Import only objects of libraries that are known to state them correctly.
pub unsafe fn import_unchecked(object: &Bound<'_, PyAny>, stream: Option<StreamHandle>) -> PyResult<Import> {
    import_with(object, stream, Verification::Skipped)
}

fn import_with(
    object: &Bound<'_, PyAny>,
    stream: Option<StreamHandle>,
    verification: Verification,
) -> PyResult<Import> {
    let mut import = Import::EMPTY;
    let class = import_to(object, stream, verification, &mut import)?;
    import.origin = Some(Arc::clone(&class.origin));
    Ok(import)
}

/// Fills an empty import. Returns the properties of the object's class. Not generic, so that it is compiled once.
pub(crate) fn import_to(
    object: &Bound<'_, PyAny>,
    stream: Option<StreamHandle>,
    verification: Verification,
    to: &mut Import,
) -> PyResult<Rc<TypeInfo>> {
    release_deferred_refs(object.py());
    let class = type_info(object)?;
    Request { object, class: &class, stream, verification }.import_to(to)?;
    Ok(class)
}

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
    let mut import = Import::EMPTY;
    import_to(object, None, Verification::Full, &mut import)?;
    let array = T::assemble(&mut Extraction::new(&mut import).waiting_in(take_detached));
    array.map_err(|error| with_origin(object, error).into())
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

impl<'a, 'py, A: FromArray> FromPyObject<'a, 'py> for Kept<A> {
    type Error = PyErr;
    crate::__python_hint! { INPUT_TYPE ANY_ARRAY }

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        import_as(&object)
    }
}
