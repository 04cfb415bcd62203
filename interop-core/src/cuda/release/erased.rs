//! An owner of any type, as a pointer and the function that drops it.

use core::ptr::NonNull;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::cuda::release::scope::ReleaseScope;

/// A value of any type, as a pointer and the function that drops it.
///
/// It is dropped once, on any thread.
pub(crate) struct ErasedOwner {
    value: NonNull<()>,
    release: unsafe fn(NonNull<()>),
    /// What its release waits for.
    scope: Option<ReleaseScope>,
}

// SAFETY: the constructors only take values that may be dropped on any thread.
unsafe impl Send for ErasedOwner {}

impl ErasedOwner {
    /// Moves `value` into a box.
    pub(crate) fn new<T: Send + 'static>(value: T) -> Self {
        let place = NonNull::from(Box::leak(Box::new(value)));
        Self { value: place.cast(), release: drop_box::<T>, scope: None }
    }

    /// Takes ownership of a value that `release` releases.
    ///
    /// # Safety
    ///
    /// `release(value)` may be called once, on any thread, at any time.
    #[inline]
    pub(crate) const unsafe fn from_raw(value: NonNull<()>, release: unsafe fn(NonNull<()>)) -> Self {
        Self { value, release, scope: None }
    }

    /// What its release waits for.
    pub(crate) fn scope(&self) -> Option<ReleaseScope> {
        self.scope
    }

    /// Sets what its release waits for.
    pub(crate) fn after(mut self, scope: Option<ReleaseScope>) -> Self {
        self.scope = scope;
        self
    }
}

impl Drop for ErasedOwner {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the constructors set `value` and `release` together, and a value is dropped once.
        unsafe { (self.release)(self.value) };
    }
}

/// # Safety
///
/// `value` comes from a leaked `Box<T>` and is not used afterwards.
pub(crate) unsafe fn drop_box<T>(value: NonNull<()>) {
    // SAFETY: as the caller promises.
    drop(unsafe { Box::from_raw(value.cast::<T>().as_ptr()) });
}

/// Runs a drop and catches its panic.
#[inline]
pub(crate) fn contain_panic(run: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
        // The payload is leaked, because its drop could panic again.
        core::mem::forget(payload);
    }
}
