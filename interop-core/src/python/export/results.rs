//! Results as arrays of a library: by name, or of the kind that the caller brought.

use core::ops::{Deref, DerefMut};

use pyo3::prelude::*;

use crate::array::device::Device;
use crate::array::dtype::DType;
use crate::derive::cuda_array::CudaArray;
use crate::derive::from_array::FromArray;
use crate::python::class::exported_array::AnyThread;
use crate::python::export::allocate::{NewArray, new_memory};
use crate::python::export::into_library::into_library;
use crate::python::import::argument::import_as;
use crate::python::import::kind::Kind;

/// The two conversions of a result, which differ in where the object comes from.
macro_rules! result_of {
    ($(#[$documentation:meta])* $name:ident, |$py:ident| $kind:expr) => {
        $(#[$documentation])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name<A>(pub A);

        impl<'py, A: CudaArray + AnyThread> IntoPyObject<'py> for $name<A> {
            type Target = PyAny;
            type Output = Bound<'py, PyAny>;
            type Error = PyErr;

            fn into_pyobject(self, $py: Python<'py>) -> PyResult<Self::Output> {
                into_library($py, $kind, self.0)
            }
        }
    };
}

result_of! {
    /// A result as a `numpy.ndarray`, in place: for memory that the host can reach, also pinned and managed memory, whose
    /// pending work is waited for.
    ///
    /// The array is writable if the struct was the only one that had its memory, and may write to it. Structs
    /// ([`Element`](crate::Element)) become structured arrays, `bfloat16` and its like the types of `ml_dtypes`, which has to
    /// be installed for them.
    ///
    /// In a tuple, a `Vec`, a map or an `Option` it is one too; so is an array of the crate `ndarray` in an `NdArray`. Its conversion raises `ArrayError` for memory of a device and
    /// `ImportError` where `NumPy` is not installed.
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
    /// /// An array of NumPy's in memory of Rust's, and how many elements it has.
    /// #[pyfunction]
    /// fn ramp(len: usize) -> (NumPy<Samples<HostVec<f32>>>, usize) {
    ///     let values = (0..len).map(|at| at as f32).collect();
    ///     (NumPy(Samples { values, len }), len)
    /// }
    /// ```
    NumPy, |py| &Kind::NumPy
}

result_of! {
    /// A result as a `torch.Tensor`, in place; memory of a device is ready on the stream that `PyTorch` works on.
    ///
    /// Pinned memory becomes a tensor of the host, which is waited for, and managed memory one of its device. A read-only array
    /// is refused, because tensors can always be written. Its conversion raises `ImportError` where `PyTorch` is not installed.
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
    PyTorch, |py| &Kind::pytorch(py)?
}

result_of! {
    /// A result as a `cupy.ndarray`, in place: for memory of a device, which is ready on `CuPy`'s current stream. An example is
    /// at [`PyTorch`].
    ///
    /// A read-only array is refused, because arrays of `CuPy` can always be written. Its conversion raises `ArrayError` for
    /// memory of the host and `ImportError` where `CuPy` is not installed.
    CuPy, |py| &Kind::CuPy
}

result_of! {
    /// A result as a `jax.Array`: in place, or as a copy where JAX makes one, as of memory of the host that is not aligned to
    /// 64 bytes (`HostVec` is). An example is at [`NumPy`].
    ///
    /// Its conversion raises `ImportError` where JAX is not installed, and what `jax.dlpack.from_dlpack` raises.
    Jax, |py| &Kind::Jax
}

/// An argument that remembers whose array it was, so that a result can be of the same kind: it derefs to the struct.
///
/// What is not of a library that makes arrays of a tensor gets results of the class that `#[cuda_array(python)]` returns.
/// How a library is found is told at [`like`].
///
/// ```no_run
/// use interop_core::python::{FromCaller, SameKind};
/// use interop_core::{CudaArray, HostVec, Lease};
/// use pyo3::prelude::*;
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len])]
/// struct Samples<S> { #[cuda_array(data)] values: S, len: usize }
///
/// /// NumPy in, NumPy out; a tensor of PyTorch in, a tensor of PyTorch out.
/// #[pyfunction]
/// fn halved(samples: FromCaller<Samples<Lease<f32>>>) -> PyResult<SameKind<Samples<HostVec<f32>>>> {
///     let values = samples.to_vec::<f32>()?.into_iter().map(|value| value / 2.0).collect();
///     Ok(samples.like(Samples { values, len: samples.len }))
/// }
/// ```
#[derive(Debug)]
pub struct FromCaller<A> {
    array: A,
    kind: Kind,
}

