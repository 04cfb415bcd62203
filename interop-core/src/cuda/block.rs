//! Blocks of pool memory: what is known of the work on them.
//!
//! A block is allocated for a consumer's stream. As long as only this crate has used it, and on that stream alone, one event
//! is behind all of its work. A dropped block is then free in the order of that event. Anything else marks its record as used:
//! another stream, a capture, or whoever gets its address. A used block is released as all other memory.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::array::device::Device;
use crate::array::stream::{PendingWork, StreamHandle};
use crate::array::use_record::{BLOCKS, UseRecord};
use crate::cuda::allocation::Allocation;
use crate::cuda::context::Context;
use crate::cuda::driver::{Driver, Outcome, driver};
use crate::cuda::event::Event;
use crate::cuda::own_streams::{SPARE, key_of, with_own_stream};
#[cfg(feature = "python")]
use crate::cuda::release::policy::{ReleasePolicy, release_policy};
use crate::cuda::release::scope::ReleaseScope;
use crate::cuda::release::trusted::wait_for_its_stream;
use crate::cuda::stream_query::capture_of;
use crate::cuda::stream_wait::{StreamOnDevice, enter_default};
use crate::process::fork::PerProcess;

/// The work on a block.
struct Work {
    /// The context, and the key of the consumer's stream.
    home: (Context, usize),
    /// The event behind the work.
    last: Option<Event<'static>>,
    /// Whether the consumer has the memory, and is trusted to use it on that stream alone.
    is_taken: bool,
}

impl Work {
    /// Calls `with` with the event behind the work, or behind the allocation if there was no work.
    fn with_last(&self, driver: &'static Driver, with: impl FnOnce(&Event<'_>) -> Outcome) -> Option<()> {
        if let Some(last) = &self.last {
            return with(last).ok();
        }
        let (context, key) = self.home;
        let _entered = context.enter(driver).ok()?;
        let allocated = |own, _| Event::of_stream(driver, Some(context), own);
        with(&with_own_stream(driver, context, key, allocated).ok()?.ok()?).ok()
    }
}

/// The work on each block that has a record.
static WORK: PerProcess<Vec<Mutex<Option<Work>>>> =
    PerProcess::new(|_| (0..BLOCKS).map(|_| Mutex::new(None)).collect());

fn work_of(record: UseRecord) -> Option<MutexGuard<'static, Option<Work>>> {
    Some(WORK.get().get(record.block()?)?.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Starts the record of a block that is allocated for the stream with this key. `None` if its work cannot be followed.
pub(crate) fn start_record(home: (Context, usize)) -> Option<UseRecord> {
    let record = (home.1 != SPARE).then(UseRecord::start_block)??;
    *work_of(record)? = Some(Work { home, last: None, is_taken: false });
    Some(record)
}

/// Notes that this crate has queued work on the memory with this record, on a stream that is alive.
pub(crate) fn note_work(record: UseRecord, on: StreamOnDevice) {
    if record.block().is_some() && follow(record, on).is_none() {
        record.note_used();
    }
}

fn follow(record: UseRecord, on: StreamOnDevice) -> Option<()> {
    let driver = driver().ok()?;
    let stream = on.0.name()?;
    let raw = stream.to_raw()?;
    let mut work = work_of(record)?;
    let work = work.as_mut().filter(|work| work.home.1 == key_of(stream))?;
    let (context, _entered) = enter_default(driver, on).ok()?;
    // An event inside of a capture is no event for anybody else.
    if capture_of(driver, raw) != Ok(None) {
        return None;
    }
    if let Some(last) = work.last.take() {
        // The stream may be another one with the same number.
        last.make_wait(raw).ok()?;
    }
    work.last = Some(Event::of_stream(driver, context, raw).ok()?);
    Some(())
}

/// Makes a stream wait for the work on memory with this clean record, and for nothing else. Returns `None` if that is not
/// known, or not possible.
pub(crate) fn make_wait(record: UseRecord, stream: StreamHandle, device: Device) -> Option<()> {
    let (driver, raw) = (driver().ok()?, stream.to_raw()?);
    let work = work_of(record)?;
    let work = work.as_ref()?;
    let (_, _entered) = enter_default(driver, (PendingWork::on(stream), device)).ok()?;
    if capture_of(driver, raw) != Ok(None) {
        return None;
    }
    work.with_last(driver, |last| last.make_wait(raw))
}

/// Waits on the host for the work on memory with this clean record. Returns `None` if that is not known, or not possible.
pub(crate) fn wait(record: UseRecord) -> Option<()> {
    let driver = driver().ok()?;
    let work = work_of(record)?.take()?;
    // Without the lock, as this may take long. The record counts as used meanwhile.
    let done = work.with_last(driver, |last| last.in_context(|| last.wait()));
    *work_of(record)? = Some(work);
    done
}

/// Notes that the consumer for whose stream the block was allocated has it.
#[cfg(feature = "python")]
pub(crate) fn note_taken(record: UseRecord) {
    match work_of(record) {
        Some(mut work) if matches!(release_policy(), ReleasePolicy::AfterNamedStream(_)) => {
            work.iter_mut().for_each(|work| work.is_taken = true);
        }
        _ => record.note_used(),
    }
}

/// Ends the record of a block that is dropped. Frees it in the order of its work, or returns it if that is not known.
pub(crate) fn free_in_order(
    record: UseRecord,
    block: Allocation,
    scope: impl FnOnce() -> ReleaseScope,
) -> Result<(), Allocation> {
    let work = work_of(record).and_then(|mut work| work.take());
    let is_clean = record.finish_block();
    match work.filter(|_| is_clean) {
        Some(work) if work.is_taken => {
            wait_for_its_stream(block, scope());
            Ok(())
        }
        Some(work) => block.free_after(work.last.as_ref()),
        None => Err(block),
    }
}
