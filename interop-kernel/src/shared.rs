//! Values that the threads of a block leave for each other.
#![expect(unsafe_code, reason = "moves values of any type through memory that the threads of a block share")]

#[cfg(not(target_arch = "nvptx64"))]
use core::any::type_name;
use core::fmt;
use core::marker::PhantomData;
#[cfg(target_arch = "nvptx64")]
use core::mem::size_of;

use crate::element::KernelElement;
use crate::fail::{Mistake, fail};
#[cfg(not(target_arch = "nvptx64"))]
use crate::place::Place;

/// The values that the threads of a block have left with [`BlockThread::share`](crate::BlockThread::share), one for each thread.
///
/// It borrows the thread, because the next values replace these.
pub struct Shared<'s, T> {
    #[cfg(target_arch = "nvptx64")]
    values: *const u8,
    #[cfg(not(target_arch = "nvptx64"))]
    place: &'s Place<'s>,
    len: u32,
    marker: PhantomData<(&'s (), *const T)>,
}

impl<T: KernelElement> Shared<'_, T> {
    /// The distance of values in bytes, 16 at most.
    #[cfg(target_arch = "nvptx64")]
    const STEP: usize = size_of::<T>().next_power_of_two();

    /// The number of values: that of the threads of the block.
    #[inline(always)]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a block has threads")]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns the value of the thread with this [number in the block](crate::Thread::number_in_block).
    ///
    /// # Panics
    ///
    /// If the block has no such thread. On a device this is a trap.
    #[inline(always)]
    #[must_use]
    #[track_caller]
    pub fn get(&self, thread: u32) -> T {
        if thread >= self.len {
            fail(Mistake::Outside(&[thread as usize], &[self.len as usize]));
        }
        #[cfg(target_arch = "nvptx64")]
        {
            let value = self.values.wrapping_add(thread as usize * Self::STEP);
            // SAFETY: each thread of the block has written its value, at a place aligned for it, before the barrier of `share`.
            unsafe { value.cast::<T>().read_volatile() }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            let (value, name) = self.place.shared(thread as usize);
            let own = type_name::<T>();
            assert!(
                name == own,
                "the threads of a block share values of different types: `{own}` and `{name}`"
            );
            // SAFETY: a value has at most as many bytes, and any bits are one.
            unsafe { (&raw const value).cast::<T>().read_unaligned() }
        }
    }
}

#[cfg(target_arch = "nvptx64")]
impl<'s, T: KernelElement> Shared<'s, T> {
    /// Leaves a value, and waits for those of the others.
    ///
    /// # Safety
    ///
    /// All `len` threads of the block make this call, each with its number. Nobody reads earlier values afterwards.
    #[inline(always)]
    pub(crate) unsafe fn new(number: u32, len: u32, value: T) -> Self {
        let values = crate::device::shared_values(Self::STEP);
        // Earlier values may still be read.
        // SAFETY: as the caller promises.
        unsafe { crate::device::barrier() };
        let own = values.wrapping_add(number as usize * Self::STEP);
        // SAFETY: a block has at most 1024 threads, as many as there are places, which are aligned to their size.
        unsafe { own.cast::<T>().write_volatile(value) };
        // SAFETY: as the caller promises.
        unsafe { crate::device::barrier() };
        Self { values, len, marker: PhantomData }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl<'s, T: KernelElement> Shared<'s, T> {
    /// Leaves a value, and waits for those of the others.
    #[track_caller]
    pub(crate) fn new(place: &'s Place<'s>, number: u32, len: u32, value: T) -> Self {
        let mut bits = 0_u128;
        // SAFETY: a value has at most as many bytes, and no padding.
        unsafe { (&raw mut bits).cast::<T>().write_unaligned(value) };
        place.share(number as usize, (bits, type_name::<T>()));
        Self { place, len, marker: PhantomData }
    }
}

impl<T: KernelElement> fmt::Debug for Shared<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("len", &self.len).finish()
    }
}
