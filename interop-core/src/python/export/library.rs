//! Converts an array to an object of a library, and makes a library wait for an array.
#![expect(unsafe_code, reason = "exports rely on the promises of `CudaArray`, and tables are foreign code")]

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::array::device::{Device, DeviceType};
use crate::array::stream_handle::StreamHandle;
use crate::cuda;
use crate::derive::cuda_array::CudaArray;
use crate::driver::pointer::context_of_memory;
use crate::driver::reach::{InReach, Reach, Sole};
use crate::driver::stream::Stream;
use crate::error::{Error, ErrorKind};
use crate::order::array_info::ArrayInfo;
use crate::order::handover::{hand_over, hand_over_to_context};
use crate::order::memory_check::reach_of;
use crate::order::placement::Placement;
use crate::order::release::owner::Owner;
use crate::order::wait::{Waiter, Work, order};
use crate::process::counters::COUNTERS;
use crate::protocols::dlpack::abi::Versioned;
use crate::protocols::dlpack::export::{ExportedValue, Ownership, export_kept};
use crate::python::capsule::{in_capsule, share_record};
use crate::python::class::copied_array::CopiedArray;
use crate::python::class::exported_array::{
    AnyThread, DescribedOwner, ExportedArray, into_object, numpy_view, reach_of_drop,
};
use crate::python::errors::with_origin;
use crate::python::export::allocate::{NewArraySpec, allocated, cupy_empty, numpy_empty, torch_empty};
use crate::python::export::numpy::{Api, import_ml_dtypes};
use crate::python::import::exchange_table::{ExchangeTable, WorkStream};
use crate::python::import::numpy_array::type_number;
use crate::python::import::package::{Package, class_names, library};
use crate::python::import::type_cache::{TypeInfo, type_info};
use crate::python::interface_dict::extract_cai;
use crate::python::interpreter::{
    NestedCall, PyRef, attribute, free_detached, ignore_exception, imported, release_deferred_refs, waiting,
};

/// What creates a Python object from an array. The package has further rules, which [`fit`] applies.
#[derive(Clone, Debug)]
pub(crate) enum ResultLibrary {
    NumPy,
    /// A class whose exchange table creates objects.
    Table(ExchangeTable, Package),
    /// A class, an array namespace or a module with a function `from_dlpack`.
    FromDlpack(Arc<PyRef>, Package),
    /// No known library: the array becomes an object of this crate's class.
    Neutral,
}

impl ResultLibrary {
    /// Returns the library of an object.
    ///
    /// # Errors
    ///
    /// As [`from_package`](Self::from_package), and exceptions that are not an `Exception`, such as `KeyboardInterrupt`.
    /// Any other exception of the class is ignored.
    pub(crate) fn from_object(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let _nested = NestedCall::enter()?;
        let class = type_info(object)?;
        let table = class.library.exchange.filter(|table| table.makes_objects());
        match (class.library.package, table) {
            (Package::NumPy, _) => Ok(Self::NumPy),
            (package @ (Package::CuPy | Package::Jax), _) | (package @ Package::PyTorch, None) => {
                Self::from_package(object.py(), package)
            }
            (package, Some(table)) => Ok(Self::Table(table, package)),
            (package, None) => {
                let importer = importer_of(object, &class)?;
                Ok(importer.map_or(Self::Neutral, |importer| Self::FromDlpack(importer, package)))
            }
        }
    }

    /// Returns the library of a package, without an object of it. The tensors of `PyTorch` have a table since 2.10.
    ///
    /// # Errors
    ///
    /// `ImportError` if it is not installed.
    pub(crate) fn from_package(py: Python<'_>, package: Package) -> PyResult<Self> {
        let module = library(py, package)?;
        if package == Package::PyTorch {
            let class = module.getattr(intern!(py, "Tensor"))?;
            let table = class.cast::<PyType>().ok().map(ExchangeTable::from_class).transpose()?.flatten();
            if let Some(table) = table.filter(|table| table.makes_objects()) {
                return Ok(Self::Table(table, package));
            }
        }
        Ok(Self::FromDlpack(Arc::new(PyRef::new(module.unbind())), package))
    }

