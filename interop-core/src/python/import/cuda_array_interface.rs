//! Import by `__cuda_array_interface__`.
#![expect(unsafe_code, reason = "relies on what an object states about its memory")]

use pyo3::prelude::*;

use crate::array::stream::StreamHandle;
use crate::cuda;
use crate::memory::import::Import;
use crate::python::detach::free_detached;
use crate::python::errors::of;
use crate::python::import::interface_dict::interface_in;
use crate::python::import::package::CurrentStream;
use crate::python::import::package::Package;
use crate::python::import::step::{Answer, Request};
use crate::python::py_owner::PyOwner;
use crate::python::unstable_api::attribute;

/// The last step: the interface dict. The driver determines the device, and the consumer's stream waits for the
/// producer's, unless it is that one.
pub(crate) fn from_cuda_array_interface(request: &Request<'_, '_>, to: &mut Import) -> Answer {
    let object = request.object;
    let name = pyo3::intern!(object.py(), "__cuda_array_interface__");
    let Some(interface) = attribute(object, name)? else { return Ok(false) };
    // Both are kept: a property may create an array that only the returned dict keeps alive.
    let owner = [object, &interface].map(|held| PyOwner::new(held.clone().unbind()));
    let interface = interface_in(&interface).map_err(|failure| failure.of(object))?;
    // The dict of Numba names the stream of the array, on which its owner works.
    let own =
        (request.class.package == Package::Numba && request.stream.is_none()).then_some(interface.stream);
    let own = own.map(|stream| match stream {
        StreamHandle::NothingPending | StreamHandle::PerThreadDefault => StreamHandle::LegacyDefault,
        stream => stream,
    });
    let consumer = own.or(request.stream).unwrap_or(StreamHandle::LegacyDefault);
    free_detached();
    // SAFETY: the object states that its memory lives as long as it does, and that its stream is alive now.
    let import = unsafe { Import::from_cai_for_stream(&interface, consumer, owner) };
    // Not `Failure::Invalid`: there is no other protocol to fall back to.
    let named = |error| PyErr::from(of(object, error));
    *to = import.map_err(named)?;
    to.leave_to_its_owner();
    match own {
        Some(handle) if cuda::is_stream_of(handle, to.context()).map_err(named)? => {
            CurrentStream { handle, owner: None }.receive(to);
        }
        // The stream belongs to another device.
        Some(handle) => to.move_to_default_stream(handle).map_err(named)?,
        None => request.note_hidden_streams(to),
    }
    Ok(true)
}
