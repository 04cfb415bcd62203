//! Arrays of any library on their way in and out, and memory that can be shared.

use interop_core::arrays::ArrayD;
use interop_core::python::{ExportedArray, extract_integer, extract_stream};
use interop_core::{DType, Error, ErrorKind, FromArray, Import, SharedBuffer};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::errors::to_exception;

fn exported(py: Python<'_>, import: Import) -> PyResult<Bound<'_, ExportedArray>> {
    let array = ArrayD::<SharedBuffer>::from_import(import)?.into_pyobject(py)?;
    Ok(array.cast_into::<ExportedArray>()?)
}

/// Opens an array of another process, by the message of its parcel: any object with a buffer.
///
/// The array is read-only, unless it was shared with `writable=True`. NumPy, PyTorch and JAX use it in place:
/// `numpy.from_dlpack(array)`. On a GPU their streams wait for the work that was pending when the array was shared; `stream` does so at
/// once, and the array is on it. It is an integer as that of `__dlpack__`, or an object with `__cuda_stream__`, and must live as long as
/// the array. The array is given back when the last array over its memory is gone. `ConnectionError` if the other process has ended, or
/// the array is not offered any more.
#[pyfunction]
#[pyo3(signature = (message, *, stream=None))]
pub(crate) fn open<'py>(
    py: Python<'py>,
    message: &Bound<'py, PyAny>,
    stream: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, ExportedArray>> {
    let message = PyBuffer::<u8>::get(message)?.to_vec(py)?;
    let stream = stream.map(extract_stream).transpose()?;
    let open = || match stream {
        Some(stream) => ::interop_ipc::open_on(&message, stream),
        None => ::interop_ipc::open(&message),
    };
    let import = py.detach(open).map_err(to_exception)?;
    exported(py, import)
}

/// Whether the process that has offered an array still runs, by the message of its parcel, which may have been opened.
///
/// What is open stays readable without its producer. But work on a GPU that the producer had pending ends with it, and the elements are
/// then unfinished. If it still runs after your own work on the array is done, then the array was finished.
#[pyfunction]
pub(crate) fn is_alive(py: Python<'_>, message: &Bound<'_, PyAny>) -> PyResult<bool> {
    let message = PyBuffer::<u8>::get(message)?.to_vec(py)?;
    py.detach(|| ::interop_ipc::is_alive(&message)).map_err(to_exception)
}

/// Allocates an array that other processes can open. Its elements are zero.
///
/// `shape` is an extent or a sequence of extents. `dtype` is one of NumPy, PyTorch or `ml_dtypes`, or the name of one.
#[pyfunction]
#[pyo3(signature = (shape, dtype=None))]
pub(crate) fn empty<'py>(
    py: Python<'py>,
    shape: &Bound<'py, PyAny>,
    dtype: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, ExportedArray>> {
    let dtype = dtype.map_or(Ok(DType::F32), to_dtype)?;
    let shape = extents(shape)?;
    let import = py.detach(|| ::interop_ipc::zeroed(dtype, &shape)).map_err(to_exception)?;
    exported(py, import)
}

/// Reads an element type of any library: by its name, or else as NumPy understands it.
fn to_dtype(dtype: &Bound<'_, PyAny>) -> PyResult<DType> {
    let name = match dtype.cast::<PyType>() {
        // `numpy.float32`, `ml_dtypes.bfloat16`.
        Ok(class) => class.name()?,
        // `numpy.dtype("float32")`, `torch.float32`.
        Err(_) => dtype.str()?,
    };
    let name = name.to_string_lossy();
    let refused = match name.strip_prefix("torch.").unwrap_or(&name).parse::<DType>() {
        Ok(dtype) => return Ok(dtype),
        Err(error) => error,
    };
    // `float`, `"f4"`, `"single"`.
    let known = dtype.py().import("numpy").and_then(|numpy| numpy.call_method1("dtype", (dtype,)));
    let Ok(known) = known else { return Err(refused.into()) };
    if !known.getattr("names")?.is_none() {
        return Err(Error::new(ErrorKind::DType, "dtype", known, "elements that are no structs").into());
    }
    Ok(known.getattr("str")?.extract::<String>()?.parse::<DType>()?)
}

fn extents(shape: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
    let extent = |extent: &Bound<'_, PyAny>| {
        let number = extract_integer(extent, "shape")?;
        usize::try_from(number)
            .map_err(|_| PyErr::from(Error::new(ErrorKind::Shape, "shape", number, "extents of 0 or more")))
    };
    match shape.try_iter() {
        Ok(items) => items.map(|item| extent(&item?)).collect(),
        Err(_) => Ok(vec![extent(shape)?]),
    }
}
