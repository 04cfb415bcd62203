//! What the functions of a row read and write: rows of arrays, in units of several elements.
#![expect(unsafe_code, reason = "elements are read and written through pointers")]
#![expect(clippy::cast_possible_truncation, reason = "extents come from `usize`")]

use core::fmt;
use core::marker::PhantomData;

#[cfg(target_arch = "nvptx64")]
use crate::device;
use crate::fail::{Mistake, fail};
use crate::mapping::Rows;
use crate::real::{Real, RowElement};
use crate::view::{Fields, View, ViewMut};

/// Runs code for constants one after the other, so that arrays which it indexes stay in registers.
macro_rules! unrolled {
    ($number:ident in 0..8 of $end:expr => $body:expr) => {
        unrolled!(@ $number $end, $body; 0 1 2 3 4 5 6 7)
    };
    (@ $number:ident $end:expr, $body:expr; $($literal:literal)*) => {
        $(if $literal < $end { let $number: usize = $literal; $body })*
    };
}
pub(crate) use unrolled;

/// The bits of up to eight elements, as they lie in memory.
pub(crate) type Words = [u32; 8];

#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Word16([u32; 4]);

#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Word8([u32; 2]);

/// Returns the element in the lower bits of a word.
#[inline(always)]
pub(crate) fn element_of_word<T: RowElement>(word: u32) -> T {
    const { assert!(size_of::<T>() <= 4 && cfg!(target_endian = "little")) };
    // SAFETY: an element has at most as many bytes as a word, and any bits are one.
    unsafe { core::mem::transmute_copy(&word) }
}

/// Loads an element into the lower bits of a word.
///
/// # Safety
///
/// As [`Line::load`], for this element.
#[inline(always)]
unsafe fn load_alone<T: RowElement>(place: *const T) -> u32 {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: as the caller promises.
    return unsafe { device::load_alone(place) };
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let mut word = 0_u32;
        // SAFETY: as the caller promises.
        let element = unsafe { place.read() };
        // SAFETY: a word has at least as many bytes, and any bits are one.
        unsafe { (&raw mut word).cast::<T>().write(element) };
        word
    }
}

/// Stores the lower bits of a word as an element.
///
/// # Safety
///
/// As [`Line::store`], for this element.
#[inline(always)]
unsafe fn store_alone<T: RowElement>(place: *mut T, word: u32) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: as the caller promises.
    unsafe {
        device::store_alone(place, word);
    }
    #[cfg(not(target_arch = "nvptx64"))]
    // SAFETY: as the caller promises.
    unsafe {
        place.write(element_of_word(word));
    }
}

/// Which part of a row a team has.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub(crate) row: u64,
    pub(crate) columns: u32,
    /// The number of elements before the units.
    pub(crate) head: u32,
    /// The column after the units.
    pub(crate) end: u32,
}

/// A row of an array, in one operation.
pub struct Line<T> {
    place: *mut T,
    stride: isize,
    /// Whether the units of the row are aligned words.
    is_wide: bool,
}

impl<T> Clone for Line<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Line<T> {}

impl<T: RowElement> Line<T> {
    /// Finds a row of an array, which must have it, with as many columns. A unit has `unit` elements.
    #[inline(always)]
    #[track_caller]
    fn new(fields: &Fields<2>, unit: usize, part: &Part) -> Self {
        let [rows, columns] = fields.extents();
        if part.row >= rows as u64 || part.columns as usize != columns {
            fail(Mistake::OtherRows([part.row as usize, part.columns as usize], [rows, columns]));
        }
        let place = place_of_row::<T>(fields, part.row);
        let stride = fields.strides[1] as isize;
        let bytes = (unit * size_of::<T>()).min(16);
        let is_wide = stride == 1 && place.wrapping_add(part.head as usize).addr() % bytes == 0;
        Self { place, stride, is_wide }
    }

