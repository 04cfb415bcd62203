//! A value that is moved as bytes, so that pointers into its boxes stay valid (RFC 3336).
#![expect(unsafe_code, reason = "reads the bytes back as the value")]

use core::mem::{ManuallyDrop, MaybeUninit};

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
