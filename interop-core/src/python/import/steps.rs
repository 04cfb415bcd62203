//! Imports a Python object, as it is or as a derived struct: the steps, one for each protocol, in their order.
//!
//! All steps have the same signature. A step fills the import, reports that the object lacks its protocol, or fails.
//!
//! | step | reads | next step if |
//! | --- | --- | --- |
//! | 1 `from_numpy` | the C struct: numbers, bools, and the types of `ml_dtypes` | the class or the object has a `__dlpack__` of its own, the memory is that of a capsule, the elements are none of these, or the struct is not that of a known ABI |
//! | 2 `from_exchange_table` | the C exchange table of the type; the array is on the stream that the table names | there is no table, or a subclass has a `__dlpack__` of its own |
//! | 3 `from_dlpack` | `__dlpack_device__`, then `__dlpack__` with the stream -1 if the library's own stream is known, otherwise with the stream of the import; again with fewer keywords if they are refused | there is no such method |
//! | 4 `from_cuda_array_interface` | `__cuda_array_interface__` | it is absent |
//! | 5 `from_buffer` | the buffer protocol, for host memory | there is none: `TypeError` |
//!
//! If the `__dlpack__` of a class in C refuses an array, as `NumPy` refuses structs, step 5 follows. If that fails too, its error has
//! the refusal as its cause.
#![expect(unsafe_code, reason = "relies on what an object states about its memory")]

use std::rc::Rc;
use std::sync::Arc;

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;

use crate::cuda;
use crate::cuda::memory_check::Verification;
use crate::derive::from_array::{FromArray, assemble_named};
use crate::derive::kept::Kept;
use crate::driver::context::Context;
use crate::driver::device::{Device, DeviceType};
use crate::driver::functions::driver;
use crate::driver::order::{Work, order, order_streams};
use crate::driver::pointer::reach_for;
use crate::driver::stream::Stream;
use crate::driver::stream_handle::StreamHandle;
use crate::error::{Error, ErrorKind};
use crate::memory::extraction::Extraction;
use crate::memory::import::{Import, Protocol};
use crate::python::capsule::{receive, receive_capsule};
use crate::python::convert::device;
use crate::python::detach::{free_detached, take_detached};
use crate::python::errors::{Failure, in_words, not_an_array, with_origin};
use crate::python::import::buffer::import_buffer;
use crate::python::import::dunder_dlpack::{ExpectedDevice, call_dlpack_for, has_method, lacks_method};
use crate::python::import::exchange_table::{Table, TableStream, table_stream, tensor_of};
use crate::python::import::numpy_array::import_array;
use crate::python::import::package::{CurrentStream, Package};
use crate::python::import::type_cache::{TypeInfo, date_error, type_info};
use crate::python::interface_dict::{interface_in, trust_interface};
use crate::python::interpreter::{NestedCall, attribute, is_ordinary, report_exception};
use crate::python::py_ref::{PyRef, release_deferred_refs};

