//! `ExportedArray`: the Python class of returned `#[cuda_array(python)]` structs, and of views of arrays.
#![expect(unsafe_code, reason = "passes on the promises of the array inside")]

use core::ops::Deref;

use pyo3::exceptions::{PyIndexError, PyOverflowError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};
use pyo3::types::{PyBool, PyEllipsis, PyMemoryView, PySlice, PyString, PyTuple};

use crate::array::device::{Device, DeviceType};
use crate::array::layout::Layout;
use crate::array::mutability::Mutability;
use crate::derive::cuda_array::CudaArray;
use crate::driver::reach::{InReach, Reach, Sole};
use crate::error::{Error, ErrorKind, Result};
use crate::order::array_info::ArrayInfo;
use crate::order::memory_check::reach_of;
use crate::python::class::array_class::{
    ArrayClass, ArrayMethods, DlpackArgs, described_attached, shared_info, to_capsule,
};
use crate::python::errors::with_origin;
use crate::python::export::numpy::{dtype, no_type, registered_type, same_size, type_name};
use crate::python::import::dunder_dlpack::import_capsule;
use crate::python::interpreter::{NestedCall, PyRef};

/// A Python object for an array: a handle that NumPy and other libraries use in place, as by `numpy.from_dlpack(array)`.
///
/// It has the methods of the protocols (see [`ArrayClass`]), `shape`, `dtype`, `ndim`, `size`, `nbytes`, `strides` and
/// `device` as in NumPy, `len()`, views by integers, slices, `...` and `None`, `copy.copy`, and a `repr` of these. For
/// everything else, also to pickle it, convert it with `numpy.asarray`, or with `from_dlpack` of a library.
///
/// A returned `#[cuda_array(python)]` struct becomes such an object. [`Exported`](crate::python::Exported) makes one of any
/// array, such as a struct of another crate or an `Arc` of one, and [`view`] of a part of an object's array.
///
/// Memory that its sole owner may write is writable for everyone who has the object. Python's garbage collector does not see the
/// Python objects that the array keeps.
#[pyclass(frozen, weakref, module = "interop_core")]
pub struct ExportedArray {
    source: Source,
    /// The part of the array that this object shows, or `None` for all of it.
    part: Option<Part>,
}

/// Whose array an object shows.
enum Source {
    /// A user's struct. The Python objects that it keeps are not known.
    Value(Box<dyn CudaArray + Send + Sync>),
    /// The array of another object, of the class for which `describe` was made.
    Object { object: Py<PyAny>, describe: fn(Python<'_>, &Py<PyAny>) -> Result<ArrayInfo> },
}

impl Source {
    /// The array of an object.
    fn of<T: ArrayMethods>(array: &Bound<'_, T>) -> Self {
        Self::Object {
            object: array.clone().into_any().unbind(),
            // SAFETY: only `object` above stands beside this function, and it is of this class.
            describe: |py, object| shared_info(unsafe { object.bind(py).cast_unchecked::<T>() }),
        }
    }
}

impl core::fmt::Debug for ExportedArray {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ExportedArray").field("info", &self.info()).finish()
    }
}

/// A struct that Python may use and release on any thread.
///
/// One trait for all these bounds, so that an unmet bound gives one error message.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a Python object, which every thread may use and release",
    label = "not `Send`, or not `Sync`",
    note = "each field must be both; for a raw pointer write `unsafe impl Send` and `unsafe impl Sync` for the struct, if it may be \
            used on any thread"
)]
pub trait AnyThread: Send + Sync + 'static {}

#[diagnostic::do_not_recommend]
impl<T: Send + Sync + 'static> AnyThread for T {}

/// Returns the context in which Python drops an array, on any thread: some buffers are freed in the current context. An import
/// and host memory need none. It is found when the object is made, because a description may need the interpreter, and a drop
/// must not wait for it.
pub(crate) fn reach_of_drop(info: &ArrayInfo) -> Option<Reach> {
    let needs_context = info.device() != Device::CPU && !info.state.release_is_ordered;
    if needs_context { reach_of(info) } else { None }
}

impl ExportedArray {
    /// Creates the object of an array.
    ///
    /// # Errors
    ///
    /// As [`CudaArray::info`].
    pub(crate) fn new<A: CudaArray + AnyThread>(array: A) -> Result<Self> {
        // Rejects a struct with inconsistent fields here, where the traceback shows who created it.
        let info = array.info()?;
        Ok(Self::from_described(array, &info))
    }

