//! A row that a team owns: sums and maxima of its elements, and what is written to them.
#![expect(unsafe_code, reason = "each thread of a team reads and writes its own elements")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "numbers of columns are below 2^31, those of rows below an extent; a sum of more numbers is not more precise"
)]

use core::fmt;
use core::marker::PhantomData;
use core::ops::Range;

#[cfg(target_arch = "nvptx64")]
use crate::device;
use crate::element::KernelElement;
use crate::fail::{Mistake, fail};
use crate::mapping::Rows;
use crate::real::{ElementValue, Real, RowElement};
use crate::row_source::{Kept, KeptWords, Line, Part, RowArray, Source, unrolled};
use crate::team::{Place, Sum, Team, sealed::Value};
use crate::view::{Fields, ViewMut};

/// The rows of a team. [`Team::rows`] makes it.
pub struct OwnRows<'r, T, const KEPT: usize> {
    team: &'r Team<'r, KEPT>,
    fields: Fields<2>,
    rows: Range<u64>,
    step: u64,
    element: PhantomData<T>,
}

impl<'r, T, const KEPT: usize> OwnRows<'r, T, KEPT> {
    #[inline(always)]
    pub(crate) fn new(team: &'r Team<'r, KEPT>, fields: Fields<2>, rows: Range<u64>, step: u64) -> Self {
        Self { team, fields, rows, step, element: PhantomData }
    }
}

impl<T, const KEPT: usize> fmt::Debug for OwnRows<'_, T, KEPT> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnRows").field("next", &self.rows.start).field("end", &self.rows.end).finish()
    }
}

impl<'r, T: RowElement, const KEPT: usize> Iterator for OwnRows<'r, T, KEPT> {
    type Item = Row<'r, T, KEPT>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let row = self.rows.start;
        if row >= self.rows.end {
            return None;
        }
        // Rows and teams have fewer than 2^64 numbers together, but not by much.
        self.rows.start = row.saturating_add(self.step);
        Some(Row { team: self.team, part: part::<T>(&self.fields, row), element: PhantomData })
    }
}

/// Divides a row: elements up to the first aligned one, units, and elements after them. On the CPU element \[0, 0\] counts as aligned, as
/// new memory of a device is, so that results do not depend on the address.
#[inline(always)]
fn part<T: RowElement>(fields: &Fields<2>, row: u64) -> Part {
    let (columns, unit) = (fields.shape[1] as u32, T::UNIT as u32);
    if fields.strides[1] != 1 {
        return Part { row, columns, head: columns, end: columns };
    }
    let elements = (row as i64).wrapping_mul(fields.strides[0]) as u32;
    let base = if cfg!(target_arch = "nvptx64") { fields.pointer.low.addr() / size_of::<T>() } else { 0 };
    let head = ((base as u32).wrapping_add(elements).wrapping_neg() & (unit - 1)).min(columns);
    Part { row, columns, head, end: columns - (columns - head) % unit }
}

/// A row that a team owns. [`Team::rows`] returns it.
///
/// Functions of elements run in the threads of the team, and see `f32` values of all types. They change nothing outside: each
/// thread has other elements.
pub struct Row<'r, T, const KEPT: usize> {
    team: &'r Team<'r, KEPT>,
    part: Part,
    element: PhantomData<T>,
}

impl<T, const KEPT: usize> fmt::Debug for Row<'_, T, KEPT> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row").field("number", &self.part.row).field("columns", &self.part.columns).finish()
    }
}

