//! Views and copies of array classes: indexing, transposing and reshaping.
#![expect(unsafe_code, reason = "methods are C functions that Python calls")]

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::array::info::ArrayInfo;
use crate::array::layout::Layout;
use crate::array::layout::order::Order;
use crate::error::{Error, ErrorKind};
use crate::python::class::array_class::{ArrayClass, body, items, struct_of};
use crate::python::class::exchange_table::Adopted;
use crate::python::class::exported_array::new_object;
use crate::python::class::exported_array::part_of;
use crate::python::class::index::{Indexed, has_ellipsis, index_basic, is_basic};
use crate::python::class::method::{Call, Method};
use crate::python::class::numpy::{on_host, view_of};
use crate::python::class::pickling::is_just_an_array;
use crate::python::export::dlpack::answer;
use crate::python::export::dlpack_args::DlpackArgs;
use crate::python::import::capsule::import_capsule;
use crate::python::py_owner::ExportedObject;

/// The methods. A class keeps those that it defines itself.
pub(crate) fn methods<T: ArrayClass>() -> [Method; 6] {
    [
        (c"__iter__", Call::Bare(iter::<T>), c"__iter__($self, /)\n--\n\nIterates over the first axis."),
        (
            c"__getitem__",
            Call::One(item::<T>),
            c"__getitem__($self, key, /)\n--\n\nA view of the same memory for integers, slices, `...` and None. On the host a scalar \
              of NumPy's for a single element, and NumPy's copy for a list, an array or a mask.",
        ),
        (
            c"transpose",
            Call::Keywords(transpose::<T>),
            c"transpose($self, /, *axes)\n--\n\nA view with the axes in this order; reversed without one.",
        ),
        (
            c"reshape",
            Call::Keywords(reshape::<T>),
            c"reshape($self, /, *shape, **options)\n--\n\nA view of another shape, where the array is compact; else what NumPy makes.",
        ),
        (
            c"__copy__",
            Call::Bare(copy::<T>),
            c"__copy__($self, /)\n--\n\nThe elements in new memory of the same device.",
        ),
        (
            c"__deepcopy__",
            Call::One(deepcopy::<T>),
            c"__deepcopy__($self, memo, /)\n--\n\nThe elements in new memory of the same device.",
        ),
    ]
}

/// # Safety
///
/// Called by Python as a method of `T` with one argument.
unsafe extern "C" fn item<T: ArrayClass>(
    this: *mut ffi::PyObject,
    key: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let run = |array: &Bound<'_, T>| {
        // SAFETY: the caller holds a reference to the argument.
        let key = unsafe { Borrowed::from_ptr(array.py(), key) };
        let info = struct_of(array).info()?;
        if !is_basic(&key)? {
            return Ok(copied(array, &info, &key)?.unbind());
        }
        let view = index_basic(&info, &key)?;
        if view.layout.ndim() == 0 && !has_ellipsis(&key) {
            if let Some(scalar) = scalar(array, &info, &key) {
                return Ok(scalar.unbind());
            }
        }
        Ok(part_of(array, view)?.unbind())
    };
    // SAFETY: as the caller promises.
    unsafe { body::<T>(this, run) }
}

/// `__iter__`, with the items of [`item`]. `NumPy` iterates over one-dimensional arrays on the host, which is ten times
/// as fast.
///
/// # Safety
///
/// Called by Python as a method of `T` without arguments.
unsafe extern "C" fn iter<T: ArrayClass>(
    this: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let run = |array: &Bound<'_, T>| {
        let info = struct_of(array).info()?;
        if info.ndim() == 1 && info.device().device_type.is_host_accessible() {
            if let Ok(view) = on_host(array) {
                return Ok(view.try_iter()?.into_any().unbind());
            }
        }
        items(array, &info)
    };
    // SAFETY: as the caller promises.
    unsafe { body::<T>(this, run) }
}

