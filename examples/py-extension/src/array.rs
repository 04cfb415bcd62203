//! A Python class of one's own whose instances are arrays.

use interop_core::python::{extract_integer, import_as};
use interop_core::{
    AsStream, CudaArray, DType, Dims, Error, ErrorKind, FromArray, Layout, Order, SharedBuffer, Storage,
};
use pyo3::exceptions::{PyIndexError, PyOverflowError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyCapsule, PyEllipsis, PyList, PySlice, PyTuple};

use crate::cuda::{LastStream, Place};
use crate::describe::import_any;
use crate::kernels::{Value, filled};

/// An array of any element type, shape and strides, in memory that it shares with whoever imports it.
#[pyclass(frozen, weakref, module = "interop_demo")]
#[derive(CudaArray)]
#[cuda_array(pyclass)]
pub(crate) struct Array {
    #[cuda_array(data)]
    memory: SharedBuffer,
    #[cuda_array(shape)]
    shape: Dims<usize>,
    #[cuda_array(strides)]
    strides: Dims<isize>,
    #[cuda_array(stream)]
    pub(crate) stream: LastStream,
}

/// Uses the memory of any object that speaks a protocol, without a copy.
#[pyfunction]
#[pyo3(signature = (obj, *, stream=None))]
pub(crate) fn asarray(obj: &Bound<'_, PyAny>, stream: Option<Bound<'_, PyAny>>) -> PyResult<Array> {
    let (named, own) = (stream.is_some(), obj.cast::<Array>().ok());
    if !named && own.is_none() && !obj.is_instance_of::<PyCapsule>() {
        return import_as(obj);
    }
    let mut array = Array::from_import(import_any(obj, stream)?.import)?;
    if let Some(own) = own {
        // The two are the same memory, and know of each other's work.
        array.stream = own.get().stream.shared_with(array.stream.as_stream(), named);
    }
    Ok(array)
}

#[pymethods]
impl Array {
    /// A new array, all of whose elements are `value`; `device` is "cpu", "cuda", "pool", "pinned" or "managed".
    #[staticmethod]
    #[pyo3(signature = (shape, value, dtype="<f4", *, device="cpu", ordinal=0, order="C", readonly=false))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn full(
        py: Python<'_>,
        shape: &Bound<'_, PyAny>,
        value: Value,
        dtype: &str,
        device: &str,
        ordinal: i32,
        order: &str,
        readonly: bool,
    ) -> PyResult<Self> {
        let dtype = DType::from_typestr(dtype).or_else(|error| DType::from_name(dtype).ok_or(error))?;
        let order = match order {
            "C" => Order::C,
            "F" => Order::F,
            _ => return Err(Error::new(ErrorKind::Strides, "order", order, "\"C\" or \"F\"").into()),
        };
        let place = Place::named(device, ordinal)?;
        let layout = Layout::contiguous(&extents(shape)?, order)?;
        // What fills memory of a device waits for work of the device, which may be a function that needs the lock.
        let memory = py.detach(|| filled(dtype, layout.numel(), value, place))?;
        let memory = if readonly { memory.read_only() } else { memory };
        let stream = LastStream::on(memory.memory().device);
        Ok(Self::of(memory, &layout, stream))
    }

    /// `in` is refused, as it would compare the parts with `==`, which tells objects apart and not elements.
    #[classattr]
    const __contains__: Option<bool> = None;

    /// A view of the same memory: integers, slices, an ellipsis, and `None` for a new axis, as in `NumPy`.
    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<Self> {
        let items = match key.cast::<PyTuple>() {
            Ok(tuple) => tuple.iter().collect(),
            Err(_) => vec![key.clone()],
        };
        let info = self.info()?;
        let item = info.dtype().item_bits(info.is_padded()) as isize;
        let (mut layout, mut offset) = (info.layout().clone(), 0);
        let mut axis = 0;
        let ellipses = items.iter().filter(|item| item.is_instance_of::<PyEllipsis>()).count();
        if ellipses > 1 {
            return Err(PyIndexError::new_err(format!(
                "{ellipses} ellipses, of which an index has one at most"
            )));
        }
        let indices = |items: &[Bound<'_, PyAny>]| items.iter().filter(|item| !item.is_none()).count();
        let count = indices(&items) - ellipses;
        if count > layout.ndim() {
            return Err(PyIndexError::new_err(format!("{count} indices for {} axes", layout.ndim())));
        }
        for (at, index) in items.iter().enumerate() {
            if index.is_instance_of::<PyEllipsis>() {
                axis = layout.ndim() - indices(&items[at + 1..]);
                continue;
            }
            if index.is_none() {
                layout = with_axis(&layout, axis)?;
                axis += 1;
                continue;
            }
            let (view, further) = taken(&layout, axis, index)?;
            axis += usize::from(view.ndim() == layout.ndim());
            (layout, offset) = (view, offset + further);
        }
        if offset * item % 8 != 0 {
            let found = format!("an element that starts within a byte, {} bits on", offset * item);
            return Err(
                Error::new(ErrorKind::Alignment, "index", found, "elements at the start of a byte").into()
            );
        }
        let memory = self.memory.byte_offset(offset * item / 8)?;
        Ok(Self::of(memory, &layout, self.stream.clone()))
    }
}

