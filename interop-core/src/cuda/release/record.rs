//! Records the events that a release waits for.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::cuda::context::{Context, Relaxed};
use crate::cuda::driver::{Driver, Failure, Outcome, code};
use crate::cuda::event::Event;
use crate::cuda::release::held::unless_held;
use crate::cuda::release::scope::ReleaseScope;
use crate::cuda::stream_query::{LEGACY, capture_of};

/// Records an event after all work of each context in `scope`. Returns the events that are not done yet, or `None` if
/// they cannot be recorded now, for example during a capture.
pub(crate) fn events_after(driver: &'static Driver, scope: ReleaseScope) -> Option<Vec<Event<'static>>> {
    unless_held(scope, || {
        let _relaxed = Relaxed::new(driver);
        let mut events = Vec::new();
        for context in contexts(driver, scope)? {
            match event_after(driver, context) {
                Ok(Some(event)) => events.push(event),
                // The state of the work is unknown. A later poll may succeed.
                Err(failure) if !failure.is_final() => {
                    WITHOUT_CONTEXT_EVENTS.fetch_or(failure.code == code::NOT_FOUND, Ordering::Relaxed);
                    return None;
                }
                // The work is done; or the context is gone or broken, and its work with it.
                Ok(None) | Err(_) => {}
            }
        }
        Some(events)
    })
}

/// Set when the driver has no `cuCtxRecordEvent`.
static WITHOUT_CONTEXT_EVENTS: AtomicBool = AtomicBool::new(false);

/// Returns whether a release can only be completed by waiting on the host, as with drivers before 12.5.
pub(crate) fn need_synchronize() -> bool {
    WITHOUT_CONTEXT_EVENTS.load(Ordering::Relaxed)
}

/// Waits on the host for all contexts in `scope`, if no event can be recorded. Returns no events, or `None` if it
/// cannot wait for one of the contexts, for example while a graph is captured.
pub(crate) fn synchronized(driver: &Driver, scope: ReleaseScope) -> Option<Vec<Event<'static>>> {
    unless_held(scope, || {
        let _relaxed = Relaxed::new(driver);
        let waited = |context| finish(driver, context).map_or_else(Failure::is_final, |()| true);
        contexts(driver, scope)?.all(waited).then(Vec::new)
    })
}

/// Waits on the host for all work of a context.
fn finish(driver: &Driver, context: Context) -> Outcome {
    let _entered = context.enter(driver)?;
    capture_of(driver, LEGACY)?;
    // SAFETY: the function has no preconditions; the context is current.
    unsafe { driver.context_synchronize() }
}

/// Records an event after all work of a context. Returns `None` if that work is done.
fn event_after(driver: &'static Driver, context: Context) -> Outcome<Option<Event<'static>>> {
    let _entered = context.enter(driver)?;
    capture_of(driver, LEGACY)?;
    let event = Event::of_context(driver, context)?;
    Ok(if event.is_done()? { None } else { Some(event) })
}

/// Returns the contexts of a scope, or `None` if the driver does not report which are in use.
fn contexts(driver: &Driver, scope: ReleaseScope) -> Option<impl Iterator<Item = Context>> {
    let others = match scope.others(driver) {
        Ok(others) => others,
        // The driver has shut down, so no work is left.
        Err(failure) if failure.is_final() => Vec::new(),
        Err(_) => return None,
    };
    Some(scope.own().into_iter().chain(others))
}
