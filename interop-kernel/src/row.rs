//! A row that a team owns: sums and maxima of its elements, and what is written to them.
#![expect(unsafe_code, reason = "each thread of a team reads and writes its own elements")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "numbers of columns are below 2^31, those of rows below an extent; a sum of more numbers is not more precise"
)]

use core::marker::PhantomData;
use core::ops::Range;

#[cfg(target_arch = "nvptx64")]
use crate::device;
use crate::element::KernelElement;
use crate::element_function::ElementFunction;
use crate::fail::{Mistake, fail};
use crate::fields::Fields;
use crate::mapping::Rows;
use crate::real::{Real, RowElement};
use crate::row_source::{KeptRow, Line, Part, RowArray, Source, Unit, unrolled};
use crate::team_threads::TeamThreads;
use crate::view::{ViewMut, from_fields};

/// The rows of a team. [`Team::rows`](crate::Team::rows) makes it.
#[derive(Debug)]
pub struct OwnRows<'r, 't, T, const KEPT: usize> {
    pub(crate) team: &'r TeamThreads<'t>,
    pub(crate) fields: Fields<2>,
    pub(crate) rows: Range<u64>,
    pub(crate) step: u64,
    /// The rows of a part of a launch on the CPU, which are next to each other: up to which one, and how many.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) neighbours: Option<(u64, u64)>,
    pub(crate) element: PhantomData<T>,
}

impl<'r, 't, T: RowElement, const KEPT: usize> Iterator for OwnRows<'r, 't, T, KEPT> {
    type Item = Row<'r, 't, T, KEPT>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let row = self.rows.start;
        if row >= self.rows.end {
            return None;
        }
        // Rows and teams have fewer than 2^64 numbers together, but not by much.
        self.rows.start = row.saturating_add(self.step);
        #[cfg(not(target_arch = "nvptx64"))]
        if let Some((end, count)) = &mut self.neighbours {
            self.rows.start = row + 1;
            if self.rows.start == *end {
                self.rows.start = end.saturating_add((self.step - 1) * *count);
                *end = end.saturating_add(self.step * *count);
            }
        }
        Some(Row { team: self.team, part: part::<T>(&self.fields, row), element: PhantomData })
    }
}

/// Divides a row: elements up to the first aligned one, units, and elements after them. On the CPU element \[0, 0\] counts as aligned, as
/// new memory of a device is, so that results do not depend on the address.
#[inline(always)]
fn part<T: RowElement>(fields: &Fields<2>, row: u64) -> Part {
    let (columns, unit) = (fields.shape[1] as u32, T::UNIT as u32);
    let all = Part { row, columns, head: columns, end: columns, unit: T::UNIT };
    if fields.strides[1] != 1 {
        return all;
    }
    let elements = (row as i64).wrapping_mul(fields.strides[0]) as u32;
    let base = if cfg!(target_arch = "nvptx64") { fields.pointer.low.addr() / size_of::<T>() } else { 0 };
    let head = ((base as u32).wrapping_add(elements).wrapping_neg() & (unit - 1)).min(columns);
    Part { head, end: columns - (columns - head) % unit, ..all }
}

/// A row that a team owns. [`Team::rows`](crate::Team::rows) returns it.
///
/// Functions of elements run in the threads of the team, and see `f32` values of all types. Each thread has other elements, and
/// leaves nothing for the code around: such a function is an [`ElementFunction`], so it holds numbers and views, and says `move`.
#[derive(Debug)]
pub struct Row<'r, 't, T, const KEPT: usize> {
    pub(crate) team: &'r TeamThreads<'t>,
    pub(crate) part: Part,
    element: PhantomData<T>,
}

