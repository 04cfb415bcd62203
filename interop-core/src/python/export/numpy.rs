//! The dtypes of `NumPy`, and the functions of its C API that create an array.
#![expect(unsafe_code, reason = "calls functions of a foreign table")]

use core::ffi::{c_int, c_uint, c_void};
use core::mem::transmute;
use core::ptr::{null, null_mut, with_exposed_provenance_mut};

use pyo3::exceptions::{PyImportError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyString, PyTuple, PyType};
use pyo3::{ffi, intern};

use crate::array::dims::Dims;
use crate::array::dtype::DType;
use crate::array::struct_type::StructType;
use crate::error::{Error, ErrorKind};
use crate::order::array_info::ArrayInfo;
use crate::python::import::package::{Package, library};

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
        if let Some(registered) = registered_type(&numpy, info.dtype(), info.is_padded())? {
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
        let name = dtype.typestr().unwrap_or_else(|| format!("V{bytes}"));
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
/// `ml_dtypes` registers `bfloat16` and the floats of 8 bits and less when it is imported.
pub(crate) fn registered_type<'py>(
    numpy: &Bound<'py, PyAny>,
    dtype: DType,
    padded: bool,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = numpy.py();
    if dtype.typestr().is_some() || same_size(dtype, padded).is_none() {
        return Ok(None);
    }
    match numpy.call_method1("dtype", (dtype.name(),)) {
        Ok(registered) => {
            let bytes: usize = registered.getattr("itemsize")?.extract()?;
            Ok((bytes * 8 == dtype.item_bits(padded)).then_some(registered))
        }
        Err(error) if error.is_instance_of::<PyTypeError>(py) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Imports `ml_dtypes`, if it is installed, which registers its types in `NumPy`.
pub(crate) fn import_ml_dtypes(py: Python<'_>) -> PyResult<()> {
    match py.import(intern!(py, "ml_dtypes")) {
        Err(error) if !error.is_instance_of::<PyImportError>(py) => Err(error),
        _ => Ok(()),
    }
}

/// Returns the error for an element type that `NumPy` lacks. It has those of other packages only if they are registered.
#[cold]
pub(crate) fn no_type(dtype: DType) -> Error {
    let allowed = "a type that NumPy has; `import ml_dtypes` adds bfloat16 and types of 8 bits and less";
    let error = Error::new(ErrorKind::DType, "dtype", dtype, allowed);
    error.with_python_hint("or use the `from_dlpack` of PyTorch or JAX, if it has this type")
}

/// Returns the integer type of the same size as a type with one lane.
pub(crate) fn same_size(dtype: DType, padded: bool) -> Option<DType> {
    let sizes = [DType::U8, DType::U16, DType::U32, DType::U64];
    sizes.into_iter().find(|size| dtype.lanes == 1 && size.packed_bits() == dtype.item_bits(padded))
}

type New = unsafe extern "C" fn(
    class: *mut ffi::PyTypeObject,
    ndim: c_int,
    extents: *const isize,
    type_number: c_int,
    strides: *const isize,
    data: *mut c_void,
    item_size: c_int,
    flags: c_int,
    from: *mut ffi::PyObject,
) -> *mut ffi::PyObject;

type SetBase = unsafe extern "C" fn(*mut ffi::PyObject, *mut ffi::PyObject) -> c_int;

/// The functions of `PyArray_API` that create an array over memory.
///
/// Such an array costs a tenth of `numpy.from_dlpack`, and an eighth of `numpy.asarray` with a buffer. The table of
/// functions is part of `NumPy`'s ABI; the indices have not changed since 1.7.
#[derive(Clone, Copy)]
pub(crate) struct Api {
    class: *mut ffi::PyTypeObject,
    new: New,
    set_base: SetBase,
}

// SAFETY: the table and the class exist until the process ends, and do not change.
unsafe impl Send for Api {}

// SAFETY: as above.
unsafe impl Sync for Api {}

// Indices in the table: `PyArray_GetNDArrayCVersion`, `PyArray_Type`, `PyArray_New`, `PyArray_SetBaseObject`.
const VERSION: usize = 0;

const CLASS: usize = 2;

const NEW: usize = 93;

const SET_BASE: usize = 282;

/// `NPY_ARRAY_WRITEABLE`.
pub(crate) const WRITABLE: c_int = 0x400;

impl Api {
    /// Returns the functions, or `None` for a major version of `NumPy` whose table is not known. The Python functions
    /// are then used.
    ///
    /// # Errors
    ///
    /// `ImportError` if `NumPy` is not installed.
    pub(crate) fn get(py: Python<'_>) -> PyResult<Option<Self>> {
        static API: PyOnceLock<Option<Api>> = PyOnceLock::new();
        API.get_or_try_init(py, || Self::look_up(py)).copied()
    }

    /// `numpy.ndarray`.
    pub(crate) fn ndarray(self, py: Python<'_>) -> Bound<'_, PyType> {
        // SAFETY: the class is a type that lives as long as the process.
        unsafe { PyType::from_borrowed_type_ptr(py, self.class) }
    }

    #[cold]
    fn look_up(py: Python<'_>) -> PyResult<Option<Self>> {
        // Its error states what to do if NumPy is missing.
        library(py, Package::NumPy)?;
        // The first name is valid since 2.0, where the second raises a warning.
        let modules = ["numpy._core._multiarray_umath", "numpy.core._multiarray_umath"];
        let found = modules.iter().find_map(|module| py.import(*module).ok());
        let Some(capsule) = found.and_then(|module| module.getattr("_ARRAY_API").ok()) else {
            return Ok(None);
        };
        // SAFETY: the object is alive. For any other than a capsule without a name, the function sets an exception.
        let table = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), null_mut()) };
        if table.is_null() {
            drop(PyErr::take(py));
            return Ok(None);
        }
        let at = |place: usize| {
            let entry = table.cast::<*mut c_void>().wrapping_add(place);
            // SAFETY: the index is in the table, which has more than 300 entries in every version.
            unsafe { entry.read() }
        };
        // SAFETY: this is the type of the function since 1.0.
        let version = unsafe { transmute::<*mut c_void, unsafe extern "C" fn() -> c_uint>(at(VERSION)) };
        // SAFETY: the function has no preconditions.
        if !matches!(unsafe { version() } >> 24, 1 | 2) {
            return Ok(None);
        }
        Ok(Some(Self {
            class: at(CLASS).cast(),
            // SAFETY: this is the type of the function in the versions 1 and 2.
            new: unsafe { transmute::<*mut c_void, New>(at(NEW)) },
            // SAFETY: as above.
            set_base: unsafe { transmute::<*mut c_void, SetBase>(at(SET_BASE)) },
        }))
    }

    /// Creates an array over memory that `base` keeps alive.
    ///
    /// # Errors
    ///
    /// Exceptions of `NumPy`, for example for too many axes.
    ///
    /// # Safety
    ///
    /// The described memory is live as long as `base` is, and its elements have this type.
    pub(crate) unsafe fn array_over<'py>(
        self,
        base: Bound<'py, PyAny>,
        type_number: c_int,
        info: &ArrayInfo,
    ) -> PyResult<Bound<'py, PyAny>> {
        let item = (info.dtype().packed_bits() / 8) as isize;
        // A product that overflows is the stride of an axis that is never stepped along.
        let strides = Dims::from_fn(info.ndim(), |axis| info.strides()[axis].wrapping_mul(item));
        // An array without elements has no address, and null would make NumPy allocate.
        let address = if info.numel() == 0 { align_of::<u128>() } else { info.address() };
        let flags = if info.is_writable_by_owner() { WRITABLE } else { 0 };
        let data = with_exposed_provenance_mut(address);
        // SAFETY: as the caller promises. There is a stride for each axis.
        let array =
            unsafe { self.call(base.py(), type_number, info.shape(), strides.as_ptr(), data, flags) }?;
        // SAFETY: the array has no base yet. The function takes the reference, even if it fails.
        if unsafe { (self.set_base)(array.as_ptr(), base.into_ptr()) } != 0 {
            return Err(PyErr::fetch(array.py()));
        }
        Ok(array)
    }

    /// Creates an array in new memory of `NumPy`, in C order. The elements have unspecified values.
    ///
    /// # Errors
    ///
    /// As [`array_over`](Self::array_over), and `MemoryError`.
    pub(crate) fn empty<'py>(
        self,
        py: Python<'py>,
        type_number: c_int,
        shape: &[usize],
    ) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: without `data`, NumPy allocates.
        unsafe { self.call(py, type_number, shape, null(), null_mut(), 0) }
    }

    /// `PyArray_New`. It only reads the shape and the strides.
    ///
    /// # Safety
    ///
    /// As [`array_over`](Self::array_over), where `data` is not null.
    unsafe fn call<'py>(
        self,
        py: Python<'py>,
        type_number: c_int,
        shape: &[usize],
        strides: *const isize,
        data: *mut c_void,
        flags: c_int,
    ) -> PyResult<Bound<'py, PyAny>> {
        #[expect(clippy::cast_possible_truncation, reason = "a layout has 64 axes at most")]
        let ndim = shape.len() as c_int;
        // An extent is at most `isize::MAX`; NumPy refuses another.
        let extents = shape.as_ptr().cast::<isize>();
        // SAFETY: the class is `NumPy`'s own, `shape` and `strides` have a number for each axis, and the caller
        // guarantees `data`. The thread is attached.
        let array = unsafe {
            (self.new)(self.class, ndim, extents, type_number, strides, data, 0, flags, null_mut())
        };
        // SAFETY: a new reference, or null with an exception set.
        unsafe { Bound::from_owned_ptr_or_err(py, array) }
    }
}