    /// As [`new`](Self::new), for an array with this description.
    pub(crate) fn from_described<A: CudaArray + AnyThread>(array: A, info: &ArrayInfo) -> Self {
        let reach = reach_of_drop(info);
        Self { source: Source::Value(Box::new(InReach::new(Sole(array), reach))), part: None }
    }
}

/// Returns the view that `array[key]` is in NumPy, for a class of arrays that defines `__getitem__`.
///
/// The key consists of integers, slices, an ellipsis, and `None` for a new axis, alone or in a tuple. The view uses the same
/// memory and keeps the object alive.
///
/// # Errors
///
/// - `IndexError` for an index out of bounds, for too many indices, and for any other key, such as a list or an array,
///   for which NumPy makes a copy.
/// - `ArrayError` for an element that does not start at a whole byte.
/// - Exceptions of `__index__` are passed on.
///
/// ```
/// use interop_core::python::{ExportedView, view};
/// use interop_core::{CudaArray, HostVec};
/// use pyo3::ffi::c_str;
/// use pyo3::prelude::*;
///
/// #[pyclass(frozen)]
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len], export, pyclass)]
/// struct Samples { #[cuda_array(data)] values: HostVec<f32>, len: usize }
///
/// #[pymethods]
/// impl Samples {
///     fn __getitem__(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>) -> PyResult<ExportedView> {
///         view(slf, key)
///     }
/// }
///
/// Python::initialize();
/// Python::attach(|py| -> PyResult<()> {
///     let values = HostVec::from([1.0_f32, 2.0, 3.0]);
///     let own = pyo3::types::PyDict::new(py);
///     own.set_item("samples", Bound::new(py, Samples { values, len: 3 })?)?;
///     let last = py.eval(c_str!("memoryview(samples[::-1][:2]).tolist()"), Some(&own), None)?;
///     assert_eq!(last.extract::<[f32; 2]>()?, [3.0, 2.0]);
///     Ok(())
/// })
/// # .unwrap();
/// ```
pub fn view<T: ArrayClass>(array: &Bound<'_, T>, key: &Bound<'_, PyAny>) -> PyResult<ExportedView> {
    let _nested = NestedCall::enter()?;
    let mut part = part_at(&T::of(array).info()?, key)?;
    let source = match array.as_any().cast_exact::<ExportedArray>().map(Bound::get) {
        // A view of a view keeps the original object.
        Ok(ExportedArray { source: Source::Object { object, describe }, part: of }) => {
            part.byte_offset += of.as_ref().map_or(0, |of| of.byte_offset);
            Source::Object { object: object.clone_ref(array.py()), describe: *describe }
        }
        _ => Source::of(array),
    };
    Ok(ExportedView(ExportedArray { source, part: Some(part) }))
}

/// A view of an object's array, which becomes an [`ExportedArray`] as the result of a method. `maturin generate-stubs` knows
/// its type, but not that of a class of another crate.
#[derive(Debug)]
pub struct ExportedView(ExportedArray);

impl Deref for ExportedView {
    type Target = ExportedArray;

    fn deref(&self) -> &ExportedArray {
        &self.0
    }
}

impl<'py> IntoPyObject<'py> for ExportedView {
    type Target = ExportedArray;
    type Output = Bound<'py, ExportedArray>;
    type Error = PyErr;
    crate::__python_hint! { OUTPUT_TYPE EXPORTED_ARRAY }

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        Bound::new(py, self.0)
    }
}

/// Returns a method of an array of any class, such as `__array__`: that of an [`ExportedArray`] over the same memory.
#[doc(hidden)]
pub fn method_of<'py, T: ArrayMethods>(array: &Bound<'py, T>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let whole = ExportedArray { source: Source::of(array), part: None };
    Bound::new(array.py(), whole)?.getattr(name)
}

// SAFETY: 1 and 2: as for the inner struct. 3: nothing else has the struct, so no reference to its memory exists. 4: the
// memory is stated as writable or read-only. 5 and 6: as for the inner struct.
unsafe impl CudaArray for ExportedArray {
    fn info(&self) -> Result<ArrayInfo> {
        let mut info = match &self.source {
            Source::Value(array) => array.info(),
            Source::Object { object, describe } => described_attached(|py| describe(py, object)),
        };
        if let Some(Part { layout, byte_offset }) = &self.part {
            let ArrayInfo { description, state } = info?;
            let part = description.part(layout.clone(), *byte_offset);
            info = part.map(|description| ArrayInfo::new(description, state));
        }
        if let Ok(info) = &mut info {
            let is_writable = info.is_writable_by_owner();
            info.description.mutability =
                if is_writable { Mutability::Writable } else { Mutability::ReadOnly };
        }
        info
    }
}

