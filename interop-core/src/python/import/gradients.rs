//! What automatic differentiation in `PyTorch` must know of an import: it records nothing of what Rust does with a tensor.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::error::{Error, ErrorKind, Result};
use crate::memory::import::WriteNotice;
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

/// The functions of `PyTorch` that keep track of writes. Looked up once for each class.
pub(crate) struct Autograd {
    /// `None` before `PyTorch` 2.3, which cannot be told of a write.
    increment_version: Option<PyRef>,
    /// The module of forward mode.
    forward: Option<PyRef>,
}

impl Autograd {
    pub(crate) fn find(py: Python<'_>) -> PyResult<Arc<Self>> {
        let mut function = imported(intern!(py, "torch"));
        for name in [intern!(py, "autograd"), intern!(py, "graph"), intern!(py, "increment_version")] {
            function = function.map(|object| attribute(&object, name)).transpose()?.flatten();
        }
        let forward = imported(intern!(py, "torch.autograd.forward_ad"));
        let [increment_version, forward] = [function, forward].map(|it| it.map(|it| PyRef::new(it.unbind())));
        Ok(Arc::new(Self { increment_version, forward }))
    }

    /// Returns what tells `PyTorch` of a write to a tensor: a later `backward` that needs the old values then fails, as after
    /// a write by `PyTorch` itself. A tensor with a tangent is refused, because the tangent would stay as it is.
    pub(crate) fn write_notice(self: &Arc<Self>, tensor: &Bound<'_, PyAny>) -> WriteNotice {
        let (this, tensor) = (Arc::clone(self), PyRef::new(tensor.clone().unbind()));
        // The tensor is dropped while the thread is attached.
        let notice = move || with_attached(move |py| this.note_write(tensor.object().bind(py)));
        Box::new(AssertUnwindSafe(move || notice().unwrap_or(Ok(()))))
    }

    fn note_write(&self, tensor: &Bound<'_, PyAny>) -> Result<()> {
        let refuse = |found: String, allowed| Error::new(ErrorKind::Unsupported, "array", found, allowed);
        let told = self.has_tangent(tensor).and_then(|has_tangent| {
            if let Some(function) = self.increment_version.as_ref().filter(|_| !has_tangent) {
                function.object().bind(tensor.py()).call1((tensor,))?;
            }
            Ok(has_tangent)
        });
        match told {
            Ok(false) => Ok(()),
            Ok(true) => {
                let found = "a tensor with a tangent, which would stay as it is".to_owned();
                let error = refuse(found, "a tensor without, because Rust computes none");
                Err(error.with_python_hint("pass a copy, `x.detach().clone()`"))
            }
            Err(error) => {
                let found = format!("a tensor of which PyTorch does not record the write ({error})");
                Err(refuse(found, "a tensor that `torch.autograd.graph.increment_version` accepts"))
            }
        }
    }

    fn has_tangent(&self, tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = tensor.py();
        let Some(forward) = self.forward.as_ref().map(|forward| forward.object().bind(py)) else {
            return Ok(false);
        };
        // Outside of a `dual_level` no tensor has a tangent.
        let level = attribute(forward, intern!(py, "_current_level"))?;
        if level.is_none_or(|level| level.extract::<i64>().is_ok_and(|level| level < 0)) {
            return Ok(false);
        }
        let dual = forward.call_method1(intern!(py, "unpack_dual"), (tensor,))?;
        Ok(!dual.getattr(intern!(py, "tangent"))?.is_none())
    }
}
