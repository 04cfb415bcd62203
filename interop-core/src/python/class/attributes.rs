//! Attributes and methods of arrays that no protocol requires: `shape`, `dtype`, `len()` and similar ones.
#![expect(unsafe_code, reason = "getters and methods are C functions that Python calls")]

use core::ffi::{CStr, c_void};

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyTuple, PyType};

use crate::array::device::{Device, DeviceType};
use crate::array::dtype::DType;
use crate::array::info::ArrayInfo;
use crate::python::class::array_class::{ArrayClass, body, items, struct_of};
use crate::python::class::method::{Call, Method};
use crate::python::class::numpy::repr_with_elements;
use crate::python::class::numpy::{NUMBERS, array, dtype_of, learned_type, number_as};
use crate::python::class::pickling::reduce;
use crate::python::class::relabel::{relabel_as_device, relabel_as_host};

/// A read-only attribute: its name, its documentation, and a function that computes its value from the array's
/// description.
pub(crate) struct Attribute {
    pub(crate) name: &'static CStr,
    pub(crate) doc: &'static CStr,
    pub(crate) value: fn(Python<'_>, &ArrayInfo) -> PyResult<Py<PyAny>>,
}

/// The names and meanings are NumPy's.
pub(crate) static ATTRIBUTES: [Attribute; 7] = [
    Attribute {
        name: c"shape",
        doc: c"The extents, a tuple of ints.",
        value: |py, info| Ok(PyTuple::new(py, info.shape())?.into_any().unbind()),
    },
    Attribute { name: c"ndim", doc: c"The number of axes.", value: |py, info| number(py, info.ndim()) },
    Attribute { name: c"size", doc: c"The number of elements.", value: |py, info| number(py, info.numel()) },
    Attribute {
        name: c"nbytes",
        doc: c"The bytes that the elements take without gaps.",
        value: |py, info| number(py, info.nbytes()),
    },
    Attribute {
        name: c"strides",
        doc: c"The strides in bytes, a tuple of ints; None for elements packed below the byte.",
        value: |py, info| match info.byte_strides() {
            Some(strides) => Ok(PyTuple::new(py, strides)?.into_any().unbind()),
            None => Ok(py.None()),
        },
    },
    Attribute {
        name: c"dtype",
        doc:
            c"The element type: a numpy.dtype if NumPy has it or a package such as ml_dtypes registered it; \
              otherwise a str: DLPack's name, or without NumPy the typestr.",
        value: |py, info| {
            let known = info.struct_type().is_none().then(|| known_type(info.dtype())).flatten();
            if let Some(learned) = known.and_then(|known| known.get(py)) {
                return Ok(learned.clone_ref(py));
            }
            if let Ok(numpy) = py.import("numpy") {
                if let Some(known) = known {
                    let learn = || Ok::<_, PyErr>(dtype_of(&numpy, info.dtype(), None)?.unbind());
                    return Ok(known.get_or_try_init(py, learn)?.clone_ref(py));
                }
                if info.dtype().typestr().is_some() {
                    return Ok(dtype_of(&numpy, info.dtype(), info.struct_type())?.unbind());
                }
                if let Some(learned) = learned_type(&numpy, info.dtype())? {
                    return Ok(learned.unbind());
                }
            }
            Ok(PyString::new(py, &dtype(info)).into_any().unbind())
        },
    },
    Attribute {
        name: c"device",
        doc: c"Where the memory is, a str: 'cpu', 'cuda:0', 'cuda_host' or 'cuda_managed'.",
        value: |py, info| Ok(PyString::new(py, &device(info.device())).into_any().unbind()),
    },
];

/// Returns the cache for the `NumPy` dtype of common element types. A lookup without it takes ten times as long.
fn known_type(dtype: DType) -> Option<&'static PyOnceLock<Py<PyAny>>> {
    const KNOWN: [DType; 14] = [
        DType::F32,
        DType::F64,
        DType::I64,
        DType::I32,
        DType::U8,
        DType::F16,
        DType::BOOL,
        DType::I8,
        DType::I16,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::COMPLEX64,
        DType::COMPLEX128,
    ];
    static TYPES: [PyOnceLock<Py<PyAny>>; KNOWN.len()] = [const { PyOnceLock::new() }; KNOWN.len()];
    KNOWN.iter().position(|known| *known == dtype).and_then(|at| TYPES.get(at))
}

fn number(py: Python<'_>, number: usize) -> PyResult<Py<PyAny>> {
    Ok(number.into_pyobject(py)?.into_any().unbind())
}

fn dtype(info: &ArrayInfo) -> String {
    info.struct_type().map_or_else(|| spelled(info.dtype()), |struct_type| format!("struct {struct_type}"))
}

fn spelled(dtype: DType) -> String {
    dtype.typestr().map_or_else(|| dtype.name(), |typestr| typestr.to_string())
}

fn device(device: Device) -> String {
    match device.device_type {
        DeviceType::CUDA => format!("cuda:{}", device.device_id),
        DeviceType::CUDA_HOST => "cuda_host".into(),
        DeviceType::CUDA_MANAGED => "cuda_managed".into(),
        _ => "cpu".into(),
    }
}

