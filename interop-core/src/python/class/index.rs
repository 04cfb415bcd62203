//! Basic indexing as in NumPy: integers, slices, an ellipsis and new axes give a view of the same memory.

use pyo3::exceptions::{PyIndexError, PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyInt, PySlice, PyString, PyTuple};

use crate::array::info::ArrayInfo;
use crate::array::layout::Layout;
use crate::error::{Error, ErrorKind};

/// The view of an array that an index selects.
#[derive(Debug)]
pub struct Indexed {
    /// The shape and the strides of the view.
    pub layout: Layout,
    /// The offset of the view's first element from that of the array, in bytes.
    pub byte_offset: isize,
}

/// Returns the view that `array[key]` is in NumPy, for a class that defines its own `__getitem__`.
///
/// The key consists of integers, slices, an ellipsis, and `None` for a new axis, alone or in a tuple.
///
/// # Errors
///
/// - `IndexError` for an index out of bounds, for too many indices, and for any other key, such as a list or an array,
///   for which NumPy makes a copy.
/// - [`ErrorKind::Alignment`] for an element that does not start at a whole byte.
/// - Exceptions of `__index__` are passed on.
///
/// ```no_run
/// use interop_core::python::index_basic;
/// use interop_core::{CudaArray, Dims, SharedBuffer};
/// use pyo3::prelude::*;
///
/// #[pyclass(frozen)]
/// #[derive(CudaArray)]
/// #[cuda_array(pyclass)]
/// struct Array {
///     #[cuda_array(data)] memory: SharedBuffer,
///     #[cuda_array(shape)] shape: Dims<usize>,
///     #[cuda_array(strides)] strides: Dims<isize>,
/// }
///
/// #[pymethods]
/// impl Array {
///     fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<Self> {
///         let view = index_basic(&self.info()?, key)?;
///         let (shape, strides) = (view.layout.shape().into(), view.layout.strides().into());
///         Ok(Self { memory: self.memory.byte_offset(view.byte_offset)?, shape, strides })
///     }
/// }
/// ```
pub fn index_basic(info: &ArrayInfo, key: &Bound<'_, PyAny>) -> PyResult<Indexed> {
    let view = match key.cast::<PyTuple>() {
        Ok(tuple) => take_all(info.layout(), &tuple.iter().collect::<Vec<_>>()),
        Err(_) => take_all(info.layout(), core::slice::from_ref(key)),
    };
    let (layout, offset) = view?;
    let bits = offset * info.dtype().item_bits(info.is_padded()) as isize;
    if bits % 8 != 0 {
        let found = format!("an element at bit {bits}");
        let allowed = "elements at the start of a byte";
        return Err(Error::new(ErrorKind::Alignment, "index", found, allowed).into());
    }
    Ok(Indexed { layout, byte_offset: bits / 8 })
}

