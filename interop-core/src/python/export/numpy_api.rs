//! `NumPy`'s C API: the two functions that make an array over memory, looked up once.
//!
//! An array made by them costs a tenth of what `numpy.from_dlpack` takes, and an eighth of `numpy.asarray` with a buffer. The
//! table that they are in is `NumPy`'s own ABI; their places in it have stayed since 1.7.
#![expect(unsafe_code, reason = "calls functions of a foreign table")]

use core::ffi::{c_int, c_uint, c_void};
use core::mem::{offset_of, transmute};
use core::ptr::null_mut;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyCapsule;

use crate::array::dims::Dims;
use crate::array::dtype::DType;
use crate::python::import::library_kind::{Library, library};

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

/// The functions of `PyArray_API`.
#[derive(Clone, Copy)]
pub(crate) struct Api {
    class: *mut ffi::PyTypeObject,
    new: New,
    set_base: SetBase,
    /// Whether the address of the elements is where [`Head`] says, as was seen of one array.
    has_head: bool,
}

/// The head of an array object, `PyArrayObject_fields`.
#[repr(C)]
struct Head {
    object: ffi::PyObject,
    data: *mut c_void,
}

/// `NumPy`'s number of `float64`.
const DOUBLE: c_int = 12;

// SAFETY: the table and the class are there as long as the process, and do not change.
unsafe impl Send for Api {}

// SAFETY: as above.
unsafe impl Sync for Api {}

// The places in the table: `PyArray_GetNDArrayCVersion`, `PyArray_Type`, `PyArray_New`, `PyArray_SetBaseObject`.
const VERSION: usize = 0;

const CLASS: usize = 2;

const NEW: usize = 93;

const SET_BASE: usize = 282;

/// `NPY_ARRAY_WRITEABLE`.
const WRITABLE: c_int = 0x400;

impl Api {
    /// The functions; `None` for a `NumPy` of a major version whose table is not known, which Python functions serve.
    ///
    /// # Errors
    ///
    /// `ImportError` where `NumPy` is not installed.
    pub(crate) fn get(py: Python<'_>) -> PyResult<Option<Self>> {
        static API: PyOnceLock<Option<Api>> = PyOnceLock::new();
        API.get_or_try_init(py, || Self::look_up(py)).copied()
    }

