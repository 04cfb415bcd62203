//! Kernels over arrays of one shape, of any rank and any layouts.
#![expect(unsafe_code, reason = "elements are read and written through pointers")]

use core::array;
use core::fmt;
use core::marker::PhantomData;
use core::mem::{size_of, zeroed};

use crate::arrays::{KernelArrays, width_of};
use crate::element::KernelElement;
use crate::thread::Thread;
use crate::wide;

/// An array of an [`Elementwise`] argument that the kernel reads.
#[derive(Clone, Copy, Debug)]
pub struct In<T>(PhantomData<T>);

/// An array of an [`Elementwise`] argument that the kernel writes. It is the first one.
#[derive(Clone, Copy, Debug)]
pub struct Out<T>(PhantomData<T>);

/// Arrays of one shape, of any rank and any strides, as one parameter of a kernel.
///
/// `A` lists the arrays: `(Out<f32>, In<f32>, In<u8>)` is an array that the kernel writes and two that it reads; with
/// `In` in the first place it writes none. There are up to four. `N` is the maximum number of axes after merging.
///
/// The host sorts and merges the axes of all arrays together ([`KernelArrays`]), so a transposed array is as fast as a
/// contiguous one, and 16 bytes are loaded at a time where the layout allows it. The elements are visited in the order of
/// memory, not of indices. Any grid is right; [`KernelElementwise::launch_size`] has the fastest.
///
/// In C++ the type is `interop::elementwise<N, float, const float, const unsigned char>`.
///
/// ```
/// use interop_kernel::{Elementwise, In, LaunchSize, Out, Thread, View, ViewMut, kernel};
///
/// /// Adds bytes to numbers.
/// #[kernel]
/// pub fn add(thread: Thread<'_>, arrays: Elementwise<'_, (Out<f32>, In<f32>, In<u8>)>) {
///     arrays.map(&thread, |left, right| left + f32::from(right));
/// }
///
/// let mut sum = [0.0; 6];
/// // The bytes are transposed.
/// let arrays = Elementwise::new((
///     ViewMut::<_, 2>::new(&mut sum, [2, 3]),
///     View::new(&[0.5; 6], [2, 3]),
///     View::strided(&[1, 2, 3, 4, 5, 6], 0, [2, 3], [1, 2]),
/// ))?;
/// add::run(LaunchSize::for_units(6), arrays);
/// assert_eq!(sum, [1.5, 3.5, 5.5, 2.5, 4.5, 6.5]);
/// # Ok::<(), interop_kernel::ArgumentError>(())
/// ```
#[repr(transparent)]
pub struct Elementwise<'a, A: Arrays, const N: usize = 4>(
    pub(crate) A::Arguments<'a, N>,
    /// It stays in its thread: another one would visit the same elements.
    pub(crate) PhantomData<*const ()>,
);

/// What a launch passes for an [`Elementwise`]: the same bytes. Host code cannot reach an element through it.
#[repr(transparent)]
pub struct KernelElementwise<'a, A: Arrays, const N: usize = 4>(pub(crate) A::Arguments<'a, N>);

impl<A: Arrays, const N: usize> Clone for KernelElementwise<'_, A, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A: Arrays, const N: usize> Copy for KernelElementwise<'_, A, N> {}

/// The list of arrays of an [`Elementwise`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a list of arrays",
    note = "write a tuple of one to four: `Out<T>` or `In<T>` first, then `In<T>`, such as `(Out<f32>, In<f32>)`"
)]
pub trait Arrays: sealed::Arrays {}

pub(crate) mod sealed {
    /// The layouts of arrays in the bytes of an argument.
    pub trait Arrays: Sized + 'static {
        /// The [`KernelArrays`](crate::KernelArrays) of as many arrays.
        type Arguments<'a, const N: usize>: Copy + Send + Sync + core::fmt::Debug + Located;
        /// The size of an element of each array.
        const SIZES: &'static [usize];
        /// Whether the kernel writes the first array.
        const WRITES: bool;
    }

    /// Arrays whose memory a run on the CPU has to find.
    pub trait Located: Sized {
        #[cfg(not(target_arch = "nvptx64"))]
        fn launch_size_within(&self, blocks: u32) -> crate::LaunchSize;

        /// Replaces the address of each array by the pointer that `place` returns for its number, its address, and its lowest and
        /// highest offset. Returns `None` if an array has no place.
        #[cfg(not(target_arch = "nvptx64"))]
        fn located(
            self,
            place: &mut dyn FnMut(usize, u64, core::ops::RangeInclusive<i64>) -> Option<*mut u8>,
        ) -> Option<Self>;
    }
}

/// Axes that the loops below look at. The indices are literal: rustc passes an argument as values, and an index that is
/// known only when the kernel runs would copy all of it to local memory.
macro_rules! for_each_axis {
    ($count:expr, $rank:expr, $at:ident => $work:block) => {
        for_each_axis!(@ $count, $rank, $at, $work, 0 1 2 3 4 5 6 7)
    };
    (@ $count:expr, $rank:expr, $at:ident, $work:block, $($axis:literal)*) => {
        $(
            if $axis < $count && $axis < $rank {
                // Compiled for every axis, also for those that there are not.
                let $at = if $axis < $count { $axis } else { 0 };
                $work
            }
        )*
    };
}

