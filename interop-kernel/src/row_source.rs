//! What the functions of a row read and write: rows of arrays, in units of several elements.
#![expect(unsafe_code, reason = "elements are read and written through pointers")]
#![expect(clippy::cast_possible_truncation, reason = "extents come from `usize`")]

use core::fmt;
use core::marker::PhantomData;

use crate::fail::{Mistake, fail};
use crate::fields::Fields;
use crate::mapping::Rows;
use crate::real::{Real, RowElement};
use crate::view::{View, ViewMut};
use crate::wide;

/// Runs code for constants one after the other, so that arrays which it indexes stay in registers.
macro_rules! unrolled {
    ($number:ident in 0..$end:expr => $body:expr) => {
        unrolled!(@ $number $end, $body; 0 1 2 3 4 5 6 7)
    };
    (@ $number:ident $end:expr, $body:expr; $($literal:literal)*) => {
        $(if $literal < $end { let $number: usize = $literal; $body })*
    };
}
pub(crate) use unrolled;

/// A value for each thread that the caller plays: on a device for itself.
#[cfg(target_arch = "nvptx64")]
pub(crate) type OfEach<V> = [V; 1];
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) type OfEach<V> = Vec<V>;

/// The bits of up to eight elements, as they lie in memory.
pub(crate) type Words = [u32; 8];

/// Which part of a row a team has.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub(crate) row: u64,
    pub(crate) columns: u32,
    /// The number of elements before the units.
    pub(crate) head: u32,
    /// The column after the units.
    pub(crate) end: u32,
    /// The number of elements of a unit.
    pub(crate) unit: usize,
}

/// Elements of a row, next to each other: a unit, or one.
#[derive(Clone, Copy)]
pub struct Unit {
    pub(crate) column: u32,
    pub(crate) count: usize,
    pub(crate) thread: u32,
    /// The number of the unit among those of the thread, if that is known at compile time.
    pub(crate) number: usize,
}

/// A row of an array, in one operation.
#[derive(Clone, Copy)]
pub struct Line<T> {
    place: *mut T,
    stride: isize,
    /// Whether the units of the row are aligned words.
    pub(crate) is_wide: bool,
}

