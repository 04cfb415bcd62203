//! Whatever keeps memory alive, in three words.
#![expect(unsafe_code, reason = "an erased owner is a pointer and the function that releases it")]

use core::cell::{Cell, RefCell};
use core::fmt;
use core::ptr::NonNull;

use crate::cuda::release::after_work::after_work;
use crate::cuda::release::erased::{ErasedOwner, contain_panic, drop_box};
use crate::cuda::release::scope::ReleaseScope;

/// A value of any type that is kept for its drop: the owner of foreign memory.
///
/// It is dropped exactly once, on whichever thread; one that is dropped deep inside the drop of others, when the outermost
/// of those is over. A `#[cuda_array(owner)]` field beside a raw pointer is filled with one by an import.
///
/// ```
/// use interop_core::Owner;
/// use std::sync::Arc;
///
/// let parent = Arc::new("memory");
/// let owner = Owner::new(parent.clone());
/// assert_eq!(Arc::strong_count(&parent), 2);
/// drop(owner);
/// assert_eq!(Arc::strong_count(&parent), 1);
/// ```
pub struct Owner {
    value: NonNull<()>,
    /// `None`: there is nothing to release.
    release: Option<unsafe fn(NonNull<()>)>,
    /// What the release comes after, for memory that devices work on.
    scope: Option<ReleaseScope>,
}

// SAFETY: the constructors only take values that may be dropped on any thread.
unsafe impl Send for Owner {}

// SAFETY: a shared `Owner` gives no access to the value.
unsafe impl Sync for Owner {}

impl Owner {
    /// Owns `value`, in a box.
    pub fn new<T: Send + 'static>(value: T) -> Self {
        Self::boxed(value).0
    }

    /// The same, with the place of the value, which it keeps until the owner is dropped.
    pub(crate) fn boxed<T: Send + 'static>(value: T) -> (Self, NonNull<T>) {
        let place = NonNull::from(Box::leak(Box::new(value)));
        (Self { value: place.cast(), release: Some(drop_box::<T>), scope: None }, place)
    }

    /// Owns nothing: memory that lives as long as the program.
    #[inline]
    #[must_use]
    pub const fn none() -> Self {
        Self { value: NonNull::dangling(), release: None, scope: None }
    }

    /// Owns what `release` releases.
    ///
    /// # Safety
    ///
    /// `release(value)` may be called once, on any thread, at any time.
    #[inline]
    #[must_use]
    pub(crate) const unsafe fn from_raw(value: NonNull<()>, release: unsafe fn(NonNull<()>)) -> Self {
        Self { value, release: Some(release), scope: None }
    }

    /// What the release comes after.
    #[inline]
    pub(crate) fn scope(&self) -> Option<ReleaseScope> {
        self.scope
    }

    /// The same owner, dropped when the work that may use its memory is done.
    #[inline]
    #[must_use]
    pub(crate) fn after(mut self, scope: Option<ReleaseScope>) -> Self {
        self.scope = scope;
        self
    }
}

impl Drop for Owner {
    #[inline]
    fn drop(&mut self) {
        let Some(release) = self.release else { return };
        if NESTED.get() & !HAS_DEFERRED >= MAX_NESTED && defer_drop(self) {
            return;
        }
        let _nested = Nested::new();
        // SAFETY: the pair was made together, and this is the one drop of it.
        let owner = unsafe { ErasedOwner::from_raw(self.value, release) };
        match self.scope {
            Some(scope) => after_work(owner, scope),
            None => drop(owner),
        }
    }
}

/// The most releases that run one inside another on a thread.
///
/// The owner of an array can hold the next array, and so on: each pass of an array from library to library adds a link.
/// Without a limit the end of a long chain would be the end of the stack.
const MAX_NESTED: u32 = 16;

/// In [`NESTED`]: what came up inside the deepest release waits for the outermost one to be over.
const HAS_DEFERRED: u32 = 1 << 31;

thread_local! {
    /// The number of releases that are under way on this thread, one inside another.
    static NESTED: Cell<u32> = const { Cell::new(0) };
    static DEFERRED: RefCell<Vec<Owner>> = const { RefCell::new(Vec::new()) };
}

/// A release that is under way.
struct Nested;

impl Nested {
    #[inline]
    fn new() -> Self {
        NESTED.set(NESTED.get() + 1);
        Self
    }
}

impl Drop for Nested {
    #[inline]
    fn drop(&mut self) {
        NESTED.set(NESTED.get() - 1);
        if NESTED.get() == HAS_DEFERRED {
            drop_deferred();
        }
    }
}

/// Keeps an owner for the end of the outermost release of this thread; not while the thread ends.
#[cold]
fn defer_drop(owner: &Owner) -> bool {
    let kept = DEFERRED.try_with(|kept| kept.borrow_mut().push(Owner { ..*owner })).is_ok();
    if kept {
        NESTED.set(NESTED.get() | HAS_DEFERRED);
    }
    kept
}

/// Releases what was put off, and what that puts off in its turn.
#[cold]
fn drop_deferred() {
    // Inside of this no release is the outermost one.
    NESTED.set(1);
    while let Ok(Some(owner)) = DEFERRED.try_with(|kept| kept.borrow_mut().pop()) {
        // The panic of one is not that of the others, and perhaps there is one on its way.
        contain_panic(|| drop(owner));
    }
    NESTED.set(0);
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owner")
    }
}