/// Returns the element as a `NumPy` scalar if the host can access it and `NumPy` has its type.
fn scalar<'py, T: ArrayClass>(
    array: &Bound<'py, T>,
    info: &ArrayInfo,
    key: &Bound<'py, PyAny>,
) -> Option<Bound<'py, PyAny>> {
    if !info.device().device_type.is_host_accessible() {
        return None;
    }
    let numpy = array.py().import("numpy").ok()?;
    view_of(&numpy, array, info.dtype()).ok()?.get_item(key).ok()
}

/// Indexes with a list, an array or a mask. `NumPy` makes a copy on the host.
#[cold]
fn copied<'py, T: ArrayClass>(
    array: &Bound<'py, T>,
    info: &ArrayInfo,
    key: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let device = info.device();
    if !device.device_type.is_host_accessible() {
        let found = format!("{} for an array on {device}", key.get_type().name()?);
        let allowed = "integers, slices, `...` and None; for other indices, convert the array with `from_dlpack` of a library for the device";
        return Err(Error::new(ErrorKind::Type, "index", found, allowed).into());
    }
    on_host(array)?.get_item(key)
}

/// Extracts the positional arguments as integers. They may be a single tuple.
fn numbers(arguments: &Bound<'_, PyTuple>) -> PyResult<Vec<isize>> {
    if let Ok(only) = arguments.get_item(0) {
        if arguments.len() == 1 && only.hasattr("__len__")? {
            return only.try_iter()?.map(|number| number?.extract()).collect();
        }
    }
    arguments.iter().map(|number| number.extract()).collect()
}

/// # Safety
///
/// Called by Python as a method of `T` with a tuple and a dict or null.
unsafe extern "C" fn transpose<T: ArrayClass>(
    this: *mut ffi::PyObject,
    arguments: *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let run = |array: &Bound<'_, T>| {
        // SAFETY: as the caller promises.
        let (arguments, keywords) = unsafe { given(array.py(), arguments, keywords) }?;
        if keywords.is_some_and(|keywords| !keywords.is_empty()) {
            return Err(PyTypeError::new_err("transpose() takes no keyword arguments"));
        }
        let info = struct_of(array).info()?;
        let ndim = info.ndim();
        let reversed = arguments.is_empty() || arguments.len() == 1 && arguments.get_item(0)?.is_none();
        let axes = if reversed { (0..ndim as isize).rev().collect() } else { numbers(&arguments)? };
        let layout = permuted(info.layout(), &axes)
            .ok_or_else(|| PyValueError::new_err(format!("axes {axes:?} of an array with {ndim} axes")))?;
        Ok(part_of(array, Indexed { layout: layout?, byte_offset: 0 })?.unbind())
    };
    // SAFETY: as the caller promises.
    unsafe { body::<T>(this, run) }
}

/// Permutes the axes of a layout. Returns `None` unless `axes` contains each axis once.
fn permuted(layout: &Layout, axes: &[isize]) -> Option<crate::error::Result<Layout>> {
    let ndim = layout.ndim();
    let place = |axis: isize| if axis < 0 { axis + ndim as isize } else { axis };
    let axes = axes.iter().map(|axis| usize::try_from(place(*axis)).ok()).collect::<Option<Vec<_>>>()?;
    let mut sorted = axes.clone();
    sorted.sort_unstable();
    if !sorted.into_iter().eq(0..ndim) {
        return None;
    }
    let shape: Vec<usize> = axes.iter().map(|axis| layout.shape()[*axis]).collect();
    let strides: Vec<isize> = axes.iter().map(|axis| layout.strides()[*axis]).collect();
    Some(Layout::strided(&shape, &strides))
}

/// # Safety
///
/// Called by Python as a method of `T` with a tuple and a dict or null.
unsafe extern "C" fn reshape<T: ArrayClass>(
    this: *mut ffi::PyObject,
    arguments: *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let run = |array: &Bound<'_, T>| {
        // SAFETY: as the caller promises.
        let (arguments, keywords) = unsafe { given(array.py(), arguments, keywords) }?;
        let info = struct_of(array).info()?;
        let has_options = keywords.as_ref().is_some_and(|keywords| !keywords.is_empty());
        if has_options || !info.layout().is_contiguous(Order::C) {
            // NumPy determines whether a copy is needed.
            let numpys = on_host(array)?.getattr("reshape")?;
            return Ok(numpys.call(arguments, keywords.as_ref())?.unbind());
        }
        let shape = extents(&numbers(&arguments)?, info.numel())?;
        let view = Indexed { layout: Layout::contiguous(&shape, Order::C)?, byte_offset: 0 };
        Ok(part_of(array, view)?.unbind())
    };
    // SAFETY: as the caller promises.
    unsafe { body::<T>(this, run) }
}

