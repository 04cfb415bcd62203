//! Loads and stores of several elements at once.
#![expect(unsafe_code, reason = "elements are moved as words")]

use core::mem::{align_of, size_of};

use crate::element::KernelElement;

/// Words that a device moves in one instruction.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Word16([u32; 4]);

#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Word8([u32; 2]);

/// Returns whether elements are aligned as one word. Of several elements the caller knows that they are; one alone may be an
/// array of small items, which has only the alignment of an item.
#[inline(always)]
fn is_word<T, const W: usize>(place: *const T) -> bool {
    W > 1 || align_of::<T>() >= size_of::<T>() || place.addr() % size_of::<T>() == 0
}

/// Loads `W` elements. A debug build checks the alignment of a place, which it does not in `read`. A struct of small items would be loaded item by item, so they are loaded as a word.
///
/// # Safety
///
/// `from` points to `W` elements that live, and is aligned for all of them together; a single one only for its type. Nobody
/// writes them. Any bits are an element.
#[inline(always)]
pub(crate) unsafe fn load<T: Copy, const W: usize>(from: *const T) -> [T; W] {
    macro_rules! by {
        ($word:ty) => {{
            // SAFETY: as many bytes, with this alignment, which `is_word` has found; the word has any bits.
            let word = unsafe { *from.cast::<$word>() };
            // SAFETY: the same size, and any bits are elements.
            unsafe { core::mem::transmute_copy(&word) }
        }};
    }
    match size_of::<[T; W]>() {
        16 if is_word::<T, W>(from) => by!(Word16),
        8 if is_word::<T, W>(from) => by!(Word8),
        4 if is_word::<T, W>(from) => by!(u32),
        2 if is_word::<T, W>(from) => by!(u16),
        // Volatile, or the compiler shares accesses between the branches, and none is wide.
        // SAFETY: as the caller promises.
        2 | 4 | 8 | 16 => unsafe { from.cast::<[T; W]>().read_volatile() },
        // SAFETY: as the caller promises.
        _ => unsafe { from.cast::<[T; W]>().read() },
    }
}

/// Stores `W` elements.
///
/// # Safety
///
/// As [`load`], and nobody else uses the elements.
#[inline(always)]
pub(crate) unsafe fn store<T: KernelElement, const W: usize>(to: *mut T, pack: [T; W]) {
    macro_rules! by {
        ($word:ty) => {{
            // SAFETY: the same size, and elements have no padding.
            let word: $word = unsafe { core::mem::transmute_copy(&pack) };
            // SAFETY: as in `load`.
            unsafe { *to.cast::<$word>() = word }
        }};
    }
    match size_of::<[T; W]>() {
        16 if is_word::<T, W>(to) => by!(Word16),
        8 if is_word::<T, W>(to) => by!(Word8),
        4 if is_word::<T, W>(to) => by!(u32),
        2 if is_word::<T, W>(to) => by!(u16),
        // SAFETY: as the caller promises; volatile as in `load`.
        2 | 4 | 8 | 16 => unsafe { to.cast::<[T; W]>().write_volatile(pack) },
        // SAFETY: as the caller promises.
        _ => unsafe { to.cast::<[T; W]>().write(pack) },
    }
}

/// Returns a place of which the compiler forgets that others are near, so that it does not share accesses with wide ones, which would
/// be wide no longer. Volatile accesses would not see the nearest cache of a device.
#[inline(always)]
pub(crate) fn apart<T>(place: *mut T) -> *mut T {
    #[cfg(target_arch = "nvptx64")]
    let place = crate::device::forget_place(place);
    place
}