impl<T: RowElement> Line<T> {
    /// Finds a row of an array, which must have it, with as many columns.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn new(fields: &Fields<2>, part: &Part) -> Self {
        let [rows, columns] = fields.extents();
        if part.row >= rows as u64 || part.columns as usize != columns {
            fail(Mistake::OtherRows([part.row as usize, part.columns as usize], [rows, columns]));
        }
        let [down, stride] = fields.strides;
        let place =
            fields.pointer.low.cast::<T>().wrapping_offset((part.row as i64).wrapping_mul(down) as isize);
        let bytes = (part.unit * size_of::<T>()).min(16);
        let is_wide = stride == 1 && place.wrapping_add(part.head as usize).addr() % bytes == 0;
        Self { place, stride: stride as isize, is_wide }
    }

    /// The line, if its elements lie next to each other: with a stride that the compiler knows.
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    pub(crate) fn dense(self) -> Option<Self> {
        (self.stride == 1).then_some(Self { stride: 1, ..self })
    }

    /// Sets an element.
    ///
    /// # Safety
    ///
    /// The row has it, and nobody else uses it now.
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    pub(crate) unsafe fn set(&self, column: usize, value: f32)
    where
        T: Real,
    {
        // SAFETY: as the caller promises.
        unsafe { self.place.wrapping_offset(column as isize * self.stride).write(T::from_f32(value)) };
    }

    /// Loads an element into the cache, if its neighbours come with it. It may be beyond the row.
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    pub(crate) fn prefetch(&self, column: usize) {
        #[cfg(target_arch = "x86_64")]
        if self.stride == 1 {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a hint, which does nothing where no memory is.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.place.wrapping_add(column).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = column;
    }

    /// Loads elements. `WIDE` says that they are a unit and aligned as one.
    ///
    /// # Safety
    ///
    /// The row has the elements, and nobody else writes them now.
    #[inline(always)]
    pub(crate) unsafe fn load<const WIDE: bool>(&self, Unit { column, count, .. }: Unit) -> Words {
        let mut words = [0; 8];
        if WIDE || (count > 1 && self.is_wide) {
            let place = self.place.wrapping_add(column as usize).cast::<u32>();
            match count * size_of::<T>() {
                // SAFETY: as the caller promises; aligned, as `new` has found. So it is below.
                4 => [words[0]] = unsafe { wide::load(place) },
                // SAFETY: as above.
                8 => [words[0], words[1]] = unsafe { wide::load(place) },
                // SAFETY: as above.
                _ => [words[0], words[1], words[2], words[3]] = unsafe { wide::load(place) },
            }
            if count * size_of::<T>() > 16 {
                // SAFETY: as above.
                [words[4], words[5], words[6], words[7]] = unsafe { wide::load(place.wrapping_add(4)) };
            }
        } else {
            let place = wide::apart(self.place.wrapping_offset(column as isize * self.stride));
            unrolled!(number in 0..count => {
                // SAFETY: as the caller promises.
                Self::put(&mut words, number, unsafe { place.wrapping_offset(number as isize * self.stride).read() });
            });
        }
        words
    }

    /// Puts an element into words of zeros.
    #[inline(always)]
    fn put(words: &mut Words, number: usize, element: T) {
        let mut word = 0_u32;
        // SAFETY: a word has at least as many bytes, and an element has no padding.
        unsafe { (&raw mut word).cast::<T>().write(element) };
        words[number * size_of::<T>() / 4] |= word << (number * size_of::<T>() % 4 * 8);
    }

    /// Returns an element of those in words.
    #[inline(always)]
    fn value(words: &Words, number: usize) -> f32 {
        const { assert!(size_of::<T>() <= 4 && cfg!(target_endian = "little")) };
        let word = words[number * size_of::<T>() / 4] >> (number * size_of::<T>() % 4 * 8);
        // SAFETY: an element has at most as many bytes as a word, and any bits are one.
        unsafe { core::mem::transmute_copy::<u32, T>(&word) }.to_f32()
    }

    /// Stores elements.
    ///
    /// # Safety
    ///
    /// As [`load`](Self::load), and nobody else uses the elements now.
    #[inline(always)]
    pub(crate) unsafe fn store<const WIDE: bool>(&self, unit: Unit, value: impl Fn(usize) -> f32)
    where
        T: Real,
    {
        let Unit { column, count, .. } = unit;
        if WIDE || (count > 1 && self.is_wide) {
            let mut words = [0; 8];
            unrolled!(number in 0..count => Self::put(&mut words, number, T::from_f32(value(number))));
            let place = self.place.wrapping_add(column as usize).cast::<u32>();
            match count * size_of::<T>() {
                // SAFETY: as the caller promises; aligned, as `new` has found. So it is below.
                8 => unsafe { wide::store(place, [words[0], words[1]]) },
                // SAFETY: as above.
                _ => unsafe { wide::store(place, [words[0], words[1], words[2], words[3]]) },
            }
            if count * size_of::<T>() > 16 {
                // SAFETY: as above.
                unsafe { wide::store(place.wrapping_add(4), [words[4], words[5], words[6], words[7]]) };
            }
        } else {
            let place = wide::apart(self.place.wrapping_offset(column as isize * self.stride));
            unrolled!(number in 0..count => {
                let element = T::from_f32(value(number));
                // SAFETY: as the caller promises.
                unsafe { place.wrapping_offset(number as isize * self.stride).write(element) };
            });
        }
    }
}

/// An array that a [`Row`](crate::Row) reads: a reference to a [`View`] with two axes, to one with one axis, which is the same for all
/// rows, to a [`ViewMut`] by [`Rows`], or to a [`KeptRow`].
#[diagnostic::on_unimplemented(
    message = "a row does not read `{Self}`",
    label = "no array with rows",
    note = "it reads `&View<'_, T, 2>`, `&View<'_, T, 1>`, which is one row for all, `&ViewMut<'_, T, 2, Rows>`, and what `row.keep` returns",
    note = "give an array with more axes two of them in its struct on the host: `shape = [rows, columns]`"
)]
pub trait RowArray: Copy + sealed::Sealed {
    /// The type of its elements.
    type Element: RowElement;
    /// The number of units that are in registers.
    #[doc(hidden)]
    const KEPT: usize = 0;

    /// The array, with two axes.
    #[doc(hidden)]
    fn fields(self) -> Fields<2>;

    /// Finds a row, which the array must have, with as many columns.
    #[doc(hidden)]
    #[inline(always)]
    #[track_caller]
    fn line(self, part: &Part) -> Line<Self::Element> {
        Line::new(&self.fields(), part)
    }

