//! Arguments of functions: any object as a derived struct.
#![expect(unsafe_code, reason = "believes what an object says of its memory")]

use pyo3::prelude::*;

use super::capsule::Taken;
use super::errors::of;
use super::import::{HandedOut, import_met, meet};
use super::release::{Destination, Here, release_foreign, without_lock};
use crate::arrival::Arrival;
use crate::cuda::Trust;
use crate::dlpack::Versioned;
use crate::from_array::FromArray;
use crate::import::Import;

/// Imports any object as a derived struct: what `#[cuda_array(python)]` does with an argument, to be done by hand, as in a
/// `#[new]` method of a class.
///
/// # Errors
///
/// As [`import`](super::import()), `ArrayError` for an array that is not what the struct wants, and `MemoryError` for a copy
/// for which there is no room.
///
/// ```no_run
/// use interop_core::python::import_as;
/// use interop_core::{CudaArray, Lease};
/// use pyo3::prelude::*;
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len])]
/// struct Samples<S> { #[cuda_array(data)] values: S, len: usize }
///
/// #[pyclass(frozen)]
/// struct Peak { #[pyo3(get)] height: f32 }
///
/// #[pymethods]
/// impl Peak {
///     #[new]
///     fn new(array: &Bound<'_, PyAny>) -> PyResult<Self> {
///         let samples: Samples<Lease<f32>> = import_as(array)?;
///         Ok(Self { height: samples.to_vec::<f32>()?.into_iter().fold(f32::NEG_INFINITY, f32::max) })
///     }
/// }
/// ```
///
/// For an array of one of several types do not try one `import_as` after another, which would hide why the first failed:
/// [`import`](super::import()) it, look at [`Facts::dtype`](crate::Facts::dtype), and make the struct by
/// [`FromArray::from_import`], in `py.detach`: a copy, and an import of pinned or managed memory, may wait for a device.
pub fn import_as<T: FromArray>(object: &Bound<'_, PyAny>) -> PyResult<T> {
    import_as_with(object, Trust::Nothing)
}

/// As [`import_as`], but what a DLPack tensor says of its memory is believed, as by [`import_trusted`](super::import_trusted).
///
/// # Errors
///
/// As [`import_as`], for what can be seen without the driver.
///
/// # Safety
///
/// As [`import_trusted`](super::import_trusted).
pub unsafe fn import_as_trusted<T: FromArray>(object: &Bound<'_, PyAny>) -> PyResult<T> {
    import_as_with(object, Trust::Memory)
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "one code from the object to the struct, a 15th of an import")]
fn import_as_with<T: FromArray>(object: &Bound<'_, PyAny>, trust: Trust) -> PyResult<T> {
    let mut handed_out = HandedOut::default();
    let known = meet(object, &mut handed_out)?;
    if let Some(Taken::Versioned(tensor)) = handed_out.taken {
        // Nearly all arrays of the host are read here, where it is known what the struct wants.
        // SAFETY: `release_foreign::<Versioned>` releases a struct of this form, on any thread (3 of
        // `ManagedTensor::from_raw`).
        match unsafe { Import::usual(tensor, release_foreign::<Versioned>, trust, T::WANTED.axes) } {
            Ok(mut import) => {
                known.values.check(object, import.facts())?;
                return T::assemble(&mut Arrival::new(&mut import)).map_err(|error| of(object, error).into());
            }
            Err(tensor) => handed_out.taken = Some(Taken::Versioned(tensor)),
        }
    }
    let mut import = Import::NOTHING;
    import_met(&mut Destination { import: &mut import, trust }, object, &known, handed_out, None)?;
    let mut arrival = Arrival::new(&mut import).waiting_in(take_without_lock);
    T::assemble(&mut arrival).map_err(|error| of(object, error).into())
}

/// [`without_lock`], for the storage of an argument.
fn take_without_lock(take: &mut dyn FnMut()) {
    // SAFETY: whoever imports an object has the lock.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: a storage has no references of Python's, as its `take` is called on any thread.
    let take = unsafe { Here::new(take) };
    without_lock(py, move || take.run());
}

/// What Python needs of a struct is asked of the struct, and not of its parameters one by one. Compiled as a test.
///
/// ```no_run
/// use interop_core::{CudaArray, Lease};
/// use pyo3::prelude::*;
/// use std::marker::PhantomData;
///
/// trait Backend {
///     type Buffer;
/// }
///
/// struct Host;
///
/// impl Backend for Host {
///     type Buffer = Lease<f32>;
/// }
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len], python)]
/// struct Samples<B: Backend, M> {
///     #[cuda_array(data)]
///     values: B::Buffer,
///     len: usize,
///     #[cuda_array(default)]
///     marker: PhantomData<fn() -> M>,
/// }
///
/// #[pyfunction]
/// fn same(samples: Samples<Host, std::rc::Rc<u8>>) -> Samples<Host, std::rc::Rc<u8>> {
///     samples
/// }
/// ```
#[cfg(all(doctest, feature = "derive"))]
struct Parameters;
