//! Records the events that a release waits for.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::cuda::context::{Context, Relaxed};
use crate::cuda::driver::{Driver, Failure, Outcome, code};
use crate::cuda::event::Event;
use crate::cuda::release::hold::unless_held;
use crate::cuda::release::scope::ReleaseScope;
use crate::cuda::stream_query::{LEGACY, capture_of};

/// Events after all work of the contexts, without those that are done; `None` while it cannot be decided, such as during a
/// capture.
pub(crate) fn events_after(driver: &'static Driver, scope: ReleaseScope) -> Option<Vec<Event<'static>>> {
    unless_held(scope, || {
        let _relaxed = Relaxed::new(driver);
        let mut events = Vec::new();
        for context in contexts(driver, scope)? {
            match event_after(driver, context) {
                Ok(Some(event)) => events.push(event),
                // Nothing is known of the work then, and it may go better at the next look.
                Err(failure) if !failure.is_final() => {
                    WITHOUT_CONTEXT_EVENTS.fetch_or(failure.code == code::NOT_FOUND, Ordering::Relaxed);
                    return None;
                }
                // Done; or the context is gone or broken, and with it the work.
                Ok(None) | Err(_) => {}
            }
        }
        Some(events)
    })
}

/// The driver has no event of a context.
static WITHOUT_CONTEXT_EVENTS: AtomicBool = AtomicBool::new(false);

/// Whether nothing but a wait decides a release, as before 12.5.
pub(crate) fn need_synchronize() -> bool {
    WITHOUT_CONTEXT_EVENTS.load(Ordering::Relaxed)
}

/// Waits for all contexts where no event can be had of them, and gives none; `None` where one cannot be waited for, as while
/// a graph is captured.
pub(crate) fn synchronized(driver: &Driver, scope: ReleaseScope) -> Option<Vec<Event<'static>>> {
    unless_held(scope, || {
        let _relaxed = Relaxed::new(driver);
        let waited = |context| finish(driver, context).map_or_else(Failure::is_final, |()| true);
        contexts(driver, scope)?.all(waited).then(Vec::new)
    })
}

/// Waits for all work of a context.
fn finish(driver: &Driver, context: Context) -> Outcome {
    let _entered = context.enter(driver)?;
    capture_of(driver, LEGACY)?;
    // SAFETY: no conditions; the context is current.
    unsafe { driver.context_synchronize() }
}

/// An event after all work of a context, unless that is done.
fn event_after(driver: &'static Driver, context: Context) -> Outcome<Option<Event<'static>>> {
    let _entered = context.enter(driver)?;
    capture_of(driver, LEGACY)?;
    let event = Event::of_context(driver, context)?;
    Ok(if event.is_done()? { None } else { Some(event) })
}

/// The contexts of a fence; `None` while the driver does not say which are in use.
fn contexts(driver: &Driver, scope: ReleaseScope) -> Option<impl Iterator<Item = Context>> {
    let others = match scope.others(driver) {
        Ok(others) => others,
        // The driver is gone, and with it the work.
        Err(failure) if failure.is_final() => Vec::new(),
        Err(_) => return None,
    };
    Some(scope.own().into_iter().chain(others))
}