    /// A unit that is in registers.
    #[doc(hidden)]
    #[inline(always)]
    fn kept(self, _: Unit) -> Option<Words> {
        None
    }
}

/// An array over whose rows a team loops: a reference to a [`View`] with two axes, or to a [`ViewMut`] by [`Rows`] with two.
#[diagnostic::on_unimplemented(
    message = "a team has no rows of `{Self}`",
    label = "no array with rows of its own",
    note = "rows are those of `&View<'_, T, 2>` and of `&ViewMut<'_, T, 2, Rows>`; an array with one axis has no number of rows",
    note = "give an array with more axes two of them in its struct on the host: `shape = [rows, columns]`"
)]
pub trait ArrayOfRows: RowArray {}

impl<T: RowElement> ArrayOfRows for &View<'_, T, 2> {}

impl<T: Real> ArrayOfRows for &ViewMut<'_, T, 2, Rows> {}

/// What the functions of a [`Row`](crate::Row) read: a [`RowArray`], or a tuple of up to four of these.
///
/// A function of the elements gets an `f32` for an array, and a tuple for a tuple.
#[diagnostic::on_unimplemented(
    message = "a row does not read `{Self}`",
    label = "no source of a row",
    note = "it reads `&View`s with one or two axes, `&ViewMut`s by the rule `Rows`, what `row.keep` returns, and tuples of these"
)]
pub trait Source: Copy + sealed::Sealed {
    /// What a function gets for an element.
    type Items: Copy;
    #[doc(hidden)]
    type Lines: Copy;
    #[doc(hidden)]
    type Words: Copy + Default;
    /// The number of arrays.
    #[doc(hidden)]
    const ARRAYS: usize;
    /// The number of units that are in registers.
    #[doc(hidden)]
    const KEPT: usize;

    /// Finds the row of each array.
    #[doc(hidden)]
    fn lines(self, part: &Part) -> Self::Lines;

    /// Whether units are aligned words in each array.
    #[doc(hidden)]
    fn is_wide(lines: &Self::Lines) -> bool;

    /// Loads elements.
    ///
    /// # Safety
    ///
    /// The row has the elements, and nobody else writes them now. With `WIDE` they are a unit and `is_wide`.
    #[doc(hidden)]
    unsafe fn load<const WIDE: bool>(self, lines: Self::Lines, unit: Unit) -> Self::Words;

    /// The lines, if the elements of each lie next to each other.
    #[cfg(not(target_arch = "nvptx64"))]
    #[doc(hidden)]
    fn dense(lines: Self::Lines) -> Option<Self::Lines>;

    /// Loads an element of each array into the cache. It may be beyond the row.
    #[cfg(not(target_arch = "nvptx64"))]
    #[doc(hidden)]
    fn prefetch(lines: Self::Lines, column: usize);

    /// Returns an element of each array.
    ///
    /// # Safety
    ///
    /// The row has it, and nobody else writes it now.
    #[cfg(not(target_arch = "nvptx64"))]
    #[doc(hidden)]
    unsafe fn item(lines: Self::Lines, column: usize) -> Self::Items;

    /// Returns an element of those in words.
    #[doc(hidden)]
    fn items(words: &Self::Words, number: usize) -> Self::Items;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! arrays {
    ($($element:ident $array:ty: $view:ident => $fields:expr;)*) => {
        $(
            impl<T: $element> sealed::Sealed for $array {}

            impl<T: $element> RowArray for $array {
                type Element = T;

                #[inline(always)]
                fn fields(self) -> Fields<2> {
                    let $view = self;
                    $fields
                }
            }
        )*
    };
}

arrays! {
    RowElement &View<'_, T, 2>: view => view.fields;
    RowElement &View<'_, T, 1>: view => {
        let Fields { pointer, shape: [columns], strides: [stride] } = view.fields;
        Fields { pointer, shape: [i64::MAX, columns], strides: [0, stride] }
    };
    Real &ViewMut<'_, T, 2, Rows>: view => view.fields;
}

/// A row of which each thread keeps its first elements in registers. [`Row::keep`](crate::Row::keep) makes it, and only the same row
/// reads it: another one panics, which is a trap on a device.
pub struct KeptRow<'r, A, const KEPT: usize> {
    /// The number of the row.
    pub(crate) row: u64,
    pub(crate) words: OfEach<[Words; KEPT]>,
    pub(crate) array: A,
    pub(crate) marker: PhantomData<(&'r (), *const ())>,
}

