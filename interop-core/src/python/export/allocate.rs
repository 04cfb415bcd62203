//! Memory for results that the library of the caller's array allocates.
#![expect(unsafe_code, reason = "calls the allocator of a foreign table")]

use core::ffi::{CStr, c_char, c_void};
use core::fmt;
use core::ptr::null_mut;
use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::array::device::{Device, DeviceType};
use crate::array::dtype::DType;
use crate::array::info::ArrayInfo;
use crate::array::layout::Layout;
use crate::array::layout::order::Order;
use crate::array::stream::StreamHandle;
use crate::cuda;
use crate::cuda::block::MemoryKind;
use crate::cuda::buffer::CudaBuffer;
use crate::cuda::release::scope::ReleaseScope;
use crate::derive::cuda_array::CudaArray;
use crate::derive::fields::axes::ShapeField;
use crate::derive::from_array::FromArray;
use crate::derive::kept::dereferences;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::extraction::Extraction;
use crate::memory::host_vec::HostBuffer;
use crate::memory::import::Import;
use crate::memory::owner::Owner;
use crate::memory::storage::{InfoBuilder, Storage};
use crate::protocols::dlpack::abi::{DLTensor, Versioned};
use crate::protocols::dlpack::managed_tensor::ManagedTensor;
use crate::python::class::exported_array::Described;
use crate::python::detach::{detached, free_detached};
use crate::python::errors::with_origin;
use crate::python::export::library::{Kind, into_library, make_producer_wait_for};
use crate::python::export::numpy::{Api, dtype_of, type_number};
use crate::python::import::exchange_table::{Table, makes_objects, object_of};
use crate::python::import::package::{Package, library};
use crate::python::import::steps::{import, take_detached};
use crate::python::py_ref::{PyRef, release_deferred_refs};

/// A result in new memory of the caller's library.
///
/// Rust writes it through the struct, to which this type dereferences. Python gets the library's own object, without a
/// copy. When it is returned, the library's stream waits for work that is pending on the struct's stream.
///
/// A library that cannot allocate memory that Rust may write, such as JAX, gets an array over memory that Rust owns.
///
/// [`WithLibrary::new_like`](crate::python::export::results::WithLibrary::new_like) and
/// [`new_array`](crate::python::export::results::WithLibrary::new_array) create it.
pub struct NewArray<A> {
    /// The first field, so that the memory is released before its object.
    array: A,
    memory: Memory,
}

/// Whose memory a result is in.
enum Memory {
    /// The library's, of this object.
    Library(PyRef),
    /// Rust's. The library gets it when the result is returned.
    Rust(Kind, RustMemory),
}

impl<A: fmt::Debug> fmt::Debug for NewArray<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NewArray").field(&self.array).finish()
    }
}

dereferences!(NewArray, array);

impl<'py, A: CudaArray> IntoPyObject<'py> for NewArray<A> {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;
    crate::__python_hint! { OUTPUT_TYPE ANYTHING }

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        let info = self.array.info()?;
        match self.memory {
            Memory::Library(object) => {
                let object = object.object().bind(py).clone();
                make_producer_wait_for(&object, &info)?;
                Ok(object)
            }
            Memory::Rust(kind, memory) => {
                // SAFETY: the description is that of a struct over the storage, which does not move its memory, and which
                // nothing else has.
                into_library(py, &kind, unsafe { Described::new(info, memory) })
            }
        }
    }
}

/// The shape, element type and device of new memory.
type Wish<'a> = (&'a [usize], DType, Device);

