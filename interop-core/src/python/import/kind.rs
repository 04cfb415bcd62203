//! The library that makes objects of results.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::python::import::exchange_table::Table;

/// The library that makes an object of an array.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    NumPy,
    /// With the exchange table of its tensors, which it has from 2.10 on.
    PyTorch(Option<Table>),
    CuPy,
    Jax,
    /// Any other class whose exchange table makes objects.
    Table(Table),
    /// A class, an array namespace or a package that has the function `from_dlpack`.
    FromDlpack(Arc<Py<PyAny>>),
    /// None that is known: the array becomes an object of this crate's own class.
    Neutral,
}
