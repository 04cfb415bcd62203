//! Results of the caller's kind, in memory of the caller's library.
#![expect(unsafe_code, reason = "promises that the memory of a launch lives")]

use interop_core::cuda::{CudaBuffer, MemoryKind};
use interop_core::protocols::Layout;
use interop_core::python::{NewArray, WithLibrary, import};
use interop_core::storage::HostBuffer;
use interop_core::{
    ArrayInfo, CudaArray, Device, DeviceType, FromArray, LaunchScope, Order, SharedBuffer, StreamHandle,
};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::array::{Argument, Array};
use crate::cuda::LastStream;
use crate::kernels::{double_on_host, doubled_on_host};
use crate::launch;

/// Returns a new array of the same shape and kind as the argument, with every element doubled.
///
/// The result is a `numpy.ndarray` for a `numpy.ndarray`, a tensor for a tensor, an `Array` for an `Array`. Integers
/// saturate.
///
/// The computation runs where the data is: on the host, or in a kernel. On a device, the caller's library allocates the
/// result if it can (JAX cannot).
#[pyfunction]
pub(crate) fn twice<'py>(obj: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = obj.py();
    if obj.is_instance_of::<Array>() {
        let array = Argument::of(obj, None)?;
        let info = array.info()?;
        let mut result = py.detach(|| in_own_memory(&info))?;
        if info.device() == Device::CPU {
            double_on_host(&array, &mut result)?;
        } else {
            double(py, &array, &mut result)?;
        }
        return Ok(Bound::new(py, result)?.into_any());
    }
    let import = import(obj, None)?.read_only();
    let is_struct = import.info().struct_type().is_some();
    if let Some(names) = is_struct.then(|| fields_of(obj)).transpose()?.flatten() {
        return twice_of_each(obj, &names);
    }
    if !import.info().device().device_type.is_cuda_accessible() {
        return doubled_on_host(obj, import);
    }
    let array = WithLibrary::new(obj, Argument::from_import(import)?)?;
    let mut result: NewArray<Argument> = array.new_like(py)?;
    double(py, &array, &mut *result)?;
    result.into_pyobject(py)
}

/// Returns the field names of a `NumPy` structured array.
fn fields_of<'py>(obj: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let is_of_numpy = obj.get_type().module().is_ok_and(|module| module == "numpy");
    if !is_of_numpy {
        return Ok(None);
    }
    let names = obj.getattr(intern!(obj.py(), "dtype"))?.getattr(intern!(obj.py(), "names"))?;
    Ok(names.cast_into::<PyTuple>().ok())
}

/// Returns structs with each field doubled. Each field is copied first, because its strides may not fit a tensor.
fn twice_of_each<'py>(obj: &Bound<'py, PyAny>, names: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let result = obj.py().import("numpy")?.call_method1("zeros_like", (obj,))?;
    for name in names {
        let field = obj.get_item(&name)?.call_method0(intern!(obj.py(), "copy"))?;
        result.set_item(&name, twice(&field)?)?;
    }
    Ok(result)
}

/// Writes the doubled elements to the result, on the stream of the argument.
fn double(py: Python<'_>, from: &Argument, to: &mut impl CudaArray) -> interop_core::Result<()> {
    let scope = LaunchScope::new();
    let (from, to, stream) = (scope.read_any(from)?, scope.write_any(to)?, scope.stream()?);
    // Detached, because the stream may wait for a host function that needs the interpreter's lock.
    // SAFETY: the scope orders the kernel with all other work on both arrays, whose release comes after it.
    py.detach(|| unsafe { launch::scale(&from, &to, 2.0, stream) })?;
    scope.finish()
}

/// Allocates new memory that Rust owns, on the device of the data, for work on its stream.
fn in_own_memory(info: &ArrayInfo) -> interop_core::Result<Array> {
    let on = info.stream().unwrap_or(StreamHandle::LegacyDefault);
    let layout = Layout::contiguous(info.shape(), Order::C)?;
    let (device, dtype, count) = (info.device(), info.dtype(), layout.numel());
    let ordinal = device.device_id;
    let stream = LastStream::on(device);
    stream.set(on);
    let memory = match device.device_type {
        // SAFETY: the kernel that doubles the elements writes all of them, after the stream.
        DeviceType::CUDA => SharedBuffer::new(unsafe { CudaBuffer::uninit_on(on, ordinal, dtype, count) }?),
        DeviceType::CUDA_HOST => {
            SharedBuffer::new(CudaBuffer::zeroed(MemoryKind::Pinned, ordinal, dtype, count)?)
        }
        DeviceType::CUDA_MANAGED => {
            SharedBuffer::new(CudaBuffer::zeroed(MemoryKind::Managed, ordinal, dtype, count)?)
        }
        _ => SharedBuffer::new(HostBuffer::zeroed(dtype, count)?),
    };
    Ok(Array::of(memory, &layout, stream))
}