    /// Converts an array to an object of this library.
    ///
    /// Later work of the library waits for the work that is pending on the array. It waits on the stream that the library's
    /// exchange table returns, or on the one that its `from_dlpack` passes to `__dlpack__`. If the host will read the
    /// memory, this call waits.
    ///
    /// # Errors
    ///
    /// As [`CudaArray::info`], and `ArrayError` for an array that the library cannot represent. Exceptions of the library
    /// are passed on. The array is dropped once, at the error or together with the exception that refers to it.
    pub(crate) fn convert<'py>(
        &self,
        py: Python<'py>,
        array: impl CudaArray + AnyThread,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _nested = NestedCall::enter()?;
        share_record(py)?;
        release_deferred_refs(py);
        free_detached();
        match self {
            Self::NumPy => into_numpy(py, Box::new(array)),
            Self::Table(table, package) => by_table(py, *table, *package, Box::new(array)),
            Self::FromDlpack(importer, package) => {
                by_from_dlpack(importer.object().bind(py), *package, Box::new(array))
            }
            Self::Neutral => into_object(py, array),
        }
    }

    /// Creates an array of the library in new memory. Returns `None` for a library that cannot allocate memory that Rust may
    /// write.
    pub(crate) fn empty<'py>(
        &self,
        py: Python<'py>,
        spec: NewArraySpec<'_>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let package = match self {
            Self::NumPy => Package::NumPy,
            Self::Table(table, package) => {
                let object = allocated(py, *table, *package, spec)?;
                if object.is_some() {
                    return Ok(object);
                }
                *package
            }
            Self::FromDlpack(_, package) => *package,
            Self::Neutral => return Ok(None),
        };
        match package {
            Package::NumPy => numpy_empty(py, spec).map(Some),
            Package::PyTorch => torch_empty(py, spec).map(Some),
            Package::CuPy => cupy_empty(py, spec).map(Some),
            _ => Ok(None),
        }
    }
}

/// As [`find_importer`]. A class is looked for again each time, because the cache must not keep it alive.
fn importer_of(object: &Bound<'_, PyAny>, class: &TypeInfo) -> PyResult<Option<Arc<PyRef>>> {
    if let Some(importer) = class.importer.get() {
        return Ok(importer.clone());
    }
    let importer = find_importer(object)?;
    let is_lasting = importer.as_ref().is_none_or(PyAnyMethods::is_instance_of::<PyModule>);
    let importer = importer.map(|importer| Arc::new(PyRef::new(importer.unbind())));
    if is_lasting {
        let _ = class.importer.set(importer.clone());
    }
    Ok(importer)
}

/// Returns what creates arrays by a function `from_dlpack`: the class of an object, its array namespace, or the package of
/// its class or of a base.
fn find_importer<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let (py, class) = (object.py(), object.get_type());
    let namespace = ignore_exception(py, object.call_method0(intern!(py, "__array_namespace__")))?;
    let names = class_names(&class)?;
    let modules = names.iter().filter_map(|name| imported(&PyString::new(py, &name.package)));
    for importer in [class.into_any()].into_iter().chain(namespace).chain(modules) {
        let function = ignore_exception(py, importer.getattr(intern!(py, "from_dlpack")))?;
        if function.is_some_and(|function| function.is_callable()) {
            return Ok(Some(importer));
        }
    }
    Ok(None)
}

/// An array in a box. The functions that take it are compiled once for all arrays, and move the box alone: a move of the
/// array after it was described would invalidate addresses in its own boxes.
type BoxedArray = Box<dyn CudaArray + Send + Sync>;

/// Calls the function `from_dlpack` of a class, a namespace or a module with an object of this crate's class.
fn by_from_dlpack<'py>(
    importer: &Bound<'py, PyAny>,
    package: Package,
    array: BoxedArray,
) -> PyResult<Bound<'py, PyAny>> {
    let (py, info) = (importer.py(), &mut array.info()?);
    fit(py, info, package)?;
    let object = object_of_class(py, info, array)?;
    let from_dlpack = intern!(py, "from_dlpack");
    if package == Package::Jax && !is_for_jax(info) {
        return importer.call_method1(from_dlpack, (CopiedArray(object.unbind()),));
    }
    importer.call_method1(from_dlpack, (object,))
}

