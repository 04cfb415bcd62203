//! Who has used memory, as far as it decides when the memory is released.
//!
//! An array on its caller's stream can be released as its library releases its own arrays, at once, if it was used on that
//! stream alone. A block of pool memory is free behind one event if this crate alone has used it, on the stream for which it
//! was allocated. Only evidence counts: the record starts clean, and everything that gives away the address makes the use
//! unknown, for ever. A launch scope makes it unknown until its end.

use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::driver::event::Event;
use crate::driver::functions::{Driver, Outcome, driver, is_opened_by_parent};
use crate::driver::stream::{OwnStream, SPARE, Stream, capture_of, key_of};
use crate::process::fork::thread_number;

/// The record of one memory. Its owner has it, and so has every description.
pub(crate) struct Uses {
    /// [`UNKNOWN`], and the number of launch scopes that have the memory.
    state: AtomicUsize,
    /// The thread that imported the array, or that allocated the block.
    thread: usize,
    /// The work on a block. `None` for an import. Boxed, because imports come and go much more often.
    work: Option<Box<Mutex<Option<BlockWork>>>>,
}

const UNKNOWN: usize = 1;
const SCOPE: usize = 2;

/// The work of this crate on a block.
struct BlockWork {
    home: OwnStream,
    /// The event behind the work.
    last: Option<Event<'static>>,
}

impl BlockWork {
    /// Calls `with` with the event behind the work, or behind the allocation if there was no work.
    fn with_last(&self, driver: &'static Driver, with: impl FnOnce(&Event<'_>) -> Outcome) -> Option<()> {
        if let Some(last) = &self.last {
            return with(last).ok();
        }
        let context = self.home.context;
        let _entered = context.enter(driver).ok()?;
        let event = self.home.with(driver, |own| Event::of_stream(driver, Some(context), own.raw));
        with(&event.ok()?.ok()?).ok()
    }
}

impl Uses {
    fn new(work: Option<BlockWork>) -> Arc<Self> {
        let work = work.map(|work| Box::new(Mutex::new(Some(work))));
        Arc::new(Self { state: AtomicUsize::new(0), thread: thread_number(), work })
    }

    /// Those of an array that this thread imports, on its caller's stream.
    pub(crate) fn of_import() -> Arc<Self> {
        Self::new(None)
    }

    /// Those of a block that is allocated on this stream. `None` if its work cannot be followed.
    pub(crate) fn of_block(home: OwnStream) -> Option<Arc<Self>> {
        (home.key != SPARE).then(|| Self::new(Some(BlockWork { home, last: None })))
    }

    /// Whether only this crate has used the memory, and all of its launch scopes have ended.
    pub(crate) fn are_known(&self) -> bool {
        self.state.load(Ordering::Acquire) == 0
    }

    /// Notes that the memory may be used in a way that this crate does not see.
    #[inline]
    pub(crate) fn note_unknown(&self) {
        // Threads that share an array would otherwise write to one cache line with each export.
        if self.state.load(Ordering::Relaxed) & UNKNOWN == 0 {
            self.state.fetch_or(UNKNOWN, Ordering::Relaxed);
        }
    }

    /// Notes that a launch scope has the memory. A scope that is forgotten leaves the use unknown.
    pub(crate) fn enter_scope(&self) {
        self.state.fetch_add(SCOPE, Ordering::Relaxed);
    }

    /// Notes that a launch scope has ordered its work with the memory's own stream.
    pub(crate) fn leave_scope(&self) {
        self.state.fetch_sub(SCOPE, Ordering::Release);
    }

    /// Whether an import was used on its caller's stream alone, and this is the thread that imported it.
    pub(crate) fn are_ordered_by_caller(&self) -> bool {
        self.work.is_none() && self.are_known() && self.thread == thread_number()
    }

    /// Whether this is the record of a block of pool memory.
    pub(crate) fn is_for_block(&self) -> bool {
        self.work.is_some()
    }

    /// A forked child takes no lock, which another thread of its parent may hold.
    fn work(&self) -> Option<MutexGuard<'_, Option<BlockWork>>> {
        Some(
            self.work
                .as_ref()
                .filter(|_| !is_opened_by_parent())?
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    /// Notes that this crate has queued work on the memory, on a stream that is alive.
    pub(crate) fn note_work(&self, on: Stream) {
        if self.work.is_some() && self.follow(on).is_none() {
            self.note_unknown();
        }
    }

    /// Whether work on this stream is before the event behind the known work, once it is noted.
    pub(crate) fn can_follow(&self, on: Stream) -> bool {
        let is_known = self.state.load(Ordering::Relaxed) & UNKNOWN == 0;
        let is_home = |work: &BlockWork| work.home.key == key_of(on.handle());
        is_known && self.work().is_some_and(|work| work.as_ref().is_some_and(is_home))
    }

    fn follow(&self, on: Stream) -> Option<()> {
        let driver = driver().ok()?;
        let mut work = self.work()?;
        let work = work.as_mut().filter(|work| work.home.key == key_of(on.handle()))?;
        let on = on.with_context(driver).ok()?;
        let _entered = on.enter(driver).ok()?;
        // An event inside of a capture is no event for anybody else.
        if capture_of(driver, on.raw()) != Ok(None) {
            return None;
        }
        if let Some(last) = work.last.take() {
            // The stream may be another one with the same number.
            last.make_wait(on.raw()).ok()?;
        }
        work.last = Some(Event::of_stream(driver, on.context_of_default(), on.raw()).ok()?);
        Some(())
    }

    /// Calls `wait` with the event behind the known work on a block. `None` if that is not possible.
    pub(crate) fn with_last(&self, wait: impl FnOnce(&Event<'_>) -> Outcome) -> Option<()> {
        self.work()?.as_ref()?.with_last(driver().ok()?, wait)
    }

    /// As [`with_last`](Self::with_last), for what may take long. Others wait for all work meanwhile.
    pub(crate) fn with_last_unlocked(&self, wait: impl FnOnce(&Event<'_>) -> Outcome) -> Option<()> {
        let driver = driver().ok()?;
        let work = self.work()?.take()?;
        let done = work.with_last(driver, wait);
        *self.work()? = Some(work);
        done
    }

    /// Ends the record of a block that is dropped. Returns the event behind its work, if all of that is known, and if there
    /// was any.
    pub(crate) fn end(&self) -> Option<KnownWork> {
        let work = self.work()?.take();
        let is_known = self.state.swap(UNKNOWN, Ordering::AcqRel) == 0;
        work.filter(|_| is_known).map(|work| KnownWork { last: work.last })
    }
}

/// All work on a block that is dropped.
pub(crate) struct KnownWork {
    /// The event behind it. `None` if there was none after the allocation.
    pub(crate) last: Option<Event<'static>>,
}

impl fmt::Debug for Uses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uses({})", if self.are_known() { "known" } else { "unknown" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_use_on_the_callers_stream_is_known() {
        assert!(Uses::of_import().are_ordered_by_caller());
        let used = Uses::of_import();
        used.note_unknown();
        assert!(!used.are_ordered_by_caller());
        let launched = Uses::of_import();
        launched.enter_scope();
        assert!(!launched.are_known(), "a scope that does not end");
        launched.leave_scope();
        assert!(launched.are_ordered_by_caller());
        launched.enter_scope();
        launched.note_unknown();
        launched.leave_scope();
        assert!(!launched.are_known());
        let moved = Uses::of_import();
        assert!(!std::thread::spawn(move || moved.are_ordered_by_caller()).join().unwrap());
    }
}
