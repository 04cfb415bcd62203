//! Imports a Python object, as it is or as a derived struct: by the first protocol that it supports.
//!
//! A class has a list of protocols, in this order (`TypeInfo::readers`). Each fills the slot of an import, or returns why not:
//! [`Unread::Absent`], [`Unread::Refused`] or [`Unread::Failed`].
//!
//! | protocol | reads | is absent if | refuses |
//! | --- | --- | --- | --- |
//! | `NumPy` | the C struct: numbers, bools, and the types of `ml_dtypes` | the class or the object has a `__dlpack__` of its own, the memory is that of a capsule, the elements are none of these, or the struct is not that of a known ABI | – |
//! | `Dlpack` | the tensor of the C exchange table, which names the stream; if there is no table, or a subclass has a `__dlpack__` of its own, that method | there is neither | what a method in C refuses, as `NumPy` refuses structs; tensors of `CuPy` that are not valid |
//! | `Interface` | `__cuda_array_interface__` | there is none | – |
//! | `Buffer` | the buffer protocol, for host memory | there is none | – |
//!
//! `__dlpack__` is called with the stream -1 if the library's own stream is known, otherwise with that of the import, and again with
//! fewer keywords if they are refused.
#![expect(unsafe_code, reason = "relies on what an object states about its memory")]

use std::sync::Arc;

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;

use crate::array::device::DeviceType;
use crate::array::stream_handle::StreamHandle;
use crate::derive::from_array::{FromArray, assemble_named};
use crate::derive::kept::Kept;
use crate::driver::stream::Stream;
use crate::driver::stream::is_stream_of;
use crate::error::{Error, Result};
use crate::memory::extraction::Extraction;
use crate::memory::import::{Filled, Import, ImportSlot, Protocol};
use crate::order::memory_check::Verification;
use crate::order::placement::Change;
use crate::order::release::hold::NamedConsumer;
use crate::order::wait::order_streams;
use crate::python::errors::{
    Failure, Unread, explain_missing, in_words, not_an_array, set_first_cause, with_origin,
};
use crate::python::import::buffer::from_buffer;
use crate::python::import::caveats::date_error;
use crate::python::import::dunder_dlpack::{from_method, receive};
use crate::python::import::exchange_table::{ExchangeTable, WorkStream};
use crate::python::import::package::{CurrentStream, Package};
use crate::python::import::type_cache::{DlpackClass, ImportRequest, Reader, type_info};
use crate::python::interface_dict::{interface_in, trust_interface};
use crate::python::interpreter::{
    NestedCall, PyRef, attribute, free_detached, is_ordinary, release_deferred_refs, take_detached,
};

/// Imports any object that supports DLPack, the CUDA Array Interface or the buffer protocol, for work on `stream`.
///
/// An array of `NumPy` is read from its C struct, also where its `__dlpack__` is narrower: read-only arrays and flags of old
/// versions, and the types of `ml_dtypes`, such as `bfloat16`. If the class or the object has a `__dlpack__` of its own, that
/// one is called.
///
/// `__dlpack__` is preferred to `__cuda_array_interface__`. If a tensor of `CuPy` is not valid, its interface dict is
/// used: `CuPy` loses the sign of negative strides in DLPack, but not in its dict.
///
/// Host memory without `__dlpack__` is imported by the buffer protocol: `bytearray`, `memoryview`, `array.array`, `ctypes`.
/// So is an array that a `__dlpack__` in C refuses, such as a structured array of `NumPy`, if it has no dict. The buffer is
/// released when the import is dropped, so a `bytearray` cannot be resized meanwhile.
///
/// The array is ready for work on `stream`. With `None`, it stays on the stream on which its library works, if the library
/// reports that one, as PyTorch, `CuPy`, Numba and Warp do; any other library makes the legacy default stream wait. For CPU
/// memory the stream means nothing. Some producers accept the stream but do not wait (arrays of nanobind, TVM FFI and
/// `cuda.core`). For these, make the stream wait for pending work before the call.
///
/// A `PyTorch` tensor that is conjugated or negated lazily is rejected, and so is a masked `NumPy` array with masked
/// elements. A tensor that requires a gradient is rejected unless gradients are not recorded (`torch.no_grad()`), because
/// `PyTorch` would not know what Rust did with it. A storage or pointer that can write the memory in place makes `PyTorch`
/// count a write to the tensor, which needs the interpreter's lock, and rejects a tensor with a tangent; see
/// [`Import::read_only`].
///
/// A legacy capsule cannot express whether its memory is writable, so it counts as read-only. It is writable if an
/// interface dict of the object (`__cuda_array_interface__`, or `__array_interface__` for host memory) states so for
/// the same address, as that of Warp does.
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
/// Both messages name the class of the object. Exceptions of the producer are passed on unchanged. If a
/// `__dlpack__` has refused the array, and the next protocol has failed too, one exception is the cause of the other.
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
    let mut slot = ImportSlot::new();
    let filled = import_to(object, stream, verification, &mut slot)?;
    let mut import = slot.into_import(filled);
    import.origin = Some(Arc::clone(&type_info(object)?.origin));
    Ok(import)
}

