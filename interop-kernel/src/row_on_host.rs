//! What a row does in a launch on the CPU: one thread plays all threads of the team, with the order of their sums.
#![expect(unsafe_code, reason = "the thread reads and writes all elements of the row")]
#![expect(clippy::cast_possible_truncation, reason = "numbers of columns are below 2^31")]

use core::marker::PhantomData;

use crate::fields::Fields;
use crate::host_part::HostPart;
use crate::lanes::Lanes;
use crate::real::{Real, RowElement};
use crate::row::{OwnRows, Row};
use crate::row_source::{Line, Source, unrolled};
use crate::team_threads::TeamThreads;

/// How many bytes before their use elements are loaded into the cache: those of a page, at whose end the processor stops to do it by itself.
const AHEAD: usize = 4096;

/// The lanes that are computed before more is loaded ahead: a processor has few loads on their way at a time.
const BLOCK: usize = 32;

/// The number of bytes that come into the cache together.
const CACHE_LINE: usize = 64;

impl<'r, 't, T, const KEPT: usize> OwnRows<'r, 't, T, KEPT> {
    /// The rows of a part: some neighbours, then those that the other parts leave. Whose row it is depends on its number alone: in two loops
    /// of one kernel, over arrays with different numbers of rows, it is that of the same part.
    #[inline(always)]
    pub(crate) fn of_part(team: &'r TeamThreads<'t>, fields: Fields<2>, part: HostPart<'_>) -> Self {
        let (rows, count) = (fields.extents()[0] as u64, u64::from(part.rows));
        let first = u64::from(part.number) * count;
        let neighbours = Some((first + count, count));
        Self { team, fields, rows: first..rows, step: part.parts.into(), neighbours, element: PhantomData }
    }
}

impl<T: RowElement, const KEPT: usize> Row<'_, '_, T, KEPT> {
    /// Reduces the elements in the order of the device: each of its threads has a lane, and neighbours of these are computed together.
    #[inline(always)]
    pub(crate) fn reduce_on_host<S: Source, const N: usize>(
        &self,
        lines: S::Lines,
        start: [f32; N],
        step: impl Fn([f32; N], S::Items, u32) -> [f32; N],
        merge: impl Fn([f32; N], [f32; N]) -> [f32; N],
    ) -> [f32; N] {
        let mut sums = Lanes::new();
        sums.begin(start, self.team.size() as usize);
        match S::dense(lines) {
            // SAFETY: these are lines of the row.
            Some(lines) => unsafe { self.reduce_into::<S, N>(&mut sums, lines, step) },
            // SAFETY: as above.
            None => unsafe { self.reduce_into::<S, N>(&mut sums, lines, step) },
        }
        sums.merge(start, merge)
    }

    /// # Safety
    ///
    /// The lines are those of this row, which nobody writes.
    #[inline(always)]
    unsafe fn reduce_into<S: Source, const N: usize>(
        &self,
        sums: &mut Lanes<N>,
        lines: S::Lines,
        step: impl Fn([f32; N], S::Items, u32) -> [f32; N],
    ) {
        let [columns, head, end] =
            [self.part.columns, self.part.head, self.part.end].map(|column| column as usize);
        // SAFETY: as the caller promises; the functions below ask for columns of the row.
        let add = |own, column| step(own, unsafe { S::item(lines, column) }, column as u32);
        for single in 0..columns - (end - head) {
            let column = if single < head { single } else { end - head + single };
            let lane = single % sums.count;
            sums.set(lane, add(sums.get(lane), column));
        }
        let (mut first, mut lane) = (head, 0);
        while first < end {
            let count = BLOCK.min(sums.count - lane).min((end - first) / T::UNIT);
            let ahead = first + AHEAD / size_of::<T>();
            (ahead..ahead + count * T::UNIT)
                .step_by(CACHE_LINE / size_of::<T>())
                .for_each(|column| S::prefetch(lines, column));
            for unit in 0..count {
                let mut values = sums.get(lane + unit);
                unrolled!(number in 0..T::UNIT => values = add(values, first + unit * T::UNIT + number));
                sums.set(lane + unit, values);
            }
            first += count * T::UNIT;
            lane = if lane + count == sums.count { 0 } else { lane + count };
        }
    }

    /// Finds the maximum, then its first column: several elements at once, in both.
    #[inline(always)]
    #[track_caller]
    #[expect(clippy::float_cmp, reason = "the maximum is one of the values")]
    pub(crate) fn argmax_on_host<S: Source>(
        &self,
        source: S,
        max: f32,
        f: impl Fn(S::Items) -> f32,
    ) -> (f32, usize) {
        const GROUP: usize = 64;
        let lines = source.lines(&self.part);
        let lines = S::dense(lines).unwrap_or(lines);
        let columns = self.part.columns as usize;
        // SAFETY: these are lines of the row, which nobody writes; the columns are below their number.
        let value = |column| f(unsafe { S::item(lines, column) });
        let is_max = |x: f32| x == max || x.is_nan() & max.is_nan();
        let mut first = 0;
        while first + GROUP <= columns
            && !(first..first + GROUP).fold(false, |found, column| found | is_max(value(column)))
        {
            first += GROUP;
        }
        let found = (first..columns).find(|column| is_max(value(*column)));
        found.map_or((f32::NEG_INFINITY, 0), |column| (value(column), column))
    }

    /// Writes the row: a function of the elements of a source, which may be those that are written.
    #[inline(always)]
    pub(crate) fn write_on_host<E: Real, S: Source>(
        &self,
        line: Line<E>,
        lines: S::Lines,
        f: impl Fn(S::Items) -> f32,
    ) {
        match (line.dense(), S::dense(lines)) {
            // SAFETY: these are lines of the row, which this thread owns.
            (Some(line), Some(lines)) => unsafe { self.write_lines::<E, S>(line, lines, f) },
            // SAFETY: as above.
            _ => unsafe { self.write_lines::<E, S>(line, lines, f) },
        }
    }

    /// # Safety
    ///
    /// The lines are those of this row. Nobody writes those of the source, and nobody else uses the other one.
    #[inline(always)]
    unsafe fn write_lines<E: Real, S: Source>(
        &self,
        line: Line<E>,
        lines: S::Lines,
        f: impl Fn(S::Items) -> f32,
    ) {
        for column in 0..self.part.columns as usize {
            // SAFETY: as the caller promises.
            let items = unsafe { S::item(lines, column) };
            // SAFETY: as the caller promises.
            unsafe { line.set(column, f(items)) };
        }
    }
}