impl<const K: usize, const N: usize> sealed::Located for KernelArrays<'_, K, N> {
    #[cfg(not(target_arch = "nvptx64"))]
    fn launch_size_within(&self, blocks: u32) -> crate::LaunchSize {
        Self::launch_size_within(self, blocks)
    }

    #[cfg(not(target_arch = "nvptx64"))]
    fn located(
        mut self,
        place: &mut dyn FnMut(usize, u64, core::ops::RangeInclusive<i64>) -> Option<*mut u8>,
    ) -> Option<Self> {
        if self.numel() > 0 {
            for array in 0..K {
                self.addresses[array] =
                    crate::view::Pointer::new(place(array, self.address(array), self.span(array))?);
            }
        }
        Some(self)
    }
}

impl<const K: usize, const N: usize> KernelArrays<'_, K, N> {
    /// Calls `work` with the offsets of `U` units of this thread at a time, in elements, and whether the units exist, so that
    /// as many loads are in flight.
    #[inline(always)]
    fn for_each_unit<const U: usize>(
        &self,
        thread: &Thread<'_>,
        mut work: impl FnMut(&[[i64; K]; U], &[bool; U]),
    ) {
        const { assert!(N <= 8, "at most 8 axes") };
        let rank = self.rank as usize;
        let mut outer = self.axes[0];
        for_each_axis!(N, rank, axis => { outer = self.axes[axis] });
        let (tile, blocks) = (u64::from(thread.block_size()) * U as u64, thread.blocks());
        let (own, step) = (thread.number_in_block(), thread.block_size());
        let mut from = 0;
        while from < outer.extent {
            let units = u64::from(self.inner) * (outer.extent - from).min(self.piece).unsigned_abs();
            let base: [i64; K] = array::from_fn(|array| from * outer.strides[array]);
            let mut first = thread.block() * tile;
            while first < units {
                // There are fewer than 2^31 units, and a tile is shorter than that.
                #[expect(clippy::cast_possible_truncation, reason = "the comment above")]
                let mut numbers: [u32; U] = array::from_fn(|unit| first as u32 + own + unit as u32 * step);
                let are_there = numbers.map(|number| u64::from(number) < units);
                let mut offsets = [base; U];
                for_each_axis!(N, rank, axis => {
                    let axis = &self.axes[axis];
                    for unit in 0..U {
                        let rest = divide(numbers[unit], axis.inverse);
                        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "wraps, and comes out right")]
                        let index = numbers[unit].wrapping_sub(rest.wrapping_mul(axis.extent as u32));
                        for (offset, stride) in offsets[unit].iter_mut().zip(&axis.strides) {
                            *offset += i64::from(index) * stride;
                        }
                        numbers[unit] = rest;
                    }
                });
                work(&offsets, &are_there);
                first += tile * blocks;
            }
            from += self.piece;
        }
    }

    /// Calls `work` with the number of each element of this thread after the last unit of contiguous arrays.
    #[inline(always)]
    fn for_each_of_tail(&self, thread: &Thread<'_>, mut work: impl FnMut(i64)) {
        if thread.block() != 0 {
            return;
        }
        let mut at = thread.number_in_block();
        while at < self.tail {
            work(self.axes[0].extent * i64::from(self.width) + i64::from(at));
            at += thread.block_size();
        }
    }
}

/// Returns the quotient by the extent of which this is the inverse: 2^64 / extent, rounded up; 0 for extents 0 and 1. The
/// result is exact for every number; for extents of 2^32 and more it is 0.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the upper half of a product that is below 2^96")]
fn divide(number: u32, inverse: u64) -> u32 {
    ((u128::from(number) * u128::from(inverse)) >> 64) as u32
}

