//! Detects arrays whose values differ from their memory or have a gradient. Neither a tensor nor an exchange table can
//! express that.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString, PyType};

use crate::array::dtype::{COMPLEX, FLOAT};
use crate::array::info::ArrayInfo;
use crate::error::{Error, ErrorKind};
use crate::python::errors::of;
use crate::python::unstable_api::{attribute, ignore_exception, imported};

/// How the values of a class's objects relate to their memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    /// The values are those in memory, as far as can be determined.
    InMemory,
    /// The values may be conjugated or negated on access, and have a gradient, as in `PyTorch` tensors.
    Lazy,
    /// Some elements may be masked, as in the masked arrays of `NumPy` and `astropy`.
    Masked,
}

impl Values {
    pub(crate) fn of(class: &Bound<'_, PyType>) -> PyResult<Self> {
        let has =
            |name| ignore_exception(class.py(), class.hasattr(name)).map(|answer| answer.unwrap_or(false));
        if has("is_conj")? {
            return Ok(Self::Lazy);
        }
        Ok(if has("mask")? && has("filled")? { Self::Masked } else { Self::InMemory })
    }

    /// Rejects an array whose values are not those in its memory, and one whose gradient would be lost.
    #[inline]
    pub(crate) fn check(self, object: &Bound<'_, PyAny>, info: &ArrayInfo) -> PyResult<()> {
        match self {
            Self::InMemory => Ok(()),
            Self::Lazy => {
                check_gradient(object)?;
                check_bits(object, info)
            }
            Self::Masked => check_mask(object),
        }
    }
}

/// Rejects a tensor that requires a gradient, as the `__dlpack__` of `PyTorch` does: its table exports such tensors, but
/// what Rust does with them is not recorded, and training would go on with wrong gradients.
fn check_gradient(object: &Bound<'_, PyAny>) -> PyResult<()> {
    let requires = attribute(object, intern!(object.py(), "requires_grad"))?;
    let requires = requires.is_some_and(|value| value.cast::<PyBool>().is_ok_and(PyBoolMethods::is_true));
    if requires { check_recording(object) } else { Ok(()) }
}

/// Accepts the tensor where `PyTorch` records no gradients: under `no_grad` and `inference_mode`.
#[cold]
fn check_recording(object: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = object.py();
    let Some(torch) = imported(intern!(py, "torch")) else { return Ok(()) };
    if says(&torch, intern!(py, "is_grad_enabled"))? != Some(true) {
        return Ok(());
    }
    let (found, allowed) =
        ("a tensor that requires a gradient", "a tensor without, because Rust records none");
    let error = Error::new(ErrorKind::Unsupported, "array", found, allowed);
    Err(of(object, error.with_python_hint("call `detach()` first, or work under `torch.no_grad()`")).into())
}

/// Checks the bits by which `PyTorch` conjugates and negates a tensor.
///
/// Its `__dlpack__` rejects conjugated tensors and exports negated ones. Its exchange table exports both.
///
/// Only complex tensors are conjugated. A negated tensor is complex, or it is the imaginary part of a complex tensor,
/// which is not contiguous.
fn check_bits(object: &Bound<'_, PyAny>, info: &ArrayInfo) -> PyResult<()> {
    let code = info.dtype().code();
    if code != COMPLEX && code != FLOAT {
        return Ok(());
    }
    // The stride of an axis of extent 1 is arbitrary.
    let (extent, stride) = (info.shape().last(), info.layout().strides().last());
    let in_steps = stride != Some(&1) || extent == Some(&1);
    if code == COMPLEX || in_steps { ask_for_bits(object) } else { Ok(()) }
}

#[cold]
fn ask_for_bits(object: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = object.py();
    for (bit, values, remedy) in [
        (intern!(py, "is_conj"), "the conjugates of the values in memory", "call `resolve_conj()` first"),
        (intern!(py, "is_neg"), "the negatives of the values in memory", "call `resolve_neg()` first"),
    ] {
        match says(object, bit)? {
            // The object is not from PyTorch.
            None => return Ok(()),
            Some(false) => {}
            Some(true) => return Err(refused(object, values, remedy)),
        }
    }
    Ok(())
}

/// Rejects an array with masked elements. A mask without masked elements has no effect. `NumPy` exports the memory
/// whatever the mask is.
#[cold]
fn check_mask(object: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = object.py();
    let Some(mask) = attribute(object, intern!(py, "mask"))? else { return Ok(()) };
    // If `mask` has no method `any`, it is another attribute of that name.
    match says(&mask, intern!(py, "any"))? {
        Some(true) => Err(refused(object, "masked elements", "call `filled()` first")),
        _ => Ok(()),
    }
}

/// Calls a method without arguments and returns its truth value, or `None` if there is no such method.
fn says(object: &Bound<'_, PyAny>, method: &Bound<'_, PyString>) -> PyResult<Option<bool>> {
    attribute(object, method)?.map(|method| method.call0()?.is_truthy()).transpose()
}

fn refused(object: &Bound<'_, PyAny>, found: &str, remedy: &'static str) -> PyErr {
    let error = Error::new(ErrorKind::Unsupported, "array", found, "an array whose values are in its memory");
    of(object, error.with_python_hint(remedy)).into()
}
