//! Memory for results: that which a library allocates, and that of this crate.
#![expect(unsafe_code, reason = "calls the allocator of a foreign table")]

use core::ffi::{CStr, c_char, c_void};
use core::ptr::null_mut;
use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::array::device::{Device, DeviceType};
use crate::array::dtype::DType;
use crate::array::layout::Layout;
use crate::array::layout::order::Order;
use crate::array::stream_handle::StreamHandle;
use crate::derive::fields::axes::ShapeField;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::cuda_buffer::CudaBuffer;
use crate::memory::host_vec::HostBuffer;
use crate::memory::storage::Storage;
use crate::order::array_info::ArrayInfo;
use crate::order::block::MemoryKind;
use crate::protocols::dlpack::abi::{DLTensor, Versioned};
use crate::protocols::dlpack::managed_tensor::ManagedTensor;
use crate::python::class::exported_array::place_name;
use crate::python::export::numpy::{Api, dtype_of, import_ml_dtypes, no_type, registered_type};
use crate::python::import::exchange_table::ExchangeTable;
use crate::python::import::numpy_array::type_number;
use crate::python::import::package::{Package, library};

/// A new array.
#[derive(Clone, Copy)]
pub(crate) struct NewArraySpec<'a> {
    pub(crate) shape: &'a [usize],
    pub(crate) dtype: DType,
    pub(crate) device: Device,
}

/// Calls `numpy.empty`, or the C API for the types that have a type number.
pub(crate) fn numpy_empty<'py>(
    py: Python<'py>,
    NewArraySpec { shape, dtype, device }: NewArraySpec<'_>,
) -> PyResult<Bound<'py, PyAny>> {
    if !device.device_type.is_host_accessible() {
        let allowed = "host memory, where NumPy arrays are";
        let error = Error::new(ErrorKind::Device, "new memory", device, allowed);
        return Err(error.with_python_hint("PyTorch and CuPy have memory of devices").into());
    }
    if let (Some(api), Some(number)) = (Api::get(py)?, type_number(dtype)) {
        return api.empty(py, number, shape);
    }
    let numpy = library(py, Package::NumPy)?;
    let dtype = if dtype.typestr().is_some() {
        dtype_of(&numpy, dtype, None)?
    } else {
        import_ml_dtypes(py)?;
        registered_type(&numpy, dtype, false)?.ok_or_else(|| no_type(dtype))?
    };
    numpy.call_method1(intern!(py, "empty"), (PyTuple::new(py, shape)?, dtype))
}

/// Maps a device as `PyTorch` does: pinned memory belongs to the host, and managed memory to a device.
fn for_pytorch(device: Device) -> Device {
    match device.device_type {
        DeviceType::CUDA_HOST => Device::CPU,
        DeviceType::CUDA_MANAGED => Device::cuda(0),
        _ => device,
    }
}

/// Calls `torch.empty`, for an exchange table without an allocator.
pub(crate) fn torch_empty<'py>(
    py: Python<'py>,
    NewArraySpec { shape, dtype, device }: NewArraySpec<'_>,
) -> PyResult<Bound<'py, PyAny>> {
    let torch = library(py, Package::PyTorch)?;
    let wishes = PyDict::new(py);
    wishes.set_item("dtype", torch.getattr(dtype.name())?)?;
    wishes.set_item("device", place_name(for_pytorch(device)))?;
    torch.call_method(intern!(py, "empty"), (PyTuple::new(py, shape)?,), Some(&wishes))
}

/// Calls `cupy.empty` on the device.
pub(crate) fn cupy_empty<'py>(
    py: Python<'py>,
    NewArraySpec { shape, dtype, device }: NewArraySpec<'_>,
) -> PyResult<Bound<'py, PyAny>> {
    if device.device_type != DeviceType::CUDA && device.device_type != DeviceType::CUDA_MANAGED {
        let allowed = "memory of a CUDA device, which CuPy's arrays are in";
        let error = Error::new(ErrorKind::Device, "new memory", device, allowed);
        return Err(error.with_python_hint("NumPy has memory of the host").into());
    }
    let cupy = library(py, Package::CuPy)?;
    let name = dtype.typestr().unwrap_or_else(|| dtype.name());
    let ordinal = (device.normalized().device_id,);
    let current = cupy.getattr(intern!(py, "cuda"))?.call_method1(intern!(py, "Device"), ordinal)?;
    let arguments = (PyTuple::new(py, shape)?, name);
    // Nothing returns between these calls.
    current.call_method0(intern!(py, "__enter__"))?;
    let array = cupy.call_method1(intern!(py, "empty"), arguments);
    let left = current.call_method1(intern!(py, "__exit__"), (py.None(), py.None(), py.None()));
    array.and_then(|array| left.map(|_| array))
}

