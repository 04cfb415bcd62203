//! A Python class whose instances are arrays.

use interop_core::arrays::Dims;
use interop_core::launch::AsStream;
use interop_core::protocols::Layout;
use interop_core::python::{self, Exported, extract_integer, extract_stream, import_as};
use interop_core::storage::Relabeled;
use interop_core::{
    CudaArray, DType, Device, Error, ErrorKind, FromArray, Order, SharedBuffer, StreamHandle,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList, PyTuple};

use crate::cuda::{LastStream, Place};
use crate::describe::import_any;
use crate::kernels::{Value, filled};

/// An array of any element type, shape and strides. It shares its memory with everyone who imports it.
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

/// An array of any library for the time of a call, on the stream on which its caller works.
#[derive(CudaArray)]
#[cuda_array(python)]
pub(crate) struct Argument {
    #[cuda_array(data)]
    memory: SharedBuffer,
    #[cuda_array(shape)]
    shape: Dims<usize>,
    #[cuda_array(strides)]
    strides: Dims<isize>,
    #[cuda_array(stream)]
    stream: StreamHandle,
}

impl Argument {
    /// Imports an object, for work on `stream` or on the stream of its library. An array of this module remembers a stream
    /// that is named.
    pub(crate) fn of(obj: &Bound<'_, PyAny>, stream: Option<Bound<'_, PyAny>>) -> PyResult<Self> {
        match obj.cast::<Array>() {
            Ok(own) if own.get().info()?.device().device_type.is_cuda_accessible() => own.get().lend(stream),
            _ => Ok(Self::from_import(import_any(obj, stream)?)?),
        }
    }

    /// As [`of`](Self::of), for reading only.
    pub(crate) fn read(obj: &Bound<'_, PyAny>, stream: Option<Bound<'_, PyAny>>) -> PyResult<Self> {
        match obj.cast::<Array>() {
            Ok(_) => Self::of(obj, stream),
            Err(_) => Ok(Self::from_import(import_any(obj, stream)?.read_only())?),
        }
    }
}

/// Returns an array that uses the memory of any object that supports one of the protocols, without a copy.
#[pyfunction]
#[pyo3(signature = (obj, *, stream=None))]
pub(crate) fn asarray(obj: &Bound<'_, PyAny>, stream: Option<Bound<'_, PyAny>>) -> PyResult<Array> {
    let (named, own) = (stream.is_some(), obj.cast::<Array>().ok());
    if !named && own.is_none() && !obj.is_instance_of::<PyCapsule>() {
        return import_as(obj);
    }
    let mut array = Array::from_import(import_any(obj, stream)?)?;
    if let Some(own) = own {
        // Both arrays use the same memory, so they share its stream.
        array.stream = own.get().stream.shared_with(array.stream.as_stream(), named);
    }
    Ok(array)
}

