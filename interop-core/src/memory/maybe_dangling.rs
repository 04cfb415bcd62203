//! Values that are moved as bytes, so that pointers into their boxes stay valid (RFC 3336).
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

#[cfg(test)]
mod tests {
    use core::ptr::with_exposed_provenance_mut;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::memory::storage::Storage;

    /// The struct of a result of a Python function: a box among other fields.
    struct Samples {
        values: Box<[u8]>,
        _len: usize,
    }

    /// Results are moved into a box, into the owner of a tensor, and into an object, and written by libraries meanwhile.
    #[test]
    fn described_boxes_are_written_wherever_they_are_moved() {
        fn check<W>(wrap: impl FnOnce(MaybeDangling<Samples>) -> W, read: impl FnOnce(W) -> Vec<u8>) {
            let samples = MaybeDangling::new(Samples { values: Box::new([1, 2, 3]), _len: 3 });
            let address = samples.get().values.memory().unwrap().address;
            let held = wrap(samples);
            // SAFETY: the box is alive, and nothing else accesses it.
            unsafe { with_exposed_provenance_mut::<u8>(address).write(7) };
            assert_eq!(read(held), [7, 2, 3]);
        }
        check(Box::new, |held| held.get().values.to_vec());
        check(
            |samples| Arc::new(Mutex::new(Some(samples))),
            |held| held.lock().unwrap().take().unwrap().into_inner().values.into_vec(),
        );
        check(|samples| (3, Some(samples)), |(_, held)| held.unwrap().into_inner().values.into_vec());
    }
}
