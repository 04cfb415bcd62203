//! NumPy's view of an array, its dtype, and conversions to numbers.
#![expect(unsafe_code, reason = "methods are C functions that Python calls")]

use core::ffi::CStr;

use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMemoryView, PyTuple};

use crate::array::dtype::DType;
use crate::array::info::ArrayInfo;
use crate::array::struct_type::StructType;
use crate::derive::cuda_array::CudaArray;
use crate::error::{Error, ErrorKind, Result};
use crate::python::class::array_class::{ArrayClass, body, struct_of};
use crate::python::class::exported_array::new_object;
use crate::python::class::instance::Instance;
use crate::python::errors::{of, origin};

/// Returns the `NumPy` dtype of an element type. Element types without one, such as a `bfloat16` field, become opaque
/// bytes.
pub(crate) fn dtype_of<'py>(
    numpy: &Bound<'py, PyModule>,
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
pub(crate) fn learned_type<'py>(
    numpy: &Bound<'py, PyModule>,
    dtype: DType,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = numpy.py();
    if dtype.typestr().is_some() || same_size(dtype).is_none() {
        return Ok(None);
    }
    match numpy.call_method1("dtype", (dtype.name(),)) {
        Ok(learned) => {
            let bytes: usize = learned.getattr("itemsize")?.extract()?;
            Ok((bytes * 8 == dtype.packed_bits()).then_some(learned))
        }
        Err(error) if error.is_instance_of::<PyTypeError>(py) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the integer type of the same size as a type with one lane.
fn same_size(dtype: DType) -> Option<DType> {
    let sizes = [DType::U8, DType::U16, DType::U32, DType::U64];
    sizes.into_iter().find(|size| dtype.lanes() == 1 && size.packed_bits() == dtype.packed_bits())
}

/// An array as integers of the same size, because the buffer protocol has a format for them.
struct AsIntegers<T: ArrayClass>(Instance<T>);

// SAFETY: 1 to 4: as for the instance; the element size determines the extent of the memory, and it is the same.
unsafe impl<T: ArrayClass> CudaArray for AsIntegers<T> {
    fn info(&self) -> Result<ArrayInfo> {
        let info = self.0.info()?;
        Ok(ArrayInfo { dtype: same_size(info.dtype()).unwrap_or(info.dtype()), ..info })
    }
}

/// Returns a `NumPy` array of memory that the host can access.
///
/// It uses the buffer protocol if that has a format for the elements. Every version of `NumPy` supports it, also for
/// read-only memory, bools and structs. `from_dlpack` supports read-only memory and bools since 2.1.
pub(crate) fn view_of<'py, T: ArrayClass>(
    numpy: &Bound<'py, PyModule>,
    array: &Bound<'py, T>,
    dtype: DType,
) -> PyResult<Bound<'py, PyAny>> {
    if let Ok(buffer) = PyMemoryView::from(array.as_any()) {
        return numpy.call_method1("asarray", (buffer,));
    }
    let Some(learned) = learned_type(numpy, dtype)? else {
        let shared = numpy.call_method1("from_dlpack", (array,));
        return shared.map_err(|error| without_type(array.as_any(), dtype, error));
    };
    let integers = new_object(array.py(), AsIntegers(Instance(array.clone().unbind())))?;
    let integers = numpy.call_method1("asarray", (PyMemoryView::from(&integers)?,))?;
    integers.call_method1("view", (learned,))
}

/// Replaces an error of `from_dlpack`, which does not name the dtype, if `NumPy` may lack the dtype.
///
/// `NumPy` has the dtypes of other packages only if they are registered, which is possible since 2.5.
#[cold]
fn without_type(array: &Bound<'_, PyAny>, dtype: DType, error: PyErr) -> PyErr {
    let py = array.py();
    if dtype.typestr().is_some() || !error.is_instance_of::<PyException>(py) {
        return error;
    }
    let allowed = "a type that NumPy has; after `import ml_dtypes` it has bfloat16 and the floats of 8 bits";
    let error_of_ours = Error::new(ErrorKind::DType, "dtype", dtype, allowed);
    let remedy = "return the array as one of PyTorch or JAX, which have this type";
    let refusal = PyErr::from(of(array, error_of_ours.with_python_hint(remedy)));
    refusal.set_cause(py, Some(error));
    refusal
}

/// The methods that convert an array to a number. `NumPy` computes them.
///
/// Without them Python uses the buffer protocol and parses the elements as digits: the byte 53 becomes the `int` 5.
pub(crate) const NUMBERS: [&CStr; 4] = [c"__bool__", c"__int__", c"__float__", c"__complex__"];

/// # Safety
///
/// Called by Python as a method of `T` without arguments.
pub(crate) unsafe extern "C" fn number_as<T: ArrayClass, const AT: usize>(
    this: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let run = |array: &Bound<'_, T>| {
        let info = struct_of(array).info()?;
        let numpy = array.py().import("numpy")?;
        let view = if info.device().device_type.is_host_accessible() {
            view_of(&numpy, array, info.dtype())?
        } else if info.numel() == 1 {
            // Copies the only element to the host.
            let wishes = PyDict::new(array.py());
            wishes.set_item("device", "cpu")?;
            numpy.call_method("from_dlpack", (array,), Some(&wishes))?
        } else {
            // An array of several elements has no number. NumPy raises the error for an array of this shape, without
            // the elements.
            numpy.call_method1("broadcast_to", (0, PyTuple::new(array.py(), info.shape())?))?
        };
        Ok(view.call_method0(&*NUMBERS[AT].to_string_lossy())?.unbind())
    };
    // SAFETY: as the caller promises.
    unsafe { body::<T>(this, run) }
}

