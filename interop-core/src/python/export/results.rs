//! Return types of functions that return an array of a library: a fixed library, or that of the caller's array.
#![expect(unsafe_code, reason = "forwards the description of an array")]

use core::fmt;

use pyo3::prelude::*;

use crate::array::device::Device;
use crate::array::dtype::DType;
use crate::array::stream_handle::StreamHandle;
use crate::derive::cuda_array::CudaArray;
use crate::derive::from_array::FromArray;
use crate::derive::kept::dereferences;
use crate::driver::reach::Reach;
use crate::driver::stream::{Stream, capture_error, is_capturing};
use crate::error::{Error, ErrorKind};
use crate::memory::import::Import;
use crate::memory::storage::Storage;
use crate::order::array_info::ArrayInfo;
use crate::order::placement::Change;
use crate::order::release::owner::Owner;
use crate::order::release::requests::make_room_on;
use crate::python::class::exported_array::{AnyThread, into_object};
use crate::python::errors::with_origin;
use crate::python::export::allocate::{NewArraySpec, new_memory_of_rust};
use crate::python::export::library::{ResultLibrary, make_producer_wait_for};
use crate::python::import::object::{assemble, import, import_as};
use crate::python::import::package::Package;
use crate::python::interpreter::{NestedCall, PyRef, detached, free_detached, release_deferred_refs};

/// Makes a struct around an array a result of functions.
macro_rules! converted {
    ($name:ident, $hint:ident, |$result:ident, $py:ident| $object:expr) => {
        impl<'py, A: CudaArray + AnyThread> IntoPyObject<'py> for $name<A> {
            type Target = PyAny;
            type Output = Bound<'py, PyAny>;
            type Error = PyErr;
            crate::__python_hint! { OUTPUT_TYPE $hint }

            fn into_pyobject(self, $py: Python<'py>) -> PyResult<Self::Output> {
                let $result = self;
                $object
            }
        }
    };
}

/// Defines a return type. The types differ in the library that creates the object.
macro_rules! result_of {
    ($(#[$documentation:meta])* $name:ident, $hint:ident, |$py:ident, $array:ident| $object:expr) => {
        $(#[$documentation])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name<A>(pub A);

        converted! { $name, $hint, |result, $py| { let $array = result.0; $object } }
    };
}

result_of! {
    /// A result that becomes a `numpy.ndarray` over the same memory.
    ///
    /// The memory must be accessible by the host, as pinned and managed memory are too. The conversion waits for
    /// pending work.
    ///
    /// The array is writable if the struct is the only owner of its memory and may write to it. Structs
    /// ([`Element`](crate::Element)) become structured arrays. `bfloat16` and similar types become types of
    /// `ml_dtypes`, which must be installed for them.
    ///
    /// It also works inside a tuple, a `Vec`, a map or an `Option`, and with an array of the crate `ndarray` in an
    /// `NdArray`. The conversion raises `ArrayError` for device memory and `ImportError` if `NumPy` is not installed.
    ///
    /// ```no_run
    /// use interop_core::python::NumPy;
    /// use interop_core::{CudaArray, HostVec};
    /// use pyo3::prelude::*;
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(shape = [len])]
    /// struct Samples<S> { #[cuda_array(data)] values: S, len: usize }
    ///
    /// /// A NumPy array over memory that Rust allocated, and the number of its elements.
    /// #[pyfunction]
    /// fn ramp(len: usize) -> (NumPy<Samples<HostVec<f32>>>, usize) {
    ///     let values = (0..len).map(|at| at as f32).collect();
    ///     (NumPy(Samples { values, len }), len)
    /// }
    /// ```
    NumPy, NUMPY_ARRAY, |py, array| ResultLibrary::NumPy.convert(py, array)
}

result_of! {
    /// A result that becomes a `torch.Tensor` over the same memory. `PyTorch`'s current stream waits for pending work
    /// on device memory.
    ///
    /// Pinned memory becomes a host tensor after a wait for pending work. Managed memory becomes a tensor of its
    /// device. The conversion raises `ArrayError` for a read-only array, because tensors are always writable, and
    /// `ImportError` if `PyTorch` is not installed.
    ///
    /// ```no_run
    /// use interop_core::cuda::{CudaBuffer, MemoryKind};
    /// use interop_core::python::PyTorch;
    /// use interop_core::{CudaArray, DType};
    /// use pyo3::prelude::*;
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(shape = [len], export)]
    /// struct Samples { #[cuda_array(data)] values: CudaBuffer, len: usize }
    ///
    /// #[pyfunction]
    /// fn zeros(len: usize) -> PyResult<PyTorch<Samples>> {
    ///     let values = CudaBuffer::zeroed(MemoryKind::Device, 0, DType::F32, len)?;
    ///     Ok(PyTorch(Samples { values, len }))
    /// }
    /// ```
    PyTorch, TORCH_TENSOR, |py, array| ResultLibrary::from_package(py, Package::PyTorch)?.convert(py, array)
}