/// The methods of the protocols.
mod protocols {
    #![allow(unsafe_op_in_unsafe_fn, reason = "PyO3 calls unsafe methods without a block of their own")]

    use super::ExportedArray;

    crate::__python_class! { type: ExportedArray, pyo3: "pyo3" }
}

#[pymethods]
impl ExportedArray {
    /// The extents, a tuple of ints.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.info()?.shape())
    }

    /// The number of axes.
    #[getter]
    fn ndim(&self) -> PyResult<usize> {
        Ok(self.info()?.ndim())
    }

    /// The number of elements.
    #[getter]
    fn size(&self) -> PyResult<usize> {
        Ok(self.info()?.numel())
    }

    /// The bytes that the elements take without gaps.
    #[getter]
    fn nbytes(&self) -> PyResult<usize> {
        Ok(self.info()?.nbytes())
    }

    /// The strides in bytes, a tuple of ints; `None` for elements packed below the byte.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.info()?.byte_strides().map(|strides| PyTuple::new(py, strides)).transpose()
    }

    /// The element type: a `numpy.dtype` if NumPy has it or a package such as `ml_dtypes` registered it; otherwise its name.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        dtype(py, &self.info()?)
    }

    /// Where the memory is: `'cpu'`, `'cuda:0'`, `'cuda_host'` or `'cuda_managed'`.
    #[getter]
    fn device(&self) -> PyResult<String> {
        Ok(place_name(self.info()?.device()))
    }

    /// The extent of the first axis.
    fn __len__(&self) -> PyResult<usize> {
        let info = self.info()?;
        info.shape().first().copied().ok_or_else(|| PyTypeError::new_err("len() of an array without axes"))
    }

    /// A view of the same memory, for integers, slices, `...` and `None`.
    fn __getitem__(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>) -> PyResult<ExportedView> {
        view(slf, key)
    }

    /// The array for NumPy, in place where it can be. Without it, NumPy would take an array on a GPU for a sequence.
    #[pyo3(signature = (dtype=None, *, copy=None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _nested = NestedCall::enter()?;
        let (py, info) = (slf.py(), slf.get().info()?);
        if !info.device().device_type.is_host_accessible() {
            let allowed =
                "memory that the host can reach; `numpy.from_dlpack(x, device=\"cpu\")` makes a copy there";
            return Err(Error::new(ErrorKind::Device, "__array__", info.device(), allowed).into());
        }
        let (numpy, view) = (py.import("numpy")?, numpy_view(slf, &info)?);
        // `array` always copies. `asarray` returns an array that has this dtype already.
        let function = if copy == Some(true) { "array" } else { "asarray" };
        let array = numpy.call_method1(function, (&view, dtype))?;
        if copy == Some(false) && !array.is(&view) {
            let allowed = format!("None or True, because a copy is needed to convert from {}", info.dtype());
            return Err(Error::new(ErrorKind::CopyRequired, "copy", "False", allowed).into());
        }
        Ok(array)
    }

    /// A copy in new memory on the same device, without gaps.
    fn __copy__(slf: &Bound<'_, Self>) -> PyResult<Self> {
        let arguments = DlpackArgs { versioned: true, copy: Some(true), ..DlpackArgs::default() };
        let (py, info) = (slf.py(), slf.get().info()?);
        let owner = InReach::new(PyRef::new(slf.clone().into_any().unbind()), None);
        // SAFETY: the object keeps the array alive, and its class is frozen.
        let capsule = unsafe { to_capsule(py, &info, owner, &arguments) }?;
        let mut copy = import_capsule(&capsule)?;
        copy.settle()?;
        let info = copy.info().clone();
        // SAFETY: the import keeps the memory that it describes.
        Ok(Self::from_described(unsafe { DescribedOwner::new(info.clone(), copy) }, &info))
    }

    /// As `__copy__`: elements refer to nothing.
    fn __deepcopy__(slf: &Bound<'_, Self>, _memo: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::__copy__(slf)
    }

    /// Refused: another process has no such class.
    fn __reduce_ex__(_slf: &Bound<'_, Self>, _protocol: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        Err(PyTypeError::new_err(
            "an array in memory of Rust cannot be pickled; pickle an array of a library, such as `numpy.asarray(x)`, or \
             `torch.from_dlpack(x)` for memory of a device",
        ))
    }

    /// Shape, element type, device and address.
    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let (class, info) = (slf.get_type().qualname()?, slf.get().info()?);
        let (shape, address) = (PyTuple::new(slf.py(), info.shape())?.repr()?, info.address());
        let (dtype, device) = (type_name(&info), place_name(info.device()));
        Ok(format!("<{class} shape={shape} dtype={dtype} device={device} at {address:#x}>"))
    }

    /// For the garbage collector: an object that keeps a view of itself would never be freed.
    fn __traverse__(&self, visit: PyVisit<'_>) -> core::result::Result<(), PyTraverseError> {
        match &self.source {
            Source::Value(_) => Ok(()),
            Source::Object { object, .. } => visit.call(object),
        }
    }
}