    /// Finds a row of an array that is read.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn find(array: impl RowArray<Element = T>, unit: usize, part: &Part) -> Self {
        Self::new(&array.fields(), unit, part)
    }

    #[inline(always)]
    pub(crate) fn is_wide(&self) -> bool {
        self.is_wide
    }

    /// Loads `count` elements. `WIDE` says that they are a unit and aligned as one.
    ///
    /// # Safety
    ///
    /// The row has `count` elements from `column` on, and nobody else writes them now.
    #[inline(always)]
    pub(crate) unsafe fn load<const WIDE: bool>(&self, column: u32, count: usize) -> Words {
        let mut words = [0; 8];
        if WIDE || (count > 1 && self.is_wide) {
            let place = self.place.wrapping_add(column as usize);
            match count * size_of::<T>() {
                32 => {
                    // SAFETY: as the caller promises; aligned, as `new` has found.
                    let low = unsafe { *place.cast::<Word16>() }.0;
                    // SAFETY: as above.
                    let high = unsafe { *place.cast::<Word16>().wrapping_add(1) }.0;
                    words = [low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]];
                }
                16 => {
                    // SAFETY: as above.
                    let low = unsafe { *place.cast::<Word16>() }.0;
                    words = [low[0], low[1], low[2], low[3], 0, 0, 0, 0];
                }
                8 => {
                    // SAFETY: as above.
                    let low = unsafe { *place.cast::<Word8>() }.0;
                    words = [low[0], low[1], 0, 0, 0, 0, 0, 0];
                }
                // SAFETY: as above; a unit of other sizes has 4 bytes.
                _ => words[0] = unsafe { *place.cast::<u32>() },
            }
            return words;
        }
        let place = self.place.wrapping_offset(column as isize * self.stride);
        unrolled!(number in 0..8 of count => {
            let element = place.wrapping_offset(number as isize * self.stride);
            // SAFETY: as the caller promises.
            let bits = unsafe { load_alone(element) };
            let (word, shift) = Self::bits(number);
            words[word] |= bits << shift;
        });
        words
    }

    /// Returns the word with an element of a unit, and the number of the bits below it.
    #[inline(always)]
    fn bits(number: usize) -> (usize, usize) {
        let in_word = 4 / size_of::<T>();
        (number / in_word, number % in_word * size_of::<T>() * 8)
    }

    #[inline(always)]
    fn value(words: &Words, number: usize) -> f32 {
        let (word, shift) = Self::bits(number);
        T::from_word(words[word] >> shift)
    }
}

impl<T: Real> Line<T> {
    /// Finds a row of an array that is written.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn of(array: &ViewMut<'_, T, 2, Rows>, unit: usize, part: &Part) -> Self {
        Self::new(&array.fields, unit, part)
    }

    /// Stores `count` elements.
    ///
    /// # Safety
    ///
    /// As [`load`](Self::load), and nobody else uses the elements now.
    #[inline(always)]
    pub(crate) unsafe fn store<const WIDE: bool>(
        &self,
        column: u32,
        count: usize,
        value: impl Fn(usize) -> f32,
    ) {
        if WIDE || (count > 1 && self.is_wide) {
            let mut words = [0_u32; 8];
            unrolled!(number in 0..8 of count => {
                let (word, shift) = Self::bits(number);
                words[word] |= T::to_word(value(number)) << shift;
            });
            let place = self.place.wrapping_add(column as usize);
            let [low, high] =
                [0, 4].map(|at| Word16([words[at], words[at + 1], words[at + 2], words[at + 3]]));
            match count * size_of::<T>() {
                32 => {
                    // SAFETY: as the caller promises; aligned, as `new` has found.
                    unsafe { *place.cast::<Word16>() = low };
                    // SAFETY: as above.
                    unsafe { *place.cast::<Word16>().wrapping_add(1) = high };
                }
                // SAFETY: as above.
                16 => unsafe { *place.cast::<Word16>() = low },
                // SAFETY: as above; a unit of other sizes has 8 bytes: four of 2.
                _ => unsafe { *place.cast::<Word8>() = Word8([words[0], words[1]]) },
            }
            return;
        }
        let place = self.place.wrapping_offset(column as isize * self.stride);
        unrolled!(number in 0..8 of count => {
            let (element, word) = (place.wrapping_offset(number as isize * self.stride), T::to_word(value(number)));
            // SAFETY: as the caller promises.
            unsafe { store_alone(element, word) };
        });
    }
}

/// Returns the place of the first element of a row.
#[inline(always)]
fn place_of_row<T>(fields: &Fields<2>, row: u64) -> *mut T {
    fields.pointer.low.cast::<T>().wrapping_offset((row as i64).wrapping_mul(fields.strides[0]) as isize)
}

/// An array with rows: a reference to a [`View`] with two axes, to one with one axis, which is the same for all rows, or to a
/// [`ViewMut`] by [`Rows`].
#[diagnostic::on_unimplemented(
    message = "a team has no rows of `{Self}`",
    label = "no array with rows",
    note = "rows are those of `&View<'_, T, 2>`, of `&View<'_, T, 1>`, which is one row for all, and of `&ViewMut<'_, T, 2, Rows>`",
    note = "give an array with more axes two of them in its struct on the host: `shape = [rows, columns]`"
)]
pub trait RowArray: Copy + sealed::Sealed {
    /// The type of its elements.
    type Element: RowElement;