result_of! {
    /// A result that becomes a `cupy.ndarray` over the same device memory. `CuPy`'s current stream waits for pending
    /// work. For an example see [`PyTorch`].
    ///
    /// The conversion raises `ArrayError` for host memory and for a read-only array, because arrays of `CuPy` are
    /// always writable. It raises `ImportError` if `CuPy` is not installed.
    CuPy, CUPY_ARRAY, |py, array| ResultLibrary::from_package(py, Package::CuPy)?.convert(py, array)
}

result_of! {
    /// A result that becomes a `jax.Array`, over the same memory or as a copy. JAX copies for example host memory that
    /// is not aligned to 64 bytes (`HostVec` is aligned). A read-only array is copied, because JAX may overwrite the memory of
    /// an argument that is donated to a function (`jax.jit(…, donate_argnums=0)`). For an example see [`NumPy`].
    ///
    /// The conversion raises `ImportError` if JAX is not installed, and passes on exceptions of
    /// `jax.dlpack.from_dlpack`.
    Jax, JAX_ARRAY, |py, array| ResultLibrary::from_package(py, Package::Jax)?.convert(py, array)
}

result_of! {
    /// A result that becomes an [`ExportedArray`](crate::python::ExportedArray), a handle that every library takes. A
    /// struct with `#[cuda_array(python)]` becomes one by itself; this is for arrays without the word: a struct of
    /// another crate, an `Arc` of one.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    ///
    /// use interop_core::python::Exported;
    /// use interop_core::{CudaArray, HostVec};
    /// use pyo3::prelude::*;
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(shape = [len], export)]
    /// struct Samples { #[cuda_array(data)] values: HostVec<f32>, len: usize }
    ///
    /// #[pyclass]
    /// struct Recorder { last: Arc<Samples> }
    ///
    /// #[pymethods]
    /// impl Recorder {
    ///     #[getter]
    ///     fn last(&self) -> Exported<Arc<Samples>> {
    ///         Exported(self.last.clone())
    ///     }
    /// }
    /// ```
    Exported, EXPORTED_ARRAY, |py, array| into_object(py, array)
}

/// An array and the library of the caller's array. It dereferences to the struct.
///
/// As an argument it has the library of the Python object. As a result it becomes an array of that library:
///
/// | library of the object | result |
/// | --- | --- |
/// | `NumPy`, `PyTorch`, `CuPy`, JAX; also for subclasses | as for [`NumPy`], [`PyTorch`], [`CuPy`], [`Jax`] |
/// | a class with a C exchange table, as in TVM FFI | the object that the table creates from a tensor |
/// | a class with `from_dlpack`, or with it in its `__array_namespace__()` or top package | what that returns |
/// | any other | an object of the class that `#[cuda_array(python)]` returns |
///
/// ```no_run
/// use interop_core::python::WithLibrary;
/// use interop_core::{CudaArray, HostVec, Lease};
/// use pyo3::prelude::*;
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len])]
/// struct Samples<S> { #[cuda_array(data)] values: S, len: usize }
///
/// /// NumPy in, NumPy out; a tensor of PyTorch in, a tensor of PyTorch out.
/// #[pyfunction]
/// fn halved(samples: WithLibrary<Samples<Lease<f32>>>) -> PyResult<WithLibrary<Samples<HostVec<f32>>>> {
///     let values = samples.to_vec::<f32>()?.into_iter().map(|value| value / 2.0).collect();
///     Ok(samples.like(Samples { values, len: samples.len }))
/// }
/// ```
#[derive(Clone, Debug)]
pub struct WithLibrary<A> {
    /// The array.
    pub array: A,
    library: ResultLibrary,
}

