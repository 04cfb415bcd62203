//! Kernels over arrays of one shape, of any rank and any layouts.
#![expect(unsafe_code, reason = "elements are read and written through pointers")]

use core::array;
use core::fmt;
use core::marker::PhantomData;
use core::mem::{size_of, zeroed};

use crate::arrays::{KernelArrays, SPREAD, width_of};
use crate::element::KernelElement;
use crate::layout::{HasLayout, Layout};
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
    use crate::layout::Layout;

    /// The layouts of arrays in the bytes of an argument.
    pub trait Arrays: Sized + 'static {
        /// The [`KernelArrays`](crate::KernelArrays) of as many arrays.
        type Arguments<'a, const N: usize>: Copy + Send + Sync + core::fmt::Debug + Located;
        /// The size of an element of each array.
        const SIZES: &'static [usize];
        /// The elements of each array.
        const LAYOUTS: &'static [Layout];
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

/// Runs code for each axis but the outermost, until it breaks out of `'axes`. The indices are literal: rustc passes an
/// argument as values, and an index that is known only when the kernel runs would copy all of it to local memory.
macro_rules! for_each_inner_axis {
    ($label:lifetime: $count:expr, $at:ident => $work:block) => {
        for_each_inner_axis!(@ $label $count, $at, $work, 0 1 2 3 4 5 6)
    };
    (@ $label:lifetime $count:expr, $at:ident, $work:block, $($axis:literal)*) => {
        $label: {
            $(
                if $axis + 1 >= $count {
                    break $label;
                }
                // Compiled for every axis, also for those that there are not.
                let $at = if $axis < $count { $axis } else { 0 };
                $work
            )*
        }
    };
}

/// Runs code for each number below a constant, 16 at most. A loop is not unrolled if its body is long, and then the arrays that it
/// indexes are in local memory.
macro_rules! unrolled {
    ($count:expr, $at:ident => $work:block) => {
        unrolled!(@ $count, $at, $work, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    (@ $count:expr, $at:ident, $work:block, $($number:literal)*) => {
        $(
            if $number < $count {
                let $at = if $number < $count { $number } else { 0 };
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
                    crate::fields::Pointer::new(place(array, self.address(array), self.span(array))?);
            }
        }
        Some(self)
    }
}

impl<const K: usize, const N: usize> KernelArrays<'_, K, N> {
    /// Calls `work` for each unit of this thread, with its index along the innermost axis, and its offsets along the other axes
    /// in elements.
    #[inline(always)]
    fn for_each_unit(&self, thread: &Thread<'_>, mut work: impl FnMut(i64, [i64; K])) {
        const { assert!(N <= 8, "at most 8 axes") };
        let rank = self.rank as usize;
        let mut outer_strides = [0; K];
        for_each_inner_axis!('axes: N, axis => {
            if axis + 1 >= rank {
                break 'axes;
            }
            outer_strides = self.axes[axis + 1].strides;
        });
        let (own, step) = (thread.number(), thread.threads());
        let mut from = 0;
        while from < self.outer {
            let units = u64::from(self.inner) * (self.outer - from).min(self.piece).unsigned_abs();
            let mut number = own;
            while number < units {
                // There are fewer than 2^31 units.
                #[expect(clippy::cast_possible_truncation, reason = "the comment above")]
                let mut rest = number as u32;
                let mut offsets = [0; K];
                let mut along = from + i64::from(rest);
                for_each_inner_axis!('axes: N, axis => {
                    if axis + 1 >= rank {
                        break 'axes;
                    }
                    let (quotient, index) = self.axes[axis].extent.divide(rest);
                    rest = quotient;
                    if axis == 0 {
                        along = i64::from(index);
                    } else {
                        for (offset, stride) in offsets.iter_mut().zip(&self.axes[axis].strides) {
                            *offset += i64::from(index) * stride;
                        }
                    }
                });
                for (offset, stride) in offsets.iter_mut().zip(&outer_strides) {
                    *offset += (from + i64::from(rest)) * stride;
                }
                work(along, offsets);
                number += step;
            }
            from += self.piece;
        }
    }
}

