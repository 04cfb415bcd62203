//! Import by the C exchange table of the object's type.

use crate::array::device::Device;
use crate::array::stream::StreamHandle;
use crate::cuda;
use crate::memory::import::{Import, Protocol};
use crate::python::errors::of;
use crate::python::import::exchange_table::{Table, tensor_of, work_stream};
use crate::python::import::receive::receive;
use crate::python::import::step::{Answer, Request};

/// The first step: an owned tensor from the exchange table of the object's type.
pub(crate) fn from_exchange_table(request: &Request<'_, '_>, to: &mut Import) -> Answer {
    let Some(table) = request.class.exchange else { return Ok(false) };
    let Some(tensor) = tensor_of(table, request.object)? else { return Ok(false) };
    receive(to, tensor, request.verification).map_err(|error| of(request.object, error))?;
    request.class.table_device.note(to.info().device());
    wait_for_table(request, table, to)
}

/// Orders an import from a table after the work of the table's library, which makes no stream wait itself.
///
/// If the table does not return the stream of that work, the import is emptied. The next step then calls `__dlpack__`,
/// which accepts the consumer's stream.
pub(crate) fn wait_for_table(request: &Request<'_, '_>, table: Table, to: &mut Import) -> Answer {
    to.set_protocol(Protocol::ExchangeTable);
    let device = to.info().device();
    if device == Device::CPU {
        return Ok(true);
    }
    let Some(producer) = work_stream(table, request.object.py(), device)? else {
        *to = Import::EMPTY;
        return Ok(false);
    };
    let consumer = request.stream.unwrap_or(StreamHandle::LegacyDefault);
    // The default streams are those of the memory's context, which is known.
    let context = to.context();
    let captured = cuda::stream_wait_in(consumer, producer, device, context)
        .map_err(|error| of(request.object, error))?;
    to.put_on_ordered_stream(consumer, captured, context);
    Ok(true)
}
