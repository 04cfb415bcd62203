//! Import by `__cuda_array_interface__`.
#![expect(unsafe_code, reason = "relies on what an object states about its memory")]

use pyo3::prelude::*;

use crate::array::stream::StreamHandle;
use crate::memory::import::Import;
use crate::python::detach::free_detached;
use crate::python::errors::of;
use crate::python::import::interface_dict::interface_in;
use crate::python::import::step::{Answer, Request};
use crate::python::py_owner::PyOwner;
use crate::python::unstable_api::attribute;

/// The last step: the interface dict. The driver determines the device, and the consumer's stream waits for the
/// producer's.
pub(crate) fn from_cuda_array_interface(request: &Request<'_, '_>, to: &mut Import) -> Answer {
    let object = request.object;
    let name = pyo3::intern!(object.py(), "__cuda_array_interface__");
    let Some(interface) = attribute(object, name)? else { return Ok(false) };
    // Both are kept: a property may create an array that only the returned dict keeps alive.
    let owner = [object, &interface].map(|held| PyOwner::new(held.clone().unbind()));
    let interface = interface_in(&interface).map_err(|failure| failure.of(object))?;
    let consumer = request.stream.unwrap_or(StreamHandle::LegacyDefault);
    free_detached();
    // SAFETY: the object states that its memory lives as long as it does, and that its stream is alive now.
    let import = unsafe { Import::from_cai_for_stream(&interface, consumer, owner) };
    // Not `Failure::Invalid`: there is no other protocol to fall back to.
    *to = import.map_err(|error| PyErr::from(of(object, error)))?;
    to.leave_to_its_owner();
    Ok(true)
}
