//! Import through `__cuda_array_interface__`.
#![expect(unsafe_code, reason = "believes what an object says of its memory")]

use pyo3::prelude::*;

use crate::array::stream::StreamHandle;
use crate::memory::import::Import;
use crate::python::detach::free_detached;
use crate::python::errors::of;
use crate::python::import::interface_dict::interface_in;
use crate::python::import::protocol::Protocol;
use crate::python::import::receive::ImportSlot;
use crate::python::interpreter::attribute;
use crate::python::py_owner::PyOwner;

/// Through the interface dict, if there is one: the driver says where the address is, and the producer's stream is ordered
/// before ours.
pub(crate) fn from_cai(
    to: &mut ImportSlot<'_>,
    object: &Bound<'_, PyAny>,
    stream: Option<StreamHandle>,
) -> PyResult<Option<Protocol>> {
    let name = pyo3::intern!(object.py(), "__cuda_array_interface__");
    let Some(interface) = attribute(object, name)? else { return Ok(None) };
    // Both: a property may make a fresh array, which nothing but the dict that it returns keeps alive.
    let owner = [object, &interface].map(|held| PyOwner::new(held.clone().unbind()));
    let interface = interface_in(&interface).map_err(|fault| fault.of(object))?;
    let consumer = stream.unwrap_or(StreamHandle::LegacyDefault);
    free_detached();
    // SAFETY: the object vouches for the memory that it describes, as long as it lives, and for its stream now.
    let import = unsafe { Import::from_cai_for_stream(&interface, consumer, owner) };
    *to.import = import.map_err(|error| of(object, error))?;
    to.import.leave_to_its_owner();
    Ok(Some(Protocol::Cai))
}
