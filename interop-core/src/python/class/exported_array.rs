//! `ExportedArray`: the Python class of returned `#[cuda_array(python)]` structs.
#![expect(unsafe_code, reason = "passes on the promises of the array inside")]

use core::mem::ManuallyDrop;

use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};

use crate::array::device::Device;
use crate::array::info::ArrayInfo;
use crate::array::mutability::Mutability;
use crate::cuda;
use crate::derive::cuda_array::CudaArray;
use crate::error::Result;
use crate::python::class::array_class::{ArrayClass, ArrayMethods};
use crate::python::class::index::Indexed;
use crate::python::class::instance::Instance;

/// An array that a function returned, for NumPy and other libraries to use in place, as by `numpy.from_dlpack(array)`.
///
/// It supports DLPack and, for memory that CUDA can reach, the CUDA Array Interface.
#[pyclass(frozen, weakref, module = "interop_core")]
pub(crate) struct ExportedArray {
    array: Box<dyn Described>,
    /// The part of the array that this object shows, or `None` for all of it.
    view: Option<Indexed>,
}

#[pymethods]
impl ExportedArray {
    /// For the garbage collector: an object that keeps a memoryview of itself would never be freed.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.array.visit(&visit)
    }
}

/// The part of [`CudaArray`] that needs no type parameter.
trait Described: Send + Sync {
    fn describe(&self) -> Result<ArrayInfo>;

    /// Returns another handle of the Python object that keeps the array, or `None` if there is no such object.
    fn again(&self, _: Python<'_>) -> Option<Box<dyn Described>> {
        None
    }

    /// Visits the Python objects that the array keeps, as far as they are known.
    fn visit(&self, _: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        Ok(())
    }
}

/// A user's struct. The objects that it keeps are not known. Python drops it on any thread, and some buffers are freed
/// in the current context, so it is dropped in the context of its memory.
pub(crate) struct Returned<A: CudaArray>(ManuallyDrop<A>);

impl<A: CudaArray + Send + Sync> Described for Returned<A> {
    fn describe(&self) -> Result<ArrayInfo> {
        self.0.info()
    }
}

impl<A: CudaArray> Drop for Returned<A> {
    fn drop(&mut self) {
        // An import and host memory need no context.
        let on_device = |info: &ArrayInfo| info.device() != Device::CPU && !info.drops_in_order;
        let info = self.0.info().ok().filter(on_device);
        let _home = info.and_then(|info| cuda::release_scope_of(&info)).and_then(cuda::enter_scope);
        // SAFETY: the struct is dropped once.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}

impl<T: ArrayClass> Described for Instance<T> {
    fn describe(&self) -> Result<ArrayInfo> {
        self.info()
    }

    fn again(&self, py: Python<'_>) -> Option<Box<dyn Described>> {
        Some(Box::new(Self(self.0.clone_ref(py))))
    }

    fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.0)
    }
}

// SAFETY: 1 and 2: as for the inner struct. 3: nothing else has the struct, so no reference to its memory exists. 4: the
// memory is stated as writable or read-only.
unsafe impl CudaArray for ExportedArray {
    /// Returns the description of the inner struct. Memory that its sole owner may write is writable for everyone who
    /// has the object.
    fn info(&self) -> Result<ArrayInfo> {
        let mut info = self.array.describe()?;
        if let Some(Indexed { layout, byte_offset }) = &self.view {
            info = info.part(layout.clone(), *byte_offset)?;
        }
        let mutability =
            if info.is_writable_by_owner() { Mutability::Writable } else { Mutability::ReadOnly };
        Ok(ArrayInfo { mutability, ..info })
    }
}

impl ArrayMethods for ExportedArray {}

/// A struct that Python may use and release on any thread.
///
/// One trait for all these bounds, so that an unmet bound gives one error message.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a Python object, which every thread may use and release",
    label = "not `Send`, or not `Sync`",
    note = "each field is to be both; of a raw pointer write `unsafe impl Send` and `unsafe impl Sync` for the struct, and vouch \
            for it"
)]
pub trait AnyThread: Send + Sync + 'static {}

#[diagnostic::do_not_recommend]
impl<T: Send + Sync + 'static> AnyThread for T {}

/// Creates an object from an array. `install` has added the methods of the class before.
pub(crate) fn new_object<A>(py: Python<'_>, array: A) -> PyResult<Bound<'_, PyAny>>
where
    A: CudaArray + AnyThread,
{
    // Rejects a struct with inconsistent fields here, where the traceback shows who created it.
    array.info()?;
    into_checked_object(py, array)
}

/// Creates an `ExportedArray` from an instance of an array class.
pub(crate) fn of_instance<T: ArrayClass>(py: Python<'_>, array: Instance<T>) -> PyResult<Bound<'_, PyAny>> {
    exported(py, Box::new(array), None)
}

fn exported(py: Python<'_>, array: Box<dyn Described>, view: Option<Indexed>) -> PyResult<Bound<'_, PyAny>> {
    Ok(Bound::new(py, ExportedArray { array, view })?.into_any())
}

/// As [`new_object`], for a struct whose description was checked.
pub(crate) fn into_checked_object<A>(py: Python<'_>, array: A) -> PyResult<Bound<'_, PyAny>>
where
    A: CudaArray + AnyThread,
{
    exported(py, Box::new(Returned(ManuallyDrop::new(array))), None)
}

/// Creates a view of an object's array that keeps the object alive. A view of a view keeps the original object.
pub(crate) fn part_of<'py, T: ArrayClass>(
    array: &Bound<'py, T>,
    mut view: Indexed,
) -> PyResult<Bound<'py, PyAny>> {
    let py = array.py();
    if let Ok(whole) = array.as_any().cast_exact::<ExportedArray>() {
        let ExportedArray { array: of, view: own } = whole.get();
        if let (Some(own), Some(of)) = (own, of.again(py)) {
            view.byte_offset += own.byte_offset;
            return exported(py, of, Some(view));
        }
    }
    exported(py, Box::new(Instance(array.clone().unbind())), Some(view))
}
