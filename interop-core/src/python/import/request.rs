//! What the protocols get: an object, and how to import it.

use pyo3::prelude::*;

use crate::cuda::memory_check::Verification;
use crate::driver::device::Device;
use crate::driver::stream_handle::StreamHandle;
use crate::memory::import::{Filled, Import};
use crate::python::errors::Failure;
use crate::python::import::package::Package;
use crate::python::import::type_cache::TypeInfo;

/// An object to import.
pub(crate) struct Request<'a, 'py> {
    pub(crate) object: &'a Bound<'py, PyAny>,
    /// The cached properties of the object's type.
    pub(crate) class: &'a TypeInfo,
    /// The stream of the consumer's work. `None` is the one on which the library of the object works, or the legacy default
    /// stream if that cannot be found out.
    pub(crate) stream: Option<StreamHandle>,
    pub(crate) verification: Verification,
}

/// What a protocol makes of a slot: `None` if the object does not support it, or not for this array.
pub(crate) type Outcome = Result<Option<Filled>, Failure>;

impl Request<'_, '_> {
    /// States that the library of an import works on streams that it does not name, unless the caller has named one. JAX
    /// does so too, but never writes an array again.
    pub(crate) fn note_hidden_streams(&self, import: &mut Import) {
        let is_changed = self.class.library.package != Package::Jax;
        if is_changed && self.stream.is_none() && import.info().device() != Device::CPU {
            import.info.pending = import.info.pending.with_hidden_streams();
        }
    }
}
