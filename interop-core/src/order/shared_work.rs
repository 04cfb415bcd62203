//! Work on arrays for which other processes wait, by numbers.
#![expect(clippy::missing_errors_doc, reason = "hidden: for `interop-ipc`, as `stream_wait`")]

use crate::array::device::Device;
use crate::array::stream_handle::StreamHandle;
use crate::driver::context::{Context, run_in};
use crate::driver::event::Event;
use crate::driver::functions::driver;
use crate::driver::number::SharedNumber;
use crate::driver::pointer::context_of_memory;
use crate::driver::reach::Reach;
use crate::driver::stream::{AWAIT, OwnStream, READY, Stream};
use crate::error::Result;
use crate::order::array_info::ArrayInfo;
use crate::order::claim::Claim;
use crate::order::release::owner::Owner;
use crate::order::release::queue::poll_in_passing;
use crate::order::wait::{Waiter, Work, order};

/// The work on an array of this process, as of now.
pub struct SharedWork {
    events: Vec<Event<'static>>,
    context: Context,
}

impl SharedWork {
    /// Records events behind the work that is pending on an array with elements in memory of a device.
    pub fn of(info: &ArrayInfo) -> Result<Self> {
        poll_in_passing();
        let claim = Claim::asked(info, None)?;
        let context = context_of_memory(info.unwatched_address, info.device())?;
        Ok(Self { events: info.work().record(claim)?, context })
    }

    /// Writes a number behind the work. It is queued on return.
    pub fn end_in(&self, number: SharedNumber) -> Result<()> {
        let home = OwnStream { context: self.context, key: READY };
        Ok(number.write_behind(driver()?, &self.events, home)?)
    }
}

/// Makes a stream wait for a number of another process, or the host for `NothingPending`. Without a stream, one of this crate in
/// `context` waits. Returns the stream.
pub fn await_number(
    number: SharedNumber,
    stream: Option<StreamHandle>,
    context: Context,
    device: Device,
) -> Result<StreamHandle> {
    let own = || run_in(context, |driver| OwnStream { context, key: AWAIT }.handle(driver));
    let stream = stream.map_or_else(own, Ok)?;
    let waiter = Stream::new(stream, None, device).map_or(Waiter::Host, Waiter::Stream);
    order(waiter, Work::Number(number)).map(|_| stream)
}

/// Drops a value after all work that devices have now.
pub fn drop_after_all_work<T: Send + 'static>(value: T) {
    drop(Owner::new(value).with_reach(Some(Reach::of_all(None))));
}