/// It does not tell what the thread has kept.
impl<A, const KEPT: usize> fmt::Debug for KeptRow<'_, A, KEPT> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptRow").finish_non_exhaustive()
    }
}

impl<A, const KEPT: usize> sealed::Sealed for &KeptRow<'_, A, KEPT> {}

impl<A: RowArray, const KEPT: usize> RowArray for &KeptRow<'_, A, KEPT> {
    type Element = A::Element;
    const KEPT: usize = KEPT;

    #[inline(always)]
    fn fields(self) -> Fields<2> {
        self.array.fields()
    }

    // In most kernels the compiler sees that it is the same row.
    #[inline(always)]
    #[track_caller]
    fn line(self, part: &Part) -> Line<A::Element> {
        if self.row != part.row {
            fail(Mistake::KeptByAnotherRow(self.row, part.row));
        }
        self.array.line(part)
    }

    #[inline(always)]
    fn kept(self, Unit { thread, number, .. }: Unit) -> Option<Words> {
        // A thread that plays only itself has only its own words.
        let thread = if cfg!(target_arch = "nvptx64") || self.words.len() == 1 { 0 } else { thread as usize };
        if number < KEPT { Some(self.words[thread][number]) } else { None }
    }
}

impl<A: RowArray> Source for A {
    type Items = f32;
    type Lines = Line<A::Element>;
    type Words = Words;
    const ARRAYS: usize = 1;
    const KEPT: usize = A::KEPT;

    #[inline(always)]
    #[track_caller]
    fn lines(self, part: &Part) -> Line<A::Element> {
        self.line(part)
    }

    #[inline(always)]
    fn is_wide(line: &Line<A::Element>) -> bool {
        line.is_wide
    }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn dense(line: Line<A::Element>) -> Option<Line<A::Element>> {
        line.dense()
    }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn prefetch(line: Line<A::Element>, column: usize) {
        line.prefetch(column);
    }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    unsafe fn item(line: Line<A::Element>, column: usize) -> f32 {
        // SAFETY: as the caller promises.
        unsafe { line.place.wrapping_offset(column as isize * line.stride).read() }.to_f32()
    }

    #[inline(always)]
    unsafe fn load<const WIDE: bool>(self, line: Line<A::Element>, unit: Unit) -> Words {
        match self.kept(unit) {
            Some(words) => words,
            // SAFETY: as the caller promises.
            None => unsafe { line.load::<WIDE>(unit) },
        }
    }

    #[inline(always)]
    fn items(words: &Words, number: usize) -> f32 {
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
            const ARRAYS: usize = 0 $(+ $source::ARRAYS)*;
            const KEPT: usize = {
                let most = 0;
                $(let most = if $source::KEPT > most { $source::KEPT } else { most };)*
                most
            };

            #[inline(always)]
            #[track_caller]
            fn lines(self, part: &Part) -> Self::Lines {
                ($(self.$number.lines(part),)*)
            }

            #[inline(always)]
            fn is_wide(lines: &Self::Lines) -> bool {
                true $(&& $source::is_wide(&lines.$number))*
            }

            #[cfg(not(target_arch = "nvptx64"))]
            #[inline(always)]
            fn dense(lines: Self::Lines) -> Option<Self::Lines> {
                Some(($($source::dense(lines.$number)?,)*))
            }

            #[cfg(not(target_arch = "nvptx64"))]
            #[inline(always)]
            fn prefetch(lines: Self::Lines, column: usize) {
                $($source::prefetch(lines.$number, column);)*
            }

            #[cfg(not(target_arch = "nvptx64"))]
            #[inline(always)]
            unsafe fn item(lines: Self::Lines, column: usize) -> Self::Items {
                // SAFETY: as the caller promises.
                ($(unsafe { $source::item(lines.$number, column) },)*)
            }

            #[inline(always)]
            unsafe fn load<const WIDE: bool>(self, lines: Self::Lines, unit: Unit) -> Self::Words {
                // SAFETY: as the caller promises.
                ($(unsafe { self.$number.load::<WIDE>(lines.$number, unit) },)*)
            }

            #[inline(always)]
            fn items(words: &Self::Words, number: usize) -> Self::Items {
                ($($source::items(&words.$number, number),)*)
            }
        }
    };
}

tuples!();
tuples!(A 0 B 1);
tuples!(A 0 B 1 C 2);
tuples!(A 0 B 1 C 2 D 3);