impl<'t, T: RowElement, const KEPT: usize> Row<'_, 't, T, KEPT> {
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
    pub fn keep<A: RowArray>(&self, array: A) -> KeptRow<'_, A, KEPT> {
        let line = array.line(&self.part);
        let words = |thread| {
            let (mut words, (first, step)) = ([[0; 8]; KEPT], self.first_unit(thread));
            unrolled!(number in 0..KEPT => {
                let unit = Unit { column: first + step * number as u32, count: T::UNIT, thread, number };
                // What is not wide is never looked for among the words.
                if line.is_wide && unit.column < self.part.end {
                    // SAFETY: there is a unit, and while it is kept nobody writes it: the array is borrowed.
                    words[number] = unsafe { line.load::<true>(unit) };
                }
            });
            words
        };
        #[cfg(not(target_arch = "nvptx64"))]
        if self.team.is_in_part() {
            // The cache of the CPU keeps it.
            return KeptRow { row: self.part.row, words: Vec::new(), array, marker: PhantomData };
        }
        KeptRow { row: self.part.row, words: self.team.of_each(words), array, marker: PhantomData }
    }

    /// Returns the first column of the units of a thread, and the distance of its units. The compiler forgets how they were computed: it
    /// would keep all addresses in registers from one operation to the next.
    #[inline(always)]
    fn first_unit(&self, thread: u32) -> (u32, u32) {
        let threads = self.team.size();
        #[cfg(target_arch = "nvptx64")]
        let (thread, threads) = (device::forget(thread), device::forget(threads));
        (self.part.head + thread * T::UNIT as u32, threads * T::UNIT as u32)
    }

    /// Returns the sum of a function of the elements.
    #[inline(always)]
    #[must_use]
    #[track_caller]
    pub fn sum<S: Source>(&self, source: S, f: impl Fn(S::Items) -> f32 + ElementFunction<'t>) -> f32 {
        let [sum] = self.sums(source, move |items| [f(items)]);
        sum
    }

    /// Returns up to three sums of functions of the elements, in one pass.
    ///
    /// ```
    /// use interop_kernel::{LaunchSize, Rows, Team, View, ViewMut, kernel};
    ///
    /// /// The variance of each row.
    /// #[kernel]
    /// fn variance(mut team: Team<'_>, x: View<'_, f32, 2>, mut out: ViewMut<'_, f32, 1, Rows>) {
    ///     for row in team.rows(&x) {
    ///         let [sum, squares] = row.sums(&x, |x| [x, x * x]);
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
    pub fn sums<S: Source, const N: usize>(
        &self,
        source: S,
        f: impl Fn(S::Items) -> [f32; N] + ElementFunction<'t>,
    ) -> [f32; N] {
        let add = |mut sums: [f32; N], values: [f32; N]| {
            unrolled!(number in 0..N => sums[number] += values[number]);
            sums
        };
        self.fold(source, [0.0; N], |items, _| f(items), add)
    }

    /// Returns the maximum of a function of the elements: NaN if it is NaN for one of them, and -∞ for no elements.
    #[inline(always)]
    #[must_use]
    #[track_caller]
    pub fn max<S: Source>(&self, source: S, f: impl Fn(S::Items) -> f32 + ElementFunction<'t>) -> f32 {
        let max = |[most]: [f32; 1], [x]: [f32; 1]| [if x > most || x.is_nan() { x } else { most }];
        // Of two zeros, or of two NaNs, each thread has its own. The sum is the same for all.
        self.fold(source, [f32::NEG_INFINITY], |items, _| [f(items)], max)[0] + 0.0
    }

    /// Returns the maximum, and its column: the first of several, and that of a NaN before all. No elements have the column 0.
    #[inline(always)]
    #[must_use]
    #[track_caller]
    pub fn argmax<S: Source>(
        &self,
        source: S,
        f: impl Fn(S::Items) -> f32 + ElementFunction<'t>,
    ) -> (f32, usize) {
        #[cfg(not(target_arch = "nvptx64"))]
        if self.team.is_in_part() {
            return self.argmax_on_host(source, self.max(source, f), f);
        }
        let is_more = |one: f32, other: f32| one > other || one.is_nan() && !other.is_nan();
        // The columns are bits of an `f32`.
        let max = |most: [f32; 2], other: [f32; 2]| {
            let is_first = other[1].to_bits() < most[1].to_bits() && !is_more(most[0], other[0]);
            if is_more(other[0], most[0]) || is_first { other } else { most }
        };
        let none = [f32::NEG_INFINITY, f32::from_bits(u32::MAX)];
        let [max, column] = self.fold(source, none, |items, column| [f(items), f32::from_bits(column)], max);
        (max, if column.to_bits() == u32::MAX { 0 } else { column.to_bits() as usize })
    }

    /// Returns up to three numbers that a function of your own makes of the elements, in one pass: a softmax that needs no maximum first,
    /// or a variance without cancellation.
    ///
    /// Each thread begins with `start`, and `step` adds an element to its numbers. `merge` combines the numbers of two threads. The order
    /// is that of [`sum`](Self::sum), on the CPU as on a device, so `merge` may depend on it: its first argument is of the thread with
    /// the lower number. Which elements a thread has depends on the number of threads, and on a device on the address of the array: of
    /// another `merge` than an associative one, so does the result. A thread may have no elements, so `start` must change nothing:
    /// `merge(start, x)` and `merge(x, start)` are `x`.
    ///
    /// ```
    /// use interop_kernel::{LaunchSize, Rows, Team, View, ViewMut, kernel, math};
    ///
    /// /// Softmax, which reads a row once for its maximum and its sum.
    /// #[kernel(same_shape(x, out))]
    /// fn softmax(mut team: Team<'_>, x: View<'_, f32, 2>, mut out: ViewMut<'_, f32, 2, Rows>) {
    ///     for row in team.rows(&x) {
    ///         let x = row.keep(&x);
    ///         let merge = |[max, sum]: [f32; 2], [other, others]: [f32; 2]| {
    ///             let most = if other > max { other } else { max };
    ///             [most, sum * math::exp(max - most) + others * math::exp(other - most)]
    ///         };
    ///         // The smallest number, and not -∞, of which the difference to itself is NaN.
    ///         let [max, sum] = row.reduce(&x, [f32::MIN, 0.0], move |own, x| merge(own, [x, 1.0]), merge);
    ///         row.write(&mut out, &x, move |x| math::exp(x - max) / sum);
    ///     }
    /// }
    ///
    /// let (x, mut out) = ([1.0, 1.0, 0.0, 0.0, f32::NEG_INFINITY, 0.0], [0.0; 6]);
    /// let size = LaunchSize::for_rows::<f32>(3, 2);
    /// softmax::run(size, View::new(&x, [3, 2]), ViewMut::new(&mut out, [3, 2]));
    /// assert_eq!(out, [0.5, 0.5, 0.5, 0.5, 0.0, 1.0]);
    /// ```
    #[inline(always)]
    #[must_use]
    #[track_caller]
    pub fn reduce<S: Source, const N: usize>(
        &self,
        source: S,
        start: [f32; N],
        step: impl Fn([f32; N], S::Items) -> [f32; N] + ElementFunction<'t>,
        merge: impl Fn([f32; N], [f32; N]) -> [f32; N] + ElementFunction<'t>,
    ) -> [f32; N] {
        const { assert!(0 < N && N <= 3, "a team reduces a row to one, two or three numbers at once") };
        let lines = source.lines(&self.part);
        #[cfg(not(target_arch = "nvptx64"))]
        if self.team.is_in_part() {
            return self.reduce_on_host::<S, N>(lines, start, move |own, items, _| step(own, items), merge);
        }
        let of_thread = |thread| {
            let mut reduction = Reduction { numbers: start, step };
            // SAFETY: of what is written, each thread has its own elements.
            unsafe { self.visit(source, lines, thread, true, &mut reduction) };
            reduction.numbers
        };
        self.team.combine::<N, true>(start, of_thread, merge)
    }

    /// Folds the elements of each thread, and combines the results, of which the order does not matter.
    #[inline(always)]
    #[track_caller]
    fn fold<S: Source, const N: usize>(
        &self,
        source: S,
        start: [f32; N],
        f: impl Fn(S::Items, u32) -> [f32; N],
        combine: impl Fn([f32; N], [f32; N]) -> [f32; N],
    ) -> [f32; N] {
        const { assert!(0 < N && N <= 3, "a team sums up to three values at once") };
        let lines = source.lines(&self.part);
        #[cfg(not(target_arch = "nvptx64"))]
        if self.team.is_in_part() {
            let step = |own, items, column| combine(own, f(items, column));
            return self.reduce_on_host::<S, N>(lines, start, step, &combine);
        }
        let of_thread = |thread| {
            let mut fold = Fold { values: start, f: &f, combine: &combine };
            // SAFETY: of what is written, each thread has its own elements.
            unsafe { self.visit(source, lines, thread, true, &mut fold) };
            fold.values
        };
        self.team.combine::<N, false>(start, of_thread, &combine)
    }

    /// Writes the row: a function of the elements.
    #[inline(always)]
    #[track_caller]
    pub fn write<E: Real, S: Source>(
        &self,
        array: &mut ViewMut<'_, E, 2, Rows>,
        source: S,
        f: impl Fn(S::Items) -> f32 + ElementFunction<'t>,
    ) {
        self.team.call();
        let line = Line::<E>::new(&array.fields, &self.part);
        let lines = source.lines(&self.part);
        #[cfg(not(target_arch = "nvptx64"))]
        if self.team.is_in_part() {
            return self.write_on_host::<E, S>(line, lines, f);
        }
        for thread in self.team.lanes() {
            // SAFETY: of what is written, each thread has its own elements.
            unsafe { self.visit(source, lines, thread, line.is_wide, &mut Store { line, f: &f }) };
        }
    }

    /// Changes the row in place: a function of its element, and of those of a source, which may be `()`.
    #[inline(always)]
    #[track_caller]
    pub fn change<E: Real, S: Source>(
        &self,
        array: &mut ViewMut<'_, E, 2, Rows>,
        source: S,
        f: impl Fn(f32, S::Items) -> f32 + ElementFunction<'t>,
    ) {
        // The thread that owns an element reads it before it writes it.
        let before: ViewMut<'_, E, 2, Rows> = from_fields::view_mut(array.fields);
        self.write(array, (&before, source), move |(own, items)| f(own, items));
    }

    /// Sets the element with the number of the row. For 16-bit numbers write [`T::from_f32(value)`](Real::from_f32).
    #[inline(always)]
    #[track_caller]
    pub fn set<E: KernelElement>(&self, array: &mut ViewMut<'_, E, 1, Rows>, value: E) {
        self.team.call();
        let (row, [rows]) = (self.number(), array.shape());
        if row >= rows {
            fail(Mistake::Outside(&[row], &[rows]));
        }
        if self.team.is_first() {
            let place = array.fields.pointer.low.cast::<E>().wrapping_offset(array.fields.offset([row]));
            // SAFETY: the element exists and is aligned, and belongs to the first thread of this team.
            unsafe { place.write(value) };
        }
    }

    /// Visits all elements of a thread. `is_wide` is whether units are aligned words in what is written.
    ///
    /// # Safety
    ///
    /// What is visited uses elements of this thread only. `lines` are those of the source.
    #[inline(always)]
    unsafe fn visit<S: Source>(
        &self,
        source: S,
        lines: S::Lines,
        thread: u32,
        is_wide: bool,
        visit: &mut impl Visit<S>,
    ) {
        let Part { columns, head, end, .. } = self.part;
        let (column, step) = self.first_unit(thread);
        let mut single = (column - head) / T::UNIT as u32;
        while single < columns - (end - head) {
            let column = if single < head { single } else { end - head + single };
            let unit = Unit { column, count: 1, thread, number: usize::MAX };
            // SAFETY: as the caller promises: each thread has its own single elements.
            let words = unsafe { source.load::<false>(lines, unit) };
            // SAFETY: as above.
            unsafe { visit.visit::<false>(unit, &words) };
            single += step / T::UNIT as u32;
        }
        let mut unit = Unit { column, count: T::UNIT, thread, number: 0 };
        let batch = const { if S::ARRAYS > 1 { 1 } else { BATCH } };
        if is_wide && S::is_wide(&lines) {
            unrolled!(number in 0..S::KEPT.div_ceil(batch) => {
                unit.number = number * batch;
                // SAFETY: as the caller promises; all lines are wide.
                unsafe { self.batch(source, lines, visit, unit, step, batch) };
                unit.column += step * batch as u32;
            });
            unit.number = usize::MAX / 2;
            while unit.column < end {
                // SAFETY: as above.
                unsafe { self.batch(source, lines, visit, unit, step, batch) };
                unit.column += step * batch as u32;
            }
            return;
        }
        unit.number = usize::MAX;
        while unit.column < end {
            // SAFETY: as the caller promises: each thread has its own units.
            let words = unsafe { source.load::<false>(lines, unit) };
            // SAFETY: as above.
            unsafe { visit.visit::<false>(unit, &words) };
            unit.column += step;
        }
    }

    /// Visits some units of a thread. All loads are before the first store, which the compiler takes for one to the same place.
    ///
    /// # Safety
    ///
    /// As [`visit`](Self::visit), and all lines are wide.
    #[inline(always)]
    unsafe fn batch<S: Source>(
        &self,
        source: S,
        lines: S::Lines,
        visit: &mut impl Visit<S>,
        first: Unit,
        step: u32,
        count: usize,
    ) {
        let mut words = [S::Words::default(); 8];
        let unit = |number| Unit {
            column: first.column + step * number as u32,
            number: first.number + number,
            ..first
        };
        unrolled!(number in 0..count => {
            if unit(number).column < self.part.end {
                // SAFETY: there is a unit, and as the caller promises.
                words[number] = unsafe { source.load::<true>(lines, unit(number)) };
            }
        });
        unrolled!(number in 0..count => {
            if unit(number).column < self.part.end {
                // SAFETY: as above.
                unsafe { visit.visit::<true>(unit(number), &words[number]) };
            }
        });
    }
}