impl<A> FromCaller<A> {
    /// An argument that was imported by hand, of this object.
    ///
    /// # Errors
    ///
    /// As [`like`].
    pub fn new(object: &Bound<'_, PyAny>, array: A) -> PyResult<Self> {
        Ok(Self { array, kind: Kind::of(object)? })
    }

    /// A result of the caller's kind.
    #[must_use]
    pub fn like<B>(&self, array: B) -> SameKind<B> {
        SameKind { array, kind: self.kind.clone() }
    }

    /// The struct, without what it remembers.
    #[must_use]
    pub fn into_inner(self) -> A {
        self.array
    }

    /// Whether the caller's library gives out memory that Rust can write: all do but JAX, whose arrays do not change, and
    /// those that have no function for it.
    #[must_use]
    pub fn can_allocate(&self) -> bool {
        self.kind.can_allocate()
    }

    /// New memory from the caller's library, with the shape, the element type and the device of this argument.
    ///
    /// # Errors
    ///
    /// As [`new_array`](Self::new_array), and as [`CudaArray::info`].
    ///
    /// ```no_run
    /// use interop_core::python::{FromCaller, NewArray};
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
    ///     samples: FromCaller<Samples<Lease<f32>>>,
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
        self.new_array(py, info.shape(), info.dtype(), info.device())
    }

    /// New memory from the caller's library: the allocator of its exchange table, `numpy.empty`, `torch.empty`, `cupy.empty`.
    ///
    /// The elements are compact in C order, and can have any value. Memory of a device is ready for work on the legacy default
    /// stream, or on the stream of the struct that it comes in.
    ///
    /// # Errors
    ///
    /// `ArrayError` for a library whose arrays cannot be written (JAX), for a device where the library has no memory, and where
    /// the array is not what `B` wants; what the library raises is passed on.
    pub fn new_array<B: FromArray + CudaArray>(
        &self,
        py: Python<'_>,
        shape: &[usize],
        dtype: DType,
        device: Device,
    ) -> PyResult<NewArray<B>> {
        new_memory(py, &self.kind, (shape, dtype, device))
    }
}

impl<A> Deref for FromCaller<A> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.array
    }
}

impl<A> DerefMut for FromCaller<A> {
    fn deref_mut(&mut self) -> &mut A {
        &mut self.array
    }
}

impl<'a, 'py, A: FromArray> FromPyObject<'a, 'py> for FromCaller<A> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let array = import_as(&object)?;
        Self::new(&object, array)
    }
}

/// A result of the kind that the caller brought, made by [`FromCaller::like`] or by [`like`].
#[derive(Clone, Debug)]
pub struct SameKind<A> {
    array: A,
    kind: Kind,
}

impl<'py, A: CudaArray + AnyThread> IntoPyObject<'py> for SameKind<A> {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        into_library(py, &self.kind, self.array)
    }
}

/// A result of the kind of an object, for functions that take it as it is.
///
/// | the object | the result |
/// | --- | --- |
/// | of `NumPy`, `PyTorch`, `CuPy`, JAX, or of a class derived from theirs | as by [`NumPy`], [`PyTorch`], [`CuPy`], [`Jax`] |
/// | of a class with a C exchange table, as TVM FFI's | what the table makes of a tensor |
/// | of a class that has a function `from_dlpack`, or whose `__array_namespace__()` or top package has one | what that makes |
/// | any other | an object of the class that `#[cuda_array(python)]` returns |
///
/// # Errors
///
/// What an interrupt raises while the class is looked at for the first time.
///
/// ```no_run
/// use interop_core::python::{SameKind, import, like};
/// use interop_core::{CudaArray, HostVec};
/// use pyo3::prelude::*;
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [axes])]
/// struct Extents { #[cuda_array(data)] extents: HostVec<i64>, axes: usize }
///
/// #[pyfunction]
/// fn extents(object: &Bound<'_, PyAny>) -> PyResult<SameKind<Extents>> {
///     let array = import(object, None)?;
///     let extents: HostVec<i64> = array.info().shape().iter().map(|extent| *extent as i64).collect();
///     like(object, Extents { axes: extents.len(), extents })
/// }
/// ```
pub fn like<A>(object: &Bound<'_, PyAny>, array: A) -> PyResult<SameKind<A>> {
    Ok(SameKind { array, kind: Kind::of(object)? })
}
