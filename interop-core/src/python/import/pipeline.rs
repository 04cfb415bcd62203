//! Imports a Python object, as it is or as a derived struct: tries the protocols one after another.
#![expect(unsafe_code, reason = "does not verify what an object states about its memory")]

use std::rc::Rc;
use std::sync::Arc;

use pyo3::exceptions::{PyBufferError, PyException, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::array::device::Device;
use crate::array::dtype::DType;
use crate::array::info::ArrayInfo;
use crate::array::mutability::Mutability;
use crate::array::stream::StreamHandle;
use crate::cuda::pointer::Verification;
use crate::derive::from_array::FromArray;
use crate::derive::kept::Kept;
use crate::error::{Error, ErrorKind};
use crate::memory::extraction::Extraction;
use crate::memory::import::{Import, Protocol};
use crate::python::detach::{AssertSend, detached};
use crate::python::errors::{Failure, in_words, not_an_array, with_origin};
use crate::python::import::buffer::from_buffer;
use crate::python::import::steps::{
    Request, Step, from_cuda_array_interface, from_dlpack, from_exchange_table,
};
use crate::python::import::type_cache::{TypeInfo, type_info};
use crate::python::interface_dict::address;
use crate::python::interpreter::attribute;
use crate::python::py_owner::release_deferred_refs;

/// The steps of an import, in their order.
const STEPS: [Step; 4] = [from_exchange_table, from_dlpack, from_cuda_array_interface, from_buffer];

impl Request<'_, '_> {
    /// Fills an empty import by the first step whose protocol the object supports.
    pub(crate) fn import_to(&self, to: &mut Import) -> PyResult<()> {
        let mut answers = STEPS.into_iter().map(|step| step(self, to));
        match answers.find(|answer| !matches!(answer, Ok(false))) {
            Some(Ok(_)) => {}
            Some(Err(failure)) => self.recover(failure, to)?,
            None => return Err(not_an_array(self.object)),
        }
        if to.protocol() == Some(Protocol::DlpackLegacy) {
            trust_interface(self, to)?;
        }
        self.class.values.check(self.object, to.info())
    }

    /// After a failure, imports by another protocol if the object supports one that can express the array: by the
    /// interface dict if negative strides were the reason, which `CuPy` writes correctly there, and by the buffer protocol
    /// if `__dlpack__` refused the array.
    ///
    /// Otherwise the failure is returned. An error of the other protocol is its cause, or has it as the cause.
    #[cold]
    fn recover(&self, failure: Failure, to: &mut Import) -> PyResult<()> {
        let lost_strides = matches!(&failure, Failure::Invalid(error) if lost_negative_strides(error));
        let is_raised = matches!(&failure, Failure::Raised(_));
        let (py, refused) = (self.object.py(), PyErr::from(failure));
        if is_raised && self.class.method.is_native && is_refusal(py, &refused) {
            return self.recover_by_buffer(refused, to);
        }
        if !lost_strides {
            return Err(refused);
        }
        match from_cuda_array_interface(self, to).map_err(|failure| failure.with_origin(self.object)) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(why) if why.is_instance_of::<PyException>(py) => refused.set_cause(py, Some(why)),
            Err(interrupt) => return Err(interrupt),
        }
        Err(refused)
    }

    /// Imports by the buffer protocol an array that `__dlpack__` refused: structs, and read-only arrays of `NumPy` before
    /// 2.1 and flags before 1.25.
    fn recover_by_buffer(&self, refused: PyErr, to: &mut Import) -> PyResult<()> {
        let py = self.object.py();
        match from_buffer(self, to) {
            Ok(true) => Ok(()),
            Err(Failure::Invalid(error)) => Err(explained(py, refused, error)),
            Err(Failure::Raised(interrupt)) if !interrupt.is_instance_of::<PyException>(py) => Err(interrupt),
            _ => Err(match date_error(self.object) {
                Some(error) => explained(py, refused, error),
                None => refused,
            }),
        }
    }
}

/// Returns whether an exception of `__dlpack__` means that the protocol cannot express the array.
fn is_refusal(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyBufferError>(py) || error.is_instance_of::<PyTypeError>(py)
}

/// An exception of the class of `refused`, with the reason from this crate.
fn explained(py: Python<'_>, refused: PyErr, error: Error) -> PyErr {
    let explained = PyErr::from_type(refused.get_type(py), error.into_python_message(in_words));
    explained.set_cause(py, Some(refused));
    explained
}

/// Returns the error for an array of dates: `NumPy` does not say what to do with them.
fn date_error(object: &Bound<'_, PyAny>) -> Option<Error> {
    let dtype = object.getattr(intern!(object.py(), "dtype")).ok()?;
    let typestr: String = dtype.getattr(intern!(object.py(), "str")).ok()?.extract().ok()?;
    let error = DType::from_typestr(&typestr).err()?;
    error.has_python_hint().then(|| with_origin(object, error))
}

/// Returns whether a tensor was rejected for the strides that `CuPy` writes for a reversed array: it divides them as
/// unsigned numbers.
fn lost_negative_strides(error: &Error) -> bool {
    error.kind() == ErrorKind::Overflow && error.location() == "strides"
}

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

/// Fills an empty import. Returns what is known of the object's class. Not generic, so that it is compiled once.
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

/// Makes an import from a legacy capsule writable, if an interface dict of the object states so for the same address.
///
/// Warp has a CUDA Array Interface for device memory, and a `NumPy` array interface for host memory.
///
/// # Errors
///
/// Exceptions that are not an `Exception`, such as `KeyboardInterrupt`. A dict that cannot be read has no effect.
pub(crate) fn trust_interface(request: &Request<'_, '_>, import: &mut Import) -> PyResult<()> {
    let object = request.object;
    if import.info().mutability() != Mutability::ReadOnly || !request.class.method.has_writable_dict {
        return Ok(());
    }
    match states_writable(object, import.info()) {
        Ok(true) => import.info.mutability = Mutability::Writable,
        Err(error) if !error.is_instance_of::<PyException>(object.py()) => return Err(error),
        _ => {}
    }
    Ok(())
}

fn states_writable(object: &Bound<'_, PyAny>, info: &ArrayInfo) -> PyResult<bool> {
    let py = object.py();
    let names = [intern!(py, "__cuda_array_interface__"), intern!(py, "__array_interface__")];
    // The second name is only for host memory.
    let names = if info.device() == Device::CPU { &names[..] } else { &names[..1] };
    for name in names {
        if let Some(interface) = attribute(object, name)? {
            return names_writable(&interface, intern!(py, "data"), info);
        }
    }
    Ok(false)
}

/// Returns whether `data` in the dict is `(address of the array, False)`. An array without elements may have any
/// address.
fn names_writable(
    interface: &Bound<'_, PyAny>,
    key: &Bound<'_, PyString>,
    info: &ArrayInfo,
) -> PyResult<bool> {
    let Ok(dict) = interface.cast::<PyDict>() else { return Ok(false) };
    let Some(data) = dict.get_item(key)? else { return Ok(false) };
    let (address, is_read_only) = address(&data)?;
    Ok(!is_read_only && (info.numel() == 0 || address == info.address))
}
