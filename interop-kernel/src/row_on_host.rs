//! What a row does in a launch on the CPU: one thread plays all threads of the team, with the order of their sums.
#![expect(unsafe_code, reason = "the thread reads and writes all elements of the row")]
#![expect(clippy::cast_possible_truncation, reason = "numbers of columns are below 2^31")]

use core::marker::PhantomData;
use core::mem::MaybeUninit;

use crate::fields::Fields;
use crate::host_part::HostPart;
use crate::real::{Real, RowElement};
use crate::row::{OwnRows, Row};
use crate::row_source::{Line, Source, unrolled};
use crate::team_threads::TeamThreads;

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
        let mut sums = Lanes::new(start, self.team.size() as usize);
        match S::dense(lines) {
            // SAFETY: these are lines of the row.
            Some(lines) => unsafe { self.reduce_into::<S, N>(&mut sums, lines, step) },
            // SAFETY: as above.
            None => unsafe { self.reduce_into::<S, N>(&mut sums, lines, step) },
        }
        sums.merged(start, merge)
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
        let mut first = head;
        while first < end {
            let count = sums.count.min((end - first) / T::UNIT);
            for lane in 0..count {
                let mut values = sums.get(lane);
                unrolled!(number in 0..T::UNIT => values = add(values, first + lane * T::UNIT + number));
                sums.set(lane, values);
            }
            first += count * T::UNIT;
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

/// The maximum number of threads of a team.
const MOST: usize = 1024;

/// Up to three values for each thread of a team. Those of one kind are next to each other, so that the CPU computes several at once.
struct Lanes<const N: usize> {
    values: [[MaybeUninit<f32>; MOST]; N],
    count: usize,
}

impl<const N: usize> Lanes<N> {
    #[inline(always)]
    fn new(start: [f32; N], count: usize) -> Self {
        assert!(count <= MOST, "a block has up to {MOST} threads");
        let mut lanes = Self { values: [[MaybeUninit::uninit(); MOST]; N], count };
        (0..count).for_each(|lane| lanes.set(lane, start));
        lanes
    }

    #[inline(always)]
    fn get(&self, lane: usize) -> [f32; N] {
        debug_assert!(lane < MOST);
        core::array::from_fn(|kind| {
            // SAFETY: callers ask for lanes below `count`, or below the next power of two once these are set: at most `MOST`.
            let value = unsafe { self.values[kind].get_unchecked(lane) };
            // SAFETY: as above, and `new` or `merged` has set it.
            unsafe { value.assume_init() }
        })
    }

    #[inline(always)]
    fn set(&mut self, lane: usize, values: [f32; N]) {
        debug_assert!(lane < MOST);
        for (kind, value) in values.into_iter().enumerate() {
            // SAFETY: as in `get`.
            *unsafe { self.values[kind].get_unchecked_mut(lane) } = MaybeUninit::new(value);
        }
    }

    /// Merges as a device does: the lanes of each warp, then the warps.
    #[inline(always)]
    fn merged(mut self, start: [f32; N], merge: impl Fn([f32; N], [f32; N]) -> [f32; N]) -> [f32; N] {
        const WARP: usize = 32;
        let (warps, width) = (self.count.div_ceil(WARP), self.count.min(WARP));
        for warp in 0..warps {
            self.merge_neighbours(warp * WARP, width, &merge);
            let values = self.get(warp * WARP);
            self.set(warp, values);
        }
        for warp in warps..warps.next_power_of_two() {
            self.set(warp, start);
        }
        self.merge_neighbours(0, warps.next_power_of_two(), &merge);
        self.get(0)
    }

    /// Merges a power of two of lanes into the first one, by halves.
    #[inline(always)]
    fn merge_neighbours(
        &mut self,
        first: usize,
        count: usize,
        merge: &impl Fn([f32; N], [f32; N]) -> [f32; N],
    ) {
        let mut half = count / 2;
        while half > 0 {
            for lane in first..first + half {
                self.set(lane, merge(self.get(lane), self.get(lane + half)));
            }
            half /= 2;
        }
    }
}