/// Fills a slot. Not generic, so that it is compiled once.
///
/// # Errors
///
/// [`Failure::Invalid`] names the class of the object.
pub(crate) fn import_to(
    object: &Bound<'_, PyAny>,
    stream: Option<StreamHandle>,
    verification: Verification,
    slot: &mut ImportSlot,
) -> Result<Filled, Failure> {
    let _nested = NestedCall::enter()?;
    release_deferred_refs(object.py());
    let class = type_info(object)?;
    fill_slot(&ImportRequest { object, class: &class, stream, verification }, slot)
}

/// Makes the struct of an import. The thread is detached while it waits for a device.
pub(crate) fn assemble<A: FromArray>(import: &mut Import) -> Result<A> {
    assemble_named(&mut Extraction::new(import).waiting_in(take_detached))
}

/// Imports any object as a derived struct.
///
/// `#[cuda_array(python)]` does this with an argument. Call this function yourself for example in a `#[new]` method of
/// a class.
///
/// # Errors
///
/// As [`import`](crate::python::import::object::import()), `ArrayError` for an array that does not match the struct,
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
/// first one failed. Instead [`import`](crate::python::import::object::import()) the object, check
/// [`ArrayInfo::dtype`](crate::array::description::Description::dtype), and create the struct with [`FromArray::from_import`].
/// Do that in `py.detach`, because a copy, or an import of pinned or managed memory, may wait for a device.
pub fn import_as<T: FromArray>(object: &Bound<'_, PyAny>) -> PyResult<T> {
    let mut slot = ImportSlot::new();
    let filled = import_to(object, None, Verification::Full, &mut slot)?;
    assemble(slot.import(&filled)).map_err(|error| with_origin(object, error).into())
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

/// Fills a slot by the first protocol that the object supports and that expresses the array.
fn fill_slot(request: &ImportRequest<'_, '_>, slot: &mut ImportSlot) -> Result<Filled, Failure> {
    let _consumer = request.stream.map(NamedConsumer::new);
    let mut refusal = None;
    let mut readers = request.class.readers.iter();
    let filled = loop {
        let outcome = match readers.next() {
            Some(Reader::NumPy(class)) => class.fill_slot(request.object, request.verification, slot),
            Some(Reader::Dlpack(class)) => from_dlpack(request, class, slot),
            Some(Reader::Interface) => from_cuda_array_interface(request, slot),
            Some(Reader::Buffer) => from_buffer(request, slot),
            None => return Err(unread(request.object, refusal, None)),
        };
        match outcome {
            Ok(filled) => break filled,
            Err(Unread::Absent) => {}
            Err(Unread::Refused(reason)) => refusal = Some(reason),
            Err(Unread::Failed(failure)) => {
                return Err(unread(request.object, refusal, Some(failure)));
            }
        }
    };
    let import = slot.import(&filled);
    // Arrays of JAX are immutable.
    if import.protocol() == Some(Protocol::DlpackLegacy) && request.class.library.package != Package::Jax {
        trust_interface(request.object, &mut import.info)?;
    }
    if let Some(caveat) = request.class.caveat {
        caveat.check(request.object, import.info())?;
    }
    if let Some(autograd) = request.class.autograd.as_ref().filter(|_| !import.info().is_read_only()) {
        import.write_notice = Some(autograd.write_notice(request.object));
    }
    Ok(filled)
}

/// Returns why no protocol has read an object: after a refusal, another protocol may have failed too.
#[cold]
fn unread(object: &Bound<'_, PyAny>, refusal: Option<Box<PyErr>>, failure: Option<Failure>) -> Failure {
    let py = object.py();
    let Some(refusal) = refusal.map(|refusal| *refusal) else {
        return match failure {
            None => not_an_array(object).into(),
            Some(Failure::Invalid(error)) => with_origin(object, error).into(),
            Some(Failure::Raised(raised)) => explain_missing(object, *raised).into(),
        };
    };
    let reason = match failure {
        Some(Failure::Raised(interrupt)) if !is_ordinary(py, &interrupt) => return (*interrupt).into(),
        Some(Failure::Invalid(error)) => Some(with_origin(object, error)),
        other => {
            if let Some(Failure::Raised(why)) = other {
                set_first_cause(py, &refusal, *why);
            }
            date_error(object)
        }
    };
    match reason {
        Some(error) => explain(py, refusal, error).into(),
        None => refusal.into(),
    }
}

/// The tensor of the class's exchange table, or that of `__dlpack__`.
fn from_dlpack(
    request: &ImportRequest<'_, '_>,
    class: &DlpackClass,
    slot: &mut ImportSlot,
) -> Result<Filled, Unread> {
    let (object, library) = (request.object, request.class.library);
    let mut outcome = match library.exchange {
        Some(table) => from_exchange_table(request, class, table, slot),
        None => Ok(None),
    };
    if let Ok(None) = outcome {
        outcome = from_method(request, class, slot);
    }
    match outcome {
        Ok(filled) => filled.ok_or(Unread::Absent),
        // These classes of exceptions mean that the protocol cannot express the array.
        Err(Failure::Raised(refusal))
            if class.is_native
                && (refusal.is_instance_of::<PyBufferError>(object.py())
                    || refusal.is_instance_of::<PyTypeError>(object.py())) =>
        {
            Err(Unread::Refused(refusal))
        }
        Err(Failure::Invalid(error)) if library.package.misstates_tensors() => {
            Err(Unread::Refused(Box::new(with_origin(object, error).into())))
        }
        Err(failure) => Err(failure.into()),
    }
}

/// An owned tensor from the exchange table of the object's type.
///
/// Returns `None` if it has none, or not for this array.
fn from_exchange_table(
    request: &ImportRequest<'_, '_>,
    class: &DlpackClass,
    table: ExchangeTable,
    slot: &mut ImportSlot,
) -> Result<Option<Filled>, Failure> {
    let tensor = match table.tensor_from(request.object) {
        // A refusal of the C++ code behind the table has a C++ backtrace. That of the method has the reason alone.
        Err(refusal) if is_ordinary(request.object.py(), &refusal) => {
            return match from_method(request, class, slot)? {
                None => Err(refusal.into()),
                filled => Ok(filled),
            };
        }
        other => other?,
    };
    let Some(tensor) = tensor else { return Ok(None) };
    let filled = receive(slot, tensor, request.verification)?;
    if order_with_table(request, table, slot.import(&filled))? {
        return Ok(Some(filled));
    }
    slot.clear();
    Ok(None)
}

/// Orders an import from a table with the work of the table's library, which makes no stream wait itself.
///
/// Returns `false` if the table does not return the stream of that work. Then `__dlpack__` is called, which accepts the
/// consumer's stream.
fn order_with_table(
    request: &ImportRequest<'_, '_>,
    table: ExchangeTable,
    import: &mut Import,
) -> Result<bool, Failure> {
    import.protocol = Some(Protocol::ExchangeTable);
    let (device, context) = (import.info().device(), import.context());
    let package = request.class.library.package;
    let their_stream = match device.device_type {
        DeviceType::CPU => return Ok(true),
        DeviceType::CUDA => table.current_stream(package, request.object.py(), device)?,
        // Pinned and managed memory is used on no stream in particular.
        _ => WorkStream::Null,
    };
    let consumer = request.stream.unwrap_or(StreamHandle::LegacyDefault);
    let captured = match their_stream {
        WorkStream::Absent => return Ok(false),
        // A caller that names a per-thread default stream gets that one.
        WorkStream::Handle(handle)
            if package.works_on(handle)
                && request
                    .stream
                    .is_none_or(|stream| stream == handle && handle != StreamHandle::PerThreadDefault) =>
        {
            CurrentStream { handle, owner: None }.put(import);
            if request.stream.is_some() {
                import.change(Change::Named);
            }
            return Ok(true);
        }
        WorkStream::Handle(handle) => order_streams(consumer, handle, context, device)?,
        WorkStream::Null => {
            free_detached();
            import.make_wait_for_unknown(consumer)?;
            None
        }
    };
    import.put_on_ordered_stream(Stream::in_context_of(consumer, context), captured);
    request.note_hidden_streams(import);
    Ok(true)
}

/// The interface dict. The driver determines the device, and the consumer's stream waits for the
/// producer's, unless it is that one.
fn from_cuda_array_interface(
    request: &ImportRequest<'_, '_>,
    slot: &mut ImportSlot,
) -> Result<Filled, Unread> {
    let object = request.object;
    let name = intern!(object.py(), "__cuda_array_interface__");
    let interface = attribute(object, name)?.ok_or(Unread::Absent)?;
    // Both are kept: a property may create an array that only the returned dict keeps alive.
    let owner = [object, &interface].map(|held| PyRef::new(held.clone().unbind()));
    let interface = interface_in(&interface).map_err(|failure| failure.with_origin(object))?;
    // The dict of Numba names the stream of the array, on which its owner works.
    let own = (request.class.library.package == Package::Numba && request.stream.is_none())
        .then_some(interface.stream);
    let own = own.map(|stream| match stream {
        StreamHandle::NothingPending | StreamHandle::PerThreadDefault => StreamHandle::LegacyDefault,
        stream => stream,
    });
    let consumer = own.or(request.stream).unwrap_or(StreamHandle::LegacyDefault);
    free_detached();
    // SAFETY: the object states that its memory lives as long as it does, and that its stream is alive now.
    let mut import = unsafe { Import::from_cai_for_stream(&interface, consumer, owner) }?;
    import.leave_to_its_owner();
    match own {
        Some(handle) if is_stream_of(handle, import.context())? => {
            CurrentStream { handle, owner: None }.put(&mut import);
        }
        // The stream belongs to another device.
        Some(handle) => {
            let stream = Stream::new(handle, import.context(), import.info().device());
            stream.map_or(Ok(()), |stream| import.move_to_default_stream(stream))?;
        }
        None => request.note_hidden_streams(&mut import),
    }
    Ok(slot.put(import))
}

/// An exception with the reason from this crate. Code that catches the class of `refusal` catches it, and `ArrayError` is
/// a `BufferError`.
fn explain(py: Python<'_>, refusal: PyErr, error: Error) -> PyErr {
    let explained = if refusal.is_instance_of::<PyBufferError>(py) {
        PyErr::from(error)
    } else {
        PyErr::from_type(refusal.get_type(py), error.into_python_message(in_words))
    };
    explained.set_cause(py, Some(refusal));
    explained
}
