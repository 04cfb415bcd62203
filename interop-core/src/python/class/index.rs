//! What NumPy calls basic indexing: integers, slices, an ellipsis and new axes give a view of the same memory.

use pyo3::exceptions::{PyIndexError, PyOverflowError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyInt, PySlice, PyTuple};

use crate::array::info::ArrayInfo;
use crate::array::layout::Layout;
use crate::error::{Error, ErrorKind};

/// What an index takes of an array.
#[derive(Debug)]
pub struct Indexed {
    /// The shape and the strides of the view.
    pub layout: Layout,
    /// How many bytes its first element lies behind that of the array.
    pub byte_offset: isize,
}

/// The view that `array[key]` is in NumPy, for a `__getitem__` of a class's own: integers, slices, an ellipsis, and `None` for a
/// new axis, alone or in a tuple.
///
/// # Errors
///
/// `IndexError` for an index outside its axis, for too many, and for what is none of these, such as a list or an array, of which
/// NumPy makes a copy; what an `__index__` raises; [`ErrorKind::Alignment`] for an element that starts within a byte.
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
        let found = format!("an element that starts within a byte, {bits} bits on");
        let allowed = "elements at the start of a byte";
        return Err(Error::new(ErrorKind::Alignment, "index", found, allowed).into());
    }
    Ok(Indexed { layout, byte_offset: bits / 8 })
}

/// Whether NumPy takes a view by this key, and no copy: all of it is what [`index_basic`] knows.
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
    // Arrays have an `__index__` too, which works for one of a single element only, and means that array.
    let is_array = item.hasattr("__len__")?;
    Ok(item.is_instance_of::<PyEllipsis>()
        || !item.is_instance_of::<PyBool>() && !is_array && item.hasattr("__index__")?)
}

/// Whether a key has an ellipsis, with which NumPy gives an array of a single element, and no scalar.
pub(crate) fn has_ellipsis(key: &Bound<'_, PyAny>) -> bool {
    let is_ellipsis = |item: &Bound<'_, PyAny>| item.is_instance_of::<PyEllipsis>();
    match key.cast::<PyTuple>() {
        Ok(tuple) => tuple.iter_borrowed().any(|item| is_ellipsis(&item)),
        Err(_) => is_ellipsis(key),
    }
}

/// The layout after all parts of a key, and the offset of its first element, in elements.
fn take_all(whole: &Layout, items: &[Bound<'_, PyAny>]) -> PyResult<(Layout, isize)> {
    let indices = |items: &[Bound<'_, PyAny>]| items.iter().filter(|item| !item.is_none()).count();
    let ellipses = items.iter().filter(|item| item.is_instance_of::<PyEllipsis>()).count();
    if ellipses > 1 {
        let text = format!("{ellipses} ellipses, of which an index has one at most");
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

/// A new axis of extent 1 before this one, with the stride that a compact array has there.
fn with_axis(layout: &Layout, axis: usize) -> crate::error::Result<Layout> {
    let (mut shape, mut strides) = (layout.shape().to_vec(), layout.strides().to_vec());
    let behind = shape.get(axis).zip(strides.get(axis));
    let step = behind.map_or(1, |(extent, stride)| stride.saturating_mul((*extent).max(1) as isize));
    shape.insert(axis, 1);
    strides.insert(axis, step);
    Layout::strided(&shape, &strides)
}

/// An axis cut by a slice, or dropped by an integer; and the offset of the new first element.
fn take(layout: &Layout, axis: usize, index: &Bound<'_, PyAny>) -> PyResult<(Layout, isize)> {
    let extent = layout.shape()[axis];
    if let Ok(slice) = index.cast::<PySlice>() {
        let indices = slice.indices(extent as isize)?;
        // An empty slice may start one outside the axis, on either side, where there is no element.
        let start = usize::try_from(indices.start).ok().filter(|start| *start < extent).unwrap_or(0);
        return Ok(layout.slice(axis, start, indices.step, indices.slicelength));
    }
    let outside = |found: &dyn core::fmt::Display| {
        PyIndexError::new_err(format!("index {found} is outside axis {axis} of extent {extent}"))
    };
    if index.is_instance_of::<PyBool>() || !index.hasattr("__index__")? {
        let text = format!("indices are integers, slices, `...` and None, not {}", index.get_type().name()?);
        return Err(PyIndexError::new_err(text));
    }
    let number: isize = index.extract().map_err(|error: PyErr| {
        if error.is_instance_of::<PyOverflowError>(index.py()) { outside(index) } else { error }
    })?;
    let place = if number < 0 { number + extent as isize } else { number };
    match usize::try_from(place).ok().filter(|place| *place < extent) {
        Some(place) => Ok(layout.select(axis, place)),
        None => Err(outside(&number)),
    }
}
