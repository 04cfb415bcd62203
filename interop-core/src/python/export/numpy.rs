//! The dtypes of `NumPy`.

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use crate::array::dtype::DType;
use crate::array::info::ArrayInfo;
use crate::array::struct_type::StructType;

/// Returns the element type as a `numpy.dtype` if NumPy has it or a package such as `ml_dtypes` registered it. Otherwise,
/// or without NumPy, returns its name as a `str`.
///
/// # Errors
///
/// Exceptions of NumPy.
pub fn dtype<'py>(py: Python<'py>, info: &ArrayInfo) -> PyResult<Bound<'py, PyAny>> {
    if let Ok(numpy) = py.import(intern!(py, "numpy")).map(Bound::into_any) {
        if info.struct_type().is_some() || info.dtype().typestr().is_some() {
            return dtype_of(&numpy, info.dtype(), info.struct_type());
        }
        if let Some(registered) = registered_type(&numpy, info.dtype())? {
            return Ok(registered);
        }
    }
    Ok(PyString::new(py, &type_name(info)).into_any())
}

/// Returns the name of the element type, as errors show it.
pub(crate) fn type_name(info: &ArrayInfo) -> String {
    info.struct_type().map_or_else(|| info.dtype().name(), |struct_type| format!("struct {struct_type}"))
}

/// Returns the `NumPy` dtype of an element type. Element types without one, such as a `bfloat16` field, become opaque
/// bytes.
pub(crate) fn dtype_of<'py>(
    numpy: &Bound<'py, PyAny>,
    dtype: DType,
    struct_type: Option<&StructType>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = numpy.py();
    let bytes = dtype.packed_bits() / 8;
    let Some(struct_type) = struct_type else {
        let name = dtype.typestr().map_or_else(|| format!("V{bytes}"), |typestr| typestr.to_string());
        return numpy.call_method1("dtype", (name,));
    };
    let (names, formats, offsets) = (PyList::empty(py), PyList::empty(py), PyList::empty(py));
    for field in &struct_type.fields {
        let item = dtype_of(numpy, field.dtype, field.struct_type.as_ref())?;
        names.append(&field.name)?;
        formats.append((item, PyTuple::new(py, &field.shape)?))?;
        offsets.append(field.offset)?;
    }
    let fields = PyDict::new(py);
    fields.set_item("names", names)?;
    fields.set_item("formats", formats)?;
    fields.set_item("offsets", offsets)?;
    fields.set_item("itemsize", bytes)?;
    numpy.call_method1("dtype", (fields,))
}

/// Returns a dtype that another package registered in `NumPy`.
///
/// `ml_dtypes` registers `bfloat16` and the 8-bit floats when it is imported.
pub(crate) fn registered_type<'py>(
    numpy: &Bound<'py, PyAny>,
    dtype: DType,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = numpy.py();
    if dtype.typestr().is_some() || same_size(dtype).is_none() {
        return Ok(None);
    }
    match numpy.call_method1("dtype", (dtype.name(),)) {
        Ok(registered) => {
            let bytes: usize = registered.getattr("itemsize")?.extract()?;
            Ok((bytes * 8 == dtype.packed_bits()).then_some(registered))
        }
        Err(error) if error.is_instance_of::<PyTypeError>(py) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the integer type of the same size as a type with one lane.
pub(crate) fn same_size(dtype: DType) -> Option<DType> {
    let sizes = [DType::U8, DType::U16, DType::U32, DType::U64];
    sizes.into_iter().find(|size| dtype.lanes() == 1 && size.packed_bits() == dtype.packed_bits())
}
