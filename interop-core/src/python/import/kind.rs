//! The library that creates the Python object of a result.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::python::import::exchange_table::Table;

/// The library that creates a Python object from an array.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    NumPy,
    /// With the exchange table of its tensors, which exists since 2.10.
    PyTorch(Option<Table>),
    CuPy,
    Jax,
    /// Any other class whose exchange table creates objects.
    Table(Table),
    /// A class, an array namespace or a package with a function `from_dlpack`.
    FromDlpack(Arc<Py<PyAny>>),
    /// No known library: the array becomes an object of this crate's class.
    Neutral,
}
