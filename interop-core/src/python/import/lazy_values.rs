//! Arrays that are not what is in their memory, which neither a tensor nor a table can say.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::array::dtype::{COMPLEX, FLOAT};
use crate::array::info::ArrayInfo;
use crate::error::{Error, ErrorKind};
use crate::python::errors::of;
use crate::python::interpreter::{attribute, ignore_exception};

/// What the objects of a class may be beside the values in their memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    /// Nothing else, as far as one can know.
    InMemory,
    /// Conjugated or negated when somebody asks, as `PyTorch`'s tensors.
    Lazy,
    /// Elements some of which do not count, as in `NumPy`'s masked arrays and those of `astropy`.
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

    /// Refuses an array whose values are not those in its memory.
    #[inline]
    pub(crate) fn check(self, object: &Bound<'_, PyAny>, info: &ArrayInfo) -> PyResult<()> {
        match self {
            Self::InMemory => Ok(()),
            Self::Lazy => check_bits(object, info),
            Self::Masked => check_mask(object),
        }
    }
}

/// `PyTorch` conjugates and negates by a bit of the tensor: its `__dlpack__` refuses the one and hands out the other, its
/// exchange table hands out both.
///
/// Only complex numbers are conjugated. What is negated is complex, or the imaginary part of such an array, which lies in steps.
fn check_bits(object: &Bound<'_, PyAny>, info: &ArrayInfo) -> PyResult<()> {
    let code = info.dtype().code();
    if code != COMPLEX && code != FLOAT {
        return Ok(());
    }
    // The step of an axis with one element is any number.
    let (extent, stride) = (info.shape().last(), info.layout().strides().last());
    let in_steps = stride != Some(&1) || extent == Some(&1);
    if code == COMPLEX || in_steps { ask_for_bits(object) } else { Ok(()) }
}

#[cold]
fn ask_for_bits(object: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = object.py();
    for (bit, values, remedy) in [
        (
            pyo3::intern!(py, "is_conj"),
            "the conjugates of the values in memory",
            "call `resolve_conj()` first",
        ),
        (pyo3::intern!(py, "is_neg"), "the negatives of the values in memory", "call `resolve_neg()` first"),
    ] {
        match says(object, bit)? {
            // Not PyTorch's.
            None => return Ok(()),
            Some(false) => {}
            Some(true) => return Err(refused(object, values, remedy)),
        }
    }
    Ok(())
}

/// A mask without masked elements changes nothing. `NumPy` hands the memory out whatever the mask is.
#[cold]
fn check_mask(object: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = object.py();
    let Some(mask) = attribute(object, pyo3::intern!(py, "mask"))? else { return Ok(()) };
    // What cannot be asked is another thing of that name.
    match says(&mask, pyo3::intern!(py, "any"))? {
        Some(true) => Err(refused(object, "masked elements", "call `filled()` first")),
        _ => Ok(()),
    }
}

/// What a method without arguments says, yes or no; `None` where there is none of that name.
fn says(object: &Bound<'_, PyAny>, method: &Bound<'_, PyString>) -> PyResult<Option<bool>> {
    attribute(object, method)?.map(|method| method.call0()?.is_truthy()).transpose()
}

fn refused(object: &Bound<'_, PyAny>, found: &str, remedy: &'static str) -> PyErr {
    let error = Error::new(ErrorKind::Unsupported, "array", found, "an array whose values are in its memory");
    of(object, error.with_python_hint(remedy)).into()
}
