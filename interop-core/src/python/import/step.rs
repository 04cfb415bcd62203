//! The input and the result of an import step.

use pyo3::prelude::*;

use crate::array::device::Device;
use crate::array::stream::StreamHandle;
use crate::cuda::verify::Verification;
use crate::memory::import::Import;
use crate::python::errors::Failure;
use crate::python::import::package::CurrentStream;
use crate::python::import::package::Package;
use crate::python::import::type_cache::TypeInfo;

/// An object to import, and the inputs of the steps.
pub(crate) struct Request<'a, 'py> {
    pub(crate) object: &'a Bound<'py, PyAny>,
    /// The cached properties of the object's type.
    pub(crate) class: &'a TypeInfo,
    /// The stream of the consumer's work. `None` is the one on which the library of the object works, or the legacy default
    /// stream if that cannot be found out.
    pub(crate) stream: Option<StreamHandle>,
    pub(crate) verification: Verification,
}

impl<'py> Request<'_, 'py> {
    /// Returns the stream on which the library of the object works with memory of `device`. `None` if the caller has named
    /// a stream, or if the stream cannot be found out.
    ///
    /// # Errors
    ///
    /// As [`TypeInfo::current_stream`].
    pub(crate) fn callers_stream(&self, device: Device) -> PyResult<Option<CurrentStream<'py>>> {
        if self.stream.is_some() { Ok(None) } else { self.class.current_stream(self.object, device) }
    }

    /// States that the library of an import works on streams that it does not name, unless the caller has named one. JAX
    /// does so too, but never writes an array again.
    pub(crate) fn note_hidden_streams(&self, import: &mut Import) {
        let is_changed = self.class.package != Package::Jax;
        if is_changed && self.stream.is_none() && import.info().device() != Device::CPU {
            import.note_hidden_streams();
        }
    }
}

/// The result of a step: whether the object supports the protocol.
pub(crate) type Answer = Result<bool, Failure>;

/// A step imports the object by one protocol. It fills an empty import, and leaves it empty unless it returns `true`.
///
/// The import is filled in place. Returning it would move it right after it was written, which makes an import from
/// `NumPy` half as long again.
pub(crate) type Step = fn(&Request<'_, '_>, to: &mut Import) -> Answer;