impl<T: RowElement, const KEPT: usize> Row<'_, T, KEPT> {
    /// The number of the row in its array.
    #[inline(always)]
    #[must_use]
    pub fn number(&self) -> usize {
        self.part.row as usize
    }

    /// The number of columns, as the `f32` that a mean is divided by.
    #[inline(always)]
    #[must_use]
    pub fn columns(&self) -> f32 {
        self.part.columns as f32
    }

    /// Reads the row, of which each thread keeps its first elements in registers. The rest of a longer row is read again where it is used.
    ///
    /// # Panics
    ///
    /// If the array has no such row, or another number of columns: a trap on a device. So do all functions of a row.
    #[inline(always)]
    #[must_use]
    #[track_caller]
    pub fn keep<A: RowArray>(&self, array: A) -> Kept<'_, A, KEPT> {
        let line = Line::<A::Element>::find(array, T::UNIT, &self.part);
        Kept::new(array, self.team.lanes(), |thread| self.words(line, thread))
    }

    #[inline(always)]
    fn words<E: RowElement>(&self, line: Line<E>, thread: u32) -> KeptWords<KEPT> {
        let mut words = [[0; 8]; KEPT];
        if !line.is_wide() {
            // What is not wide is never looked for among the words.
            return words;
        }
        let (first, step) = self.first_unit(thread);
        unrolled!(number in 0..8 of KEPT => {
            let column = first + step * number as u32;
            if column < self.part.end {
                // SAFETY: there is a unit, and while it is kept nobody writes it: `keep` borrows the array.
                words[number] = unsafe { line.load::<true>(column, T::UNIT) };
            }
        });
        words
    }

    /// Returns the first column of the units of a thread, and the distance of its units. The compiler forgets how they were computed: it
    /// would keep all addresses in registers from one operation to the next.
    #[inline(always)]
    fn first_unit(&self, thread: u32) -> (u32, u32) {
        let (thread, threads) = self.number_and_count(thread);
        (self.part.head + thread * T::UNIT as u32, threads * T::UNIT as u32)
    }

    #[inline(always)]
    fn number_and_count(&self, thread: u32) -> (u32, u32) {
        let threads = self.team.size();
        #[cfg(target_arch = "nvptx64")]
        let (thread, threads) = (device::forget(thread), device::forget(threads));
        (thread, threads)
    }

    /// Returns the sum of a function of the elements: an `f32`, or several sums as `[f32; 2]` or `[f32; 3]`.
    ///
    /// ```
    /// use interop_kernel::{LaunchSize, Rows, Team, View, ViewMut, kernel};
    ///
    /// /// The variance of each row, in one pass.
    /// #[kernel]
    /// fn variance(mut team: Team<'_>, x: View<'_, f32, 2>, mut out: ViewMut<'_, f32, 1, Rows>) {
    ///     for row in team.rows(&x) {
    ///         let [sum, squares] = row.sum(&x, |x| [x, x * x]);
    ///         let mean = sum / row.columns();
    ///         row.set(&mut out, squares / row.columns() - mean * mean);
    ///     }
    /// }
    ///
    /// let (x, mut out) = ([1.0, 3.0, 5.0, 5.0], [0.0; 2]);
    /// variance::run(LaunchSize::for_rows::<f32>(2, 2), View::new(&x, [2, 2]), ViewMut::new(&mut out, [2]));
    /// assert_eq!(out, [1.0, 0.0]);
    /// ```
    #[inline(always)]
    #[must_use]
    #[track_caller]
    pub fn sum<S: Source, V: Sum>(&self, source: S, f: impl Fn(S::Items) -> V + Sync) -> V {
        self.fold(source, V::ZERO, |sum, items, _| sum.add(f(items)), V::add)
    }

    /// Returns the maximum of a function of the elements: NaN if it is NaN for one of them, and -∞ for no elements.
    #[inline(always)]
    #[must_use]
    #[track_caller]
    pub fn max<S: Source>(&self, source: S, f: impl Fn(S::Items) -> f32 + Sync) -> f32 {
        let max = |most: f32, x: f32| if x > most || x.is_nan() { x } else { most };
        self.fold(source, f32::NEG_INFINITY, |most, items, _| max(most, f(items)), max)
    }

    /// Returns the maximum, and its column: the first of several, and that of a NaN before all. No elements have the column 0.
    #[inline(always)]
    #[must_use]
    #[track_caller]
    pub fn argmax<S: Source>(&self, source: S, f: impl Fn(S::Items) -> f32 + Sync) -> (f32, usize) {
        let max = |most: Place, other: Place| {
            let is_more = |one: f32, other: f32| one > other || one.is_nan() && !other.is_nan();
            let is_first = other.column < most.column && !is_more(most.value, other.value);
            if is_more(other.value, most.value) || is_first { other } else { most }
        };
        let none = Place { value: f32::NEG_INFINITY, column: u32::MAX };
        let place =
            self.fold(source, none, |most, items, column| max(most, Place { value: f(items), column }), max);
        (place.value, if place.column == u32::MAX { 0 } else { place.column as usize })
    }

    /// Folds the elements of each thread, and combines the results.
    #[inline(always)]
    #[track_caller]
    fn fold<S: Source, V: Value>(
        &self,
        source: S,
        start: V,
        f: impl Fn(V, S::Items, u32) -> V,
        combine: impl Fn(V, V) -> V,
    ) -> V {
        let lines = source.lines(T::UNIT, &self.part);
        let of_thread = |thread| {
            let mut fold = Fold { value: start, f: &f };
            // SAFETY: of what is written, each thread has its own elements.
            unsafe { self.visit(source, lines, thread, &mut fold) };
            fold.value
        };
        self.team.combine(start, of_thread, combine)
    }

    /// Writes the row: a function of the elements.
    #[inline(always)]
    #[track_caller]
    pub fn write<E: Real, S: Source>(
        &self,
        array: &mut ViewMut<'_, E, 2, Rows>,
        source: S,
        f: impl Fn(S::Items) -> f32 + Sync,
    ) {
        let line = Line::of(array, T::UNIT, &self.part);
        let lines = source.lines(T::UNIT, &self.part);
        for thread in self.team.lanes() {
            // SAFETY: of what is written, each thread has its own elements.
            unsafe { self.visit(source, lines, thread, &mut Store { line, f: &f }) };
        }
    }

    /// Changes the row in place: a function of its element, and of those of a source, which may be `()`.
    #[inline(always)]
    #[track_caller]
    pub fn change<E: Real, S: Source>(
        &self,
        array: &mut ViewMut<'_, E, 2, Rows>,
        source: S,
        f: impl Fn(f32, S::Items) -> f32 + Sync,
    ) {
        // The thread that owns an element reads it before it writes it.
        let before = array.before();
        self.write(array, (&before, source), |(own, items)| f(own, items));
    }

    /// Sets the element with the number of the row: one of [`Real`]s to an `f32`, and an integer to one of its type.
    #[inline(always)]
    #[track_caller]
    pub fn set<E: KernelElement>(&self, array: &mut ViewMut<'_, E, 1, Rows>, value: impl ElementValue<E>) {
        let (row, [rows]) = (self.number(), array.shape());
        if row >= rows {
            fail(Mistake::Outside(&[row], &[rows]));
        }
        if self.team.is_first() {
            let place = array.fields.pointer.low.cast::<E>().wrapping_offset(array.fields.offset([row]));
            // SAFETY: the element exists and is aligned, and belongs to the first thread of this team.
            unsafe { place.write(value.to_element()) };
        }
    }

    /// Visits all elements of a thread.
    ///
    /// # Safety
    ///
    /// What is visited uses elements of this thread only. `lines` are those of the source.
    #[inline(always)]
    unsafe fn visit<S: Source>(&self, source: S, lines: S::Lines, thread: u32, visit: &mut impl Visit<S>) {
        let Part { columns, head, end, .. } = self.part;
        let (mut single, step) = self.number_and_count(thread);
        while single < columns - (end - head) {
            let column = if single < head { single } else { end - head + single };
            // SAFETY: as the caller promises: each thread has its own single elements.
            unsafe { visit.load_and_visit::<false>(source, lines, column, 1, thread) };
            single += step;
        }
        let is_wide = S::is_wide(&lines) && visit.is_wide();
        let (mut column, step) = self.first_unit(thread);
        if is_wide {
            // SAFETY: as the caller promises; all lines are wide.
            unsafe { self.visit_wide(source, lines, thread, visit) };
            return;
        }
        while column < end {
            // SAFETY: as the caller promises: each thread has its own units.
            unsafe { visit.load_and_visit::<false>(source, lines, column, T::UNIT, thread) };
            column += step;
        }
    }

    /// Visits the units of a thread.
    ///
    /// # Safety
    ///
    /// As [`visit`](Self::visit), and all lines are wide.
    #[inline(always)]
    unsafe fn visit_wide<S: Source>(
        &self,
        source: S,
        lines: S::Lines,
        thread: u32,
        visit: &mut impl Visit<S>,
    ) {
        let batch = const {
            match S::ARRAYS {
                0 | 1 => BATCH,
                _ => BATCH / 2,
            }
        };
        let (mut column, step) = self.first_unit(thread);
        unrolled!(number in 0..8 of S::KEPT.div_ceil(batch) => {
            // SAFETY: as the caller promises.
            unsafe { self.batch(source, lines, visit, (column, step), (thread, number * batch), batch) };
            column += step * batch as u32;
        });
        while column < self.part.end {
            // SAFETY: as above.
            unsafe { self.batch(source, lines, visit, (column, step), (thread, usize::MAX / 2), batch) };
            column += step * batch as u32;
        }
    }

    /// Visits some units of a thread. All loads are before the first store, which the compiler takes for one to the same place.
    ///
    /// # Safety
    ///
    /// As [`visit_wide`](Self::visit_wide).
    #[inline(always)]
    unsafe fn batch<S: Source>(
        &self,
        source: S,
        lines: S::Lines,
        visit: &mut impl Visit<S>,
        (first, step): (u32, u32),
        (thread, unit): (u32, usize),
        count: usize,
    ) {
        let mut words = [S::NOTHING; 8];
        unrolled!(number in 0..8 of count => {
            let column = first + step * number as u32;
            if column < self.part.end {
                // SAFETY: there is a unit, and as the caller promises.
                words[number] = unsafe { source.load::<true>(lines, column, T::UNIT, (thread, unit + number)) };
            }
        });
        unrolled!(number in 0..8 of count => {
            let column = first + step * number as u32;
            if column < self.part.end {
                // SAFETY: as above.
                unsafe { visit.visit::<true>(column, T::UNIT, &words[number]) };
            }
        });
    }
}