/// Imports any object that supports DLPack, the CUDA Array Interface or the buffer protocol, for work on `stream`.
///
/// An array of `NumPy` is read from its C struct, also where its `__dlpack__` is narrower: read-only arrays and flags of old
/// versions, and the types of `ml_dtypes`, such as `bfloat16`. If the class or the object has a `__dlpack__` of its own, that
/// one is called.
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
    let mut import = Import::empty();
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
    let _nested = NestedCall::enter()?;
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
/// As [`import`](crate::python::import::steps::import()), `ArrayError` for an array that does not match the struct,
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
/// first one failed. Instead [`import`](crate::python::import::steps::import()) the object, check
/// [`ArrayInfo::dtype`](crate::array::info::ArrayInfo::dtype), and create the struct with [`FromArray::from_import`].
/// Do that in `py.detach`, because a copy, or an import of pinned or managed memory, may wait for a device.
pub fn import_as<T: FromArray>(object: &Bound<'_, PyAny>) -> PyResult<T> {
    let mut import = Import::empty();
    import_to(object, None, Verification::Full, &mut import)?;
    let array = assemble_named::<T>(&mut Extraction::new(&mut import).waiting_in(take_detached));
    array.map_err(|error| with_origin(object, error).into())
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

/// An object to import, and the inputs of the steps.
pub(crate) struct Request<'a, 'py> {
    pub(crate) object: &'a Bound<'py, PyAny>,
    /// The cached properties of the object's type.
    pub(crate) class: &'a TypeInfo,
    /// The stream of the consumer's work. `None` is the one on which the library of the object works, or the legacy default
    /// stream if that cannot be found out.
    pub(crate) stream: Option<StreamHandle>,
    pub(crate) verification: Verification,
}

impl Request<'_, '_> {
    /// States that the library of an import works on streams that it does not name, unless the caller has named one. JAX
    /// does so too, but never writes an array again.
    pub(crate) fn note_hidden_streams(&self, import: &mut Import) {
        let is_changed = self.class.library.package != Package::Jax;
        if is_changed && self.stream.is_none() && import.info().device() != Device::CPU {
            import.info.pending = import.info.pending.with_hidden_streams();
        }
    }

    /// Fills an empty import by the first step whose protocol the object supports.
    pub(crate) fn import_to(&self, to: &mut Import) -> PyResult<()> {
        let _consumer = self.stream.map(|stream| cuda::NamedConsumer::new(Some(stream)));
        let mut imported = Ok(Imported::No);
        for step in STEPS {
            imported = step(self, to);
            if !matches!(imported, Ok(Imported::No)) {
                break;
            }
        }
        match imported {
            Ok(Imported::Yes) => {}
            Ok(Imported::No) => return Err(not_an_array(self.object)),
            Err(failure) => self.recover(failure, to)?,
        }
        // Arrays of JAX are immutable.
        if to.protocol() == Some(Protocol::DlpackLegacy) && self.class.library.package != Package::Jax {
            trust_interface(self.object, &mut to.info)?;
        }
        self.class.values.check(self.object, to.info())?;
        if let Some(autograd) = self.class.autograd.as_ref().filter(|_| !to.info().is_read_only()) {
            to.write_notice = Some(autograd.write_notice(self.object));
        }
        Ok(())
    }

    /// After a failure, imports by another protocol if the object supports one that can express the array: by the
    /// interface dict if negative strides were the reason, which `CuPy` writes correctly there, and by the buffer protocol
    /// if `__dlpack__` refused the array.
    ///
    /// Otherwise the failure is returned. An error of the other protocol is its cause, or has it as the cause.
    #[cold]
    fn recover(&self, failure: Failure, to: &mut Import) -> PyResult<()> {
        let py = self.object.py();
        match failure {
            // These classes mean that the protocol cannot express the array.
            Failure::Raised(refused)
                if self.class.is_dlpack_native
                    && (refused.is_instance_of::<PyBufferError>(py)
                        || refused.is_instance_of::<PyTypeError>(py)) =>
            {
                self.recover_by_buffer(*refused, to)
            }
            // `CuPy` divides negative strides as unsigned numbers.
            Failure::Invalid(error)
                if error.kind() == ErrorKind::Overflow && error.location() == "strides" =>
            {
                let refused = PyErr::from(with_origin(self.object, error));
                match from_cuda_array_interface(self, to).map_err(|failure| failure.with_origin(self.object))
                {
                    Ok(Imported::Yes) => return Ok(()),
                    Ok(Imported::No) => {}
                    Err(why) if is_ordinary(py, &why) => refused.set_cause(py, Some(why)),
                    Err(interrupt) => return Err(interrupt),
                }
                Err(refused)
            }
            failure => Err(failure.with_origin(self.object)),
        }
    }

    /// Imports by the buffer protocol an array that `__dlpack__` refused, such as structs.
    fn recover_by_buffer(&self, refused: PyErr, to: &mut Import) -> PyResult<()> {
        let py = self.object.py();
        match import_buffer(self.object, to) {
            Ok(true) => Ok(()),
            Err(Failure::Invalid(error)) => Err(explained(py, refused, with_origin(self.object, error))),
            Err(Failure::Raised(interrupt)) if !is_ordinary(py, &interrupt) => Err(*interrupt),
            _ => Err(match date_error(self.object) {
                Some(error) => explained(py, refused, error),
                None => refused,
            }),
        }
    }
}

/// The result of a step: whether the object supports the protocol. [`Request::recover`] adds the class of the object to an
/// error.
type Answer = Result<Imported, Failure>;

/// Whether a step has imported the object. A word, because a byte that is written and then read as a part of a word stalls
/// the CPU.
#[derive(PartialEq, Eq)]
#[repr(usize)]
enum Imported {
    No,
    Yes,
}

/// A step imports the object by one protocol. It fills an empty import, and leaves it empty unless it returns
/// [`Imported::Yes`]. It is filled in place, for the reason that `RawDescriptor::validate_into` tells.
type Step = fn(&Request<'_, '_>, to: &mut Import) -> Answer;

/// The steps of an import, in their order.
///
/// The buffer protocol is for objects in host memory without `__dlpack__`, and for arrays that `__dlpack__` refuses.
const STEPS: [Step; 5] =
    [from_numpy, from_exchange_table, from_dlpack, from_cuda_array_interface, |request, to| {
        Ok(if import_buffer(request.object, to)? { Imported::Yes } else { Imported::No })
    }];

/// The first step: the C struct of an array of `NumPy`.
fn from_numpy(request: &Request<'_, '_>, to: &mut Import) -> Answer {
    let Some(class) = &request.class.numpy else { return Ok(Imported::No) };
    let imported = import_array(request.object, class, request.verification, to)?;
    Ok(if imported { Imported::Yes } else { Imported::No })
}

/// The second step: an owned tensor from the exchange table of the object's type.
fn from_exchange_table(request: &Request<'_, '_>, to: &mut Import) -> Answer {
    let Some(table) = request.class.library.exchange else { return Ok(Imported::No) };
    let Some(tensor) = tensor_of(table, request.object)? else { return Ok(Imported::No) };
    receive(to, tensor, request.verification)?;
    order_with_table(request, table, to)
}

/// Orders an import from a table with the work of the table's library, which makes no stream wait itself.
///
/// If the table does not return the stream of that work, the import is emptied. The next step then calls `__dlpack__`,
/// which accepts the consumer's stream.
fn order_with_table(request: &Request<'_, '_>, table: Table, to: &mut Import) -> Answer {
    to.protocol = Some(Protocol::ExchangeTable);
    let (device, context) = (to.info().device(), to.context());
    let theirs = match device.device_type {
        DeviceType::CPU => return Ok(Imported::Yes),
        DeviceType::CUDA => {
            table_stream((table, request.class.library.package), request.object.py(), device)?
        }
        // Pinned and managed memory is used on no stream in particular.
        _ => TableStream::Null,
    };
    let theirs = match theirs {
        TableStream::Handle(handle) => Some(handle),
        TableStream::Null => None,
        TableStream::Absent => {
            *to = Import::empty();
            return Ok(Imported::No);
        }
    };
    let consumer = request.stream.unwrap_or(StreamHandle::LegacyDefault);
    let captured = match (theirs, request.stream) {
        // A caller that names a per-thread default stream gets that one.
        (Some(handle), stream)
            if request.class.library.package.works_on(handle)
                && stream
                    .is_none_or(|stream| stream == handle && handle != StreamHandle::PerThreadDefault) =>
        {
            CurrentStream { handle, owner: None }.receive(to);
            if stream.is_some() {
                to.is_stream_named = true;
            }
            return Ok(Imported::Yes);
        }
        (Some(handle), _) => order_streams(consumer, handle, context, device)?,
        (None, _) => {
            free_detached();
            to.make_wait_for_unknown(consumer)?;
            None
        }
    };
    to.put_on_ordered_stream(consumer, captured, context);
    request.note_hidden_streams(to);
    Ok(Imported::Yes)
}

/// The third step: `__dlpack__`, with the consumer's stream if the memory has streams. The device is the expected one, or
/// that of `__dlpack_device__`.
fn from_dlpack(request: &Request<'_, '_>, to: &mut Import) -> Answer {
    let Request { object, class, .. } = request;
    if let ExpectedDevice::Device(expected) = class.expected_device.get() {
        match from_device(request, to, expected, |expected, found| expected == found) {
            Ok(Imported::Yes) => return Ok(Imported::Yes),
            // The array is on another device, or on one that accepts other streams.
            Ok(Imported::No) => class.expected_device.set(ExpectedDevice::None),
            Err(Failure::Raised(error)) if expected == Device::CPU && lacks_method(object, &error)? => {}
            Err(Failure::Raised(error)) if expected != Device::CPU && is_ordinary(object.py(), &error) => {
                class.expected_device.set(ExpectedDevice::None);
            }
            Err(failure) => return Err(failure),
        }
        *to = Import::empty();
    }
    if !class.has_dlpack && (class.lacks_attributes || !has_method(object)?) {
        return Ok(Imported::No);
    }
    match from_stated_device(request, to) {
        Err(Failure::Raised(error)) if class.has_dlpack && lacks_method(object, &error)? => Ok(Imported::No),
        answer => answer.map(|()| Imported::Yes),
    }
}

/// Imports an array of a class whose device is not predicted: calls `__dlpack_device__` first.
fn from_stated_device(request: &Request<'_, '_>, to: &mut Import) -> Result<(), Failure> {
    let object = request.object;
    let stated = object.call_method0(intern!(object.py(), "__dlpack_device__"))?;
    let stated = device(&stated, "__dlpack_device__").map_err(|failure| failure.with_origin(object))?;
    // Checked before the call of `__dlpack__`, because other device types have other rules about streams.
    stated.check()?;
    let imported = from_device(request, to, stated, same_memory)?;
    let found = to.info().device();
    if imported == Imported::No {
        let allowed = format!("{found}, as its capsule states");
        return Err(Error::new(ErrorKind::Device, "__dlpack_device__", stated, allowed).into());
    }
    if let ExpectedDevice::New = request.class.expected_device.get() {
        // Libraries describe the other kinds of memory in different ways.
        let is_plain = matches!(found.device_type, DeviceType::CPU | DeviceType::CUDA);
        let expected = if is_plain { ExpectedDevice::Device(found) } else { ExpectedDevice::None };
        request.class.expected_device.set(expected);
    }
    Ok(())
}

/// Calls `__dlpack__` as for an array on `device`. Returns whether the array is there, as `agree` compares the devices.
fn from_device(
    request: &Request<'_, '_>,
    to: &mut Import,
    device: Device,
    agree: fn(Device, Device) -> bool,
) -> Answer {
    let object = request.object;
    let current = match request.stream {
        Some(_) => None,
        None => request.class.library.current_stream(object.py(), device)?,
    };
    // A library whose own stream is used from here on has nothing to order.
    let stream = current.as_ref().map_or(request.stream, |_| Some(StreamHandle::NothingPending));
    let consumer = match (stream, device.device_type) {
        (_, DeviceType::CPU) => StreamHandle::NothingPending,
        // JAX passes -1 to the driver as a handle (`NVIDIA/cuda-python#285`). This cannot be detected in advance, and an
        // invalid handle can crash the process. This waits for more than was requested. A library that rejects -1 with an
        // error is called again with another stream.
        (Some(StreamHandle::NothingPending), _) if request.class.library.package == Package::Jax => {
            StreamHandle::LegacyDefault
        }
        (stream, _) => stream.unwrap_or(StreamHandle::LegacyDefault),
    };
    // A producer that has to make a stream wait uses the current device, and the default streams are those of the current
    // context.
    let entered = match consumer {
        StreamHandle::NothingPending => None,
        _ => cuda::enter_device_context(device)?,
    };
    let (capsule, passed) = call_dlpack_for(object, consumer, device)?;
    let received = receive_capsule(to, &capsule, request.verification);
    drop(capsule);
    // The destructor of a capsule must not raise an exception. If it does, it would surface in an unrelated call.
    // SAFETY: the thread is attached, because it holds a `Bound`.
    unsafe { report_exception() };
    received?;
    let found = to.info().device();
    if !agree(device, found) {
        return Ok(Imported::No);
    }
    if passed != Some(consumer) && found != Device::CPU && cuda::is_available() {
        // The producer did not accept the consumer's stream, so this code makes it wait. CPU memory has no streams, but
        // `PyTorch` describes pinned memory as CPU memory in its capsules.
        free_detached();
        if let Some(passed) = passed {
            cuda::stream_wait(consumer, passed, found)?;
        } else {
            let work = Work::All(reach_for(driver()?, found));
            order(Stream::new(consumer, None, found).into(), work)?;
        }
    }
    put_on(request, to, current, consumer, entered.map(|entered| entered.context()))?;
    Ok(Imported::Yes)
}

/// Puts an import on the stream on which its library works, or on the consumer's, which the library has made wait. For a
/// library that makes no stream wait, the consumer's stream waits for all work.
///
/// # Errors
///
/// As [`cuda::stream_wait`].
fn put_on(
    request: &Request<'_, '_>,
    to: &mut Import,
    current: Option<CurrentStream<'_>>,
    consumer: StreamHandle,
    context: Option<Context>,
) -> Result<(), Failure> {
    let device_type = to.info().device().device_type;
    // Host memory is used on no stream.
    if device_type == DeviceType::CPU {
        return Ok(());
    }
    if let Some(current) = current.filter(|_| device_type == DeviceType::CUDA) {
        current.receive(to);
        return Ok(());
    }
    // These accept a stream and ignore it.
    let is_unordered =
        matches!(request.class.library.package, Package::TvmFfi | Package::Nanobind | Package::CudaCore);
    if is_unordered && consumer != StreamHandle::NothingPending {
        free_detached();
        to.make_wait_for_unknown(consumer)?;
    }
    to.put_on_ordered_stream(consumer, None, context);
    request.note_hidden_streams(to);
    Ok(())
}

/// Returns whether two statements about a device agree.
///
/// Libraries may describe pinned and managed memory differently in `__dlpack_device__` and in the capsule. So all kinds
/// of host-accessible memory count as the same.
fn same_memory(stated: Device, found: Device) -> bool {
    stated.normalized() == found
        || (stated.device_type.is_host_accessible() && found.device_type.is_host_accessible())
}

/// The fourth step: the interface dict. The driver determines the device, and the consumer's stream waits for the
/// producer's, unless it is that one.
fn from_cuda_array_interface(request: &Request<'_, '_>, to: &mut Import) -> Answer {
    let object = request.object;
    if request.class.lacks_attributes {
        return Ok(Imported::No);
    }
    let name = intern!(object.py(), "__cuda_array_interface__");
    let Some(interface) = attribute(object, name)? else { return Ok(Imported::No) };
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
    let import = unsafe { Import::from_cai_for_stream(&interface, consumer, owner) };
    // Not `Failure::Invalid`: there is no other protocol to fall back to.
    let named = |error| PyErr::from(with_origin(object, error));
    *to = import.map_err(named)?;
    to.leave_to_its_owner();
    match own {
        Some(handle) if cuda::is_stream_of(handle, to.context()).map_err(named)? => {
            CurrentStream { handle, owner: None }.receive(to);
        }
        // The stream belongs to another device.
        Some(handle) => to.move_to_default_stream(handle).map_err(named)?,
        None => request.note_hidden_streams(to),
    }
    Ok(Imported::Yes)
}

/// An exception with the reason from this crate. Code that catches the class of `refused` catches it, and `ArrayError` is
/// a `BufferError`.
fn explained(py: Python<'_>, refused: PyErr, error: Error) -> PyErr {
    let explained = if refused.is_instance_of::<PyBufferError>(py) {
        PyErr::from(error)
    } else {
        PyErr::from_type(refused.get_type(py), error.into_python_message(in_words))
    };
    explained.set_cause(py, Some(refused));
    explained
}
