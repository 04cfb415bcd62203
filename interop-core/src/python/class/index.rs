//! Basic indexing as in NumPy: integers, slices, an ellipsis and new axes give a view of the same memory.

use pyo3::exceptions::{PyIndexError, PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PySlice, PyString, PyTuple};

use crate::array::info::ArrayInfo;
use crate::array::layout::Layout;
use crate::error::{Error, ErrorKind};

/// The part of an array that an index selects.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) layout: Layout,
    /// The offset of the first element from that of the array, in bytes.
    pub(crate) byte_offset: isize,
}

/// Returns the part that `array[key]` is in NumPy. See [`view`](crate::python::view).
pub(crate) fn part_at(info: &ArrayInfo, key: &Bound<'_, PyAny>) -> PyResult<Part> {
    let part = match key.cast::<PyTuple>() {
        Ok(tuple) => take_all(info.layout(), &tuple.iter().collect::<Vec<_>>()),
        Err(_) => take_all(info.layout(), core::slice::from_ref(key)),
    };
    let (layout, offset) = part?;
    let bits = offset * info.dtype().item_bits(info.is_padded()) as isize;
    if bits % 8 != 0 {
        let found = format!("an element at bit {bits}");
        let allowed = "elements at the start of a byte";
        return Err(Error::new(ErrorKind::Alignment, "index", found, allowed).into());
    }
    Ok(Part { layout, byte_offset: bits / 8 })
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