/// Allocates memory and imports it as a struct that uses it in place. `callers` is the stream on which the caller works, if
/// it is known.
///
/// # Errors
///
/// As [`WithLibrary::new_array`](crate::python::export::results::WithLibrary::new_array).
pub(crate) fn new_memory<B: FromArray + CudaArray>(
    py: Python<'_>,
    kind: &Kind,
    wish: Wish<'_>,
    callers: Option<StreamHandle>,
) -> PyResult<NewArray<B>> {
    release_deferred_refs(py);
    free_detached();
    let (shape, dtype, device) = wish;
    cuda::make_room_on(device, shape.iter().product::<usize>().saturating_mul(dtype.item_bits(false) / 8));
    let (mut import, memory) = if let Some(object) = kind.empty(py, wish)? {
        (import(&object, None)?, Memory::Library(PyRef::new(object.unbind())))
    } else {
        if let Some(stream) = callers.filter(|stream| cuda::captures(*stream)) {
            let what = "memory for a result, which the library of the argument does not allocate";
            return Err(cuda::capture_error(stream, what).into());
        }
        let stream = callers.unwrap_or(StreamHandle::LegacyDefault);
        let (info, memory) = detached(py, || new_memory_of_rust(wish, Some(stream)))?;
        (lend(info, &memory, stream), Memory::Rust(kind.clone(), memory))
    };
    let address = import.info().address;
    let array = B::assemble(&mut Extraction::new(&mut import).waiting_in(take_detached));
    let array = array.map_err(|error| match &memory {
        Memory::Library(object) => PyErr::from(with_origin(object.object().bind(py), error)),
        Memory::Rust(..) => error.into(),
    })?;
    if array.info()?.address != address {
        let allowed = "a struct that uses the memory in place, such as one with `LeaseMut<T>` or `Shared`";
        return Err(Error::new(ErrorKind::CopyRequired, "the result", "a struct that copies", allowed).into());
    }
    Ok(NewArray { array, memory })
}

/// Lends memory of this crate to an import, which keeps it alive.
fn lend(info: ArrayInfo, memory: &RustMemory, stream: StreamHandle) -> Import {
    // Whoever has the storage last, orders its release.
    let owner =
        Owner::new(Arc::clone(memory)).after(Some(ReleaseScope::NONE)).recorded_by(memory.state().uses);
    // SAFETY: the description is that of the storage, which the owner keeps alive and nothing else accesses.
    unsafe { Import::from_parts(info, owner) }.with_stream(stream)
}

impl Kind {
    /// Creates an array of the library in new memory. Returns `None` for a library that cannot allocate memory that Rust may
    /// write.
    fn empty<'py>(&self, py: Python<'py>, wish: Wish<'_>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (shape, dtype, device) = wish;
        match self {
            Self::NumPy => numpy_empty(py, wish).map(Some),
            Self::PyTorch(Some(table)) => match allocated(py, *table, (shape, dtype, for_pytorch(device)))? {
                Some(object) => Ok(Some(object)),
                None => torch_empty(py, wish).map(Some),
            },
            Self::PyTorch(None) => torch_empty(py, wish).map(Some),
            Self::CuPy => cupy_empty(py, wish).map(Some),
            Self::Table(table) => allocated(py, *table, wish),
            Self::Jax | Self::FromDlpack(_) | Self::Neutral => Ok(None),
        }
    }
}

