//! Import by the C exchange table of the object's type.

use crate::array::device::Device;
use crate::array::stream::StreamHandle;
use crate::cuda;
use crate::memory::import::{Import, Protocol};
use crate::python::errors::of;
use crate::python::import::exchange_table::{tensor_of, work_stream};
use crate::python::import::receive::receive;
use crate::python::import::request::{Answer, Request};

/// The first step: an owned tensor from the exchange table of the object's type.
///
/// The table makes no stream wait, so this step makes the consumer's stream wait for the stream of the table's library.
/// If the table does not return that stream, the next step calls `__dlpack__`, which accepts the consumer's stream.
pub(crate) fn from_exchange_table(request: &Request<'_, '_>, to: &mut Import) -> Answer {
    let (object, named) = (request.object, |error| of(request.object, error));
    let Some(table) = request.class.exchange else { return Ok(false) };
    let Some(tensor) = tensor_of(table, object)? else { return Ok(false) };
    receive(to, tensor, request.verification).map_err(named)?;
    to.set_protocol(Protocol::ExchangeTable);
    let device = to.info().device();
    request.class.table_device.note(device);
    if device != Device::CPU {
        let Some(producer) = work_stream(table, object.py(), device) else {
            *to = Import::EMPTY;
            return Ok(false);
        };
        let consumer = request.stream.unwrap_or(StreamHandle::LegacyDefault);
        // The default streams are those of the memory's context, which is known.
        let context = to.context();
        let captured = cuda::stream_wait_in(consumer, producer, device, context).map_err(named)?;
        to.put_on_ordered_stream(consumer, captured, context);
    }
    Ok(true)
}