impl<A> WithLibrary<A> {
    /// Adds the library of `object` to an array, for functions that take the Python object itself.
    ///
    /// # Errors
    ///
    /// An exception that is not an `Exception`, such as `KeyboardInterrupt`, while the class is inspected for the first
    /// time.
    ///
    /// ```no_run
    /// use interop_core::python::{WithLibrary, import};
    /// use interop_core::{CudaArray, HostVec};
    /// use pyo3::prelude::*;
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(shape = [axes])]
    /// struct Extents { #[cuda_array(data)] extents: HostVec<i64>, axes: usize }
    ///
    /// #[pyfunction]
    /// fn extents(object: &Bound<'_, PyAny>) -> PyResult<WithLibrary<Extents>> {
    ///     let array = import(object, None)?;
    ///     let extents: HostVec<i64> = array.info().shape().iter().map(|extent| *extent as i64).collect();
    ///     WithLibrary::new(object, Extents { axes: extents.len(), extents })
    /// }
    /// ```
    pub fn new(object: &Bound<'_, PyAny>, array: A) -> PyResult<Self> {
        Ok(Self { array, library: ResultLibrary::from_object(object)? })
    }

    /// Returns another array as a result of the caller's library.
    #[must_use]
    pub fn like<B>(&self, array: B) -> WithLibrary<B> {
        WithLibrary { array, library: self.library.clone() }
    }

    /// Allocates memory from the caller's library, with the shape, element type and device of this argument.
    ///
    /// # Errors
    ///
    /// As [`new_array`](Self::new_array), and as [`CudaArray::info`].
    ///
    /// ```no_run
    /// use interop_core::python::{WithLibrary, NewArray};
    /// use interop_core::{CudaArray, Lease, LeaseMut};
    /// use pyo3::prelude::*;
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(shape = [len])]
    /// struct Samples<S> { #[cuda_array(data)] values: S, len: usize }
    ///
    /// /// The result is in memory of the caller's library, and is an object of its own.
    /// #[pyfunction]
    /// fn halved(
    ///     py: Python<'_>,
    ///     samples: WithLibrary<Samples<Lease<f32>>>,
    /// ) -> PyResult<NewArray<Samples<LeaseMut<f32>>>> {
    ///     let mut result = samples.new_like::<Samples<LeaseMut<f32>>>(py)?;
    ///     result.zip_map_inplace(&*samples, |_: f32, value: f32| value / 2.0)?;
    ///     Ok(result)
    /// }
    /// ```
    pub fn new_like<B: FromArray + CudaArray>(&self, py: Python<'_>) -> PyResult<NewArray<B>>
    where
        A: CudaArray,
    {
        let info = self.array.info()?;
        let spec = NewArraySpec { shape: info.shape(), dtype: info.dtype(), device: info.device() };
        new_memory(py, &self.library, spec, info.stream())
    }

    /// Allocates memory from the caller's library, by the allocator of its exchange table, `numpy.empty`, `torch.empty`
    /// or `cupy.empty`. For a library that cannot allocate memory that Rust may write, such as JAX, Rust allocates it.
    ///
    /// The array is contiguous in C order, and its elements have unspecified values. Device memory is ready on the stream on
    /// which the caller works, as the arguments are.
    ///
    /// # Errors
    ///
    /// `ArrayError` for a device on which the library cannot allocate, and if the array does not match `B`. Exceptions of
    /// the library are passed on.
    pub fn new_array<B: FromArray + CudaArray>(
        &self,
        py: Python<'_>,
        shape: &[usize],
        dtype: DType,
        device: Device,
    ) -> PyResult<NewArray<B>> {
        new_memory(py, &self.library, NewArraySpec { shape, dtype, device }, None)
    }
}

