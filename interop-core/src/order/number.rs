//! How streams write and await the numbers of other processes.

use crate::driver::context::Relaxed;
use crate::driver::event::Event;
use crate::driver::functions::{CUstream, Driver, Outcome, code};
use crate::driver::number::SharedNumber;
use crate::driver::stream::OwnStream;

impl SharedNumber {
    /// Makes later work of a stream wait. The context of a default stream is current. Returns false for a device that cannot wait
    /// for numbers.
    pub(crate) fn make_wait(&self, driver: &Driver, stream: CUstream) -> Outcome<bool> {
        const GREATER_OR_EQUAL: u32 = 0;
        let _relaxed = Relaxed::new(driver);
        // SAFETY: the stream is live, and the number is registered until the wait is over, as its maker promises.
        is_supported(unsafe {
            driver.stream_wait_number(stream, self.on_devices, self.value, GREATER_OR_EQUAL)
        })
    }

    /// Queues the write of the value behind work, on a stream of this crate. Without such writes the host waits for the work.
    pub(crate) fn write_behind(&self, driver: &Driver, work: &[Event<'_>], home: OwnStream) -> Outcome {
        let _entered = home.context.enter(driver)?;
        let _relaxed = Relaxed::new(driver);
        let queued = home.with(driver, |stream| {
            work.iter().try_for_each(|event| event.make_wait(stream.raw))?;
            // SAFETY: the stream is live, and the number is registered until the write is done, as its maker promises.
            is_supported(unsafe { driver.stream_write_number(stream.raw, self.on_devices, self.value, 0) })
        })??;
        if !queued {
            work.iter().try_for_each(|event| event.in_context(|| event.wait()))?;
            self.reach();
        }
        Ok(())
    }
}

/// Older drivers lack the functions, and some virtual devices the ability.
fn is_supported(answer: Outcome) -> Outcome<bool> {
    match answer {
        Err(failure) if matches!(failure.code, code::NOT_FOUND | code::NOT_SUPPORTED) => Ok(false),
        answer => answer.map(|()| true),
    }
}
