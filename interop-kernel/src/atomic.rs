//! Additions to elements that belong to no thread.
#![expect(unsafe_code, reason = "elements are changed through pointers")]

#[cfg(not(target_arch = "nvptx64"))]
use core::ops::Add as _;
#[cfg(not(target_arch = "nvptx64"))]
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::element::KernelElement;
#[cfg(not(target_arch = "nvptx64"))]
use crate::fields::Pointer;
use crate::index::Position;
use crate::mapping::Atomic;
use crate::view::ViewMut;

/// A number to which threads add at the same time: `u32`, `i32`, `u64`, `i64`, `f32` and `f64`.
#[diagnostic::on_unimplemented(
    message = "threads cannot add to a `{Self}` at the same time",
    note = "they can to a `u32`, `i32`, `u64`, `i64`, `f32` and `f64`"
)]
pub trait AtomicElement: KernelElement + sealed::AtomicElement {}

mod sealed {
    pub trait AtomicElement: Sized {
        /// # Safety
        ///
        /// The element lives and is aligned to its size, and all threads use it by this function alone.
        unsafe fn add_at(place: *mut Self, value: Self) -> Self;

        /// Returns the sum: of integers, that which wraps around.
        #[cfg(not(target_arch = "nvptx64"))]
        fn sum(self, value: Self) -> Self;
    }
}

macro_rules! elements {
    ($($element:ident $instruction:literal $register:ident $atomic:ident $bits:ident $sum:expr;)*) => {
        $(
            impl AtomicElement for $element {}

            impl sealed::AtomicElement for $element {
                #[cfg(not(target_arch = "nvptx64"))]
                unsafe fn add_at(place: *mut Self, value: Self) -> Self {
                    // SAFETY: as the caller promises; the atomic type has the size of the element.
                    let element = unsafe { $atomic::from_ptr(place.cast()) };
                    let number = |bits: $bits| Self::from_ne_bytes(bits.to_ne_bytes());
                    let sum = |bits| Some(<$bits>::from_ne_bytes(number(bits).sum(value).to_ne_bytes()));
                    // It orders nothing else, as on a device, so Miri finds races between other accesses.
                    let (Ok(before) | Err(before)) = element.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
                    number(before)
                }

                #[cfg(not(target_arch = "nvptx64"))]
                #[inline(always)]
                fn sum(self, value: Self) -> Self {
                    $sum(self, value)
                }

                #[cfg(target_arch = "nvptx64")]
                #[inline(always)]
                unsafe fn add_at(place: *mut Self, value: Self) -> Self {
                    let before: Self;
                    // SAFETY: as the caller promises; arrays are in global memory.
                    unsafe {
                        core::arch::asm!(
                            "{{ .reg .u64 place; cvta.to.global.u64 place, {place};",
                            concat!($instruction, " {before}, [place], {value}; }}"),
                            place = in(reg64) place,
                            value = in($register) value,
                            before = out($register) before,
                            options(nostack)
                        );
                    }
                    before
                }
            }
        )*
    };
}

elements! {
    u32 "atom.global.add.u32" reg32 AtomicU32 u32 u32::wrapping_add;
    i32 "atom.global.add.s32" reg32 AtomicU32 u32 i32::wrapping_add;
    u64 "atom.global.add.u64" reg64 AtomicU64 u64 u64::wrapping_add;
    i64 "atom.global.add.u64" reg64 AtomicU64 u64 i64::wrapping_add;
    f32 "atom.global.add.f32" reg32 AtomicU32 u32 f32::add;
    f64 "atom.global.add.f64" reg64 AtomicU64 u64 f64::add;
}

/// What is added to the address of an array to which one thread adds. Elements are aligned to 4 bytes at least, so this bit is free.
#[cfg(not(target_arch = "nvptx64"))]
const ONE_THREAD: usize = 1;

#[cfg(not(target_arch = "nvptx64"))]
impl<T: KernelElement, const N: usize, M> ViewMut<'_, T, N, M> {
    /// Notes in an array by [`Atomic`] that one thread runs the kernel.
    pub(crate) fn for_one_thread(mut self) -> Self {
        let pointer = &mut self.fields.pointer;
        if align_of::<T>() > ONE_THREAD && pointer.low.addr() % align_of::<T>() == 0 {
            *pointer = Pointer::new(pointer.low.wrapping_add(ONE_THREAD));
        }
        self
    }

    #[inline(always)]
    fn is_for_one_thread(&self) -> bool {
        self.fields.pointer.low.addr() & ONE_THREAD > 0
    }
}

impl<T: AtomicElement, const N: usize> ViewMut<'_, T, N, Atomic> {
    /// Adds to an element, and returns the number before. Each thread may add to each element, at any time.
    ///
    /// Integers wrap around. The order of the additions differs from run to run, so sums of floats differ in the last digits. A
    /// device takes `f32` below 1.2e-38 for 0 here.
    ///
    /// # Panics
    ///
    /// As [`View::get`](crate::View::get). On a CPU of 32 bits, for 8 bytes that are not aligned to 8.
    #[inline(always)]
    #[track_caller]
    pub fn add(&self, at: impl Position<N>, value: T) -> T {
        let at = at.inside(self.shape());
        #[cfg(not(target_arch = "nvptx64"))]
        if self.is_for_one_thread() {
            let first = self.fields.pointer.low.wrapping_sub(ONE_THREAD).cast::<T>();
            let place = first.wrapping_offset(self.fields.offset(at));
            // SAFETY: the position is inside, so the element lives, and is aligned. One thread runs the kernel, which stays in it.
            let before = unsafe { place.read() };
            // SAFETY: as above.
            unsafe { place.write(before.sum(value)) };
            return before;
        }
        let place = self.fields.pointer.low.cast::<T>().wrapping_offset(self.fields.offset(at));
        #[cfg(not(target_arch = "nvptx64"))]
        assert!(
            place.addr() % size_of::<T>() == 0,
            "an element of {} bytes is not aligned to them",
            size_of::<T>()
        );
        // SAFETY: the position is inside, so the element lives. It is aligned. No thread can get an index of `Atomic`, which
        // other methods need.
        unsafe { T::add_at(place, value) }
    }
}
