//! The operands of elementwise loops: pointers into one or two arrays.

use crate::array::element::Element;
use crate::memory::host::checked_read::copy_or;
use crate::memory::host::loops::{MOST, Steps};

/// The maximum number of bytes of one array that are checked together.
const CHECKED: usize = 4096;

/// Pointers to one element in each of one or two arrays, with any alignment.
pub(crate) trait Operands: Copy {
    /// The values of the elements, one of each array.
    type Item;

    /// Whether every bit pattern is valid for all element types.
    const ANY_BITS: bool;

    /// The number of elements that are checked together.
    const CHUNK: usize;

    /// Moves the pointer of each array by its number of steps.
    fn moved(self, steps: Steps) -> Self;

    /// Whether the elements of a run are contiguous in all arrays.
    fn is_dense(steps: Steps) -> bool;

    /// # Safety
    ///
    /// The pointers point to live elements, whose bytes are valid values of their types.
    unsafe fn read(self) -> Self::Item;

    /// Copies elements whose bytes may be invalid into `scratch`, where other libraries cannot change them, and checks
    /// the copies. Returns pointers to the valid elements, their steps, their number, and the byte at which the check
    /// failed. That byte has a meaning only if the number is less than `count`.
    ///
    /// # Safety
    ///
    /// The pointers point to the first of `count` live elements in each array. `count` is at most
    /// [`CHUNK`](Self::CHUNK).
    unsafe fn checked(self, steps: Steps, count: usize, scratch: &mut Scratch) -> (Self, Steps, usize, u8);
}

/// Buffers for the copies of elements that are checked, one for each array.
pub(crate) type Scratch = [Vec<u8>; MOST];

/// Copies `count` elements and checks that each byte is a valid `bool`. Returns the number of elements before the first
/// invalid byte, and that byte.
///
/// # Safety
///
/// `from` points to the first of `count` live elements, which are `step` elements apart.
unsafe fn gather<T>(from: *const T, step: isize, count: usize, buffer: &mut Vec<u8>) -> (usize, u8) {
    let size = size_of::<T>();
    buffer.clear();
    buffer.reserve(count * size);
    let (runs, bytes) = if step == 1 { (1, count * size) } else { (count, size) };
    let mut bits = 0;
    for run in 0..runs {
        let element = from.wrapping_offset(step.wrapping_mul(run as isize)).cast::<u8>();
        let place = buffer.as_mut_ptr().wrapping_add(run * bytes);
        // SAFETY: one of the elements or all of them, as the caller promises. The buffer has capacity for all.
        bits |= unsafe { copy_or(element, place, bytes) };
    }
    // SAFETY: this many bytes have been written.
    unsafe { buffer.set_len(count * size) };
    if bits <= 1 {
        return (count, 0);
    }
    let bad = buffer.iter().position(|byte| *byte > 1).unwrap_or(0);
    (bad / size, buffer[bad])
}

macro_rules! operands {
    ($($type:ident $at:tt),+) => {
        // Two arrays are a tuple, and so are their elements. The single element of one array is no tuple.
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
                // SAFETY: as the caller promises; any alignment is allowed.
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