/// Returns whether NumPy returns a view for this key, not a copy. [`index_basic`] supports exactly these keys.
pub(crate) fn is_basic(key: &Bound<'_, PyAny>) -> PyResult<bool> {
    let Ok(tuple) = key.cast::<PyTuple>() else { return is_basic_item(key) };
    for item in tuple.iter_borrowed() {
        if !is_basic_item(&item)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_basic_item(item: &Bound<'_, PyAny>) -> PyResult<bool> {
    if item.is_exact_instance_of::<PyInt>() || item.is_none() || item.is_instance_of::<PySlice>() {
        return Ok(true);
    }
    // Arrays have an `__index__` too. It works only for an array of one element, and such an array is not an integer
    // index.
    let is_array = item.hasattr("__len__")?;
    Ok(item.is_instance_of::<PyEllipsis>()
        || !item.is_instance_of::<PyBool>() && !is_array && item.hasattr("__index__")?)
}

/// Returns whether a key contains an ellipsis. NumPy then returns an array for a single element, not a scalar.
pub(crate) fn has_ellipsis(key: &Bound<'_, PyAny>) -> bool {
    let is_ellipsis = |item: &Bound<'_, PyAny>| item.is_instance_of::<PyEllipsis>();
    match key.cast::<PyTuple>() {
        Ok(tuple) => tuple.iter_borrowed().any(|item| is_ellipsis(&item)),
        Err(_) => is_ellipsis(key),
    }
}

/// Applies all items of a key. Returns the layout, and the offset of its first element in elements.
fn take_all(whole: &Layout, items: &[Bound<'_, PyAny>]) -> PyResult<(Layout, isize)> {
    let indices = |items: &[Bound<'_, PyAny>]| items.iter().filter(|item| !item.is_none()).count();
    let ellipses = items.iter().filter(|item| item.is_instance_of::<PyEllipsis>()).count();
    if ellipses > 1 {
        let text = format!("an index can have one ellipsis, found {ellipses}");
        return Err(PyIndexError::new_err(text));
    }
    let count = indices(items) - ellipses;
    if count > whole.ndim() {
        return Err(PyIndexError::new_err(format!("{count} indices for {} axes", whole.ndim())));
    }
    let (mut layout, mut offset, mut axis) = (whole.clone(), 0, 0);
    for (at, index) in items.iter().enumerate() {
        if index.is_instance_of::<PyEllipsis>() {
            axis = layout.ndim() - indices(&items[at + 1..]);
        } else if index.is_none() {
            layout = with_axis(&layout, axis)?;
            axis += 1;
        } else {
            let (view, further) = take(&layout, axis, index)?;
            axis += usize::from(view.ndim() == layout.ndim());
            (layout, offset) = (view, offset + further);
        }
    }
    Ok((layout, offset))
}

/// Inserts an axis of extent 1 before `axis`, with the stride that a contiguous array has there.
fn with_axis(layout: &Layout, axis: usize) -> crate::error::Result<Layout> {
    let (mut shape, mut strides) = (layout.shape().to_vec(), layout.strides().to_vec());
    let behind = shape.get(axis).zip(strides.get(axis));
    let step = behind.map_or(1, |(extent, stride)| stride.saturating_mul((*extent).max(1) as isize));
    shape.insert(axis, 1);
    strides.insert(axis, step);
    Layout::strided(&shape, &strides)
}

/// Slices an axis, or removes it with an integer. Also returns the offset of the new first element.
fn take(layout: &Layout, axis: usize, index: &Bound<'_, PyAny>) -> PyResult<(Layout, isize)> {
    let extent = layout.shape()[axis];
    if let Ok(slice) = index.cast::<PySlice>() {
        let indices = slice.indices(extent as isize)?;
        // An empty slice may start one past either end of the axis, where there is no element.
        let start = usize::try_from(indices.start).ok().filter(|start| *start < extent).unwrap_or(0);
        return Ok(layout.slice(axis, start, indices.step, indices.slicelength));
    }
    let outside = |found: &dyn core::fmt::Display| {
        PyIndexError::new_err(format!("index {found} is outside axis {axis} of extent {extent}"))
    };
    if index.is_instance_of::<PyBool>() || !index.hasattr("__index__")? {
        return Err(no_index(index)?);
    }
    let number: isize = match index.extract::<isize>() {
        Err(error) if error.is_instance_of::<PyOverflowError>(index.py()) => return Err(outside(index)),
        // Arrays of several elements have an `__index__` that raises an exception.
        Err(error) if error.is_instance_of::<PyTypeError>(index.py()) && index.hasattr("__len__")? => {
            let refusal = no_index(index)?;
            refusal.set_cause(index.py(), Some(error));
            return Err(refusal);
        }
        number => number?,
    };
    let place = if number < 0 { number + extent as isize } else { number };
    match usize::try_from(place).ok().filter(|place| *place < extent) {
        Some(place) => Ok(layout.select(axis, place)),
        None => Err(outside(&number)),
    }
}

/// Returns the error for a key that is no basic index.
#[cold]
fn no_index(index: &Bound<'_, PyAny>) -> PyResult<PyErr> {
    let selects = index.hasattr("__len__")? && !index.is_instance_of::<PyString>();
    let advice = if selects {
        "; NumPy selects by a mask or a list of indices: `numpy.asarray(x)[index]`"
    } else {
        ""
    };
    let class = index.get_type().name()?;
    let text = format!("indices are integers, slices, `...` and None, not {class}{advice}");
    Ok(PyIndexError::new_err(text))
}