dereferences!(WithLibrary, array);

impl<'a, 'py, A: FromArray> FromPyObject<'a, 'py> for WithLibrary<A> {
    type Error = PyErr;
    crate::__python_hint! { INPUT_TYPE ANY_ARRAY }

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let array = import_as(&object)?;
        Self::new(&object, array)
    }
}

converted! { WithLibrary, ANYTHING, |result, py| result.library.convert(py, result.array) }

/// A result in new memory of the caller's library.
///
/// Rust writes it through the struct, to which this type dereferences. Python gets the library's own object, without a
/// copy. When it is returned, the library's stream waits for work that is pending on the struct's stream.
///
/// Python gets what the struct describes at the return. If it describes other memory or another shape than before, or if the
/// library cannot allocate memory that Rust may write, as JAX cannot, the struct itself is exported to the library.
///
/// [`WithLibrary::new_like`] and [`new_array`](WithLibrary::new_array) create it.
pub struct NewArray<A> {
    /// The first field, so that the memory is released before its object.
    array: A,
    library: ResultLibrary,
    /// `None` if Rust allocated the memory, which only the struct owns.
    allocated: Option<Allocated>,
}

/// Memory that a library allocated.
struct Allocated {
    object: PyRef,
    /// The struct over all of this memory.
    whole: ArrayInfo,
}

impl<A: fmt::Debug> fmt::Debug for NewArray<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NewArray").field(&self.array).finish()
    }
}

dereferences!(NewArray, array);

converted! {
    NewArray, ANYTHING, |result, py| {
        if let Some(Allocated { object, whole }) = &result.allocated {
            let info = result.array.info()?;
            if info.has_elements_of(whole) {
                let object = object.object().bind(py).clone();
                make_producer_wait_for(&object, &info)?;
                return Ok(object);
            }
        }
        result.library.convert(py, result.array)
    }
}

/// Allocates memory and imports it as a struct that uses it in place. `callers` is the stream on which the caller works, if
/// it is known.
///
/// # Errors
///
/// As [`WithLibrary::new_array`].
fn new_memory<B: FromArray + CudaArray>(
    py: Python<'_>,
    library: &ResultLibrary,
    spec: NewArraySpec<'_>,
    callers: Option<StreamHandle>,
) -> PyResult<NewArray<B>> {
    let _nested = NestedCall::enter()?;
    release_deferred_refs(py);
    free_detached();
    let NewArraySpec { shape, dtype, device } = spec;
    make_room_on(device, shape.iter().product::<usize>().saturating_mul(dtype.item_bits(false) / 8));
    let (mut import, object) = if let Some(object) = library.empty(py, spec)? {
        let mut import = import(&object, None)?;
        // `PyTorch` has not recorded the new values for a gradient.
        import.write_notice = None;
        (import, Some(object))
    } else {
        if let Some(stream) = callers.filter(|stream| is_capturing(*stream)) {
            let what = "memory for a result, which the library of the argument does not allocate";
            return Err(capture_error(stream, what).into());
        }
        let stream = callers.unwrap_or(StreamHandle::LegacyDefault);
        let (info, memory) = detached(py, || new_memory_of_rust(spec, Some(stream)))?;
        let uses = memory.state().uses.cloned();
        // The storage orders its release itself.
        let owner = Owner::new(memory).with_reach(Some(Reach::NONE));
        // SAFETY: the description is that of the storage, which the owner keeps alive and nothing else accesses.
        let mut import = unsafe { Import::from_parts(info, owner) };
        // The memory was allocated for that stream, and nobody else has it: its uses stay known.
        import.info.state.uses = uses;
        import.change(Change::Stated(Stream::named(stream, import.info.device)));
        (import, None)
    };
    let address = import.info().unwatched_address;
    let array = assemble::<B>(&mut import);
    let array = array.map_err(|error| match &object {
        Some(object) => PyErr::from(with_origin(object, error)),
        None => error.into(),
    })?;
    let whole = array.info()?;
    if whole.unwatched_address != address {
        let allowed =
            "a struct that uses the memory in place, such as one with `LeaseMut<T>` or `SharedBuffer`";
        return Err(Error::new(ErrorKind::CopyRequired, "the result", "a struct that copies", allowed).into());
    }
    let allocated = object.map(|object| Allocated { object: PyRef::new(object.unbind()), whole });
    Ok(NewArray { array, library: library.clone(), allocated })
}