/// Creates the descriptor of an attribute of the class.
pub(crate) fn getter<'py, T: ArrayClass>(
    class: &Bound<'py, PyType>,
    attribute: &'static Attribute,
) -> PyResult<Bound<'py, PyAny>> {
    let definition = Box::leak(Box::new(ffi::PyGetSetDef {
        name: attribute.name.as_ptr(),
        get: Some(get::<T>),
        set: None,
        doc: attribute.doc.as_ptr(),
        closure: core::ptr::from_ref(attribute).cast_mut().cast(),
    }));
    // SAFETY: `class` is a class, and the definition is never freed.
    let descriptor = unsafe { ffi::PyDescr_NewGetSet(class.as_type_ptr(), definition) };
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(class.py(), descriptor) }
}

/// # Safety
///
/// Called by Python as the getter of a property of `T` that `getter` created.
unsafe extern "C" fn get<T: ArrayClass>(
    this: *mut ffi::PyObject,
    closure: *mut c_void,
) -> *mut ffi::PyObject {
    // SAFETY: `getter` stored a pointer to a static attribute as the closure.
    let attribute = unsafe { &*closure.cast::<Attribute>() };
    // SAFETY: as the caller promises.
    unsafe { body::<T>(this, |array| (attribute.value)(array.py(), &struct_of(array).info()?)) }
}

/// The methods that no protocol requires.
pub(crate) fn methods<T: ArrayClass>() -> [Method; 11] {
    [
        (
            c"__array__",
            Call::Keywords(array::<T>),
            c"__array__($self, /, dtype=None, *, copy=None)\n--\n\nThe array for NumPy, in place where it can be.",
        ),
        (
            c"__reduce_ex__",
            Call::One(reduce::<T>),
            c"__reduce_ex__($self, protocol, /)\n--\n\nAs the class defines it; otherwise the elements as NumPy's array.",
        ),
        (
            c"relabel_as_device",
            Call::Bare(relabel_as_device::<T>),
            c"relabel_as_device($self, /)\n--\n\nThe same managed memory, described as device memory, for libraries that accept nothing else. \
              Returns the array itself if it is device memory.",
        ),
        (
            c"relabel_as_host",
            Call::Bare(relabel_as_host::<T>),
            c"relabel_as_host($self, /)\n--\n\nThe same pinned or managed memory, described as host memory, for libraries that accept nothing \
              else. Returns the array itself if it is host memory.",
        ),
        (c"__len__", Call::Bare(len::<T>), c"__len__($self, /)\n--\n\nThe extent of the first axis."),
        (c"__iter__", Call::Bare(iter::<T>), c"__iter__($self, /)\n--\n\nIterates over the first axis."),
        (
            c"__repr__",
            Call::Bare(repr::<T>),
            c"__repr__($self, /)\n--\n\nA description of the array, with its elements if they are few and the host can access them.",
        ),
        (
            NUMBERS[0],
            Call::Bare(number_as::<T, 0>),
            c"__bool__($self, /)\n--\n\nWhether the only element is other than zero.",
        ),
        (
            NUMBERS[1],
            Call::Bare(number_as::<T, 1>),
            c"__int__($self, /)\n--\n\nThe element of an array without axes as an int.",
        ),
        (
            NUMBERS[2],
            Call::Bare(number_as::<T, 2>),
            c"__float__($self, /)\n--\n\nThe element of an array without axes as a float.",
        ),
        (
            NUMBERS[3],
            Call::Bare(number_as::<T, 3>),
            c"__complex__($self, /)\n--\n\nThe element of an array without axes as a complex.",
        ),
    ]
}

/// # Safety
///
/// Called by Python as a method of `T` without arguments.
unsafe extern "C" fn len<T: ArrayClass>(
    this: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let run = |array: &Bound<'_, T>| match struct_of(array).info()?.shape().first() {
        Some(extent) => number(array.py(), *extent),
        None => Err(PyTypeError::new_err("len() of an array without axes")),
    };
    // SAFETY: as the caller promises.
    unsafe { body::<T>(this, run) }
}

/// # Safety
///
/// Called by Python as a method of `T` without arguments.
unsafe extern "C" fn iter<T: ArrayClass>(
    this: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as the caller promises.
    unsafe { body::<T>(this, |array| items(array, &struct_of(array).info()?)) }
}

/// # Safety
///
/// Called by Python as a method of `T` without arguments.
unsafe extern "C" fn repr<T: ArrayClass>(
    this: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let run = |array: &Bound<'_, T>| {
        let info = struct_of(array).info()?;
        let class = array.as_any().get_type().qualname()?;
        if let Some(text) = repr_with_elements(array, &info, &class) {
            return Ok(PyString::new(array.py(), &text).into_any().unbind());
        }
        let shape = PyTuple::new(array.py(), info.shape())?.repr()?;
        let (dtype, device) = (dtype(&info), device(info.device()));
        let text = format!("<{class} shape={shape} dtype={dtype} device={device} at {:#x}>", info.address());
        Ok(PyString::new(array.py(), &text).into_any().unbind())
    };
    // SAFETY: as the caller promises.
    unsafe { body::<T>(this, run) }
}
