//! Type-erased owners of memory. Their drop is in `queue`: it comes after the work that may use the memory.
#![expect(unsafe_code, reason = "an erased owner is a pointer and the function that releases it")]

use core::cell::{Cell, RefCell};
use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use crate::driver::functions::is_opened_by_parent;
use crate::driver::number::EndsInNumber;
use crate::driver::reach::{Reach, contain_panic};
use crate::order::array_info::ArrayInfo;
use crate::order::memory_check::reach_in_use;
use crate::order::uses::Uses;

/// A type-erased value that keeps foreign memory alive until it is dropped.
///
/// The value is dropped exactly once, on any thread. If drops nest too deep, the value is dropped after the outermost
/// one ends. An import fills an `#[cuda_array(owner)]` field, next to a raw pointer, with an `Owner`.
///
/// ```
/// use interop_core::storage::Owner;
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
    /// `None` if there is nothing to release.
    release: Option<unsafe fn(NonNull<()>)>,
    /// The work that the release must come after, for memory that devices use.
    reach: Option<Reach>,
}

// SAFETY: the constructors accept only values that may be dropped on any thread.
unsafe impl Send for Owner {}

// SAFETY: a shared `Owner` gives no access to the value.
unsafe impl Sync for Owner {}

impl Owner {
    /// Boxes `value` and owns it.
    pub fn new<T: Send + 'static>(value: T) -> Self {
        Self::new_with_address(value).0
    }

    /// Owns the memory of an array of another process. The drop writes a number behind the work that may use the memory.
    #[doc(hidden)]
    #[must_use]
    pub fn ending_in_number(value: Box<dyn EndsInNumber>, info: &ArrayInfo) -> Self {
        let reach = reach_in_use(info).map(Reach::ending_in_number);
        Self::new(value).with_reach(reach)
    }

    /// As [`new`](Self::new); also returns the address of the boxed value, which is stable until the owner is dropped.
    pub(crate) fn new_with_address<T: Send + 'static>(value: T) -> (Self, NonNull<T>) {
        let pointer = NonNull::from(Box::leak(Box::new(value)));
        (Self { value: pointer.cast(), release: Some(drop_box::<T>), reach: None }, pointer)
    }

    /// Moves the value out of its box.
    ///
    /// # Safety
    ///
    /// The owner was made by [`new_with_address`](Self::new_with_address) for a `T`, and no borrow of the value is used
    /// any more.
    pub(crate) unsafe fn into_value<T>(self) -> T {
        let this = ManuallyDrop::new(self);
        // SAFETY: the pointer is that of a leaked box of a `T`, as the caller promises. `self` is not dropped.
        *unsafe { Box::from_raw(this.value.cast::<T>().as_ptr()) }
    }

    #[inline]
    pub(crate) const fn none() -> Self {
        Self { value: NonNull::dangling(), release: None, reach: None }
    }

    /// Owns a value that `release` releases.
    ///
    /// # Safety
    ///
    /// `release(value)` may be called once, on any thread, at any time.
    #[inline]
    #[must_use]
    pub(crate) const unsafe fn from_raw(value: NonNull<()>, release: unsafe fn(NonNull<()>)) -> Self {
        Self { value, release: Some(release), reach: None }
    }

    /// The work that the release must come after. `None` for memory that no device uses.
    #[inline]
    pub(crate) fn reach(&self) -> Option<Reach> {
        self.reach
    }

    /// Sets the work that the release must come after.
    #[inline]
    #[must_use]
    pub(crate) fn with_reach(mut self, reach: Option<Reach>) -> Self {
        self.reach = reach;
        self
    }

    /// What ends in a number, if the release does.
    pub(crate) fn number(&mut self) -> Option<&mut dyn EndsInNumber> {
        self.reach.filter(|reach| reach.ends_in_number())?;
        let value = self.value.cast::<Box<dyn EndsInNumber>>();
        // SAFETY: only `ending_in_number` marks a reach, for a leaked box of this type, which this owner alone has.
        Some(unsafe { &mut **value.as_ptr() })
    }

    /// Releases the value, without regard to any work.
    #[inline]
    pub(crate) fn release_now(&mut self) {
        if let Some(release) = self.release.take() {
            // SAFETY: the constructors set `value` and `release` together, and a value is released once.
            unsafe { release(self.value) };
        }
    }

    /// Releases the value without regard to any work, if the memory of an import was used on its caller's stream alone: its library
    /// orders what comes next on the stream that is its own.
    #[inline]
    pub(crate) fn leave_order_to_caller(&mut self, uses: Option<&Uses>) {
        if uses.is_some_and(|uses| uses.are_ordered_by_caller() && !is_opened_by_parent()) {
            self.reach = None;
        }
    }

    /// Whether there is something to release.
    pub(crate) const fn releases(&self) -> bool {
        self.release.is_some()
    }
}

/// Owns nothing: memory that lives as long as the program.
impl Default for Owner {
    fn default() -> Self {
        Self::none()
    }
}

/// The maximum number of nested releases on a thread.
///
/// The owner of an array can hold the next array, and so on: each pass from library to library adds a link. Without a
/// limit a long chain would overflow the stack.
const MAX_NESTED: u32 = 16;

/// The bit of [`NESTED`] that is set if owners wait for the end of the outermost release.
const HAS_DEFERRED: u32 = 1 << 31;

// The number of nested releases that are running on this thread.
thread_local!(static NESTED: Cell<u32> = const { Cell::new(0) });

thread_local!(static DEFERRED: RefCell<Vec<Owner>> = const { RefCell::new(Vec::new()) });

/// A running release.
pub(crate) struct Nested;

impl Nested {
    /// Starts the release of an owner, unless it is deferred because too many are nested.
    #[inline]
    pub(crate) fn start(owner: &mut Owner) -> Option<Self> {
        if NESTED.get() & !HAS_DEFERRED >= MAX_NESTED && defer(owner) {
            return None;
        }
        NESTED.set(NESTED.get() + 1);
        Some(Self)
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

/// Defers the drop of an owner to the end of this thread's outermost release. Fails while the thread ends.
#[cold]
fn defer(owner: &mut Owner) -> bool {
    let push = |deferred: &RefCell<Vec<Owner>>| deferred.borrow_mut().push(core::mem::take(owner));
    let deferred = DEFERRED.try_with(push).is_ok();
    if deferred {
        NESTED.set(NESTED.get() | HAS_DEFERRED);
    }
    deferred
}

/// Drops the deferred owners, and those that their drops defer.
#[cold]
fn drop_deferred() {
    // The count is above 0, so nested releases do not call this function again.
    NESTED.set(1);
    while let Ok(Some(owner)) = DEFERRED.try_with(|deferred| deferred.borrow_mut().pop()) {
        // A panic of one owner must not prevent the others' release, or occur during another panic.
        contain_panic(|| drop(owner));
    }
    NESTED.set(0);
}

/// # Safety
///
/// `value` comes from a leaked `Box<T>` and is not used afterwards.
unsafe fn drop_box<T>(value: NonNull<()>) {
    // SAFETY: as the caller promises.
    drop(unsafe { Box::from_raw(value.cast::<T>().as_ptr()) });
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owner")
    }
}