/// Returns the extents for `numel` elements. One extent may be -1 and is then computed from the others.
fn extents(wanted: &[isize], numel: usize) -> PyResult<Vec<usize>> {
    let refused = || {
        PyValueError::new_err(format!("cannot reshape an array of {numel} elements into shape {wanted:?}"))
    };
    let is_open = |extent: &&isize| **extent == -1;
    let given = wanted.iter().filter(|extent| !is_open(extent));
    let mut given = given.map(|extent| usize::try_from(*extent).ok());
    let known =
        given.try_fold(1_usize, |product, extent| product.checked_mul(extent?)).ok_or_else(refused)?;
    let rest = match wanted.iter().filter(is_open).count() {
        0 => 1,
        1 => numel.checked_div(known).ok_or_else(refused)?,
        _ => return Err(PyValueError::new_err("can only specify one unknown dimension")),
    };
    if known.checked_mul(rest) != Some(numel) {
        return Err(refused());
    }
    Ok(wanted.iter().map(|extent| usize::try_from(*extent).unwrap_or(rest)).collect())
}

/// Returns the arguments of a call.
///
/// # Safety
///
/// `arguments` is a live tuple, and `keywords` is a live dict or null.
unsafe fn given(
    py: Python<'_>,
    arguments: *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
) -> PyResult<(Bound<'_, PyTuple>, Option<Bound<'_, PyDict>>)> {
    // SAFETY: the tuple is alive, as the caller promises.
    let arguments = unsafe { Bound::from_borrowed_ptr(py, arguments) };
    // SAFETY: a live dict or null, as the caller promises.
    let keywords = unsafe { Bound::from_borrowed_ptr_or_opt(py, keywords) };
    Ok((arguments.cast_into()?, keywords.map(Bound::cast_into).transpose()?))
}

/// # Safety
///
/// Called by Python as a method of `T` without arguments.
unsafe extern "C" fn copy<T: ArrayClass>(
    this: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as the caller promises.
    unsafe { body::<T>(this, |array| duplicate(array, None)) }
}

/// # Safety
///
/// Called by Python as a method of `T` with one argument.
unsafe extern "C" fn deepcopy<T: ArrayClass>(
    this: *mut ffi::PyObject,
    memo: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let run = |array: &Bound<'_, T>| {
        // SAFETY: the caller holds a reference to the argument.
        let memo = unsafe { Borrowed::from_ptr(array.py(), memo) };
        duplicate(array, Some(&memo))
    };
    // SAFETY: as the caller promises.
    unsafe { body::<T>(this, run) }
}

/// Copies the elements. An object that is more than an array is copied as the module `copy` does.
fn duplicate<T: ArrayClass>(array: &Bound<'_, T>, memo: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
    let py = array.py();
    if is_just_an_array(array)? {
        let request = DlpackArgs::for_a_copy();
        let owner = ExportedObject::new(array.clone().into_any().unbind());
        // SAFETY: the object keeps the array alive, and its class is frozen.
        let capsule = unsafe { answer(py, struct_of(array), owner, &request) }?;
        return Ok(new_object(py, Adopted(import_capsule(&capsule)?))?.unbind());
    }
    let told: Bound<'_, PyTuple> = array.as_any().call_method1("__reduce_ex__", (4,))?.cast_into()?;
    let mut arguments =
        vec![array.clone().into_any(), memo.cloned().unwrap_or_else(|| py.None().into_bound(py))];
    arguments.extend(told.iter());
    Ok(py.import("copy")?.call_method1("_reconstruct", PyTuple::new(py, arguments)?)?.unbind())
}
