//! New memory for results, from the library that the caller's array is of.
#![expect(unsafe_code, reason = "calls the allocator of a foreign table")]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ops::{Deref, DerefMut};
use core::ptr::null_mut;

use pyo3::exceptions::{PyBaseException, PyRuntimeError, PySystemError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::array::device::{Device, DeviceType};
use crate::array::dims::Dims;
use crate::array::dtype::DType;
use crate::array::info::ArrayInfo;
use crate::array::layout::Layout;
use crate::array::layout::order::Order;
use crate::array::raw_descriptor::RawDescriptor;
use crate::cuda::allocation::MemoryKind;
use crate::cuda::buffer::CudaBuffer;
use crate::derive::cuda_array::CudaArray;
use crate::derive::fields::axes::ShapeField;
use crate::derive::from_array::FromArray;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::host_buffer::HostBuffer;
use crate::memory::import::Import;
use crate::memory::info_builder::InfoBuilder;
use crate::memory::owner::Owner;
use crate::memory::storage::Storage;
use crate::protocols::dlpack::abi::{DLTensor, Versioned};
use crate::protocols::dlpack::exchange_api::SetError;
use crate::protocols::dlpack::managed_tensor::ManagedTensor;
use crate::python::class::numpy::dtype_of;
use crate::python::detach::free_detached;
use crate::python::errors::{of, origin};
use crate::python::export::into_library::into_library;
use crate::python::export::numpy_api::{Api, type_number};
use crate::python::import::exchange_table::{Table, makes_objects, member, object_of};
use crate::python::import::kind::Kind;
use crate::python::import::library_kind::{Library, library};
use crate::python::import::pipeline::import;
use crate::python::import::producer_wait::make_producer_wait;
use crate::python::py_owner::{PyOwner, release_deferred_refs};

/// A result in memory of the caller's library: Rust writes it through the struct, to which this derefs, and Python gets the
/// library's own object, without a copy.
///
/// Made by [`FromCaller::new_like`](crate::python::export::results::FromCaller::new_like) and [`new_array`](crate::python::export::results::FromCaller::new_array). Work that is pending
/// on the struct's stream comes before later work of the library.
#[derive(Debug)]
pub struct NewArray<A> {
    /// First, so that the memory is given back before its object.
    array: A,
    object: PyOwner,
}

impl<A> Deref for NewArray<A> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.array
    }
}

impl<A> DerefMut for NewArray<A> {
    fn deref_mut(&mut self) -> &mut A {
        &mut self.array
    }
}

impl<'py, A: CudaArray> IntoPyObject<'py> for NewArray<A> {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        let Self { array, object } = self;
        let object = object.object().bind(py).clone();
        let info = array.info()?;
        make_producer_wait(&object, info.stream(), info.device())?;
        Ok(object)
    }
}

/// Shape, element type and device of new memory.
type Wish<'a> = (&'a [usize], DType, Device);

/// New memory as a struct that uses it in place.
///
/// # Errors
///
/// As [`FromCaller::new_array`](crate::python::export::results::FromCaller::new_array).
pub(crate) fn new_memory<B: FromArray + CudaArray>(
    py: Python<'_>,
    kind: &Kind,
    wish: Wish<'_>,
) -> PyResult<NewArray<B>> {
    release_deferred_refs(py);
    free_detached();
    let object = kind.empty(py, wish)?;
    let direct = match kind {
        Kind::NumPy => import_of_numpy(&object, wish)?,
        _ => None,
    };
    let import = match direct {
        Some(import) => import,
        None => import(&object, None)?,
    };
    let address = import.info().address();
    if import.info().is_read_only() && import.info().numel() > 0 {
        return Err(immutable(&origin(&object)));
    }
    let array = B::from_import(import).map_err(|refused| of(&object, refused.error))?;
    if array.info()?.address() != address {
        let allowed = "a struct that uses the memory in place, such as one with `LeaseMut<T>` or `Shared`";
        return Err(Error::new(ErrorKind::CopyRequired, "the result", "a struct that copies", allowed).into());
    }
    Ok(NewArray { array, object: PyOwner::new(object.unbind()) })
}

