//! The advice at the end of an error's message, in the words of the library that the array is from.

use std::borrow::Cow;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

use crate::error::Cure;

/// The libraries whose functions the advice can name.
const LIBRARIES: [&str; 5] = ["numpy", "torch", "cupy", "jax", "jaxlib"];

/// Returns the library of an object: the top package of its class, or of the first base that is from one of
/// [`LIBRARIES`]. Empty for any other. Never raises.
#[cold]
pub(crate) fn library_of(object: &Bound<'_, PyAny>) -> &'static str {
    // Not `PyType::mro`, which panics if a metaclass overrides the attribute.
    let order = object.get_type().getattr(intern!(object.py(), "__mro__"));
    let Ok(order) = order.and_then(|order| Ok(order.cast_into::<PyTuple>()?)) else { return "" };
    let known = |class: Bound<'_, PyAny>| {
        let module = class.cast::<PyType>().ok()?.module().ok()?;
        let module = module.to_string_lossy();
        let package = module.split('.').next().unwrap_or_default();
        LIBRARIES.into_iter().find(|library| *library == package)
    };
    order.iter().find_map(known).unwrap_or_default()
}

/// Returns the advice for an array of a library. `x` is the array.
#[cold]
pub(crate) fn in_words(cure: &Cure, library: &str) -> Cow<'static, str> {
    let words = match (cure, library) {
        (Cure::Say(words), _) => words,
        (Cure::Convert(dtype), "torch") => return format!("call `x.to(torch.{dtype})`").into(),
        (Cure::Convert(dtype), "numpy" | "cupy" | "jax" | "jaxlib") => {
            return format!("call `x.astype(\"{dtype}\")`").into();
        }
        (Cure::Convert(_), _) => "convert it, such as by `astype` of its library",
        (Cure::COrder, "torch") => "call `x.contiguous()`, whose result is another tensor",
        (Cure::COrder, "numpy" | "jax" | "jaxlib") => {
            "call `numpy.ascontiguousarray(x)`, whose result is another array"
        }
        (Cure::COrder, "cupy") => "call `cupy.ascontiguousarray(x)`, whose result is another array",
        (Cure::COrder, _) => "use `ascontiguousarray` of its library, whose result is another array",
        (Cure::FOrder, "torch") => {
            "reverse its axes before and after `contiguous()`, such as `x.mT.contiguous().mT` for a matrix"
        }
        (Cure::FOrder, "numpy" | "jax" | "jaxlib") => {
            "call `numpy.asfortranarray(x)`, whose result is another array"
        }
        (Cure::FOrder, "cupy") => "call `cupy.asfortranarray(x)`, whose result is another array",
        (Cure::FOrder, _) => "use `asfortranarray` of its library, whose result is another array",
        (Cure::Copy, "torch") => "pass a copy, `x.clone()`; the original then stays as it is",
        (Cure::Copy, "numpy" | "cupy") => "pass a copy, `x.copy()`; the original then stays as it is",
        (Cure::Copy, _) => "pass a copy, such as by `numpy.array`; the original then stays as it is",
        (Cure::ToHost, "torch") => "copy it to the host by `x.cpu()`",
        (Cure::ToHost, "cupy") => "copy it to the host by `cupy.asnumpy(x)`",
        (Cure::ToHost, "jax" | "jaxlib") => "copy it to the host by `numpy.asarray(x)`",
        (Cure::ToHost, _) => {
            "copy it to the host, such as by PyTorch's `x.cpu()` or CuPy's `cupy.asnumpy(x)`"
        }
        (Cure::ToDevice, "torch") => "copy it to a device by `x.cuda()`",
        (Cure::ToDevice, "numpy") => "copy it to a device, such as by CuPy's `cupy.asarray(x)`",
        (Cure::ToDevice, "jax" | "jaxlib") => {
            "copy it to a device by `jax.device_put(x, jax.devices(\"gpu\")[0])`"
        }
        (Cure::ToDevice, _) => {
            "copy it to a device, such as by PyTorch's `x.cuda()` or CuPy's `cupy.asarray(x)`"
        }
    };
    (*words).into()
}