#[pymethods]
impl Array {
    /// Returns a new array in which every element is `value`. `device` is "cpu", "cuda", "pool", "pinned" or "managed".
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
        let dtype: DType = dtype.parse()?;
        let order = match order {
            "C" => Order::C,
            "F" => Order::F,
            _ => return Err(Error::new(ErrorKind::Strides, "order", order, "\"C\" or \"F\"").into()),
        };
        let place = Place::named(device, ordinal)?;
        let layout = Layout::contiguous(&extents(shape)?, order)?;
        // Filling device memory waits for work on the device, which may include a host function that needs the
        // interpreter's lock.
        let (memory, filled_on) = py.detach(|| filled(dtype, layout.numel(), value, place))?;
        let memory = if readonly { memory.read_only() } else { memory };
        let array = Self::of(memory, &layout, LastStream::on(Device::CPU));
        let stream = LastStream::on(array.info()?.device());
        stream.set(filled_on);
        Ok(Self { stream, ..array })
    }

    /// A view of the same memory, for integers, slices, `...` and `None`.
    fn __getitem__(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>) -> PyResult<Self> {
        let Self { memory, stream, .. } = slf.get();
        let (whole, part) = (slf.get().info()?, python::view(slf, key)?.info()?);
        // A part without elements has no address.
        let offset =
            if part.numel() == 0 { 0 } else { part.address().wrapping_sub(whole.address()) as isize };
        Ok(Self::of(memory.byte_offset(offset)?, part.layout(), stream.clone()))
    }

    fn __len__(&self) -> PyResult<usize> {
        let extent = self.shape.first().copied();
        extent.ok_or_else(|| PyTypeError::new_err("len() of an array without axes"))
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let info = slf.get().info()?;
        let shape = PyTuple::new(slf.py(), info.shape())?.repr()?;
        Ok(format!("<Array shape={shape} dtype={} on {}>", info.dtype(), info.device()))
    }

    /// The stream on which the memory was last written, for other libraries, or `None` if nothing is pending.
    #[getter]
    fn stream(&self) -> StreamHandle {
        self.stream.as_stream()
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.info()?.shape())
    }

    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        python::dtype(py, &self.info()?)
    }

    #[getter]
    fn ndim(&self) -> usize {
        self.shape.len()
    }

    #[getter]
    fn size(&self) -> PyResult<usize> {
        Ok(self.info()?.numel())
    }

    #[getter]
    fn nbytes(&self) -> PyResult<usize> {
        Ok(self.info()?.nbytes())
    }

    /// In bytes, as `NumPy`'s; `None` for elements packed below the byte.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.info()?.byte_strides().map(|strides| PyTuple::new(py, strides)).transpose()
    }

    /// The same managed memory as device memory, for libraries that accept nothing else.
    fn relabel_as_device(slf: Py<Self>) -> PyResult<Exported<Relabeled<Py<Self>>>> {
        Ok(Exported(Relabeled::as_device(slf).map_err(|refused| refused.error)?))
    }

    /// The same pinned or managed memory as host memory, for libraries that accept nothing else.
    fn relabel_as_host(slf: Py<Self>) -> PyResult<Exported<Relabeled<Py<Self>>>> {
        Ok(Exported(Relabeled::as_host(slf).map_err(|refused| refused.error)?))
    }
}

impl Array {
    /// Returns another handle of the same memory. If the caller names a stream, both use that one from now on; -1 names
    /// none.
    fn lend(&self, stream: Option<Bound<'_, PyAny>>) -> PyResult<Argument> {
        if let Some(stream) = stream {
            match extract_stream(&stream)? {
                StreamHandle::NothingPending => {}
                stream => {
                    self.make_stream_wait(stream)?;
                    self.stream.set(stream);
                }
            }
        }
        let Self { memory, shape, strides, stream } = self;
        if stream.as_stream() == StreamHandle::NothingPending {
            // What is launched on it has to be remembered.
            stream.set(StreamHandle::LegacyDefault);
        }
        let (shape, strides) = (shape.clone(), strides.clone());
        Ok(Argument { memory: memory.clone(), shape, strides, stream: stream.as_stream() })
    }

    pub(crate) fn of(memory: SharedBuffer, layout: &Layout, stream: LastStream) -> Self {
        Self { memory, shape: layout.shape().into(), strides: layout.strides().into(), stream }
    }
}

/// Parses a Python shape: an extent, or a tuple or list of extents.
fn extents(shape: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
    let extent = |extent: Bound<'_, PyAny>| {
        let number = extract_integer(&extent, "shape")?;
        // An array without elements may have any extent up to this limit; no protocol can express a larger one.
        isize::try_from(number).ok().and_then(|extent| usize::try_from(extent).ok()).ok_or_else(|| {
            Error::new(ErrorKind::Shape, "shape", number, "extents from 0 to 2**63 - 1").into()
        })
    };
    if shape.is_instance_of::<PyTuple>() || shape.is_instance_of::<PyList>() {
        return shape.try_iter()?.map(|item| extent(item?)).collect();
    }
    Ok(vec![extent(shape.clone())?])
}
