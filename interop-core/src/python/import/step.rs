//! The input and the result of an import step.

use pyo3::prelude::*;

use crate::array::stream::StreamHandle;
use crate::cuda::verify::Verification;
use crate::memory::import::Import;
use crate::python::errors::Failure;
use crate::python::import::type_cache::TypeInfo;

/// An object to import, and the inputs of the steps.
pub(crate) struct Request<'a, 'py> {
    pub(crate) object: &'a Bound<'py, PyAny>,
    /// The cached properties of the object's type.
    pub(crate) class: &'a TypeInfo,
    /// The stream of the consumer's work. `None` is the legacy default stream.
    pub(crate) stream: Option<StreamHandle>,
    pub(crate) verification: Verification,
}

/// The result of a step: whether the object supports the protocol.
pub(crate) type Answer = Result<bool, Failure>;

/// A step imports the object by one protocol. It fills an empty import, and leaves it empty unless it returns `true`.
///
/// The import is filled in place. Returning it would move it right after it was written, which makes an import from
/// `NumPy` half as long again.
pub(crate) type Step = fn(&Request<'_, '_>, to: &mut Import) -> Answer;