/// Whether JAX may have an array in place. It overwrites the memory of an argument that is donated to a function, even if the
/// memory is not its own, and refuses gaps and negative strides.
fn is_for_jax(info: &ArrayInfo) -> bool {
    let is_compact = info.unwatched_range().len() == info.nbytes();
    let is_forward =
        info.shape().iter().zip(info.strides()).all(|(extent, stride)| *extent < 2 || *stride > 0);
    info.numel() == 0 || info.is_writable_by_owner() && is_compact && is_forward
}

/// Creates an object of this crate's class.
fn object_of_class<'py>(
    py: Python<'py>,
    info: &ArrayInfo,
    array: BoxedArray,
) -> PyResult<Bound<'py, ExportedArray>> {
    // SAFETY: as for the array, which returned this description; [`fit`] changes only the device, to one that reaches the
    // memory.
    let array = unsafe { DescribedOwner::new(info.clone(), array) };
    Bound::new(py, ExportedArray::from_described(array, info))
}

/// Rejects an array that a library does not represent, and changes the device to one that it knows.
fn fit(py: Python<'_>, info: &mut ArrayInfo, package: Package) -> PyResult<()> {
    match package {
        Package::PyTorch => {
            refuse_read_only(info, package)?;
            check_forwards(info)?;
            place_plainly(py, info)
        }
        Package::CuPy => {
            refuse_read_only(info, package)?;
            check_on_device(info)
        }
        Package::Jax => place_plainly(py, info),
        _ => Ok(()),
    }
}

/// Rejects a read-only array for a library whose arrays are always writable.
fn refuse_read_only(info: &ArrayInfo, library: Package) -> PyResult<()> {
    if info.is_writable_by_owner() || info.numel() == 0 {
        return Ok(());
    }
    let allowed = format!("a writable array, because {} has no read-only arrays", library.name());
    let error = Error::new(ErrorKind::ReadOnly, "the result", "a read-only array", allowed);
    Err(error
        .with_python_hint("return a copy (`HostVec<T>`), or `python::NumPy`, whose arrays can be read-only")
        .into())
}

/// Rejects negative strides, for which `PyTorch` up to 2.11 aborts the process (pytorch/pytorch#188023).
fn check_forwards(info: &ArrayInfo) -> PyResult<()> {
    let mut steps = info.shape().iter().zip(info.strides());
    let backwards = steps.position(|(extent, stride)| *extent > 1 && *stride < 0);
    let Some(axis) = backwards.filter(|_| info.numel() > 0) else { return Ok(()) };
    let (place, found) = (format!("strides[{axis}]"), info.strides()[axis]);
    let error = Error::new(ErrorKind::Strides, place, found, "0 and up, as PyTorch has no negative strides");
    Err(error
        .with_python_hint(
            "return a copy (`HostVec<T>`), or `python::NumPy`, whose arrays can have negative strides",
        )
        .into())
}

fn check_on_device(info: &ArrayInfo) -> PyResult<()> {
    if info.device() != Device::CPU {
        return Ok(());
    }
    let allowed = "memory of a CUDA device, which CuPy's arrays are in";
    let error = Error::new(ErrorKind::Device, "the result", info.device(), allowed);
    Err(error.with_python_hint("return `python::NumPy` for memory of the host").into())
}

/// Changes the device to one that `PyTorch` and JAX know: the host or a CUDA device.
///
/// Pinned memory becomes host memory, and this call waits for its pending work. Managed memory becomes memory of the
/// device for which it was allocated.
fn place_plainly(py: Python<'_>, info: &mut ArrayInfo) -> PyResult<()> {
    match info.device().device_type {
        DeviceType::CUDA_HOST => put_on_host(py, info)?,
        DeviceType::CUDA_MANAGED => {
            let attributes = cuda::pointer_attributes(info.unwatched_address)?;
            info.description.device = Device::cuda(attributes.map_or(0, |attributes| attributes.ordinal));
        }
        _ => {}
    }
    Ok(())
}

