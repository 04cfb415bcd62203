//! Import by `__array_interface__`, of what a `NumPy` array cannot export: `NumPy` before 2.1 refuses to export
//! read-only memory, and before 1.25 flags.
#![expect(unsafe_code, reason = "relies on what an array states about its memory")]

use pyo3::intern;

use crate::array::device::Device;
use crate::array::info::ArrayInfo;
use crate::memory::import::{Import, Protocol};
use crate::memory::owner::Owner;
use crate::python::errors::of;
use crate::python::import::interface_dict::interface_in;
use crate::python::import::step::{Answer, Request};
use crate::python::py_owner::PyOwner;
use crate::python::unstable_api::attribute;

/// Imports an array whose `__dlpack__` is `NumPy`'s, by its interface dict. The memory is the host's, by definition of
/// that interface. Structs are left out, because they are not imported by DLPack either.
pub(crate) fn from_array_interface(request: &Request<'_, '_>, to: &mut Import) -> Answer {
    let object = request.object;
    if !request.class.method.is_of_numpy {
        return Ok(false);
    }
    let Some(interface) = attribute(object, intern!(object.py(), "__array_interface__"))? else {
        return Ok(false);
    };
    let owner = PyOwner::new(object.clone().unbind());
    let interface = interface_in(&interface)?;
    let info = interface.info().map_err(|error| of(object, error))?;
    if info.struct_type().is_some() || interface.typestr.contains('V') {
        return Ok(false);
    }
    let info = ArrayInfo { device: Device::CPU, ..info };
    // SAFETY: the dict describes the array's own memory, which lives as long as the array: NumPy does not resize an
    // array that others refer to.
    *to = unsafe { Import::from_parts(info, Owner::new(owner)) };
    to.set_protocol(Protocol::ArrayInterface);
    Ok(true)
}
