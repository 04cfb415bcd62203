//! The interpreter, and the module with the classes that are written in Python.

use std::ffi::CString;

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

use super::{import, tables};

/// The module `world.py`.
pub(super) struct World<'py> {
    module: Bound<'py, PyModule>,
}

/// Returns the result of a method of the producer; the methods in `world.py` call this.
#[pyfunction]
fn answer(py: Python<'_>, which: u8) -> PyResult<Py<PyAny>> {
    import::answer(&World::of(py), which).map(Bound::unbind)
}

impl<'py> World<'py> {
    /// Returns the module of this interpreter, which is created once.
    pub(super) fn of(py: Python<'py>) -> Self {
        static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
        let module = MODULE.get_or_init(py, || make(py).expect("the module is made"));
        Self { module: module.bind(py).clone() }
    }

    pub(super) fn py(&self) -> Python<'py> {
        self.module.py()
    }

    /// Calls the module's object with this name.
    pub(super) fn call(&self, name: &str, arguments: impl PyCallArgs<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.module.getattr(name)?.call1(arguments)
    }

    /// Returns an int of more than 128 bits.
    pub(super) fn huge(&self) -> PyResult<Bound<'py, PyAny>> {
        self.module.getattr("HUGE")
    }

    /// Returns one of the producer's own errors.
    pub(super) fn raised(&self, which: u8) -> PyResult<Bound<'py, PyAny>> {
        self.call("raised", (which % 6,))
    }

    /// Returns the index of the producer's own error class, if it is one.
    pub(super) fn which_own(&self, error: &PyErr) -> Option<usize> {
        let own = self.module.getattr("OWN").expect("the classes").cast_into::<PyTuple>().expect("a tuple");
        own.iter_borrowed().position(|class| error.get_type(self.py()).is(&*class))
    }
}

fn make(py: Python<'_>) -> PyResult<Py<PyModule>> {
    let text = CString::new(include_str!("world.py")).expect("a text");
    let module = PyModule::from_code(py, &text, c"world.py", c"world")?;
    module.add("HUGE", py.eval(c"1 << 200", None, None)?)?;
    module.add_function(wrap_pyfunction!(answer, &module)?)?;
    module.add("TABLES", tables::all(py)?)?;
    Ok(module.unbind())
}