/// Describes the same memory as host memory. Waits for pending work.
fn put_on_host(py: Python<'_>, info: &mut ArrayInfo) -> PyResult<()> {
    waiting(py, info, || hand_over(info, None))?;
    info.description.device = Device::CPU;
    info.state.set_work(Placement::Nothing);
    Ok(())
}

/// Passes the array to the exchange table of the library's class.
///
/// By the protocol, the library owns the tensor from the call on. If the call fails, some libraries have released the
/// tensor and others have not. So the array is in an `Arc` that this function shares, and is taken out and dropped here.
/// A tensor that the library neither releases then nor later stays among the live exports.
fn by_table(
    py: Python<'_>,
    table: ExchangeTable,
    package: Package,
    array: BoxedArray,
) -> PyResult<Bound<'_, PyAny>> {
    let info = &mut array.info()?;
    fit(py, info, package)?;
    match info.device().device_type {
        DeviceType::CPU => {}
        DeviceType::CUDA => match table.current_stream(package, py, info.device())? {
            WorkStream::Handle(stream) => hand_over(info, info.consumer(stream))?,
            WorkStream::Null | WorkStream::Absent => hand_over_to_context(info)?,
        },
        _ => waiting(py, info, || hand_over(info, None))?,
    }
    let ours = Arc::new(Mutex::new(Some(array)));
    let owner = ExportedValue::<_, true>(Arc::clone(&ours));
    // SAFETY: 1 and 2: the array is in the owner, where it is only accessed to be dropped. No other tensor has it.
    let tensor = unsafe { export_kept::<Versioned, _>(info, owner, Ownership::Owned) }
        .map_err(|refused| refused.error)?
        .into_raw();
    // SAFETY: the tensor was created above, and its ownership is passed on here.
    let object = unsafe { table.object_of(py, tensor) };
    if object.is_err() {
        let array = ours.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The library may have launched work on the memory before it failed.
        let reach = if info.device() == Device::CPU { None } else { reach_of(info) };
        drop(Owner::new(array).with_reach(reach));
    }
    object
}

/// Converts to a `NumPy` array by the C API, or by the buffer protocol for element types without a type number.
fn into_numpy(py: Python<'_>, array: BoxedArray) -> PyResult<Bound<'_, PyAny>> {
    let info = &mut array.info()?;
    if !info.device().device_type.is_host_accessible() {
        let allowed = "memory that the host can reach, for an array of NumPy";
        let error = Error::new(ErrorKind::Device, "the result", info.device(), allowed);
        let error = error.with_python_hint(
            "return `python::CuPy`, `python::PyTorch` or `python::Jax`, or copy the elements to the host by `to_vec`",
        );
        return Err(error.into());
    }
    let reach = reach_of_drop(info);
    if info.device() != Device::CPU {
        put_on_host(py, info)?;
    }
    let number = if info.struct_type().is_some() { None } else { type_number(info.dtype()) };
    match (Api::get(py)?, number) {
        (Some(api), Some(number)) => {
            let base = in_capsule(py, Keeper::new(array, reach))?;
            // SAFETY: the base owns the array as long as it lives.
            unsafe { api.array_over(base, number, info) }
        }
        _ => by_buffer(py, info, array),
    }
}

/// The array in a capsule, which owns the memory of a `NumPy` array and costs a quarter of an object of a class. It is dropped in the
/// context of its memory.
struct Keeper {
    /// Held until this struct is dropped.
    _array: InReach<Sole<BoxedArray>>,
}

impl Keeper {
    fn new(array: BoxedArray, reach: Option<Reach>) -> Self {
        COUNTERS.exports.add();
        Self { _array: InReach::new(Sole(array), reach) }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        COUNTERS.exports.sub();
    }
}

/// Converts structs, and element types whose dtype another package registers in `NumPy`.
#[cold]
fn by_buffer<'py>(py: Python<'py>, info: &ArrayInfo, array: BoxedArray) -> PyResult<Bound<'py, PyAny>> {
    let object = object_of_class(py, info, array)?;
    if info.struct_type().is_none() && info.dtype().typestr().is_none() {
        import_ml_dtypes(py)?;
    }
    numpy_view(&object, info)
}