    /// The array, with two axes.
    #[doc(hidden)]
    fn fields(self) -> Fields<2>;
}

/// What the functions of a [`Row`](crate::Row) read: a [`RowArray`], a [`Kept`] one, the [`Columns`], or a tuple of up to four of these.
///
/// A function of the elements gets an `f32` for each array, a `u32` for the columns, and a tuple for a tuple.
#[diagnostic::on_unimplemented(
    message = "a row does not read `{Self}`",
    label = "no source of a row",
    note = "it reads `&View`s with one or two axes, `&ViewMut`s by the rule `Rows`, what `row.keep` returns, `Columns`, and tuples of these"
)]
pub trait Source: Copy + sealed::Sealed {
    /// What a function gets for an element.
    type Items: Copy;
    #[doc(hidden)]
    type Lines: Copy;
    #[doc(hidden)]
    type Words: Copy;
    /// The words of no elements.
    #[doc(hidden)]
    const NOTHING: Self::Words;
    /// The number of arrays.
    #[doc(hidden)]
    const ARRAYS: usize;
    /// The number of units that are in registers.
    #[doc(hidden)]
    const KEPT: usize = 0;

    /// Finds the row of each array. A unit has `unit` elements.
    #[doc(hidden)]
    fn lines(self, unit: usize, part: &Part) -> Self::Lines;

    /// Whether units are aligned words in each array.
    #[doc(hidden)]
    fn is_wide(lines: &Self::Lines) -> bool;

    /// Loads `count` elements: unit number `number` of the thread `thread`, if that is known at compile time.
    ///
    /// # Safety
    ///
    /// The row has `count` elements from `column` on, and nobody else writes them now. With `WIDE` they are a unit and `is_wide`.
    #[doc(hidden)]
    unsafe fn load<const WIDE: bool>(
        self,
        lines: Self::Lines,
        column: u32,
        count: usize,
        of_thread: (u32, usize),
    ) -> Self::Words;

    /// Returns an element of those in words.
    #[doc(hidden)]
    fn items(words: &Self::Words, column: u32, number: usize) -> Self::Items;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! arrays {
    ($([$($generics:tt)*] $array:ty, $this:ident => $fields:expr;)*) => {
        $(
            impl<$($generics)*> sealed::Sealed for $array {}

            impl<$($generics)*> RowArray for $array {
                type Element = T;

                #[inline(always)]
                fn fields(self) -> Fields<2> {
                    let $this = self;
                    $fields
                }
            }

            impl<$($generics)*> Source for $array {
                type Items = f32;
                type Lines = Line<T>;
                type Words = Words;
                const NOTHING: Words = [0; 8];
                const ARRAYS: usize = 1;

                #[inline(always)]
                #[track_caller]
                fn lines(self, unit: usize, part: &Part) -> Line<T> {
                    Line::new(&self.fields(), unit, part)
                }

                #[inline(always)]
                fn is_wide(line: &Line<T>) -> bool {
                    line.is_wide
                }

                #[inline(always)]
                unsafe fn load<const WIDE: bool>(self, line: Line<T>, column: u32, count: usize, _: (u32, usize)) -> Words {
                    // SAFETY: as the caller promises.
                    unsafe { line.load::<WIDE>(column, count) }
                }

                #[inline(always)]
                fn items(words: &Words, _: u32, number: usize) -> f32 {
                    Line::<T>::value(words, number)
                }
            }
        )*
    };
}

arrays! {
    ['a, T: RowElement] &View<'a, T, 2>, view => view.fields;
    ['a, T: RowElement] &View<'a, T, 1>, view => {
        let Fields { pointer, shape: [columns], strides: [stride] } = view.fields;
        Fields { pointer, shape: [i64::MAX, columns], strides: [0, stride] }
    };
    ['a, T: Real] &ViewMut<'a, T, 2, Rows>, view => view.fields;
}

/// The number of each column, as a `u32`: a [`Source`].
#[derive(Clone, Copy, Debug)]
pub struct Columns;

impl sealed::Sealed for Columns {}

impl Source for Columns {
    type Items = u32;
    type Lines = ();
    type Words = ();
    const NOTHING: () = ();
    const ARRAYS: usize = 0;

    #[inline(always)]
    fn lines(self, _: usize, _: &Part) {}

    #[inline(always)]
    fn is_wide((): &()) -> bool {
        true
    }

    #[inline(always)]
    unsafe fn load<const WIDE: bool>(self, (): (), _: u32, _: usize, _: (u32, usize)) {}

    #[inline(always)]
    fn items((): &(), column: u32, number: usize) -> u32 {
        column + number as u32
    }
}

/// The words that a thread keeps.
pub(crate) type KeptWords<const KEPT: usize> = [Words; KEPT];

/// A row of which each thread keeps its first elements in registers. [`Row::keep`](crate::Row::keep) makes it.
pub struct Kept<'r, A, const KEPT: usize> {
    #[cfg(target_arch = "nvptx64")]
    words: KeptWords<KEPT>,
    /// Those of each thread.
    #[cfg(not(target_arch = "nvptx64"))]
    words: Vec<KeptWords<KEPT>>,
    array: A,
    marker: PhantomData<(&'r (), *const ())>,
}

impl<A: RowArray, const KEPT: usize> Kept<'_, A, KEPT> {
    /// Keeps what `load` returns for each of `threads` threads; on a device for the own one.
    #[inline(always)]
    pub(crate) fn new(
        array: A,
        threads: core::ops::Range<u32>,
        load: impl Fn(u32) -> KeptWords<KEPT>,
    ) -> Self {
        #[cfg(target_arch = "nvptx64")]
        let words = load(threads.start);
        #[cfg(not(target_arch = "nvptx64"))]
        let words = threads.map(load).collect();
        Self { words, array, marker: PhantomData }
    }
}

impl<A, const KEPT: usize> fmt::Debug for Kept<'_, A, KEPT> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").finish_non_exhaustive()
    }
}

impl<A: RowArray, const KEPT: usize> sealed::Sealed for &Kept<'_, A, KEPT> {}

impl<A: RowArray, const KEPT: usize> Source for &Kept<'_, A, KEPT> {
    type Items = f32;
    type Lines = Line<A::Element>;
    type Words = Words;
    const NOTHING: Words = [0; 8];
    const ARRAYS: usize = 1;
    const KEPT: usize = KEPT;