/// The number of units that a thread loads before it uses the first.
const BATCH: usize = 2;

/// What is done with elements of a row.
trait Visit<S: Source> {
    fn is_wide(&self) -> bool;

    /// # Safety
    ///
    /// The row has `count` elements from `column` on, which belong to this thread. With `WIDE` they are a unit and `is_wide`.
    unsafe fn visit<const WIDE: bool>(&mut self, column: u32, count: usize, words: &S::Words);

    /// # Safety
    ///
    /// As [`visit`](Self::visit), and `lines` are those of the source.
    #[inline(always)]
    unsafe fn load_and_visit<const WIDE: bool>(
        &mut self,
        source: S,
        lines: S::Lines,
        column: u32,
        count: usize,
        thread: u32,
    ) {
        // SAFETY: as the caller promises.
        let words = unsafe { source.load::<WIDE>(lines, column, count, (thread, usize::MAX)) };
        // SAFETY: as above.
        unsafe { self.visit::<WIDE>(column, count, &words) };
    }
}

struct Fold<'f, V, F> {
    value: V,
    f: &'f F,
}

impl<S: Source, V: Copy, F: Fn(V, S::Items, u32) -> V> Visit<S> for Fold<'_, V, F> {
    #[inline(always)]
    fn is_wide(&self) -> bool {
        true
    }

    #[inline(always)]
    unsafe fn visit<const WIDE: bool>(&mut self, column: u32, count: usize, words: &S::Words) {
        unrolled!(number in 0..8 of count => {
            self.value = (self.f)(self.value, S::items(words, column, number), column + number as u32);
        });
    }
}

struct Store<'f, E, F> {
    line: Line<E>,
    f: &'f F,
}

impl<S: Source, E: Real, F: Fn(S::Items) -> f32> Visit<S> for Store<'_, E, F> {
    #[inline(always)]
    fn is_wide(&self) -> bool {
        self.line.is_wide()
    }

    #[inline(always)]
    unsafe fn visit<const WIDE: bool>(&mut self, column: u32, count: usize, words: &S::Words) {
        let value = |number| (self.f)(S::items(words, column, number));
        // SAFETY: as the caller promises.
        unsafe { self.line.store::<WIDE>(column, count, value) };
    }
}