macro_rules! lists {
    ($(($first:ident: $wrapper:ident $writes:tt; $($other:ident $number:tt)*) $count:literal;)*) => {
        $(
            impl<$first: KernelElement, $($other: KernelElement),*> Arrays for ($wrapper<$first>, $(In<$other>,)*) {}

            impl<$first: KernelElement, $($other: KernelElement),*> sealed::Arrays for ($wrapper<$first>, $(In<$other>,)*) {
                type Arguments<'a, const N: usize> = KernelArrays<'a, $count, N>;
                const SIZES: &'static [usize] = &[size_of::<$first>() $(, size_of::<$other>())*];
                const LAYOUTS: &'static [Layout] = &[$first::__LAYOUT $(, $other::__LAYOUT)*];
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
                    #[cfg(not(target_arch = "nvptx64"))]
                    if let Some(part) = thread.host_part() {
                        return self.0.for_each_run(part, |offsets, strides, count| {
                            if strides == [1; $count] {
                                self.visit_run::<true>(offsets, strides, count, reads, &mut function);
                            } else {
                                self.visit_run::<false>(offsets, strides, count, reads, &mut function);
                            }
                        });
                    }
                    let arrays = &self.0;
                    let strides = &arrays.axes[0].strides;
                    // The distance of the first elements of neighbouring units that are not loaded at once.
                    let next = if arrays.full > 0 { SPREAD as i64 } else { 1 };
                    arrays.for_each_unit(thread, |along, mut offsets| {
                        let is_full = Self::WIDTH > 1 && along < arrays.full;
                        let (full, rest) = if is_full { (along, 0) } else { (arrays.full, along - arrays.full) };
                        let at = full * Self::WIDTH as i64 + rest * next;
                        let first = at + i64::from(arrays.head);
                        for (offset, stride) in offsets.iter_mut().zip(strides) {
                            *offset += first * stride;
                        }
                        if is_full {
                            return match Self::WIDTH {
                                2 => self.work::<2, 1>(&[offsets], &[true], reads, &mut function),
                                4 => self.work::<4, 1>(&[offsets], &[true], reads, &mut function),
                                8 => self.work::<8, 1>(&[offsets], &[true], reads, &mut function),
                                _ => self.work::<16, 1>(&[offsets], &[true], reads, &mut function),
                            };
                        }
                        let steps: [i64; SPREAD] = array::from_fn(|unit| unit as i64 * arrays.step);
                        // The elements after the last one of the row are those of its head. Then the strides are 1.
                        let back = |step: i64| if first + step < arrays.row { 0 } else { arrays.row };
                        let place = |step: i64| array::from_fn(|array| offsets[array] + step * strides[array] - back(step));
                        let units = steps.map(place);
                        let are_there = steps.map(|step| at + step < arrays.row);
                        self.work::<1, SPREAD>(&units, &are_there, reads, &mut function);
                    });
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
                    unrolled!(U, unit => {
                        if are_there[unit] {
                            let ($first, $($other,)*) = &loaded[unit];
                            let mut results = *$first;
                            let mut is_written = false;
                            unrolled!(W, at => {
                                if let Some(result) = function($first[at], $($other[at]),*) {
                                    results[at] = result;
                                    is_written = true;
                                }
                            });
                            if $writes && is_written {
                                // SAFETY: the unit is one of this thread, in an array that the kernel writes.
                                unsafe { wide::store::<$first, W>(self.place::<$first>(0, offsets[unit][0]), results) };
                            }
                        }
                    });
                }

                /// Visits neighbours along the innermost axis, in a launch on the CPU. The strides of `DENSE` arrays are 1, which the
                /// compiler knows.
                #[cfg(not(target_arch = "nvptx64"))]
                #[inline(always)]
                fn visit_run<const DENSE: bool>(
                    &self,
                    offsets: [i64; $count],
                    strides: [isize; $count],
                    count: usize,
                    reads: bool,
                    function: &mut impl FnMut($first, $($other),*) -> Option<$first>,
                ) {
                    let places = (self.place::<$first>(0, offsets[0]), $(self.place::<$other>($number, offsets[$number]),)*);
                    let strides = if DENSE { [1; $count] } else { strides };
                    for at in 0..count as isize {
                        let to = places.0.wrapping_offset(at * strides[0]);
                        let own = if reads {
                            // SAFETY: the element is one of this part, in an array that lives; any bits are an element.
                            unsafe { to.read() }
                        } else {
                            // SAFETY: any bits are an element.
                            unsafe { zeroed() }
                        };
                        $(
                            // SAFETY: the element is in the array of this number, which nobody writes.
                            let $other = unsafe { places.$number.wrapping_offset(at * strides[$number]).read() };
                        )*
                        if let (true, Some(result)) = ($writes, function(own, $($other),*)) {
                            // SAFETY: the element is one of this part, in an array that the kernel writes.
                            unsafe { to.write(result) };
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

impl<A: Arrays, const N: usize> HasLayout for Elementwise<'_, A, N> {
    const LAYOUT: Layout = {
        let (mut layout, mut at) =
            (Layout::new(0, if A::WRITES { "Elementwise<Out " } else { "Elementwise<In " }), 0);
        while at < A::LAYOUTS.len() {
            layout = layout.text(if at > 0 { ", In " } else { "" }).layout(&A::LAYOUTS[at]);
            at += 1;
        }
        layout.text(", ").number(N).text(">")
    };
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
