//! Copies that their consumers have dropped, under [`ReleasePolicy::AfterNamedStream`](crate::cuda::ReleasePolicy).
//!
//! A stream may be gone when a consumer drops its copy. So the copy waits here for the next call that names the stream: then
//! one event is behind the work on all copies that were dropped since.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cuda::allocation::Allocation;
use crate::cuda::context::Context;
use crate::cuda::driver::{Driver, RawStream};
use crate::cuda::event::Event;
use crate::cuda::own_streams::with_own_stream;
use crate::cuda::release::limit::{count_deferred, count_released};
use crate::cuda::release::queue::after_work;
use crate::cuda::release::scope::{ErasedOwner, ReleaseScope};
use crate::process::fork::PerProcess;

type Waiting = Vec<(Allocation, ReleaseScope)>;

static WAITING: PerProcess<Mutex<Waiting>> = PerProcess::new(|_| Mutex::new(Vec::new()));

fn waiting() -> MutexGuard<'static, Waiting> {
    WAITING.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of copies that wait for a call that names their stream.
pub(crate) fn trusted_releases() -> usize {
    waiting().len()
}

/// Defers the free of a block until its stream is named again.
pub(crate) fn wait_for_its_stream(block: Allocation, scope: ReleaseScope) {
    count_deferred(scope);
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
        count_released(scope);
        if is_freed { block.was_freed() } else { after_work(ErasedOwner::new(block), scope) }
    }
}

/// Releases all that waits as other memory is released: after all work of its context.
pub(crate) fn release_otherwise() {
    for (block, scope) in take(|_| true) {
        count_released(scope);
        after_work(ErasedOwner::new(block), scope);
    }
}