macro_rules! lists {
    ($(($first:ident: $wrapper:ident $writes:tt; $($other:ident $number:tt)*) $count:literal;)*) => {
        $(
            impl<$first: KernelElement, $($other: KernelElement),*> Arrays for ($wrapper<$first>, $(In<$other>,)*) {}

            impl<$first: KernelElement, $($other: KernelElement),*> sealed::Arrays for ($wrapper<$first>, $(In<$other>,)*) {
                type Arguments<'a, const N: usize> = KernelArrays<'a, $count, N>;
                const SIZES: &'static [usize] = &[size_of::<$first>() $(, size_of::<$other>())*];
                const WRITES: bool = $writes;
            }

            #[expect(clippy::allow_attributes, reason = "lists of one array have no others")]
            #[allow(clippy::unused_unit, non_snake_case, unused_variables, reason = "as above; variables have the names of types")]
            impl<'a, $first: KernelElement, $($other: KernelElement,)* const N: usize>
                Elementwise<'a, ($wrapper<$first>, $(In<$other>,)*), N>
            {
                const WIDTH: usize = width_of([size_of::<$first>() $(, size_of::<$other>())*]);

                /// Visits all elements: `W` of each array at a time where the arrays allow it.
                #[inline(always)]
                fn visit(
                    &self,
                    thread: &Thread<'_>,
                    reads: bool,
                    mut function: impl FnMut($first, $($other),*) -> Option<$first>,
                ) {
                    let arrays = &self.0;
                    if Self::WIDTH > 1 && arrays.width > 1 {
                        match Self::WIDTH {
                            2 => arrays.for_each_unit::<2>(thread, |o, t| self.work::<2, 2>(o, t, reads, &mut function)),
                            4 => arrays.for_each_unit::<2>(thread, |o, t| self.work::<4, 2>(o, t, reads, &mut function)),
                            _ => arrays.for_each_unit::<2>(thread, |o, t| self.work::<8, 2>(o, t, reads, &mut function)),
                        }
                        arrays.for_each_of_tail(thread, |at| {
                            self.work::<1, 1>(&[[at; $count]], &[true], reads, &mut function);
                        });
                    } else {
                        arrays.for_each_unit::<4>(thread, |o, t| self.work::<1, 4>(o, t, reads, &mut function));
                    }
                }

                #[inline(always)]
                fn work<const W: usize, const U: usize>(
                    &self,
                    offsets: &[[i64; $count]; U],
                    are_there: &[bool; U],
                    reads: bool,
                    function: &mut impl FnMut($first, $($other),*) -> Option<$first>,
                ) {
                    let loaded: [([$first; W], $([$other; W],)*); U] = array::from_fn(|unit| {
                        if !are_there[unit] {
                            // SAFETY: any bits are elements.
                            return unsafe { zeroed() };
                        }
                        (
                            if reads {
                                // SAFETY: the unit is one of this thread, in the first array.
                                unsafe { wide::load::<$first, W>(self.place::<$first>(0, offsets[unit][0])) }
                            } else {
                                // SAFETY: any bits are elements.
                                unsafe { zeroed() }
                            },
                            $(
                                // SAFETY: the unit is in the array of this number, which nobody writes.
                                unsafe { wide::load::<$other, W>(self.place::<$other>($number, offsets[unit][$number])) },
                            )*
                        )
                    });
                    for unit in 0..U {
                        if !are_there[unit] {
                            continue;
                        }
                        let ($first, $($other,)*) = &loaded[unit];
                        let mut results = *$first;
                        let mut is_written = false;
                        for at in 0..W {
                            if let Some(result) = function($first[at], $($other[at]),*) {
                                results[at] = result;
                                is_written = true;
                            }
                        }
                        if $writes && is_written {
                            // SAFETY: the unit is one of this thread, in an array that the kernel writes.
                            unsafe { wide::store::<$first, W>(self.place::<$first>(0, offsets[unit][0]), results) };
                        }
                    }
                }

                #[inline(always)]
                #[expect(clippy::cast_possible_truncation, reason = "offsets come from `isize`")]
                fn place<T>(&self, array: usize, offset: i64) -> *mut T {
                    self.0.addresses[array].low.cast::<T>().wrapping_offset(offset as isize)
                }

                lists!(@ $writes $first $($other)*);
            }
        )*
    };
    (@ true $first:ident $($other:ident)*) => {
        /// Sets the first array to what the function returns for the elements of the others. The first array is not read.
        #[inline(always)]
        pub fn map(self, thread: &Thread<'_>, function: impl Fn($($other),*) -> $first) {
            self.visit(thread, false, |_, $($other),*| Some(function($($other),*)));
        }

        /// Sets the first array to what the function returns for the elements of all arrays.
        #[inline(always)]
        pub fn map_inplace(self, thread: &Thread<'_>, function: impl Fn($first, $($other),*) -> $first) {
            self.visit(thread, true, |$first, $($other),*| Some(function($first, $($other),*)));
        }
    };
    (@ false $first:ident $($other:ident)*) => {
        /// Calls the function with the elements of all arrays that belong to this thread, in no particular order.
        #[inline(always)]
        pub fn for_each(self, thread: &Thread<'_>, mut function: impl FnMut($first, $($other),*)) {
            self.visit(thread, true, |$first, $($other),*| {
                function($first, $($other),*);
                None
            });
        }
    };
}

lists! {
    (A: Out true;) 1;
    (A: Out true; B 1) 2;
    (A: Out true; B 1 C 2) 3;
    (A: Out true; B 1 C 2 D 3) 4;
    (A: In false;) 1;
    (A: In false; B 1) 2;
    (A: In false; B 1 C 2) 3;
    (A: In false; B 1 C 2 D 3) 4;
}

impl<A: Arrays, const N: usize> fmt::Debug for Elementwise<'_, A, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Elementwise").field(&self.0).finish()
    }
}

impl<A: Arrays, const N: usize> fmt::Debug for KernelElementwise<'_, A, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KernelElementwise").field(&self.0).finish()
    }
}
