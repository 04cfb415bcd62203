//! Frees pool memory in stream order after the work that may use it, without a wait on the host and without a later
//! poll.

use crate::cuda::allocation::Allocation;
use crate::cuda::context::Relaxed;
use crate::cuda::driver::{Driver, Failure, Outcome, driver, is_of_parent};
use crate::cuda::event::Event;
use crate::cuda::missing_stream::OwnStreams;
use crate::cuda::release::hold::events_after;
use crate::cuda::release::policy::{ReleasePolicy, release_policy};
use crate::cuda::release::queue::{after_work, poll_in_passing};
use crate::cuda::release::scope::{ErasedOwner, ReleaseScope};
use crate::cuda::stream_query::LEGACY;

/// Frees pool memory: a stream of this crate waits for all work of the scope's contexts and then frees the memory. The
/// next allocation can have it without a query by the host. If this is not possible now, the memory is released like
/// all other memory.
pub(crate) fn free_in_order(block: Allocation, scope: ReleaseScope) {
    if release_policy() == ReleasePolicy::AfterContext && !is_of_parent() {
        poll_in_passing();
        if let Ok(driver) = driver() {
            let _relaxed = Relaxed::new(driver);
            match events_after(driver, scope) {
                // All work is done, so nothing has to wait.
                Some(events) if events.is_empty() => return drop(block),
                Some(events) if queue_free(driver, &block, &events).is_ok() => return block.was_freed(),
                _ => {}
            }
        }
    }
    after_work(ErasedOwner::new(block), scope);
}

fn queue_free(driver: &Driver, block: &Allocation, events: &[Event<'_>]) -> Outcome {
    let _entered = block.context.enter(driver)?;
    let stream = STREAMS.of(driver, block.context)?.to_raw().unwrap_or(LEGACY);
    let waits = events.iter().try_for_each(|event| event.make_wait(stream));
    // SAFETY: the memory is from the pool and not used after the events; the stream is ours.
    let freed = waits.and_then(|()| unsafe { driver.memory_pool_free(block.address as u64, stream) });
    if freed.is_err_and(Failure::is_about_handles) {
        // The primary context was reset, which destroyed the stream.
        STREAMS.forget(block.context);
    }
    freed
}

/// The streams on which memory is freed, one for each context.
static STREAMS: OwnStreams = OwnStreams::new();
