//! What a step of an import gets, and what it returns.

use pyo3::prelude::*;

use crate::array::stream::StreamHandle;
use crate::cuda::verify::Verification;
use crate::memory::import::Import;
use crate::python::errors::Failure;
use crate::python::import::type_cache::TypeInfo;

/// An object that is imported, and what the steps need.
pub(crate) struct Request<'a, 'py> {
    pub(crate) object: &'a Bound<'py, PyAny>,
    /// What is cached about the object's type.
    pub(crate) class: &'a TypeInfo,
    /// The stream of the consumer's work. `None` is the legacy default stream.
    pub(crate) stream: Option<StreamHandle>,
    pub(crate) verification: Verification,
}

/// What a step returns: whether the object offers the protocol.
pub(crate) type Answer = Result<bool, Failure>;

/// A step asks the object by one protocol. It fills an import that is empty, and leaves it empty unless it returns `true`.
///
/// The import is filled in place. To return it would make an import from `NumPy` half as long again, because it would be moved
/// right after it was written.
pub(crate) type Step = fn(&Request<'_, '_>, to: &mut Import) -> Answer;