/// An array of `NumPy`'s that was just made, past its `__dlpack__`, which takes as long as all else.
fn import_of_numpy(object: &Bound<'_, PyAny>, (shape, dtype, _): Wish<'_>) -> PyResult<Option<Import>> {
    let address = Api::get(object.py())?.and_then(|api| api.address_of(object));
    let Some(address) = address.filter(|_| type_number(dtype).is_some()) else { return Ok(None) };
    let extents: Dims<i64> = Dims::filled(shape.len(), |numbers| {
        for (number, extent) in numbers.iter_mut().zip(shape) {
            *number = *extent as i64;
        }
    });
    let info = RawDescriptor { dtype, ..RawDescriptor::new(address, Device::CPU, &extents) }.validate()?;
    let owner = Owner::new(PyOwner::new(object.clone().unbind()));
    // SAFETY: the array has the memory as long as it lives, and nobody else has the array yet.
    Ok(Some(unsafe { Import::from_parts(info, owner) }))
}

/// The error about arrays that nobody can write.
fn immutable(name: &str) -> PyErr {
    let allowed = "a library whose arrays can be written";
    let error = Error::new(ErrorKind::ReadOnly, "new memory", format_args!("arrays of {name}"), allowed);
    error
        .with_python_hint("make memory of Rust's own (`HostVec`, `CudaBuffer`) and return it by `like`")
        .into()
}

impl Kind {
    /// Whether the library gives out memory that can be written.
    pub(crate) fn can_allocate(&self) -> bool {
        match self {
            Self::NumPy | Self::PyTorch(_) | Self::CuPy => true,
            Self::Table(table) => allocator_of(*table).is_some(),
            Self::Jax | Self::FromDlpack(_) | Self::Neutral => false,
        }
    }

    /// An array of the library in new memory.
    fn empty<'py>(&self, py: Python<'py>, wish: Wish<'_>) -> PyResult<Bound<'py, PyAny>> {
        let (shape, dtype, device) = wish;
        match self {
            Self::NumPy => numpy_empty(py, wish),
            Self::PyTorch(Some(table)) => match allocated(py, *table, (shape, dtype, for_pytorch(device)))? {
                Some(object) => Ok(object),
                None => torch_empty(py, wish),
            },
            Self::PyTorch(None) => torch_empty(py, wish),
            Self::CuPy => cupy_empty(py, wish),
            Self::Jax => Err(immutable("JAX")),
            Self::Table(table) => match allocated(py, *table, wish)? {
                Some(object) => Ok(object),
                None => into_library(py, self, Own::new(wish)?),
            },
            Self::FromDlpack(_) | Self::Neutral => into_library(py, self, Own::new(wish)?),
        }
    }
}

/// `numpy.empty`, by the C API for the types that have a number there.
fn numpy_empty<'py>(py: Python<'py>, (shape, dtype, device): Wish<'_>) -> PyResult<Bound<'py, PyAny>> {
    if !device.device_type.is_host_accessible() {
        let allowed = "memory of the host, which NumPy's arrays are in";
        let error = Error::new(ErrorKind::Device, "new memory", device, allowed);
        return Err(error.with_python_hint("PyTorch and CuPy have memory of devices").into());
    }
    if let (Some(api), Some(number)) = (Api::get(py)?, type_number(dtype)) {
        return api.empty(py, number, shape);
    }
    let numpy = library(py, Library::NumPy)?.cast_into::<PyModule>()?;
    let dtype = dtype_of(&numpy, dtype, None)?;
    numpy.call_method1(intern!(py, "empty"), (PyTuple::new(py, shape)?, dtype))
}

/// Pinned memory is the host's in `PyTorch`, and managed memory a device's.
fn for_pytorch(device: Device) -> Device {
    match device.device_type {
        DeviceType::CUDA_HOST => Device::CPU,
        DeviceType::CUDA_MANAGED => Device::cuda(0),
        _ => device,
    }
}

