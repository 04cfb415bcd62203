//! The trait of array classes, and the methods that `#[cuda_array(pyclass)]` writes for them.
#![expect(unsafe_code, reason = "exports rely on the promises of `CudaArray`")]

use pyo3::PyClass;
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;

use crate::array::info::ArrayInfo;
use crate::array::mutability::Mutability;
use crate::derive::cuda_array::CudaArray;
use crate::driver::release::reach::InReach;
use crate::driver::stream_handle::StreamHandle;
use crate::error::{Error, ErrorKind, Result};
use crate::python::errors::raised;
use crate::python::export::dlpack::{DlpackArgs, answer};
use crate::python::interpreter::with_attached;
use crate::python::py_ref::{PyRef, release_deferred_refs};

/// `#[pyclass(frozen)]` as a type, as `PyO3` expresses it.
#[doc(hidden)]
pub trait IsFrozen: Sized {
    /// Returns the struct of an object, on any thread. A borrow would panic on other threads if the class is
    /// `unsendable`, but the struct is `Sync`.
    fn get<'a, T: PyClass<Frozen = Self> + Sync>(object: &'a Bound<'_, T>) -> &'a T;
}

impl IsFrozen for True {
    #[inline]
    fn get<'a, T: PyClass<Frozen = Self> + Sync>(object: &'a Bound<'_, T>) -> &'a T {
        object.get()
    }
}

/// Implemented by `#[cuda_array(pyclass)]`, whether or not the struct is a frozen class.
#[doc(hidden)]
pub trait ArrayMethods: CudaArray + Send + Sync {
    /// Returns the struct of an object. The expansion calls [`struct_of`] here and nowhere else, so that an unmet bound
    /// gives one error message.
    fn of<'a>(object: &'a Bound<'_, Self>) -> &'a Self
    where
        Self: Sized;
}

/// A `#[pyclass]` whose instances are arrays. `#[cuda_array(pyclass)]` implements it.
///
/// The class is frozen: exports keep the Python object and its struct, which must not change while consumers use its
/// memory.
///
/// A `Py<T>` of such a class is an array too. It keeps the object, and so the memory, alive.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a Python class of arrays",
    label = "not a frozen class with `pyclass` in `#[cuda_array(...)]`",
    note = "write `#[pyclass(frozen)]`, `#[derive(CudaArray)]` and `#[cuda_array(pyclass)]` on the struct",
    note = "for a class that implements `CudaArray` by hand write `interop_core::array_class!(Class)`",
    note = "`frozen`: its memory is shared with Python, so nothing may replace it"
)]
pub trait ArrayClass: ArrayMethods + PyClass<Frozen: IsFrozen> {}

#[diagnostic::do_not_recommend]
impl<T: ArrayMethods + PyClass<Frozen: IsFrozen>> ArrayClass for T {}

/// Returns the struct of an object of a class.
#[doc(hidden)]
#[inline]
#[must_use]
pub fn struct_of<'a, T: ArrayClass>(object: &'a Bound<'_, T>) -> &'a T {
    T::Frozen::get(object)
}

// SAFETY: 1 to 3: as for the struct, which lives as long as its object. Nothing changes it, because the class is frozen.
// 4: others have the object too, so memory that only its sole owner may write is stated as read-only.
unsafe impl<T: ArrayClass> CudaArray for Py<T> {
    fn info(&self) -> Result<ArrayInfo> {
        described_attached(|py| shared_info(self.bind(py)))
    }

    fn __note_read(&self, stream: StreamHandle) -> bool {
        with_attached(|py| struct_of(self.bind(py)).__note_read(stream)).unwrap_or(false)
    }
}

/// Describes an array of a Python object, which needs the interpreter.
pub(crate) fn described_attached(
    describe: impl FnOnce(Python<'_>) -> Result<ArrayInfo>,
) -> Result<ArrayInfo> {
    with_attached(describe).unwrap_or_else(|| {
        Err(Error::state(ErrorKind::Unsupported, "python", "the interpreter is shutting down"))
    })
}

/// Returns the description of an array whose object others have too.
pub(crate) fn shared_info<T: ArrayMethods>(object: &Bound<'_, T>) -> Result<ArrayInfo> {
    let mut info = T::of(object).info();
    if let Ok(info) = &mut info {
        info.has_one_handle = false;
        if info.mutability == Mutability::UniqueOwner {
            info.mutability = Mutability::ReadOnly;
        }
    }
    info
}

/// `__dlpack__`.
#[doc(hidden)]
pub fn dlpack<'py, T: ArrayMethods>(
    object: &Bound<'py, T>,
    arguments: [Option<&Bound<'py, PyAny>>; 4],
) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    release_deferred_refs(py);
    let request = DlpackArgs::new(arguments)?;
    let owner = InReach::new(PyRef::new(object.clone().into_any().unbind()), None);
    // By reference, so that the description is not moved (see `ImportSlot`).
    let capsule = match T::of(object).info() {
        // SAFETY: the object keeps the array alive, and its class is frozen.
        Ok(ref info) => unsafe { answer(py, info, owner, &request) },
        Err(error) => Err(error.into()),
    };
    capsule.map_err(|error| raised(py, error))
}

/// The methods of the protocols, and no others. Run as a test.
///
/// ```
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
///     fn __len__(&self) -> usize { self.len }
///     fn __eq__(&self, other: &Self) -> bool { self.len == other.len }
/// }
///
/// Python::initialize();
/// Python::attach(|py| -> PyResult<()> {
///     let samples = Bound::new(py, Samples { values: HostVec::from_slice(&[1.0_f32, 2.0]), len: 2 })?;
///     let own = pyo3::types::PyDict::new(py);
///     own.set_item("samples", samples)?;
///     let check = |code| py.eval(code, Some(&own), None)?.extract::<bool>();
///     assert!(check(c_str!("len(samples) == 2 and samples == samples"))?);
///     assert!(check(c_str!("'dltensor' in repr(samples.__dlpack__())"))?);
///     assert!(check(c_str!("memoryview(samples).tolist() == [1.0, 2.0]"))?);
///     // CUDA cannot reach the memory of a `HostVec`.
///     assert!(check(c_str!("not hasattr(samples, '__cuda_array_interface__')"))?);
///     let new = c_str!("sorted(set(dir(samples)) - set(dir(object)) - {'__len__', '__module__', '__buffer__', '__release_buffer__'})");
///     let new: Vec<String> = py.eval(new, Some(&own), None)?.extract()?;
///     assert_eq!(
///         new,
///         [
///             "__array__",
///             "__cuda_array_interface__",
///             "__dlpack__",
///             "__dlpack_c_exchange_api__",
///             "__dlpack_device__",
///         ],
///     );
///     Ok(())
/// })
/// # .unwrap();
/// ```
#[cfg(all(doctest, feature = "derive"))]
struct Methods;
