//! The exceptions for the errors of `interop-ipc`.

use interop_core::{Error, ErrorKind};
use pyo3::exceptions::PyConnectionError;
use pyo3::prelude::*;

/// `ConnectionError` if the other process or its offer is gone; other errors as everywhere in `interop-core`.
#[cold]
pub(crate) fn to_exception(error: Error) -> PyErr {
    if error.kind() == ErrorKind::Gone { PyConnectionError::new_err(error.to_string()) } else { error.into() }
}
