//! What elementwise loops read: one to three arrays at a time.

use core::ptr;

use crate::array::element::Element;
use crate::memory::host::loops::{MOST, Steps};

/// The most bytes of one array that are checked before they are used.
const CHECKED: usize = 4096;

/// The place of one element in each of some arrays; at any alignment.
pub(crate) trait Operands: Copy {
    /// The elements, one of each array.
    type Item;

    /// Whether every bit pattern is a value of all of them.
    const ANY_BITS: bool;

    /// How many elements are checked together.
    const CHUNK: usize;

    /// As many steps further as `steps` says for each array.
    fn moved(self, steps: Steps) -> Self;

    /// Whether the elements of a run are next to one another in all arrays.
    fn is_dense(steps: Steps) -> bool;

    /// # Safety
    ///
    /// The places are those of live elements, whose bytes are values of their types.
    unsafe fn read(self) -> Self::Item;

    /// Copies what may not be a value out of the reach of others, and checks the copy. Gives the places of elements that are
    /// values, their steps, and how many there are; with fewer than `count`, the byte that is none.
    ///
    /// # Safety
    ///
    /// The places are those of the first of `count` live elements, [`CHUNK`](Self::CHUNK) at most.
    unsafe fn checked(self, steps: Steps, count: usize, scratch: &mut Scratch) -> (Self, Steps, usize, u8);
}

/// Room for the copies of elements that are checked, for each array.
pub(crate) type Scratch = [Vec<u8>; MOST];

/// Copies `count` elements and compares their bytes with those of a `bool`: how many come before one that is none, and that.
///
/// # Safety
///
/// `from` is the first of so many live elements, `step` elements apart.
unsafe fn gather<T>(from: *const T, step: isize, count: usize, room: &mut Vec<u8>) -> (usize, u8) {
    let size = size_of::<T>();
    room.clear();
    room.reserve(count * size);
    if step == 1 {
        // SAFETY: elements without gaps, as the caller promises; room for as many.
        unsafe { ptr::copy_nonoverlapping(from.cast::<u8>(), room.as_mut_ptr(), count * size) };
    } else {
        for at in 0..count {
            let element = from.wrapping_offset(step.wrapping_mul(at as isize)).cast::<u8>();
            let place = room.as_mut_ptr().wrapping_add(at * size);
            // SAFETY: one of the elements, and a place of its own for it.
            unsafe { ptr::copy_nonoverlapping(element, place, size) };
        }
    }
    // SAFETY: so many bytes have been written.
    unsafe { room.set_len(count * size) };
    if room.iter().fold(0, |all, byte| all | byte) <= 1 {
        return (count, 0);
    }
    let bad = room.iter().position(|byte| *byte > 1).unwrap_or(0);
    (bad / size, room[bad])
}

macro_rules! operands {
    ($($type:ident $at:tt),+) => {
        // Two arrays and more are a tuple, and so are their elements.
        #[allow(unused_parens, reason = "one array is no tuple")]
        impl<$($type: Element),+> Operands for ($(*const $type),+,) {
            type Item = ($($type),+);
            const ANY_BITS: bool = $($type::TYPE.any_bits)&&+;
            const CHUNK: usize = {
                let mut chunk = CHECKED;
                $(
                    let most = CHECKED / size_of::<$type>();
                    if most < chunk {
                        chunk = most;
                    }
                )+
                if chunk == 0 { 1 } else { chunk }
            };

            #[inline(always)]
            fn moved(self, steps: Steps) -> Self {
                ($(self.$at.wrapping_offset(steps[$at])),+,)
            }

            #[inline(always)]
            fn is_dense(steps: Steps) -> bool {
                $(steps[$at] == 1)&&+
            }

            #[inline(always)]
            unsafe fn read(self) -> Self::Item {
                // SAFETY: as the caller promises; any alignment will do.
                ($(unsafe { self.$at.read_unaligned() }),+)
            }

            unsafe fn checked(mut self, mut steps: Steps, count: usize, scratch: &mut Scratch) -> (Self, Steps, usize, u8) {
                let mut good = (count, 0);
                $(
                    if !$type::TYPE.any_bits {
                        // SAFETY: as the caller promises.
                        let found = unsafe { gather(self.$at, steps[$at], count, &mut scratch[$at]) };
                        if found.0 < good.0 {
                            good = found;
                        }
                        (self.$at, steps[$at]) = (scratch[$at].as_ptr().cast(), 1);
                    }
                )+
                (self, steps, good.0, good.1)
            }
        }
    };
}

operands!(A 0);

operands!(A 0, B 1);

operands!(A 0, B 1, C 2);
