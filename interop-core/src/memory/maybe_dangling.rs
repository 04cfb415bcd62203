//! A value that is moved as bytes, so that pointers into its boxes stay valid (RFC 3336).
#![expect(unsafe_code, reason = "reads the bytes back as the value")]

use core::mem::{ManuallyDrop, MaybeUninit};

/// A value that is moved as bytes, like `MaybeDangling` of RFC 3336.
///
/// Moving a `Box` asserts that no other pointer into it exists. A struct that is described first and then moved into an
/// export is wrapped in this type, so that the described address stays valid.
pub(crate) struct MaybeDangling<T>(MaybeUninit<T>);

impl<T> MaybeDangling<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(MaybeUninit::new(value))
    }

    pub(crate) fn get(&self) -> &T {
        // SAFETY: `new` initializes the value; it is only taken by value.
        unsafe { self.0.assume_init_ref() }
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { self.0.assume_init_mut() }
    }

    pub(crate) fn into_inner(self) -> T {
        let this = ManuallyDrop::new(self);
        // SAFETY: `new` initializes the value; it is not dropped after this read.
        unsafe { this.0.assume_init_read() }
    }
}

impl<T> Drop for MaybeDangling<T> {
    fn drop(&mut self) {
        // SAFETY: `new` initializes the value; it is dropped once.
        unsafe { self.0.assume_init_drop() };
    }
}
