//! Imports a Python object: tries the protocols one after another.
#![expect(unsafe_code, reason = "does not verify what an object states about its memory")]

use std::sync::Arc;

use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use crate::array::stream::StreamHandle;
use crate::cuda::verify::Verification;
use crate::error::{Error, ErrorKind};
use crate::memory::import::{Import, Protocol};
use crate::python::cures::in_words;
use crate::python::errors::{Failure, not_an_array};
use crate::python::import::array_interface::from_array_interface;
use crate::python::import::cuda_array_interface::from_cuda_array_interface;
use crate::python::import::dlpack_method::from_dlpack;
use crate::python::import::from_exchange_table::from_exchange_table;
use crate::python::import::legacy_writable::trust_interface;
use crate::python::import::step::{Request, Step};
use crate::python::import::type_cache::type_info;
use crate::python::py_owner::release_deferred_refs;

/// The steps of an import, in their order.
const STEPS: [Step; 3] = [from_exchange_table, from_dlpack, from_cuda_array_interface];

impl Request<'_, '_> {
    /// Fills an empty import by the first step whose protocol the object supports.
    pub(crate) fn import_to(&self, to: &mut Import) -> PyResult<()> {
        self.ask_in_order(to)?;
        if to.protocol() == Some(Protocol::DlpackLegacy) {
            trust_interface(self, to)?;
        }
        self.class.values.check(self.object, to.info())
    }

    fn ask_in_order(&self, to: &mut Import) -> PyResult<()> {
        for step in STEPS {
            match step(self, to) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(failure) => return self.recover(failure, to),
            }
        }
        Err(not_an_array(self.object))
    }

    /// After a failure, imports by the interface dict if negative strides caused it. `CuPy` writes these correctly in
    /// its dict. An array that `NumPy` refused to export is imported by its own kind of dict.
    ///
    /// Without a usable dict the failure is returned. Its cause is then the error about the dict of `CuPy`.
    #[cold]
    fn recover(&self, failure: Failure, to: &mut Import) -> PyResult<()> {
        let lost_strides = matches!(&failure, Failure::Invalid(error) if lost_negative_strides(error));
        let is_raised = matches!(&failure, Failure::Raised(_));
        let (py, refused) = (self.object.py(), PyErr::from(failure));
        if is_raised && refused.is_instance_of::<PyException>(py) {
            return match from_array_interface(self, to) {
                Ok(true) => Ok(()),
                // NumPy does not say what to do with dates. The class of the exception stays.
                Err(Failure::Invalid(error)) if error.has_python_hint() => {
                    let advised = PyErr::from_type(refused.get_type(py), error.into_python_message(in_words));
                    advised.set_cause(py, Some(refused));
                    Err(advised)
                }
                Err(Failure::Raised(interrupt)) if !interrupt.is_instance_of::<PyException>(py) => {
                    Err(interrupt)
                }
                _ => Err(refused),
            };
        }
        if !lost_strides {
            return Err(refused);
        }
        match from_cuda_array_interface(self, to).map_err(|failure| failure.of(self.object)) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(why) if why.is_instance_of::<PyException>(py) => refused.set_cause(py, Some(why)),
            Err(interrupt) => return Err(interrupt),
        }
        Err(refused)
    }
}

/// Returns whether a tensor was rejected for the strides that `CuPy` writes for a reversed array: it divides them as
/// unsigned numbers.
fn lost_negative_strides(error: &Error) -> bool {
    error.kind() == ErrorKind::Overflow && error.location() == "strides"
}

/// Imports any object that supports DLPack or the CUDA Array Interface, for work on `stream`.
///
/// `__dlpack__` is preferred to `__cuda_array_interface__`. If the tensor's strides are not valid, the interface dict
/// is used: `CuPy` loses the sign of negative strides in DLPack, but not in its dict.
///
/// The import passes the stream to the producer: no argument for CPU memory, otherwise a number. If `stream` is `None`,
/// that is the legacy default stream. Some producers accept the stream but do not wait (arrays of nanobind, TVM FFI and
/// `cuda.core`). For these, make the stream wait for pending work before the call.
///
/// A `PyTorch` tensor that is conjugated or negated lazily is rejected, and so is a masked `NumPy` array with masked
/// elements. A tensor that requires a gradient is rejected unless gradients are not recorded (`torch.no_grad()`), because
/// `PyTorch` would not know what Rust did with it.
///
/// A legacy capsule cannot express whether its memory is writable, so it counts as read-only. It is writable if an
/// interface dict of the object (`__cuda_array_interface__`, or `__array_interface__` for host memory) states so for
/// the same address, as that of Warp does, and that of `NumPy` before 2.1. A read-only array, which such a `NumPy` does
/// not export, is imported by its dict.
///
/// The import keeps the object alive, or the object that it returned. The garbage collector does not see this
/// reference, as with NumPy arrays that are imported by DLPack. So an object that holds an array imported from itself
/// is freed only after it drops that array.
///
/// # Errors
///
/// - `TypeError` for an object that supports neither protocol, or returns a value of the wrong type.
/// - `ArrayError` (a `BufferError` and a `ValueError`) for an array that cannot be used.
///
/// Both messages name the class of the object. Exceptions of the producer are passed on unchanged.
///
/// ```no_run
/// use interop_core::python::{extract_stream, import};
/// use pyo3::prelude::*;
///
/// #[pyfunction]
/// #[pyo3(signature = (array, stream=None))]
/// fn describe(array: &Bound<'_, PyAny>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<String> {
///     let import = import(array, stream.map(extract_stream).transpose()?)?;
///     let info = import.info();
///     Ok(format!("{} {:?} on {} by {:?}", info.dtype(), info.shape(), info.device(), import.protocol()))
/// }
/// ```
pub fn import(object: &Bound<'_, PyAny>, stream: Option<StreamHandle>) -> PyResult<Import> {
    import_with(object, stream, Verification::Full)
}

/// As [`import`], but does not ask the driver about the device and the size of the memory that a DLPack tensor states.
///
/// This saves one driver call for CUDA memory. An interface dict is always verified, because it does not contain the
/// device.
///
/// It is the only way to import memory that a graph allocates during capture, because the driver knows that memory only
/// after the graph has run.
///
/// # Errors
///
/// As [`import`], for rules that need no driver.
///
/// # Safety
///
/// The device and the extent that the object states are correct, and work on the memory is in primary contexts
/// ([`Import::from_dlpack_unchecked`]). Import only objects of libraries that are known to state them correctly.
pub unsafe fn import_unchecked(object: &Bound<'_, PyAny>, stream: Option<StreamHandle>) -> PyResult<Import> {
    import_with(object, stream, Verification::Skipped)
}

fn import_with(
    object: &Bound<'_, PyAny>,
    stream: Option<StreamHandle>,
    verification: Verification,
) -> PyResult<Import> {
    release_deferred_refs(object.py());
    let class = type_info(object)?;
    let mut import = Import::EMPTY;
    Request { object, class: &class, stream, verification }.import_to(&mut import)?;
    import.set_origin(Arc::clone(&class.origin));
    Ok(import)
}