/// The arguments of `__array__`.
struct ArrayArgs<'py> {
    /// `None` for the dtype of the array.
    dtype: Option<Bound<'py, PyAny>>,
    copy: Option<bool>,
}

impl<'py> ArrayArgs<'py> {
    /// Parses the arguments of a call. `numpy.asarray` accepts more arguments, and has `copy` only since 2.0.
    fn of(arguments: &Bound<'py, PyTuple>, keywords: Option<&Bound<'py, PyDict>>) -> PyResult<Self> {
        let wrong = |text: String| Err(PyTypeError::new_err(format!("__array__() {text}")));
        let mut wishes = Self { dtype: arguments.iter().next(), copy: None };
        if arguments.len() > 1 {
            return wrong(format!("takes at most 1 positional argument, {} given", arguments.len()));
        }
        for (keyword, value) in keywords.into_iter().flatten() {
            if keyword.eq("dtype")? {
                if wishes.dtype.replace(value).is_some() {
                    return wrong("got 'dtype' twice".into());
                }
            } else if !keyword.eq("copy")? {
                return wrong(format!("got an unexpected keyword argument {}", keyword.repr()?));
            } else if !value.is_none() {
                let copy = value.extract().map_err(|_| {
                    Error::new(ErrorKind::Type, "copy", origin(&value), "True, False or None")
                })?;
                wishes.copy = Some(copy);
            }
        }
        Ok(wishes)
    }
}

/// # Safety
///
/// Called by Python as a method of `T` with a tuple and a dict or null.
pub(crate) unsafe extern "C" fn array<T: ArrayClass>(
    this: *mut ffi::PyObject,
    arguments: *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let run = |array: &Bound<'_, T>| {
        let py = array.py();
        // SAFETY: the tuple is alive, by the calling convention.
        let arguments = unsafe { Bound::from_borrowed_ptr(py, arguments) };
        // SAFETY: a live dict or null, by the calling convention.
        let keywords = unsafe { Bound::from_borrowed_ptr_or_opt(py, keywords) };
        let keywords = keywords.map(Bound::cast_into::<PyDict>).transpose()?;
        let ArrayArgs { dtype, copy } = ArrayArgs::of(arguments.cast()?, keywords.as_ref())?;
        let info = struct_of(array).info()?;
        let device = info.device();
        if !device.device_type.is_host_accessible() {
            let allowed =
                "memory that the host can reach; `numpy.from_dlpack(x, device=\"cpu\")` makes a copy there";
            return Err(Error::new(ErrorKind::Device, "__array__", device, allowed).into());
        }
        let numpy = py.import("numpy")?;
        let view = view_of(&numpy, array, info.dtype())?;
        // `array` always copies. `asarray` returns an array that has this dtype already.
        let function = if copy == Some(true) { "array" } else { "asarray" };
        let made = numpy.call_method1(function, (&view, dtype))?;
        if copy == Some(false) && !made.is(&view) {
            let allowed = format!("None or True, because a copy is needed to convert from {}", info.dtype());
            return Err(Error::new(ErrorKind::CopyRequired, "copy", "False", allowed).into());
        }
        Ok(made.unbind())
    };
    // SAFETY: as the caller promises.
    unsafe { body::<T>(this, run) }
}

/// Returns the array as a `NumPy` array, if the host can access it.
pub(crate) fn on_host<'py, T: ArrayClass>(array: &Bound<'py, T>) -> PyResult<Bound<'py, PyAny>> {
    array.as_any().call_method0(pyo3::intern!(array.py(), "__array__"))
}

/// The `repr` of a small host array, with its elements. `None` if `NumPy` cannot format it.
pub(crate) fn repr_with_elements<T: ArrayClass>(
    array: &Bound<'_, T>,
    info: &ArrayInfo,
    class: &Bound<'_, PyAny>,
) -> Option<String> {
    /// `NumPy` shortens longer arrays.
    const FEW: usize = 1000;
    if info.numel() > FEW || !info.device().device_type.is_host_accessible() {
        return None;
    }
    let py = array.py();
    let numpy = py.import("numpy").ok()?;
    let view = view_of(&numpy, array, info.dtype()).ok()?;
    let options = PyDict::new(py);
    options.set_item("separator", ", ").ok()?;
    options.set_item("prefix", format!("{class}(")).ok()?;
    let text = numpy.call_method("array2string", (&view,), Some(&options)).ok()?;
    let shape =
        if info.numel() == 0 { format!("shape={}, ", view.getattr("shape").ok()?) } else { String::new() };
    let dtype = view.getattr("dtype").ok()?;
    // A structured dtype has no name.
    let dtype = if info.struct_type().is_some() { dtype } else { dtype.getattr("name").ok()? };
    Some(format!("{class}({text}, {shape}dtype={dtype})"))
}