/// `torch.empty`, where the exchange table has no allocator.
fn torch_empty<'py>(py: Python<'py>, (shape, dtype, device): Wish<'_>) -> PyResult<Bound<'py, PyAny>> {
    let torch = library(py, Library::PyTorch)?;
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

/// `cupy.empty`, on the device.
fn cupy_empty<'py>(py: Python<'py>, (shape, dtype, device): Wish<'_>) -> PyResult<Bound<'py, PyAny>> {
    if device.device_type != DeviceType::CUDA && device.device_type != DeviceType::CUDA_MANAGED {
        let allowed = "memory of a CUDA device, which CuPy's arrays are in";
        let error = Error::new(ErrorKind::Device, "new memory", device, allowed);
        return Err(error.with_python_hint("NumPy has memory of the host").into());
    }
    let cupy = library(py, Library::CuPy)?;
    let name = dtype.typestr().map_or_else(|| dtype.name(), |typestr| typestr.to_string());
    let ordinal = if device.device_type == DeviceType::CUDA { device.device_id } else { 0 };
    let current = cupy.getattr(intern!(py, "cuda"))?.call_method1(intern!(py, "Device"), (ordinal,))?;
    current.call_method0(intern!(py, "__enter__"))?;
    let made = cupy.call_method1(intern!(py, "empty"), (PyTuple::new(py, shape)?, name));
    current.call_method1(intern!(py, "__exit__"), (py.None(), py.None(), py.None()))?;
    made
}

/// Memory of our own for a library that gives out none.
struct Own {
    info: ArrayInfo,
    /// For its drop.
    _memory: Box<dyn Storage + Send + Sync>,
}

impl Own {
    fn new((shape, dtype, device): Wish<'_>) -> Result<Self> {
        let count = Layout::contiguous(shape, Order::C)?.numel();
        let kind = match device.device_type {
            DeviceType::CPU => None,
            DeviceType::CUDA_HOST => Some(MemoryKind::Pinned),
            DeviceType::CUDA_MANAGED => Some(MemoryKind::Managed),
            _ => Some(MemoryKind::Device),
        };
        Ok(match kind {
            None => Self::of(shape, HostBuffer::zeroed(dtype, count)?)?,
            Some(kind) => Self::of(shape, CudaBuffer::zeroed(kind, device.device_id, dtype, count)?)?,
        })
    }

    fn of(shape: &[usize], memory: impl Storage + Send + Sync + 'static) -> Result<Self> {
        let info = shape.to_vec().finish(InfoBuilder::storage(&memory))?;
        Ok(Self { info, _memory: Box::new(memory) })
    }
}

// SAFETY: 1: the storage is what the facts were made of, and does not move its memory. 2: it is in a box that nobody opens.
// 3: nothing is lent.
unsafe impl CudaArray for Own {
    fn info(&self) -> Result<ArrayInfo> {
        Ok(self.info.clone())
    }
}

type Allocator =
    unsafe extern "C" fn(*mut DLTensor, *mut *mut Versioned, *mut c_void, Option<SetError>) -> c_int;

fn allocator_of(table: Table) -> Option<Allocator> {
    member!(table, managed_tensor_allocator: Allocator).filter(|_| makes_objects(table))
}

/// An object of a library in memory of its own allocator; `None` for a table without one.
fn allocated<'py>(py: Python<'py>, table: Table, wish: Wish<'_>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(allocator) = allocator_of(table) else { return Ok(None) };
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
    // SAFETY: a prototype whose extents live during the call, a place for the tensor, and a function for errors with its context.
    let failed = unsafe { allocator(&raw mut prototype, &raw mut tensor, context, Some(note)) } != 0;
    if failed || tensor.is_null() || PyErr::occurred(py) {
        if !failed && !tensor.is_null() {
            // SAFETY: an owned tensor, which the allocator has made.
            drop(unsafe { ManagedTensor::<Versioned>::from_raw(tensor) });
        }
        return Err(refusal.raised(py));
    }
    // SAFETY: an owned tensor, which is handed over. Where the library fails to take back its own it may have released it.
    unsafe { object_of(table, py, tensor) }.map(Some)
}

/// What an allocator said of its failure: the name of an exception class, and a text.
struct Refusal(Option<(String, String)>);

impl Refusal {
    #[cold]
    fn raised(self, py: Python<'_>) -> PyErr {
        if let Some(error) = PyErr::take(py) {
            return error;
        }
        let Some((class, text)) = self.0 else {
            return PySystemError::new_err("the allocator of the exchange table failed without an error");
        };
        let named = py.import("builtins").and_then(|builtins| builtins.getattr(class));
        let named = named.ok().and_then(|class| class.cast_into::<PyType>().ok());
        let known = named.filter(|class| class.is_subclass_of::<PyBaseException>().unwrap_or(false));
        known.map_or_else(
            || PyRuntimeError::new_err(text.clone()),
            |class| PyErr::from_type(class, text.clone()),
        )
    }
}

/// `SetError`: keeps what the allocator says.
///
/// # Safety
///
/// The context is a [`Refusal`]; the texts are C strings or null.
unsafe extern "C" fn note(context: *mut c_void, class: *const c_char, text: *const c_char) {
    let read = |place: *const c_char| {
        // SAFETY: a C string that lives during the call.
        (!place.is_null()).then(|| unsafe { CStr::from_ptr(place) }.to_string_lossy().into_owned())
    };
    let said = (read(class).unwrap_or_default(), read(text).unwrap_or_default());
    // SAFETY: the refusal of the call that this is part of; assigned over nothing that needs a drop but its own old text.
    unsafe { (*context.cast::<Refusal>()).0 = Some(said) };
}