/// Calls `numpy.empty`, or the C API for the types that have a type number.
fn numpy_empty<'py>(py: Python<'py>, (shape, dtype, device): Wish<'_>) -> PyResult<Bound<'py, PyAny>> {
    if !device.device_type.is_host_accessible() {
        let allowed = "host memory, where NumPy arrays are";
        let error = Error::new(ErrorKind::Device, "new memory", device, allowed);
        return Err(error.with_python_hint("PyTorch and CuPy have memory of devices").into());
    }
    if let (Some(api), Some(number)) = (Api::get(py)?, type_number(dtype)) {
        return api.empty(py, number, shape);
    }
    let numpy = library(py, Package::NumPy)?;
    let dtype = dtype_of(&numpy, dtype, None)?;
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
fn torch_empty<'py>(py: Python<'py>, (shape, dtype, device): Wish<'_>) -> PyResult<Bound<'py, PyAny>> {
    let torch = library(py, Package::PyTorch)?;
    let device = for_pytorch(device);
    let place = match device.device_type {
        DeviceType::CUDA => format!("cuda:{}", device.device_id),
        _ => "cpu".to_owned(),
    };
    let wishes = PyDict::new(py);
    wishes.set_item("dtype", torch.getattr(dtype.name())?)?;
    wishes.set_item("device", place)?;
    torch.call_method(intern!(py, "empty"), (PyTuple::new(py, shape)?,), Some(&wishes))
}

/// Calls `cupy.empty` on the device.
fn cupy_empty<'py>(py: Python<'py>, (shape, dtype, device): Wish<'_>) -> PyResult<Bound<'py, PyAny>> {
    if device.device_type != DeviceType::CUDA && device.device_type != DeviceType::CUDA_MANAGED {
        let allowed = "memory of a CUDA device, which CuPy's arrays are in";
        let error = Error::new(ErrorKind::Device, "new memory", device, allowed);
        return Err(error.with_python_hint("NumPy has memory of the host").into());
    }
    let cupy = library(py, Package::CuPy)?;
    let name = dtype.typestr().unwrap_or_else(|| dtype.name());
    let ordinal = if device.device_type == DeviceType::CUDA { device.device_id } else { 0 };
    let current = cupy.getattr(intern!(py, "cuda"))?.call_method1(intern!(py, "Device"), (ordinal,))?;
    current.call_method0(intern!(py, "__enter__"))?;
    let array = cupy.call_method1(intern!(py, "empty"), (PyTuple::new(py, shape)?, name));
    current.call_method1(intern!(py, "__exit__"), (py.None(), py.None(), py.None()))?;
    array
}

/// Allocates memory with the allocator of an exchange table and makes an object of it. Returns `None` if the table has
/// no allocator, or one that fails without an error.
fn allocated<'py>(py: Python<'py>, table: Table, wish: Wish<'_>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let allocator = table.functions().managed_tensor_allocator.filter(|_| makes_objects(table));
    let Some(allocator) = allocator else { return Ok(None) };
    let (shape, dtype, device) = wish;
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
    let (mut tensor, mut refusal) = (null_mut(), Refusal(None));
    let context = (&raw mut refusal).cast();
    // SAFETY: the extents of the prototype live during the call, the pointer is valid for writing the tensor, and the
    // function for errors gets its context.
    let failed = unsafe { allocator(&raw mut prototype, &raw mut tensor, context, Some(note)) } != 0;
    if failed || tensor.is_null() || PyErr::occurred(py) {
        // Before the tensor is dropped, because its deleter may run Python code.
        let error = refusal.raised(py);
        if !failed && !tensor.is_null() {
            // SAFETY: the allocator created this tensor, and this code owns it.
            drop(unsafe { ManagedTensor::<Versioned>::from_raw(tensor) });
        }
        return error.map_or(Ok(None), Err);
    }
    // SAFETY: the tensor is owned and is passed on. If the library fails to accept its own tensor, it may have released
    // it.
    unsafe { object_of(table, py, tensor) }.map(Some)
}

/// The error that an allocator reported: the name of an exception class, and a text.
struct Refusal(Option<(String, String)>);

impl Refusal {
    #[cold]
    fn raised(self, py: Python<'_>) -> Option<PyErr> {
        if let Some(error) = PyErr::take(py) {
            return Some(error);
        }
        let (class, text) = self.0?;
        let class = py.import("builtins").and_then(|builtins| builtins.getattr(class));
        Some(match class.and_then(|class| Ok(class.cast_into::<PyType>()?)) {
            Ok(class) => PyErr::from_type(class, text),
            Err(_) => PyRuntimeError::new_err(text),
        })
    }
}

/// `SetError`: stores the error that the allocator reports.
///
/// # Safety
///
/// The context points to a [`Refusal`]. The texts are C strings or null.
unsafe extern "C" fn note(context: *mut c_void, class: *const c_char, text: *const c_char) {
    let read = |place: *const c_char| {
        // SAFETY: the C string lives during the call.
        (!place.is_null()).then(|| unsafe { CStr::from_ptr(place) }.to_string_lossy().into_owned())
    };
    let texts = (read(class).unwrap_or_default(), read(text).unwrap_or_default());
    // SAFETY: the context is the `Refusal` of the call in progress. The assignment drops only its earlier text.
    unsafe { (*context.cast::<Refusal>()).0 = Some(texts) };
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
    (shape, dtype, device): (&[usize], DType, Device),
    stream: Option<StreamHandle>,
) -> Result<(ArrayInfo, RustMemory)> {
    fn described<S: Storage + Send + Sync + 'static>(
        shape: &[usize],
        storage: S,
    ) -> Result<(ArrayInfo, RustMemory)> {
        let memory = Arc::new(storage);
        Ok((shape.to_vec().finish(InfoBuilder::storage(&*memory)?)?, memory))
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
