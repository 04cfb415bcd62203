//! Whether an array that came in a legacy capsule may be written, which the capsule cannot say: the object's interface dict
//! is believed, where it is of the same memory.

use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt, PyString, PyTuple};

use crate::array::device::Device;
use crate::array::info::ArrayInfo;
use crate::array::mutability::Mutability;
use crate::memory::import::Import;
use crate::python::import::request::Request;
use crate::python::interpreter::attribute;

/// Makes an import writable that came in a legacy capsule, if an interface dict of the object says so of its address. Warp has
/// one of CUDA's kind for memory of a device, and one of `NumPy`'s kind for memory of the host.
///
/// # Errors
///
/// What an interrupt raises; a dict that cannot be read says nothing.
pub(crate) fn trust_interface(request: &Request<'_, '_>, import: &mut Import) -> PyResult<()> {
    let object = request.object;
    if import.info().mutability() != Mutability::ReadOnly || !request.class.method.has_writable_dict {
        return Ok(());
    }
    match says_writable(object, import.info()) {
        Ok(true) => import.set_mutability(Mutability::Writable),
        Err(error) if !error.is_instance_of::<PyException>(object.py()) => return Err(error),
        _ => {}
    }
    Ok(())
}

fn says_writable(object: &Bound<'_, PyAny>, info: &ArrayInfo) -> PyResult<bool> {
    let py = object.py();
    let names = [intern!(py, "__cuda_array_interface__"), intern!(py, "__array_interface__")];
    // The second is for memory of the host only.
    let names = if info.device() == Device::CPU { &names[..] } else { &names[..1] };
    for name in names {
        if let Some(interface) = attribute(object, name)? {
            return names_writable(&interface, intern!(py, "data"), info);
        }
    }
    Ok(false)
}

/// Whether `data` of a plain dict is `(address of the array, False)`; any address will do where there are no elements.
fn names_writable(
    interface: &Bound<'_, PyAny>,
    key: &Bound<'_, PyString>,
    info: &ArrayInfo,
) -> PyResult<bool> {
    let Ok(dict) = interface.cast::<PyDict>() else { return Ok(false) };
    let Some(data) = dict.get_item(key)? else { return Ok(false) };
    let Some(pair) = data.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2) else { return Ok(false) };
    let (address, readonly) = (pair.get_item(0)?, pair.get_item(1)?);
    let here = info.numel() == 0
        || address.is_instance_of::<PyInt>() && address.extract::<usize>()? == info.address();
    Ok(here && readonly.cast::<PyBool>().is_ok_and(|readonly| !readonly.is_true()))
}
