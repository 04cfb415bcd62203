//! Import by the C exchange table of the object's type.

use crate::array::device::DeviceType;
use crate::array::stream::StreamHandle;
use crate::cuda;
use crate::memory::import::{Import, Protocol};
use crate::python::detach::free_detached;
use crate::python::errors::of;
use crate::python::import::exchange_table::{Table, TableStream, table_stream, tensor_of};
use crate::python::import::package::CurrentStream;
use crate::python::import::receive::receive;
use crate::python::import::step::{Answer, Request};

/// The first step: an owned tensor from the exchange table of the object's type.
pub(crate) fn from_exchange_table(request: &Request<'_, '_>, to: &mut Import) -> Answer {
    let Some(table) = request.class.exchange else { return Ok(false) };
    let Some(tensor) = tensor_of(table, request.object)? else { return Ok(false) };
    receive(to, tensor, request.verification).map_err(|error| of(request.object, error))?;
    order_with_table(request, table, to)
}

/// Orders an import from a table with the work of the table's library, which makes no stream wait itself.
///
/// If the table does not return the stream of that work, the import is emptied. The next step then calls `__dlpack__`,
/// which accepts the consumer's stream.
fn order_with_table(request: &Request<'_, '_>, table: Table, to: &mut Import) -> Answer {
    to.set_protocol(Protocol::ExchangeTable);
    let (device, context) = (to.info().device(), to.context());
    let named = |error| of(request.object, error);
    // Host memory, also pinned and managed memory, is used on no stream in particular.
    let theirs = match device.device_type {
        DeviceType::CPU => return Ok(true),
        DeviceType::CUDA => table_stream(table, request.object.py(), device)?,
        _ => TableStream::Null,
    };
    let theirs = match theirs {
        TableStream::Handle(handle) => Some(handle),
        TableStream::Null if device.device_type == DeviceType::CUDA => request.class.package.stream_of_null(),
        TableStream::Null => None,
        TableStream::Absent => {
            *to = Import::EMPTY;
            return Ok(false);
        }
    };
    let consumer = request.stream.unwrap_or(StreamHandle::LegacyDefault);
    let captured = match (theirs, request.stream) {
        // A caller that names a per-thread default stream gets that one.
        (Some(handle), stream)
            if request.class.package.works_on(handle)
                && stream
                    .is_none_or(|stream| stream == handle && handle != StreamHandle::PerThreadDefault) =>
        {
            CurrentStream { handle, owner: None }.receive(to);
            if stream.is_some() {
                to.note_named_stream();
            }
            return Ok(true);
        }
        (Some(handle), _) => cuda::stream_wait_in(consumer, handle, device, context).map_err(named)?,
        (None, _) => {
            free_detached();
            to.make_wait_for_unknown(consumer).map_err(named)?;
            None
        }
    };
    to.put_on_ordered_stream(consumer, captured, context);
    request.note_hidden_streams(to);
    Ok(true)
}