    #[cold]
    fn look_up(py: Python<'_>) -> PyResult<Option<Self>> {
        // The one that says how to get it.
        library(py, Library::NumPy)?;
        // The first since 2.0; the second warns there.
        let modules = ["numpy._core._multiarray_umath", "numpy.core._multiarray_umath"];
        let found = modules.iter().find_map(|module| py.import(*module).ok());
        let Some(capsule) = found.and_then(|module| module.getattr("_ARRAY_API").ok()) else {
            return Ok(None);
        };
        if !capsule.is_instance_of::<PyCapsule>() {
            return Ok(None);
        }
        // SAFETY: a capsule, which has no name.
        let table = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), null_mut()) };
        if table.is_null() {
            drop(PyErr::take(py));
            return Ok(None);
        }
        let at = |place: usize| {
            let entry = table.cast::<*mut c_void>().wrapping_add(place);
            // SAFETY: a place in the table, which has more than 300 of them in every version.
            unsafe { entry.read() }
        };
        // SAFETY: the type of the function since 1.0.
        let version = unsafe { transmute::<*mut c_void, unsafe extern "C" fn() -> c_uint>(at(VERSION)) };
        // SAFETY: it takes nothing.
        if !matches!(unsafe { version() } >> 24, 1 | 2) {
            return Ok(None);
        }
        let mut api = Self {
            class: at(CLASS).cast(),
            // SAFETY: the type of the function in the versions 1 and 2.
            new: unsafe { transmute::<*mut c_void, New>(at(NEW)) },
            // SAFETY: as above.
            set_base: unsafe { transmute::<*mut c_void, SetBase>(at(SET_BASE)) },
            has_head: true,
        };
        let array = api.empty(py, DOUBLE, &[1])?;
        let said = array.getattr("__array_interface__")?.get_item("data")?.get_item(0)?.extract::<usize>()?;
        api.has_head = api.address_of(&array) == Some(said);
        Ok(Some(api))
    }

    /// The address of the elements of an array that was just made.
    pub(crate) fn address_of(&self, array: &Bound<'_, PyAny>) -> Option<usize> {
        let place = array.as_ptr().wrapping_byte_add(offset_of!(Head, data)).cast::<*mut c_void>();
        // SAFETY: an array of `NumPy`'s, whose struct begins so in the versions of the table.
        let data = unsafe { place.read() };
        self.has_head.then(|| data.expose_provenance())
    }

    /// An array over memory that `base` keeps alive.
    ///
    /// # Errors
    ///
    /// What `NumPy` raises, as for more axes than it has.
    ///
    /// # Safety
    ///
    /// The elements of this type, shape and strides in bytes are live at `data`, which is not null, as long as `base` is, and
    /// may be written if it says so.
    pub(crate) unsafe fn array_over<'py>(
        self,
        base: Bound<'py, PyAny>,
        type_number: c_int,
        (data, writable): (*mut c_void, bool),
        (shape, strides): (&[isize], &[isize]),
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = base.py();
        let flags = if writable { WRITABLE } else { 0 };
        // SAFETY: as the caller promises; the numbers are read during the call.
        let array = unsafe { self.call(py, type_number, shape, strides.as_ptr(), data, flags) }?;
        // SAFETY: an array without a base, and a reference that is given away, also where this fails.
        if unsafe { (self.set_base)(array.as_ptr(), base.into_ptr()) } != 0 {
            return Err(PyErr::fetch(py));
        }
        Ok(array)
    }

    /// An array in new memory of `NumPy`'s, in C order, with any elements.
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
        let shape = extents(shape);
        // SAFETY: without data the memory is new.
        unsafe { self.call(py, type_number, &shape, core::ptr::null(), null_mut(), 0) }
    }

    /// `PyArray_New`.
    ///
    /// # Safety
    ///
    /// As [`array_over`](Self::array_over), where `data` is not null.
    unsafe fn call<'py>(
        self,
        py: Python<'py>,
        type_number: c_int,
        shape: &[isize],
        strides: *const isize,
        data: *mut c_void,
        flags: c_int,
    ) -> PyResult<Bound<'py, PyAny>> {
        #[expect(clippy::cast_possible_truncation, reason = "a layout has 64 axes at most")]
        let ndim = shape.len() as c_int;
        let extents = shape.as_ptr();
        // SAFETY: `NumPy`'s own class, as many numbers as axes, and data as the caller promises; the thread is attached.
        let array = unsafe {
            (self.new)(self.class, ndim, extents, type_number, strides, data, 0, flags, null_mut())
        };
        // SAFETY: a new reference, or null with an exception set.
        unsafe { Bound::from_owned_ptr_or_err(py, array) }
    }
}

/// Extents as `NumPy` counts them.
pub(crate) fn extents(shape: &[usize]) -> Dims<isize> {
    Dims::filled(shape.len(), |numbers| {
        for (number, extent) in numbers.iter_mut().zip(shape) {
            *number = *extent as isize;
        }
    })
}

/// `NumPy`'s number of an element type, for those that have one.
pub(crate) fn type_number(dtype: DType) -> Option<c_int> {
    // The types of C come first: `long` has 64 bits but on Windows, where `long long` has.
    let (i64, u64) = if cfg!(all(target_pointer_width = "64", not(windows))) { (7, 8) } else { (9, 10) };
    Some(match dtype {
        DType::BOOL => 0,
        DType::I8 => 1,
        DType::U8 => 2,
        DType::I16 => 3,
        DType::U16 => 4,
        DType::I32 => 5,
        DType::U32 => 6,
        DType::I64 => i64,
        DType::U64 => u64,
        DType::F16 => 23,
        DType::F32 => 11,
        DType::F64 => DOUBLE,
        DType::COMPLEX64 => 14,
        DType::COMPLEX128 => 15,
        _ => return None,
    })
}