/// Allocates memory with the allocator of an exchange table and makes an object of it. Returns `None` if the table has
/// no allocator, or one that fails without an error.
pub(crate) fn allocated<'py>(
    py: Python<'py>,
    table: ExchangeTable,
    package: Package,
    NewArraySpec { shape, dtype, device }: NewArraySpec<'_>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(allocator) = table.functions().managed_tensor_allocator else { return Ok(None) };
    let device = if package == Package::PyTorch { for_pytorch(device) } else { device };
    let mut extents: Vec<i64> = shape.iter().map(|extent| *extent as i64).collect();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "an array has 64 axes at most, and others are refused"
    )]
    let mut prototype = DLTensor {
        data: null_mut(),
        device,
        ndim: extents.len() as i32,
        dtype,
        shape: extents.as_mut_ptr(),
        strides: null_mut(),
        byte_offset: 0,
    };
    let (mut tensor, mut error): (_, Option<AllocatorError>) = (null_mut(), None);
    let context = (&raw mut error).cast();
    // SAFETY: the extents of the prototype live during the call, the pointer is valid for writing the tensor, and the
    // function for errors gets its context.
    let failed = unsafe { allocator(&raw mut prototype, &raw mut tensor, context, Some(note)) } != 0;
    if failed || tensor.is_null() || PyErr::occurred(py) {
        // Before the tensor is dropped, because its deleter may run Python code.
        let error = PyErr::take(py).or_else(|| error.map(|error| error.into_exception(py)));
        if !failed && !tensor.is_null() {
            // SAFETY: the allocator created this tensor, and this code owns it.
            drop(unsafe { ManagedTensor::<Versioned>::from_raw(tensor) });
        }
        return error.map_or(Ok(None), Err);
    }
    // SAFETY: the tensor is owned and is passed on. If the library fails to accept its own tensor, it may have released
    // it.
    unsafe { table.object_of(py, tensor) }.map(Some)
}

/// The error that an allocator reported.
struct AllocatorError {
    /// The name of an exception class.
    class: String,
    text: String,
}

impl AllocatorError {
    #[cold]
    fn into_exception(self, py: Python<'_>) -> PyErr {
        let class = py.import("builtins").and_then(|builtins| builtins.getattr(self.class));
        match class.and_then(|class| Ok(class.cast_into::<PyType>()?)) {
            Ok(class) => PyErr::from_type(class, self.text),
            Err(_) => PyRuntimeError::new_err(self.text),
        }
    }
}

/// `SetError`: stores the error that the allocator reports.
///
/// # Safety
///
/// The context points to an `Option<AllocatorError>`. The texts are C strings or null.
unsafe extern "C" fn note(context: *mut c_void, class: *const c_char, text: *const c_char) {
    let read = |place: *const c_char| {
        // SAFETY: the C string lives during the call.
        (!place.is_null()).then(|| unsafe { CStr::from_ptr(place) }.to_string_lossy().into_owned())
    };
    let error =
        AllocatorError { class: read(class).unwrap_or_default(), text: read(text).unwrap_or_default() };
    // SAFETY: the context is that of the call in progress. The assignment drops only its earlier error.
    unsafe { *context.cast::<Option<AllocatorError>>() = Some(error) };
}

/// Memory of this crate.
pub(crate) type RustMemory = Arc<dyn Storage + Send + Sync>;

/// Allocates memory on any device, and describes it as an array in C order. Device memory comes from the pool: with a
/// `stream` it is ready there and not initialized, else it is ready everywhere and zeroed, as all other memory is.
///
/// # Errors
///
/// As [`CudaBuffer::zeroed`] and [`HostBuffer::zeroed`].
pub(crate) fn new_memory_of_rust(
    NewArraySpec { shape, dtype, device }: NewArraySpec<'_>,
    stream: Option<StreamHandle>,
) -> Result<(ArrayInfo, RustMemory)> {
    fn described<S: Storage + Send + Sync + 'static>(
        shape: &[usize],
        storage: S,
    ) -> Result<(ArrayInfo, RustMemory)> {
        let memory = Arc::new(storage);
        Ok((shape.to_vec().finish(S::describe(&memory)?)?, memory))
    }
    let count = Layout::contiguous(shape, Order::C)?.numel();
    let kind = match device.device_type {
        DeviceType::CPU => return described(shape, HostBuffer::zeroed(dtype, count)?),
        DeviceType::CUDA_HOST => MemoryKind::Pinned,
        DeviceType::CUDA_MANAGED => MemoryKind::Managed,
        _ => MemoryKind::Pool,
    };
    let ordinal = device.device_id;
    described(
        shape,
        match stream.filter(|_| kind == MemoryKind::Pool) {
            Some(stream) => CudaBuffer::for_stream(stream, ordinal, dtype, count)?,
            None => CudaBuffer::zeroed(kind, ordinal, dtype, count)?,
        },
    )
}
