//! Creates the dict of `__cuda_array_interface__`.

use pyo3::exceptions::PyAttributeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use crate::array::dtype::DType;
use crate::array::info::ArrayInfo;
use crate::array::stream::StreamHandle;
use crate::array::typestr::Typestr;
use crate::cuda::handover::stream_for_interface;
use crate::cuda::pointer::address_for_kernels;
use crate::derive::cuda_array::CudaArray;
use crate::protocols::cai::descr::{DescrEntry, DescrType};
use crate::protocols::cai::{CaiFields, VERSION};
use crate::python::errors::raised;
use crate::python::py_owner::release_deferred_refs;

/// Returns the value of `__cuda_array_interface__` for an array. For an example see [`export`](crate::python::export()).
///
/// A consumer's stream waits for the stream that the dict names, which waits for all work that is pending on the array.
///
/// # Errors
///
/// - `AttributeError` for an array that the interface cannot express, so that `hasattr` returns false: of memory that CUDA
///   cannot reach, or of elements without a code.
/// - As [`CudaArray::info`].
pub fn cuda_array_interface<'py>(
    py: Python<'py>,
    array: &(impl CudaArray + ?Sized),
) -> PyResult<Bound<'py, PyDict>> {
    release_deferred_refs(py);
    let info = array.info()?;
    let absent = |error| raised(py, PyAttributeError::new_err(format!("__cuda_array_interface__: {error}")));
    let fields = CaiFields::from_info(&info).map_err(absent)?;
    let address = address_for_kernels(info.address(), info.device()).map_err(absent)?;
    let stream = stream_for_interface(&info)?;
    dict_of(py, &info, (address, stream), &fields)
}

/// Creates the dict of an array that the interface can express.
///
/// `address` is the one that kernels use; `stream` is the one with pending work. The dict contains only tuples and ints, and of the optional keys always
/// `strides`.
fn dict_of<'py>(
    py: Python<'py>,
    info: &ArrayInfo,
    (address, stream): (usize, StreamHandle),
    fields: &CaiFields,
) -> PyResult<Bound<'py, PyDict>> {
    static TEMPLATES: PyOnceLock<[Py<PyDict>; 2]> = PyOnceLock::new();
    // Copying a dict is one operation, so for most arrays only the numbers are set.
    let [without_stream, with_stream] = TEMPLATES
        .get_or_try_init(py, || Ok::<_, PyErr>([template(py, None)?, template(py, TEMPLATE_STREAM)?]))?;
    let stream = stream.to_cai();
    let dict = if stream.is_some() { with_stream } else { without_stream }.bind(py).copy()?;
    dict.set_item(intern!(py, "shape"), PyTuple::new(py, info.shape())?)?;
    if info.dtype() != TEMPLATE_DTYPE {
        dict.set_item(intern!(py, "typestr"), fields.typestr.as_str())?;
    }
    dict.set_item(intern!(py, "data"), (address, info.is_read_only()))?;
    if let Some(strides) = &fields.strides {
        dict.set_item(intern!(py, "strides"), PyTuple::new(py, strides)?)?;
    }
    if stream.is_some() && stream != TEMPLATE_STREAM {
        dict.set_item(intern!(py, "stream"), stream)?;
    }
    if let Some(descr) = &fields.descr {
        dict.set_item(intern!(py, "descr"), list_of(py, descr)?)?;
    }
    Ok(dict)
}

/// The element type of most arrays on a GPU.
const TEMPLATE_DTYPE: DType = DType::F32;

/// The stream on which most imports are ready: the legacy default stream.
const TEMPLATE_STREAM: Option<usize> = StreamHandle::LegacyDefault.to_cai();

/// Creates the dict of an array of the common element type, without its numbers.
fn template(py: Python<'_>, stream: Option<usize>) -> PyResult<Py<PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item(intern!(py, "shape"), py.None())?;
    dict.set_item(intern!(py, "typestr"), TEMPLATE_DTYPE.typestr().as_ref().map(Typestr::as_str))?;
    dict.set_item(intern!(py, "data"), py.None())?;
    dict.set_item(intern!(py, "version"), VERSION)?;
    dict.set_item(intern!(py, "strides"), py.None())?;
    if let Some(stream) = stream {
        dict.set_item(intern!(py, "stream"), stream)?;
    }
    Ok(dict.unbind())
}

fn list_of<'py>(py: Python<'py>, descr: &[DescrEntry]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for entry in descr {
        let dtype = match &entry.dtype {
            DescrType::Typestr(typestr) => PyString::new(py, typestr).into_any(),
            DescrType::Nested(nested) => list_of(py, nested)?.into_any(),
        };
        if entry.shape.is_empty() {
            list.append((&entry.name, dtype))?;
        } else {
            list.append((&entry.name, dtype, PyTuple::new(py, &entry.shape)?))?;
        }
    }
    Ok(list)
}