/// Returns the name of a device as `PyTorch` writes it, and those of pinned and managed memory.
pub(crate) fn place_name(device: Device) -> String {
    match device.device_type {
        DeviceType::CUDA => format!("cuda:{}", device.device_id),
        DeviceType::CUDA_HOST => "cuda_host".into(),
        DeviceType::CUDA_MANAGED => "cuda_managed".into(),
        _ => "cpu".into(),
    }
}

/// Converts a derived struct to the return value of a `#[pyfunction]`.
#[doc(hidden)]
pub fn into_object(py: Python<'_>, array: impl CudaArray + AnyThread) -> PyResult<Bound<'_, PyAny>> {
    Ok(Bound::new(py, ExportedArray::new(array)?)?.into_any())
}

/// A description of memory that an owner keeps alive.
pub(crate) struct DescribedOwner<O> {
    info: ArrayInfo,
    /// Held until this struct is dropped.
    _owner: O,
}

impl<O> DescribedOwner<O> {
    /// # Safety
    ///
    /// As for [`CudaArray`], as long as the owner lives, which may be moved.
    pub(crate) unsafe fn new(info: ArrayInfo, owner: O) -> Self {
        Self { info, _owner: owner }
    }
}

// SAFETY: 1 to 6: as the caller of `new` promised. Nothing accesses the owner.
unsafe impl<O> CudaArray for DescribedOwner<O> {
    fn info(&self) -> Result<ArrayInfo> {
        Ok(self.info.clone())
    }
}

/// Returns a `NumPy` array of memory that the host can access, by the buffer protocol. Every version of `NumPy` supports it,
/// also for read-only memory, bools and structs.
pub(crate) fn numpy_view<'py>(
    array: &Bound<'py, ExportedArray>,
    info: &ArrayInfo,
) -> PyResult<Bound<'py, PyAny>> {
    let (numpy, dtype) = (&array.py().import(intern!(array.py(), "numpy"))?.into_any(), info.dtype());
    if info.struct_type().is_some() || dtype.typestr().is_some() {
        return numpy.call_method1("asarray", (PyMemoryView::from(array.as_any())?,));
    }
    let registered = registered_type(numpy, dtype, info.is_padded())?;
    let Some(registered) = registered else { return Err(with_origin(array.as_any(), no_type(dtype)).into()) };
    // As integers of the same size, because the buffer protocol has a format for them.
    let mut info = array.get().info()?;
    info.description.dtype = same_size(dtype, info.padded).unwrap_or(dtype);
    info.description.padded = false;
    // SAFETY: as for the object. The element size determines the extent of the memory, and it is the same.
    let integers = unsafe { DescribedOwner::new(info, array.clone().unbind()) };
    let integers = Bound::new(array.py(), ExportedArray::new(integers)?)?;
    let integers = numpy.call_method1("asarray", (PyMemoryView::from(&integers)?,))?;
    integers.call_method1("view", (registered,))
}

/// The part of an array that an index selects.
#[derive(Debug)]
struct Part {
    layout: Layout,
    /// The offset of the first element from that of the array, in bytes.
    byte_offset: isize,
}

/// Returns the part that `array[key]` is in NumPy. See [`view`](crate::python::view).
fn part_at(info: &ArrayInfo, key: &Bound<'_, PyAny>) -> PyResult<Part> {
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
