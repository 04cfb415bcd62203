//! Determines whether an array from a legacy capsule is writable, which the capsule cannot express. The object's
//! interface dict is trusted if it describes the same memory.

use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt, PyString, PyTuple};

use crate::array::device::Device;
use crate::array::info::ArrayInfo;
use crate::array::mutability::Mutability;
use crate::memory::import::Import;
use crate::python::import::step::Request;
use crate::python::unstable_api::attribute;

/// Makes an import from a legacy capsule writable, if an interface dict of the object states so for the same address.
///
/// Warp has a CUDA Array Interface for device memory, and a `NumPy` array interface for host memory.
///
/// # Errors
///
/// Exceptions that are not an `Exception`, such as `KeyboardInterrupt`. A dict that cannot be read has no effect.
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
    // The second name is only for host memory.
    let names = if info.device() == Device::CPU { &names[..] } else { &names[..1] };
    for name in names {
        if let Some(interface) = attribute(object, name)? {
            return names_writable(&interface, intern!(py, "data"), info);
        }
    }
    Ok(false)
}

/// Returns whether `data` in the dict is `(address of the array, False)`. An array without elements may have any
/// address.
fn names_writable(
    interface: &Bound<'_, PyAny>,
    key: &Bound<'_, PyString>,
    info: &ArrayInfo,
) -> PyResult<bool> {
    let Ok(dict) = interface.cast::<PyDict>() else { return Ok(false) };
    let Some(data) = dict.get_item(key)? else { return Ok(false) };
    let Some(pair) = data.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2) else { return Ok(false) };
    let (address, readonly) = (pair.get_item(0)?, pair.get_item(1)?);
    let here =
        info.numel() == 0 || address.is_instance_of::<PyInt>() && address.extract::<usize>()? == info.address;
    Ok(here && readonly.cast::<PyBool>().is_ok_and(|readonly| !readonly.is_true()))
}
