//! A Python class of one's own whose instances are arrays.

use interop_core::{CudaArray, DType, Error, ErrorKind, FromArray, Layout, Order, Shared, StreamHandle};
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyEllipsis, PyInt, PySlice, PyTuple};

use crate::facts::import_any;
use crate::kernels::{Value, filled};

/// An array of any element type, shape and strides, in memory that it shares with whoever imports it.
#[pyclass(frozen, module = "interop_demo")]
#[derive(CudaArray)]
#[cuda_array(pyclass)]
pub(crate) struct Array {
    #[cuda_array(data)]
    memory: Shared,
    #[cuda_array(shape)]
    shape: Vec<usize>,
    #[cuda_array(strides)]
    strides: Vec<isize>,
    #[cuda_array(stream)]
    stream: StreamHandle,
}

/// Uses the memory of any object that speaks a protocol, without a copy.
#[pyfunction]
#[pyo3(signature = (obj, *, stream=None))]
pub(crate) fn asarray(obj: &Bound<'_, PyAny>, stream: Option<Bound<'_, PyAny>>) -> PyResult<Array> {
    Ok(Array::from_import(import_any(obj, stream)?.import)?)
}

#[pymethods]
impl Array {
    /// A new array, all of whose elements are `value`.
    #[staticmethod]
    #[pyo3(signature = (shape, value, dtype="<f4", *, device="cpu", ordinal=0, order="C", readonly=false))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn full(
        shape: Shape,
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
        if (device, ordinal) != ("cpu", 0) {
            let found = format!("{device:?}, ordinal {ordinal}");
            return Err(Error::new(ErrorKind::Device, "device", found, "\"cpu\", ordinal 0").into());
        }
        let layout = Layout::compact(&shape.extents(), order)?;
        let memory = filled(dtype, layout.numel(), value)?;
        let memory = if readonly { memory.read_only() } else { memory };
        Ok(Self::of(memory, &layout, StreamHandle::NothingPending))
    }

    /// A view of the same memory: integers, slices and an ellipsis, as in `NumPy`.
    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<Self> {
        let items = match key.cast::<PyTuple>() {
            Ok(tuple) => tuple.iter().collect(),
            Err(_) => vec![key.clone()],
        };
        let facts = self.facts()?;
        let item = facts.dtype().item_bits(facts.is_padded()) / 8;
        let (mut layout, mut offset) = (facts.layout().clone(), 0);
        let mut axis = 0;
        let ellipses = items.iter().filter(|item| item.is_instance_of::<PyEllipsis>()).count();
        if ellipses > 1 || items.len() - ellipses > layout.ndim() {
            let text = format!("{} indices for {} axes", items.len(), layout.ndim());
            return Err(PyIndexError::new_err(text));
        }
        for (at, index) in items.iter().enumerate() {
            if index.is_instance_of::<PyEllipsis>() {
                axis = layout.ndim() - (items.len() - at - 1);
                continue;
            }
            let (view, further) = taken(&layout, axis, index)?;
            axis += usize::from(view.ndim() == layout.ndim());
            (layout, offset) = (view, offset + further);
        }
        let memory = self.memory.offset(offset * item as isize)?;
        Ok(Self::of(memory, &layout, self.stream))
    }
}

impl Array {
    fn of(memory: Shared, layout: &Layout, stream: StreamHandle) -> Self {
        Self { memory, shape: layout.shape().to_vec(), strides: layout.strides().to_vec(), stream }
    }
}

/// An axis cut by a slice, or dropped by an integer; and the offset of the new first element.
fn taken(layout: &Layout, axis: usize, index: &Bound<'_, PyAny>) -> PyResult<(Layout, isize)> {
    let extent = layout.shape()[axis];
    if let Ok(slice) = index.cast::<PySlice>() {
        let indices = slice.indices(extent as isize)?;
        // An empty slice may start one past the end, where there is no element.
        let start = if indices.slicelength == 0 { 0 } else { indices.start };
        return Ok(layout.slice(axis, start as usize, indices.step, indices.slicelength));
    }
    if !index.is_instance_of::<PyInt>() {
        let text = format!("indices are integers, slices and `...`, not {}", index.get_type().name()?);
        return Err(PyTypeError::new_err(text));
    }
    let number: isize = index.extract()?;
    let place = if number < 0 { number + extent as isize } else { number };
    match usize::try_from(place).ok().filter(|place| *place < extent) {
        Some(place) => Ok(layout.select(axis, place)),
        None => {
            Err(PyIndexError::new_err(format!("index {number} is outside axis {axis} of extent {extent}")))
        }
    }
}

/// A shape as Python writes it: an extent or a tuple of extents.
#[derive(FromPyObject)]
enum Shape {
    Extent(usize),
    Extents(Vec<usize>),
}

impl Shape {
    fn extents(self) -> Vec<usize> {
        match self {
            Self::Extent(extent) => vec![extent],
            Self::Extents(extents) => extents,
        }
    }
}