/// Makes later work of the library of `object` wait for the work that is now on `stream`.
///
/// Call it after you have queued work on the object's memory on a stream that the library does not know. `device` is
/// the device of that memory.
///
/// An import makes your stream wait for the library, and a release waits for all work. In between, only this function
/// prevents the library from writing to memory that a kernel still reads.
///
/// The library's stream is determined now, because it may have changed since the import: it is the one on which the library
/// works, or else that of the object's interface dict. If none is known, all later work of the context waits for `stream`.
/// The function does nothing for host memory, or if both are the same stream.
///
/// A [`LaunchScope`](crate::LaunchScope) does this for each of its arrays.
///
/// # Errors
///
/// - As [`cuda::stream_wait`](crate::cuda::stream_wait) and
///   [`cuda::stream_synchronize`](crate::cuda::stream_synchronize). These include
///   [`ErrorKind::StreamCapture`](crate::error::ErrorKind::StreamCapture) if only one of the streams captures a graph.
/// - As [`extract_cai`] for the object's dict. Exceptions of the object are passed on.
///
/// ```no_run
/// use interop_core::python::{extract_stream, import, make_producer_wait};
/// use pyo3::prelude::*;
///
/// #[pyfunction]
/// fn blur(object: &Bound<'_, PyAny>, stream: &Bound<'_, PyAny>) -> PyResult<()> {
///     let stream = extract_stream(stream)?;
///     let array = import(object, Some(stream))?;
///     // … kernels that read and write the array, on `stream` …
///     make_producer_wait(object, stream, array.info().device())
/// }
/// ```
pub fn make_producer_wait(object: &Bound<'_, PyAny>, stream: StreamHandle, device: Device) -> PyResult<()> {
    if device.device_type == DeviceType::CPU || stream == StreamHandle::NothingPending {
        return Ok(());
    }
    let named = |error| PyErr::from(with_origin(object, error));
    if let Some(theirs) = stream_of(object, device)? {
        return cuda::stream_wait(theirs, stream, device).map_err(named);
    }
    order_before_context(stream, device).map_err(named)
}

/// Makes all later work of the context of a device wait for the work that is on a stream now, or else the host.
fn order_before_context(stream: StreamHandle, device: Device) -> Result<(), Error> {
    let Some(work) = Stream::new(stream, None, device) else { return Ok(()) };
    let context = context_of_memory(0, device)?;
    free_detached();
    order(Waiter::Context(context), Work::Stream(work)).map(drop)
}

/// Makes the library of `object` wait for the work that is pending on an array in the memory of that object.
///
/// # Errors
///
/// As [`make_producer_wait`].
pub(crate) fn make_producer_wait_for(object: &Bound<'_, PyAny>, info: &ArrayInfo) -> PyResult<()> {
    if info.device().device_type == DeviceType::CPU || info.is_idle() {
        return Ok(());
    }
    let done = match stream_of(object, info.device())? {
        Some(theirs) => hand_over(info, info.consumer(theirs)),
        None => hand_over_to_context(info),
    };
    done.map_err(|error| with_origin(object, error).into())
}

/// Returns the stream on which the library of `object` works with memory of `device`, if it is known.
fn stream_of(object: &Bound<'_, PyAny>, device: Device) -> PyResult<Option<StreamHandle>> {
    let _nested = NestedCall::enter()?;
    let (py, class) = (object.py(), type_info(object)?);
    if let Some(current) = class.library.current_stream(py, device)? {
        return Ok(Some(current.handle));
    }
    if class.library.exchange.is_some() {
        return Ok(None);
    }
    let Some(interface) = attribute(object, intern!(py, "__cuda_array_interface__"))? else {
        return Ok(None);
    };
    let stream = extract_cai(&interface)?.stream;
    Ok((stream != StreamHandle::NothingPending).then_some(stream))
}
