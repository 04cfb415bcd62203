//! What the memory of an array does not tell: conjugates, masks and dates, and what automatic differentiation in `PyTorch` must know
//! of an import, because it records nothing of what Rust does with a tensor.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyType};

use crate::array::dtype::{COMPLEX, DType, FLOAT};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::import::WriteNotice;
use crate::order::array_info::ArrayInfo;
use crate::python::errors::with_origin;
use crate::python::import::package::{ClassName, class_names};
use crate::python::interpreter::{PyRef, attribute, ignore_exception, imported, truth_of, with_attached};

/// What the memory of a class's objects may not tell. Neither a tensor nor an exchange table can express it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caveat {
    /// The values may be conjugated or negated on access, and have a gradient, as in `PyTorch` tensors.
    Lazy,
    /// Some elements may be masked, as in the masked arrays of `NumPy` and `astropy`.
    Masked,
    /// A date or a time of `NumPy`, which its buffer states as bytes.
    Date,
}

impl Caveat {
    pub(crate) fn from_class(class: &Bound<'_, PyType>) -> PyResult<Option<Self>> {
        let has = |name| ignore_exception(class.py(), class.hasattr(name)).map(|has| has.unwrap_or(false));
        if has("is_conj")? {
            return Ok(Some(Self::Lazy));
        }
        if has("mask")? && has("filled")? {
            return Ok(Some(Self::Masked));
        }
        let is_date = |class: &ClassName| {
            class.package == "numpy" && matches!(&*class.name, "datetime64" | "timedelta64")
        };
        Ok(class_names(class)?.iter().any(is_date).then_some(Self::Date))
    }

    /// Rejects an array whose values are not those in its memory, and one whose gradient would be lost.
    pub(crate) fn check(self, object: &Bound<'_, PyAny>, info: &ArrayInfo) -> PyResult<()> {
        match self {
            Self::Lazy => {
                check_gradient(object)?;
                check_bits(object, info)
            }
            Self::Masked => check_mask(object),
            Self::Date => date_error(object).map_or(Ok(()), |error| Err(error.into())),
        }
    }
}

/// Checks the bits by which `PyTorch` conjugates and negates a tensor.
///
/// Its `__dlpack__` rejects conjugated tensors and exports negated ones. Its exchange table exports both.
///
/// Only complex tensors are conjugated. A negated tensor is complex, or it is the imaginary part of a complex tensor, which is
/// not contiguous. `as_strided` can make it so: it is asked where it starts within a pair of numbers. The question costs a
/// fifth of an import.
fn check_bits(object: &Bound<'_, PyAny>, info: &ArrayInfo) -> PyResult<()> {
    let code = info.dtype().code;
    let is_complex = code == COMPLEX;
    // The stride of an axis of extent 1 is arbitrary.
    let (extent, stride) = (info.shape().last(), info.layout().strides().last());
    let in_steps = stride != Some(&1) || extent == Some(&1);
    let is_paired = || info.unwatched_address % (info.dtype().packed_bits() / 4).max(1) == 0;
    if !is_complex && (code != FLOAT || !in_steps && is_paired()) {
        return Ok(());
    }
    let py = object.py();
    let bits = [
        (intern!(py, "is_conj"), "the conjugates of the values in memory", "call `resolve_conj()` first"),
        (intern!(py, "is_neg"), "the negatives of the values in memory", "call `resolve_neg()` first"),
    ];
    for (bit, values, remedy) in bits.into_iter().skip(usize::from(!is_complex)) {
        match truth_of(object, bit)? {
            // The object is not from PyTorch.
            None => return Ok(()),
            Some(false) => {}
            Some(true) => return Err(refusal(object, values, remedy)),
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
    let found = match truth_of(&mask, intern!(py, "any")) {
        Ok(Some(true)) => "masked elements",
        Ok(_) => return Ok(()),
        // The mask of structs is one of structs, of which `NumPy` finds no truth.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => "a mask of structs",
        Err(error) => return Err(error),
    };
    Err(refusal(object, found, "call `filled()` first"))
}

fn refusal(object: &Bound<'_, PyAny>, found: &str, remedy: &'static str) -> PyErr {
    let error = Error::new(ErrorKind::Unsupported, "array", found, "an array whose values are in its memory");
    with_origin(object, error.with_python_hint(remedy)).into()
}

/// Returns the error for dates of `NumPy`, if the object is an array of them or one of them: `NumPy` does not say what to do.
#[cold]
pub(crate) fn date_error(object: &Bound<'_, PyAny>) -> Option<Error> {
    let dtype = object.getattr(intern!(object.py(), "dtype")).ok()?;
    let typestr: String = dtype.getattr(intern!(object.py(), "str")).ok()?.extract().ok()?;
    let error = DType::from_typestr(&typestr).err()?;
    error.has_python_hint().then(|| with_origin(object, error))
}

/// Rejects a tensor that requires a gradient, as the `__dlpack__` of `PyTorch` does: its table exports such tensors, but
/// what Rust does with them is not recorded, and training would go on with wrong gradients.
///
/// Accepts the tensor where `PyTorch` records no gradients: under `no_grad` and `inference_mode`.
fn check_gradient(object: &Bound<'_, PyAny>) -> PyResult<()> {
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
    pub(crate) fn new(py: Python<'_>) -> PyResult<Arc<Self>> {
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
        let notice = move || with_attached(move |py| this.announce_write(tensor.object().bind(py)));
        Box::new(AssertUnwindSafe(move || notice().unwrap_or(Ok(()))))
    }

    fn announce_write(&self, tensor: &Bound<'_, PyAny>) -> Result<()> {
        let refuse = |found: String, allowed| Error::new(ErrorKind::Unsupported, "array", found, allowed);
        let has_tangent = self.has_tangent(tensor).and_then(|has_tangent| {
            if let Some(function) = self.increment_version.as_ref().filter(|_| !has_tangent) {
                function.object().bind(tensor.py()).call1((tensor,))?;
            }
            Ok(has_tangent)
        });
        match has_tangent {
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