impl Array {
    /// Another handle of the same memory and stream.
    pub(crate) fn alias(&self) -> Self {
        let Self { memory, shape, strides, stream } = self;
        let (shape, strides) = (shape.clone(), strides.clone());
        Self { memory: memory.clone(), shape, strides, stream: stream.clone() }
    }

    fn of(memory: SharedBuffer, layout: &Layout, stream: LastStream) -> Self {
        Self { memory, shape: layout.shape().into(), strides: layout.strides().into(), stream }
    }
}

/// A new axis of extent 1 before this one, with the stride that a compact array has there.
fn with_axis(layout: &Layout, axis: usize) -> interop_core::Result<Layout> {
    let (mut shape, mut strides) = (layout.shape().to_vec(), layout.strides().to_vec());
    let behind = shape.get(axis).zip(strides.get(axis));
    let step = behind.map_or(1, |(extent, stride)| stride.saturating_mul((*extent).max(1) as isize));
    shape.insert(axis, 1);
    strides.insert(axis, step);
    Layout::strided(&shape, &strides)
}

/// An axis cut by a slice, or dropped by an integer; and the offset of the new first element.
fn taken(layout: &Layout, axis: usize, index: &Bound<'_, PyAny>) -> PyResult<(Layout, isize)> {
    let extent = layout.shape()[axis];
    if let Ok(slice) = index.cast::<PySlice>() {
        let indices = slice.indices(extent as isize)?;
        // An empty slice may start one outside the axis, on either side, where there is no element.
        let start = usize::try_from(indices.start).ok().filter(|start| *start < extent).unwrap_or(0);
        return Ok(layout.slice(axis, start, indices.step, indices.slicelength));
    }
    let outside = |found: &dyn std::fmt::Display| {
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

/// A shape as Python writes it: an extent, or a tuple or list of extents.
fn extents(shape: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
    let extent = |extent: Bound<'_, PyAny>| {
        let number = extract_integer(&extent, "shape")?;
        // What has no elements may be this wide as well, but no protocol has a number for more.
        isize::try_from(number).ok().and_then(|extent| usize::try_from(extent).ok()).ok_or_else(|| {
            Error::new(ErrorKind::Shape, "shape", number, "extents from 0 to 2**63 - 1").into()
        })
    };
    if shape.is_instance_of::<PyTuple>() || shape.is_instance_of::<PyList>() {
        return shape.try_iter()?.map(|item| extent(item?)).collect();
    }
    Ok(vec![extent(shape.clone())?])
}
