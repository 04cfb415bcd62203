//! Methods of arrays on the host that `NumPy` computes: operators, reductions and functions.

use std::ffi::CString;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyType};

/// Returns the methods by name. They are written in Python because each is one line that calls `NumPy`.
fn methods(py: Python<'_>) -> PyResult<&Bound<'_, PyDict>> {
    static METHODS: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let methods = METHODS.get_or_try_init(py, || {
        let text = CString::new(include_str!("../../../python/array_methods.py"))
            .map_err(|_| PyValueError::new_err("array_methods.py"))?;
        let names = PyDict::new(py);
        names.set_item("__name__", "interop_core")?;
        py.run(&text, Some(&names), None)?;
        Ok::<_, PyErr>(names.as_any().get_item("METHODS")?.cast_into::<PyDict>()?.unbind())
    })?;
    Ok(methods.bind(py))
}

/// Methods that a mapping defines for its keys.
const OF_KEYS: [&str; 2] = ["__setitem__", "__contains__"];

/// The method that must agree with `__eq__`.
const HASH: &str = "__hash__";

/// Adds the methods that a class does not define.
pub(crate) fn install(class: &Bound<'_, PyType>, is_mapping: bool) -> PyResult<()> {
    let own = class.getattr("__dict__")?;
    // A class that defines `__eq__` keeps the hash that belongs to it.
    let has_equality = own.contains("__eq__")?;
    for (name, value) in methods(class.py())? {
        let name = name.cast_into::<PyString>()?;
        let text = name.to_string_lossy();
        let is_for_others = is_mapping && OF_KEYS.contains(&&*text) || has_equality && text == HASH;
        if !is_for_others && !own.contains(&name)? {
            class.setattr(&name, value)?;
        }
    }
    Ok(())
}

/// A class keeps what it defines itself: a slot, a getter or a method of a protocol. Run as a test.
///
/// ```
/// use interop_core::{CudaArray, HostVec};
/// use pyo3::ffi::c_str;
/// use pyo3::prelude::*;
///
/// #[pyclass(frozen)]
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len], export, pyclass)]
/// struct Samples { #[cuda_array(data)] values: HostVec<f32>, len: usize }
///
/// #[pymethods]
/// impl Samples {
///     #[getter]
///     fn shape(&self) -> &str { "own" }
///     fn __len__(&self) -> usize { 7 }
///     fn __repr__(&self) -> &str { "own" }
///     fn __dlpack_device__(&self) -> (i32, i32) { (1, 5) }
/// }
///
/// Python::initialize();
/// Python::attach(|py| -> PyResult<()> {
///     // A module adds it, in whichever way; nothing else is to be called.
///     let module = PyModule::new(py, "samples")?;
///     interop_core::python::add_class::<Samples>(&module)?;
///     assert!(module.getattr("Samples")?.is(py.get_type::<Samples>()));
///     let samples = Bound::new(py, Samples { values: HostVec::from_slice(&[1.0_f32, 2.0]), len: 2 })?;
///     let own = pyo3::types::PyDict::new(py);
///     own.set_item("samples", samples)?;
///     let says = |code| py.eval(code, Some(&own), None)?.extract::<bool>();
///     assert!(says(c_str!("samples.shape == repr(samples) == str(samples) == 'own'"))?);
///     assert!(says(c_str!("len(samples) == 7 and samples.__dlpack_device__() == (1, 5)"))?);
///     assert!(says(c_str!("(samples.nbytes, samples.ndim) == (8, 1) and 'dltensor' in repr(samples.__dlpack__())"))?);
///     Ok(())
/// })
/// # .unwrap();
/// ```
#[cfg(all(doctest, feature = "derive"))]
struct OwnMethods;