/// What Python gets if the struct in a result or an argument is replaced. Run as a test.
///
/// ```
/// use std::mem::swap;
/// use std::sync::Arc;
///
/// use interop_core::python::{Exported, NewArray, WithLibrary, import_as};
/// use interop_core::{CudaArray, HostVec, Lease, LeaseMut};
/// use pyo3::ffi::c_str;
/// use pyo3::prelude::*;
/// use pyo3::types::PyDict;
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len])]
/// struct Samples<S> { #[cuda_array(data)] values: S, len: usize }
///
/// /// Memory that `alive` counts.
/// struct Counted { values: Vec<f64>, _alive: Arc<()> }
///
/// fn counted(value: f64, alive: &Arc<()>) -> Counted {
///     Counted { values: vec![value; 3], _alive: alive.clone() }
/// }
///
/// fn list(object: &Bound<'_, PyAny>) -> PyResult<Vec<f64>> {
///     let own = PyDict::new(object.py());
///     own.set_item("x", object)?;
///     object.py().eval(c_str!("memoryview(x).tolist()"), Some(&own), None)?.extract()
/// }
///
/// fn check(object: &Bound<'_, PyAny>) -> PyResult<()> {
///     let (py, alive) = (object.py(), Arc::new(()));
///     let samples = || WithLibrary::new(object, import_as::<Samples<Lease<f64>>>(object)?);
///     let ones = || -> PyResult<NewArray<Samples<LeaseMut<f64>>>> {
///         let mut ones: NewArray<Samples<LeaseMut<f64>>> = samples()?.new_like(py)?;
///         ones.fill(1.0)?;
///         Ok(ones)
///     };
///     let mut result = ones()?;
///     result.values = LeaseMut::from_owner_with(counted(7.0, &alive), |owner| owner.values.as_mut_slice());
///     let result = result.into_pyobject(py)?;
///     assert_eq!(Arc::strong_count(&alive), 2, "Python has the memory");
///     assert_eq!(list(&result)?, [7.0; 3]);
///     drop(result);
///     assert_eq!(Arc::strong_count(&alive), 1, "Python has released it");
///
///     let (mut shorter, mut one, mut two) = (ones()?, ones()?, ones()?);
///     shorter.len = 2;
///     assert_eq!(list(&shorter.into_pyobject(py)?)?, [1.0; 2]);
///     two.fill(2.0)?;
///     swap(&mut *one, &mut *two);
///     let (one, two) = (one.into_pyobject(py)?, two.into_pyobject(py)?);
///     assert_eq!((list(&one)?, list(&two)?), (vec![2.0; 3], vec![1.0; 3]));
///
///     let mut argument = samples()?;
///     argument.values = Lease::from_owner_with(counted(5.0, &alive), |owner| owner.values.as_slice());
///     let argument = argument.into_pyobject(py)?;
///     assert_eq!((Arc::strong_count(&alive), list(&argument)?), (2, vec![5.0; 3]));
///     Ok(())
/// }
///
/// Python::initialize();
/// Python::attach(|py| -> PyResult<()> {
///     // Its results are in memory of Rust.
///     check(&py.import("array")?.call_method1("array", ("d", [0.0; 3]))?)?;
///     // This one has an exchange table, which allocates.
///     let samples = Samples { values: HostVec::from([0.0_f64; 3]), len: 3 };
///     check(&Exported(samples).into_pyobject(py)?)
/// })
/// # .unwrap();
/// ```
#[cfg(all(doctest, feature = "derive"))]
struct Replaced;
