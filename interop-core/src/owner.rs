//! Whatever keeps memory alive, in three words.
#![expect(unsafe_code, reason = "an erased owner is a pointer and the function that releases it")]

use core::cell::{Cell, RefCell};
use core::fmt;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ptr::NonNull;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::cuda::{Fence, after_work};

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
    fence: Option<Fence>,
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
        (Self { value: place.cast(), release: Some(drop_box::<T>), fence: None }, place)
    }

    /// Owns nothing: memory that lives as long as the program.
    #[inline]
    #[must_use]
    pub const fn nothing() -> Self {
        Self { value: NonNull::dangling(), release: None, fence: None }
    }

    /// Owns what `release` releases.
    ///
    /// # Safety
    ///
    /// `release(value)` may be called once, on any thread, at any time.
    #[inline]
    #[must_use]
    pub(crate) const unsafe fn from_raw(value: NonNull<()>, release: unsafe fn(NonNull<()>)) -> Self {
        Self { value, release: Some(release), fence: None }
    }

    /// Drops the value, however many releases this one is inside of: where it is, a context may have been made current for it.
    #[inline]
    pub(crate) fn let_go(self) {
        let this = ManuallyDrop::new(self);
        if let Some(release) = this.release {
            // SAFETY: the pair was made together, and this is the one call: an owner is taken here by value, and a drop
            // hands the pair on.
            unsafe { release(this.value) };
        }
    }

    /// What the release comes after.
    #[inline]
    pub(crate) fn fence(&self) -> Option<Fence> {
        self.fence
    }

    /// The same owner, dropped when the work that may use its memory is done.
    #[inline]
    #[must_use]
    pub(crate) fn after(mut self, fence: Option<Fence>) -> Self {
        self.fence = fence;
        self
    }
}

/// A value that is moved as bytes: what RFC 3336 calls `MaybeDangling`.
///
/// Moving a `Box` says that nothing else points into it. A struct that is described first and moved into an export
/// afterwards is moved in this, so that the address in its description stays good.
pub(crate) struct MaybeDangling<T>(MaybeUninit<T>);

impl<T> MaybeDangling<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(MaybeUninit::new(value))
    }

    pub(crate) fn get(&self) -> &T {
        // SAFETY: initialized by `new`, taken only by value.
        unsafe { self.0.assume_init_ref() }
    }

    pub(crate) fn into_inner(self) -> T {
        let this = ManuallyDrop::new(self);
        // SAFETY: initialized by `new`, and not dropped after it was read.
        unsafe { this.0.assume_init_read() }
    }
}

impl<T> Drop for MaybeDangling<T> {
    fn drop(&mut self) {
        // SAFETY: initialized by `new`, dropped once.
        unsafe { self.0.assume_init_drop() };
    }
}

/// # Safety
///
/// `value` comes from a leaked `Box<T>` and is not used afterwards.
unsafe fn drop_box<T>(value: NonNull<()>) {
    // SAFETY: as the caller promises.
    drop(unsafe { Box::from_raw(value.cast::<T>().as_ptr()) });
}

impl Drop for Owner {
    #[inline]
    fn drop(&mut self) {
        if self.release.is_none() || (NESTED.get() & !PUT_OFF >= DEEPEST && put_off(self)) {
            return;
        }
        let _nested = Nested::new();
        let own = Self { fence: None, ..*self };
        match self.fence {
            // Without its fence the owner is dropped for good, once the work on its memory is done.
            Some(fence) => after_work(own, fence),
            None => own.let_go(),
        }
    }
}

/// The most releases that run one inside another on a thread.
///
/// The owner of an array can hold the next array, and so on: each pass of an array from library to library adds a link.
/// Without a limit the end of a long chain would be the end of the stack.
const DEEPEST: u32 = 16;

/// In [`NESTED`]: what came up inside the deepest release waits for the outermost one to be over.
const PUT_OFF: u32 = 1 << 31;

thread_local! {
    /// The number of releases that are under way on this thread, one inside another.
    static NESTED: Cell<u32> = const { Cell::new(0) };
    static LATER: RefCell<Vec<Owner>> = const { RefCell::new(Vec::new()) };
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
        if NESTED.get() == PUT_OFF {
            let_go_later();
        }
    }
}

/// Keeps an owner for the end of the outermost release of this thread; not while the thread ends.
#[cold]
fn put_off(owner: &Owner) -> bool {
    let kept = LATER.try_with(|kept| kept.borrow_mut().push(Owner { ..*owner })).is_ok();
    if kept {
        NESTED.set(NESTED.get() | PUT_OFF);
    }
    kept
}

/// Releases what was put off, and what that puts off in its turn.
#[cold]
fn let_go_later() {
    // Inside of this no release is the outermost one.
    NESTED.set(1);
    while let Ok(Some(owner)) = LATER.try_with(|kept| kept.borrow_mut().pop()) {
        // The panic of one is not that of the others, and perhaps there is one on its way.
        contain_panic(|| drop(owner));
    }
    NESTED.set(0);
}

/// Runs a drop, of which a panic ends here.
#[inline]
pub(crate) fn contain_panic(run: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
        // It is leaked: its drop could panic again.
        core::mem::forget(payload);
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owner")
    }
}
