//! `Kept` as the argument of a function.

use pyo3::prelude::*;

use crate::derive::from_array::FromArray;
use crate::derive::kept::Kept;
use crate::python::import::argument::import_as;

impl<'a, 'py, A: FromArray> FromPyObject<'a, 'py> for Kept<A> {
    type Error = PyErr;
    crate::__python_hint! { INPUT_TYPE ANY_ARRAY }

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        import_as(&object)
    }
}