    #[inline(always)]
    #[track_caller]
    fn lines(self, unit: usize, part: &Part) -> Self::Lines {
        Line::new(&self.array.fields(), unit, part)
    }

    #[inline(always)]
    fn is_wide(line: &Self::Lines) -> bool {
        line.is_wide
    }

    #[inline(always)]
    unsafe fn load<const WIDE: bool>(
        self,
        line: Self::Lines,
        column: u32,
        count: usize,
        (thread, number): (u32, usize),
    ) -> Words {
        if number < KEPT {
            #[cfg(target_arch = "nvptx64")]
            let (words, _) = (&self.words, thread);
            #[cfg(not(target_arch = "nvptx64"))]
            let words = &self.words[thread as usize];
            return words[number];
        }
        // SAFETY: as the caller promises.
        unsafe { line.load::<WIDE>(column, count) }
    }

    #[inline(always)]
    fn items(words: &Words, _: u32, number: usize) -> f32 {
        Line::<A::Element>::value(words, number)
    }
}

macro_rules! tuples {
    ($($source:ident $number:tt)*) => {
        impl<$($source: Source),*> sealed::Sealed for ($($source,)*) {}

        #[expect(clippy::allow_attributes, reason = "the empty tuple has nothing to use")]
        #[allow(unused_variables, clippy::unused_unit, reason = "as above")]
        impl<$($source: Source),*> Source for ($($source,)*) {
            type Items = ($($source::Items,)*);
            type Lines = ($($source::Lines,)*);
            type Words = ($($source::Words,)*);
            const NOTHING: Self::Words = ($($source::NOTHING,)*);
            const ARRAYS: usize = 0 $(+ $source::ARRAYS)*;
            const KEPT: usize = {
                let most = 0;
                $(let most = if $source::KEPT > most { $source::KEPT } else { most };)*
                most
            };

            #[inline(always)]
            #[track_caller]
            fn lines(self, unit: usize, part: &Part) -> Self::Lines {
                ($(self.$number.lines(unit, part),)*)
            }

            #[inline(always)]
            fn is_wide(lines: &Self::Lines) -> bool {
                true $(&& $source::is_wide(&lines.$number))*
            }

            #[inline(always)]
            unsafe fn load<const WIDE: bool>(self, lines: Self::Lines, column: u32, count: usize, of_thread: (u32, usize)) -> Self::Words {
                // SAFETY: as the caller promises.
                ($(unsafe { self.$number.load::<WIDE>(lines.$number, column, count, of_thread) },)*)
            }

            #[inline(always)]
            fn items(words: &Self::Words, column: u32, number: usize) -> Self::Items {
                ($($source::items(&words.$number, column, number),)*)
            }
        }
    };
}

tuples!();
tuples!(A 0 B 1);
tuples!(A 0 B 1 C 2);
tuples!(A 0 B 1 C 2 D 3);
