//! Memory that this crate allocates: how it is freed, and what is known of the work on it.
//!
//! Pool memory is a block, which is allocated for a consumer's stream. As long as only this crate has used it, and on that
//! stream alone, one event is behind all of its work. A dropped block is then free in the order of that event. Anything else
//! marks its record as used: another stream, a capture, or whoever gets its address. A used block is released as all other
//! memory.
//!
//! Under [`ReleasePolicy::AfterNamedStream`](crate::cuda::ReleasePolicy), a copy that its consumer drops waits for the next
//! call that names the consumer's stream, because that stream may be gone meanwhile. One event is then behind the work on all
//! copies that were dropped since.

use core::ptr::with_exposed_provenance_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::array::use_record::{BLOCKS, UseRecord};
use crate::driver::context::{Context, Relaxed};
use crate::driver::device::Device;
use crate::driver::event::Event;
use crate::driver::functions::{Driver, Outcome, RawStream, driver, run_blocking};
use crate::driver::release::queue::after_work;
use crate::driver::release::scope::{ErasedOwner, ReleaseScope};
#[cfg(feature = "python")]
use crate::driver::release::{ReleasePolicy, release_policy};
use crate::driver::stream::{SPARE, capture_of, key_of, with_own_stream};
use crate::driver::stream_handle::{PendingWork, StreamHandle};
use crate::driver::stream_wait::{StreamOnDevice, enter_default};
use crate::process::counters;
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

/// What is known of the blocks.
struct Blocks {
    /// The work on each block that has a record.
    work: Vec<Mutex<Option<Work>>>,
    /// The copies that wait for a call that names their stream.
    waiting: Mutex<Waiting>,
}

type Waiting = Vec<(Allocation, ReleaseScope)>;

static BLOCKS_IN_USE: PerProcess<Blocks> = PerProcess::new(|_| Blocks {
    work: (0..BLOCKS).map(|_| Mutex::new(None)).collect(),
    waiting: Mutex::new(Vec::new()),
});

fn work_of(record: UseRecord) -> Option<MutexGuard<'static, Option<Work>>> {
    Some(BLOCKS_IN_USE.get().work.get(record.block()?)?.lock().unwrap_or_else(PoisonError::into_inner))
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

/// Allocated memory. Its drop frees it.
pub(crate) struct Allocation {
    pub(crate) address: usize,
    pub(crate) kind: MemoryKind,
    pub(crate) context: Context,
    /// The key of the stream on which pool memory was allocated and is freed.
    pub(crate) home: usize,
}

impl Allocation {
    /// Frees pool memory in stream order, after its work on the stream of its consumer. Returns the allocation if that is not
    /// possible.
    pub(crate) fn free_after(self, work: Option<&Event<'_>>) -> Result<(), Self> {
        let queued = || {
            let driver = driver().ok()?;
            let _entered = self.context.enter(driver).ok()?;
            let _relaxed = Relaxed::new(driver);
            let free = |stream, key| {
                if let Some(work) = work {
                    // The spare stream waits for nobody.
                    (key == self.home).then(|| work.make_wait(stream))?.ok()?;
                }
                self.free_on(driver, stream).ok()
            };
            with_own_stream(driver, self.context, self.home, free).ok()?
        };
        if queued().is_none() {
            return Err(self);
        }
        self.was_freed();
        Ok(())
    }

    /// Frees pool memory in the order of a stream of this crate. [`was_freed`](Self::was_freed) follows.
    pub(crate) fn free_on(&self, driver: &Driver, stream: RawStream) -> Outcome {
        // SAFETY: the memory is from the pool, and nothing uses it later than what the stream waits for; the stream is live.
        unsafe { driver.memory_pool_free(self.address as u64, stream) }
    }

    /// Forgets the allocation, because the call that frees it was made.
    pub(crate) fn was_freed(self) {
        core::mem::forget(self);
        counters::ALLOCATIONS.sub();
    }

    fn free(&self, driver: &Driver) -> Outcome {
        let _entered = self.context.enter(driver)?;
        let _relaxed = Relaxed::new(driver);
        match self.kind {
            // SAFETY: the allocation owns the memory and frees it once.
            MemoryKind::Device | MemoryKind::Managed => unsafe { driver.memory_free(self.address as u64) },
            MemoryKind::Pool => {
                let free = |stream, _| self.free_on(driver, stream);
                with_own_stream(driver, self.context, self.home, free)?
            }
            // SAFETY: as above.
            MemoryKind::Pinned => unsafe {
                driver.memory_host_free(with_exposed_provenance_mut(self.address))
            },
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Ok(driver) = driver() {
            let free = || {
                // If the context is gone, the memory was freed with it.
                let _ = self.free(driver);
            };
            // Freeing pool memory does not wait.
            if self.kind == MemoryKind::Pool { free() } else { run_blocking(free) }
        }
        counters::ALLOCATIONS.sub();
    }
}

/// The kinds of CUDA memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryKind {
    /// Memory of one device (`cuMemAlloc`).
    Device,
    /// Memory of one device from this crate's stream-ordered pool for it (`cuMemAllocFromPoolAsync`), or as `Device` if the
    /// device has no pools. `cudaIpcGetMemHandle` refuses it, so other processes cannot open it.
    Pool,
    /// Host memory that all devices can reach (`cuMemHostAlloc`, portable).
    Pinned,
    /// Memory that the driver moves between host and devices (`cuMemAllocManaged`).
    Managed,
}

fn waiting() -> MutexGuard<'static, Waiting> {
    BLOCKS_IN_USE.get().waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of copies that wait for a call that names their stream.
pub(crate) fn trusted_releases() -> usize {
    waiting().len()
}

/// Defers the free of a block until its stream is named again.
pub(crate) fn wait_for_its_stream(block: Allocation, scope: ReleaseScope) {
    scope.count_deferred();
    waiting().push((block, scope));
}

fn take(is_taken: impl Fn(&Allocation) -> bool) -> Waiting {
    let mut waiting = waiting();
    let (taken, left) = core::mem::take(&mut *waiting).into_iter().partition(|(block, _)| is_taken(block));
    *waiting = left;
    taken
}

/// Frees the blocks that wait for this stream, which is alive and has this key, in the order of its work until now. The
/// context is current.
pub(crate) fn free_behind(driver: &'static Driver, (context, key): (Context, usize), stream: RawStream) {
    let blocks = take(|block| (block.context, block.home) == (context, key));
    if blocks.is_empty() {
        return;
    }
    let free = |own, home| -> Option<()> {
        // The spare stream waits for nobody.
        let behind = (home == key).then(|| Event::of_stream(driver, Some(context), stream))?.ok()?;
        behind.make_wait(own).ok()?;
        // A free fails if the memory is gone with its context.
        for (block, _) in &blocks {
            let _ = block.free_on(driver, own);
        }
        Some(())
    };
    let is_freed = with_own_stream(driver, context, key, free).ok().flatten().is_some();
    for (block, scope) in blocks {
        scope.count_released();
        if is_freed { block.was_freed() } else { after_work(ErasedOwner::new(block), scope) }
    }
}

/// Releases all that waits as other memory is released: after all work of its context.
pub(crate) fn release_otherwise() {
    for (block, scope) in take(|_| true) {
        scope.count_released();
        after_work(ErasedOwner::new(block), scope);
    }
}