/// The number of units of one array that a thread loads before it uses the first.
const BATCH: usize = 2;

/// What is done with elements of a row.
trait Visit<S: Source> {
    /// # Safety
    ///
    /// The row has the elements, and they belong to this thread. With `WIDE` they are a unit of aligned words.
    unsafe fn visit<const WIDE: bool>(&mut self, unit: Unit, words: &S::Words);
}

struct Fold<'f, F, G, const N: usize> {
    values: [f32; N],
    f: &'f F,
    combine: &'f G,
}

impl<S: Source, F, G, const N: usize> Visit<S> for Fold<'_, F, G, N>
where
    F: Fn(S::Items, u32) -> [f32; N],
    G: Fn([f32; N], [f32; N]) -> [f32; N],
{
    #[inline(always)]
    unsafe fn visit<const WIDE: bool>(&mut self, Unit { column, count, .. }: Unit, words: &S::Words) {
        unrolled!(number in 0..count => {
            let values = (self.f)(S::items(words, number), column + number as u32);
            self.values = (self.combine)(self.values, values);
        });
    }
}

struct Reduction<F, const N: usize> {
    numbers: [f32; N],
    step: F,
}

impl<S: Source, F: Fn([f32; N], S::Items) -> [f32; N], const N: usize> Visit<S> for Reduction<F, N> {
    #[inline(always)]
    unsafe fn visit<const WIDE: bool>(&mut self, Unit { count, .. }: Unit, words: &S::Words) {
        unrolled!(number in 0..count => {
            self.numbers = (self.step)(self.numbers, S::items(words, number));
        });
    }
}

struct Store<'f, E, F> {
    line: Line<E>,
    f: &'f F,
}

impl<S: Source, E: Real, F: Fn(S::Items) -> f32> Visit<S> for Store<'_, E, F> {
    #[inline(always)]
    unsafe fn visit<const WIDE: bool>(&mut self, unit: Unit, words: &S::Words) {
        // SAFETY: as the caller promises.
        unsafe { self.line.store::<WIDE>(unit, |number| (self.f)(S::items(words, number))) };
    }
}
