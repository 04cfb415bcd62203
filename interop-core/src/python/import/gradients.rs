//! What automatic differentiation in `PyTorch` must know of an import: it records nothing of what Rust does with a tensor.

use std::panic::AssertUnwindSafe;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::error::{Error, ErrorKind, Result};
use crate::memory::import::{Import, WriteNotice};
use crate::python::errors::with_origin;
use crate::python::interpreter::{attribute, imported, truth_of, with_attached};
use crate::python::py_ref::PyRef;

/// Rejects a tensor that requires a gradient, as the `__dlpack__` of `PyTorch` does: its table exports such tensors, but
/// what Rust does with them is not recorded, and training would go on with wrong gradients.
///
/// Accepts the tensor where `PyTorch` records no gradients: under `no_grad` and `inference_mode`.
pub(crate) fn check_gradient(object: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = object.py();
    let requires = attribute(object, intern!(py, "requires_grad"))?;
    if !requires.is_some_and(|value| value.cast::<PyBool>().is_ok_and(PyBoolMethods::is_true)) {
        return Ok(());
    }
    let Some(torch) = imported(intern!(py, "torch")) else { return Ok(()) };
    if truth_of(&torch, intern!(py, "is_grad_enabled"))? != Some(true) {
        return Ok(());
    }
    let (found, allowed) =
        ("a tensor that requires a gradient", "a tensor without, because Rust records none");
    let hint = "call `detach()` first, or work under `torch.no_grad()`: gradients then leave out what Rust computes, and \
                `backward` refuses values that Rust has overwritten";
    Err(with_origin(
        object,
        Error::new(ErrorKind::Unsupported, "array", found, allowed).with_python_hint(hint),
    )
    .into())
}

/// Prepares the import of a tensor of `PyTorch`: rejects one with a tangent, and keeps what tells of a write.
///
/// # Errors
///
/// `ArrayError`, and the exceptions of `PyTorch`.
pub(crate) fn prepare(tensor: &Bound<'_, PyAny>, import: &mut Import) -> PyResult<()> {
    check_tangent(tensor)?;
    if !import.info().is_read_only() {
        import.write_notice = Some(write_notice(tensor));
    }
    Ok(())
}

/// Rejects a tensor with a tangent: Rust would compute with its values or write them, and the tangent would stay as it is.
fn check_tangent(tensor: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = tensor.py();
    let Some(forward) = imported(intern!(py, "torch.autograd.forward_ad")) else { return Ok(()) };
    // Outside of a `dual_level` no tensor has a tangent. The question about each tensor costs as much as an import.
    let level = attribute(&forward, intern!(py, "_current_level"))?;
    if level.is_none_or(|level| level.extract::<i64>().is_ok_and(|level| level < 0)) {
        return Ok(());
    }
    let dual = forward.call_method1(intern!(py, "unpack_dual"), (tensor,))?;
    if dual.getattr(intern!(py, "tangent"))?.is_none() {
        return Ok(());
    }
    let (found, allowed) = ("a tensor with a tangent", "a tensor without, because Rust computes none");
    let hint = "call `detach()` first to read it, or pass a copy, `x.detach().clone()`, to write";
    Err(with_origin(
        tensor,
        Error::new(ErrorKind::Unsupported, "array", found, allowed).with_python_hint(hint),
    )
    .into())
}

/// Returns what tells `PyTorch` of a write to a tensor: a later `backward` that needs the old values then fails, as after
/// a write by `PyTorch` itself.
fn write_notice(tensor: &Bound<'_, PyAny>) -> WriteNotice {
    let tensor = PyRef::new(tensor.clone().unbind());
    // The tensor is dropped while the thread is attached.
    let notice = move || with_attached(move |py| increment_version(tensor.object().bind(py)));
    Box::new(AssertUnwindSafe(move || notice().unwrap_or(Ok(()))))
}

/// Increments the version of a tensor. `PyTorch` before 2.3 has no function for it, so it is not told.
fn increment_version(tensor: &Bound<'_, PyAny>) -> Result<()> {
    let py = tensor.py();
    let count = || -> PyResult<()> {
        let mut function = imported(intern!(py, "torch"));
        for name in [intern!(py, "autograd"), intern!(py, "graph"), intern!(py, "increment_version")] {
            function = function.map(|object| attribute(&object, name)).transpose()?.flatten();
        }
        function.map_or(Ok(()), |function| function.call1((tensor,)).map(drop))
    };
    count().map_err(|error| {
        let found = format!("a tensor of which PyTorch does not record the write ({error})");
        let allowed = "a tensor that `torch.autograd.graph.increment_version` accepts";
        with_origin(tensor, Error::new(ErrorKind::Unsupported, "array", found, allowed))
    })
}
