//! Loops over one or two arrays of one shape, compiled together with a closure. Axes are sorted by stride and merged where
//! possible.
//!
//! Launches of kernels go along the same axes, on the same threads, but in loops of their own: these have any rank, closures that change
//! variables, and bytes that may be no `bool`.
//!
//! The inner loop runs over pointers, so the compiler vectorizes it if the elements are contiguous. The functions are
//! inlined so that the variables that the closure changes stay in registers.
#![expect(clippy::inline_always, reason = "loops are compiled together with the closure that they are for")]

use crate::array::dims::Dims;
use crate::array::element::Element;
use crate::array::layout::axes::{ARRAYS, Axis, Offsets, Steps, arrange, offsets, sum};
use crate::array::layout::is_contiguous;
use crate::array::layout::order::Order;
use crate::memory::host::cells::{invalid_bool, read_valid};

/// The size of the tiles for arrays of opposite memory orders: the maximum extent of the second loop, and the number of
/// elements.
type Tile = (usize, usize);

/// The tile if the elements at the stride of the inner loop map to different cache sets.
const SQUARE: Tile = (128, 128 * 64);

/// The tile if they map to few cache sets, as with strides that are powers of two, and for elements of one byte.
const NARROW: Tile = (512, 512 * 16);

/// An inner loop with fewer steps takes longer to start than to run.
const SHORT: usize = 8;

/// The two inner loops, starting at the offsets `first`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plane {
    pub(crate) first: Steps,
    pub(crate) rows: Axis,
    pub(crate) run: Axis,
}

/// Nested loops over all elements. No loop has 0 iterations.
#[derive(Clone, Debug)]
pub(crate) struct Loops {
    /// From the innermost to the outermost. Only the first `ndim` are used.
    axes: Dims<Axis>,
    ndim: usize,
    /// The offset of the first visited element, in each array.
    first: Steps,
    /// The tile size of the two inner loops.
    tile: Option<Tile>,
}

impl Loops {
    /// Creates the loops over arrays of this shape, given the strides of each in elements. They visit the elements by
    /// address in the first array, from the lowest address on. Returns `None` for arrays without elements.
    #[inline]
    pub(crate) fn new(shape: &[usize], strides: &[&[isize]]) -> Option<Self> {
        if shape.contains(&0) {
            return None;
        }
        let are_contiguous = || strides.iter().all(|strides| is_contiguous(shape, strides, Order::C));
        if !shape.is_empty() && are_contiguous() {
            let mut axes = Dims::zeroed(1);
            axes[0] = Axis {
                extent: shape.iter().product(),
                steps: core::array::from_fn(|array| isize::from(array < strides.len())),
            };
            return Some(Self { axes, ndim: 1, first: [0; ARRAYS], tile: None });
        }
        let (axes, ndim) = (Dims::zeroed(shape.len().max(1)), 0);
        // Changed in place, because loops have about two hundred bytes.
        let mut place = Some(Self { axes, ndim, first: [0; ARRAYS], tile: None });
        let loops = place.as_mut()?;
        for (at, extent) in shape.iter().enumerate().rev().filter(|(_, extent)| **extent != 1) {
            let steps = core::array::from_fn(|array| strides.get(array).map_or(0, |steps| steps[at]));
            loops.axes[loops.ndim] = Axis { extent: *extent, steps };
            loops.ndim += 1;
        }
        (loops.first, loops.ndim) = arrange(&mut loops.axes[..loops.ndim]);
        if loops.ndim == 0 {
            (loops.axes[0], loops.ndim) = (Axis::ONCE, 1);
        }
        place
    }

    /// As [`new`](Self::new), in tiles if that is faster. `item` is the size of an element in bytes.
    pub(crate) fn tiled(shape: &[usize], strides: &[&[isize]], item: usize) -> Option<Self> {
        let mut place = Self::new(shape, strides);
        if let Some(loops) = &mut place {
            loops.tile(item);
        }
        place
    }

    /// Creates the loops over axes that were arranged, for elements of `item` bytes.
    pub(crate) fn from_axes(axes: &[Axis], item: usize) -> Self {
        let axes = Dims::from(if axes.is_empty() { &[Axis::ONCE] } else { axes });
        let mut loops = Self { ndim: axes.len(), axes, first: [0; ARRAYS], tile: None };
        loops.tile(item);
        loops
    }

    /// The axes from the innermost to the outermost, and the offset of the first visited element.
    pub(crate) fn axes(&self) -> (&[Axis], Steps) {
        (&self.axes[..self.ndim], self.first)
    }

    /// If the second array has a smaller stride along another axis than along the inner one, makes that axis the second
    /// loop and tiles the two. If one of the two is short, the longer one becomes the inner loop.
    fn tile(&mut self, item: usize) {
        let step = |axis: &Axis| axis.steps[1].unsigned_abs();
        let [inner, others @ ..] = &self.axes[..self.ndim] else { return };
        let moving = others.iter().enumerate().filter(|(_, axis)| step(axis) != 0);
        let Some((at, nearest)) = moving.min_by_key(|(_, axis)| step(axis)) else { return };
        if step(nearest) < step(inner) {
            let stride = step(inner).wrapping_mul(item);
            self.tile = Some(if item == 1 || distinct_lines(stride) < SQUARE.0 { NARROW } else { SQUARE });
            let is_short = inner.extent < SHORT && nearest.extent >= SHORT;
            self.axes[usize::from(!is_short)..=at + 1].rotate_right(1);
        }
    }

    /// Splits the loops in two along the outermost loop with more than one iteration. There must be more than one
    /// element.
    #[cfg(feature = "rayon")]
    pub(crate) fn halves(mut self) -> (Self, Self) {
        let at = self.axes[..self.ndim].iter().rposition(|axis| axis.extent > 1).unwrap_or(0);
        let half = self.axes[at].extent / 2;
        let mut rest = self.clone();
        rest.first = sum(rest.first, rest.axes[at].to(half));
        rest.axes[at].extent -= half;
        self.axes[at].extent = half;
        (self, rest)
    }

    /// The number of elements.
    #[cfg(feature = "rayon")]
    pub(crate) fn count(&self) -> usize {
        self.axes[..self.ndim].iter().map(|axis| axis.extent).product()
    }

    /// Returns the two inner loops for each step of the outer ones, in tiles if that is faster.
    pub(crate) fn planes(&self) -> Planes<'_> {
        let (inner, outer) = self.axes[..self.ndim].split_at(self.ndim.min(2));
        let (run, rows) = match inner {
            [run, rows] => (*run, *rows),
            _ => (inner[0], Axis::ONCE),
        };
        let mut planes = Planes {
            outer: offsets(outer, self.first),
            plane: Some(Plane { first: self.first, rows, run }),
            tile: self.tile.map(|size| (size, (0, 0))),
        };
        planes.advance();
        planes
    }
}

/// An iterator over planes. It lets the caller keep the loop over them in one place.
#[derive(Debug)]
pub(crate) struct Planes<'a> {
    outer: Offsets<&'a [Axis]>,
    /// The next plane, or the plane of the next tile.
    plane: Option<Plane>,
    /// The tile size, and where the next tile begins on the two axes.
    tile: Option<(Tile, (usize, usize))>,
}

impl Planes<'_> {
    fn advance(&mut self) {
        let next = self.outer.next();
        self.plane = self.plane.and_then(|plane| Some(Plane { first: next?, ..plane }));
    }
}

impl Iterator for Planes<'_> {
    type Item = Plane;

    fn next(&mut self) -> Option<Plane> {
        let plane = self.plane?;
        let Some((size, (row, at))) = self.tile else {
            self.advance();
            return Some(plane);
        };
        let Plane { first, rows, run } = plane;
        let height = size.0.min(rows.extent);
        let length = size.1 / height;
        let next = match (row + height, at + length) {
            (_, next) if next < run.extent => (row, next),
            (next, _) if next < rows.extent => (next, 0),
            _ => {
                self.advance();
                (0, 0)
            }
        };
        self.tile = Some((size, next));
        Some(Plane {
            first: sum(sum(first, rows.to(row)), run.to(at)),
            rows: Axis { extent: height.min(rows.extent - row), ..rows },
            run: Axis { extent: length.min(run.extent - at), ..run },
        })
    }
}

/// Returns how many multiples of a stride in bytes have their own cache line in the first-level cache.
fn distinct_lines(stride: usize) -> usize {
    const LINE: usize = 64;
    const WAY: usize = 4096;
    // The greatest power of two that divides both. The cache is 8-way associative, so a set holds eight lines.
    let common = 1_usize << stride.trailing_zeros().min(WAY.trailing_zeros());
    8 * WAY / common.max(LINE)
}

/// Pointers to one element in each of one or two arrays, with any alignment.
pub(crate) trait Operands: Copy {
    /// The values of the elements, one of each array.
    type Item;

    /// Moves the pointer of each array by its number of steps.
    fn moved(self, steps: Steps) -> Self;

    /// Whether the elements of a run are contiguous in all arrays.
    fn are_contiguous(steps: Steps) -> bool;

    /// Reads the elements. Returns the first byte that is not a valid `bool`.
    ///
    /// # Safety
    ///
    /// The pointers point to live, initialized elements.
    unsafe fn read(self) -> Result<Self::Item, u8>;
}

macro_rules! operands {
    ($($type:ident $at:tt),+) => {
        // Two arrays are a tuple, and so are their elements. The single element of one array is no tuple.
        #[allow(unused_parens, clippy::needless_question_mark, reason = "one array is no tuple")]
        impl<$($type: Element),+> Operands for ($(*const $type),+,) {
            type Item = ($($type),+);

            #[inline(always)]
            fn moved(self, steps: Steps) -> Self {
                ($(self.$at.wrapping_offset(steps[$at])),+,)
            }

            #[inline(always)]
            fn are_contiguous(steps: Steps) -> bool {
                $(steps[$at] == 1)&&+
            }

            #[inline(always)]
            unsafe fn read(self) -> Result<Self::Item, u8> {
                // SAFETY: as the caller promises; any alignment is allowed.
                Ok(($(unsafe { read_valid(self.$at) }?),+))
            }
        }
    };
}

operands!(A 0);

operands!(A 0, B 1);

/// Calls `see` with each run of elements: a state, pointers to the first elements, the offset of the first one in the first
/// array, and the axis of the run. Returns the last state.
///
/// # Errors
///
/// [`ErrorKind::DType`](crate::error::ErrorKind::DType) for a byte that `see` returns, which is not a valid `bool`.
#[inline(always)]
fn fold_runs<S: Operands, A>(
    loops: &Loops,
    from: S,
    start: A,
    mut see: impl FnMut(A, S, isize, Axis) -> Result<A, u8>,
) -> crate::Result<A> {
    let mut state = start;
    for Plane { first, rows, run } in loops.planes() {
        for row in 0..rows.extent {
            let offset = sum(first, rows.to(row));
            state = see(state, from.moved(offset), offset[0], run).map_err(invalid_bool)?;
        }
    }
    Ok(state)
}

/// Replaces each element of the first array of `loops` by `change` of the elements of all arrays at the same index.
///
/// # Errors
///
/// [`ErrorKind::DType`](crate::error::ErrorKind::DType) for a byte that is not a valid `bool`. The elements before it have
/// been changed.
///
/// # Safety
///
/// The elements of `loops` are live, at offsets from the pointers in `from`. `to` is the pointer of the first array. Its
/// elements may be written, and no other Rust code reads or writes them during the call.
#[inline(always)]
pub(crate) unsafe fn map<T: Element, S: Operands>(
    loops: &Loops,
    to: *mut T,
    from: S,
    mut change: impl FnMut(S::Item) -> T,
) -> crate::Result<()> {
    fold_runs(loops, from, (), |(), mut from, offset, Axis { extent, steps }| {
        let mut to = to.wrapping_offset(offset);
        if steps[0] == 1 && S::are_contiguous(steps) {
            for at in 0..extent {
                // SAFETY: `at < extent`, so these are elements of the run.
                let item = unsafe { from.moved([at as isize; ARRAYS]).read() }?;
                // SAFETY: the element of the first array at the same index, which may be written.
                unsafe { to.wrapping_add(at).write_unaligned(change(item)) };
            }
            return Ok(());
        }
        for _ in 0..extent {
            // SAFETY: as above.
            let item = unsafe { from.read() }?;
            // SAFETY: as above.
            unsafe { to.write_unaligned(change(item)) };
            (to, from) = (to.wrapping_offset(steps[0]), from.moved(steps));
        }
        Ok(())
    })
}

/// Folds all elements in the order of the loops.
///
/// # Errors
///
/// As [`map`]. The elements before it have been passed to `add`.
///
/// # Safety
///
/// The elements of `loops` are live, at offsets from the pointers in `from`.
#[inline(always)]
pub(crate) unsafe fn fold<S: Operands, A>(
    loops: &Loops,
    from: S,
    start: A,
    mut add: impl FnMut(A, S::Item) -> A,
) -> crate::Result<A> {
    fold_runs(loops, from, start, |mut folded, mut from, _, Axis { extent, steps }| {
        if S::are_contiguous(steps) {
            for at in 0..extent {
                // SAFETY: `at < extent`, so these are elements of the run.
                folded = add(folded, unsafe { from.moved([at as isize; ARRAYS]).read() }?);
            }
            return Ok(folded);
        }
        for _ in 0..extent {
            // SAFETY: these are elements of the run.
            folded = add(folded, unsafe { from.read() }?);
            from = from.moved(steps);
        }
        Ok(folded)
    })
}

/// Writes `value` to each element of the only array of `loops`.
///
/// # Safety
///
/// As for [`map`]. The elements may be uninitialized.
pub(crate) unsafe fn fill<T: Element>(loops: &Loops, to: *mut T, value: T) {
    let write = |(), _: (*const T,), offset, Axis { extent, steps }| {
        let to = to.wrapping_offset(offset);
        if steps[0] == 1 {
            for at in 0..extent {
                // SAFETY: this is an element of the loops.
                unsafe { to.wrapping_add(at).write_unaligned(value) };
            }
            return Ok(());
        }
        for at in 0..extent {
            // SAFETY: as above.
            unsafe { to.wrapping_offset((at as isize).wrapping_mul(steps[0])).write_unaligned(value) };
        }
        Ok(())
    };
    fold_runs(loops, (to.cast_const(),), (), write).unwrap_or_else(|_| unreachable!("no element is read"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes(shape: &[usize], strides: &[&[isize]]) -> (Vec<(usize, Steps)>, Steps, bool) {
        let mut loops = Loops::new(shape, strides).unwrap();
        loops.tile(4);
        let axes = loops.axes[..loops.ndim].iter().map(|axis| (axis.extent, axis.steps)).collect();
        (axes, loops.first, loops.tile.is_some())
    }

    #[test]
    fn axes_are_turned_sorted_and_merged() {
        let memory = |shape: &[usize], strides: &[isize]| axes(shape, &[strides]);
        assert_eq!(memory(&[2, 3, 4], &[12, 4, 1]), (vec![(24, [1, 0])], [0; 2], false));
        assert_eq!(memory(&[2, 3, 4], &[1, 2, 6]), (vec![(24, [1, 0])], [0; 2], false), "F order");
        assert_eq!(memory(&[4, 3], &[-3, -1]), (vec![(12, [1, 0])], [-11, 0], false), "backwards");
        assert_eq!(memory(&[4, 1, 3], &[8, 9, 1]).0, [(3, [1, 0]), (4, [8, 0])], "padded rows");
        assert_eq!(memory(&[4, 3], &[1, 0]).0, [(4, [1, 0]), (3, [0, 0])], "repeated elements");
        assert_eq!(memory(&[], &[]).0, [(1, [0; 2])]);
    }

    #[test]
    fn opposite_orders_meet_in_tiles() {
        let found = axes(&[5, 7, 9], &[&[63, 9, 1], &[1, 5, 35]]);
        assert_eq!(found.0, [(9, [1, 35]), (5, [63, 1]), (7, [9, 5])]);
        assert!(found.2);
        let found = axes(&[10, 7, 3], &[&[21, 3, 1], &[1, 10, 70]]);
        assert_eq!(found.0, [(10, [21, 1]), (3, [1, 70]), (7, [3, 10])], "the longer of the two");
        assert!(!axes(&[5, 7], &[&[7, 1], &[9, 1]]).2);
        assert!(!axes(&[5, 7], &[&[7, 1], &[0, 0]]).2, "a repeated element has no order");
    }

    #[test]
    fn strides_that_share_cache_sets() {
        assert_eq!([4000, 4096, 1600, 256, 12, 0].map(distinct_lines), [512, 8, 512, 128, 512, 8]);
    }

    #[test]
    fn planes_have_all_elements() {
        let (shape, strides) = ([70, 3, 40], [&[120_isize, 40, 1][..], &[1, 70, 210]]);
        let mut seen = vec![0; 70 * 3 * 40];
        let loops = Loops::tiled(&shape, &strides, 4).unwrap();
        for Plane { first, rows, run } in loops.planes() {
            for row in 0..rows.extent {
                for at in 0..run.extent {
                    let [here, there] = sum(sum(first, rows.to(row)), run.to(at));
                    let index = [here / 120, here / 40 % 3, here % 40];
                    assert_eq!(there, index[0] + 70 * index[1] + 210 * index[2]);
                    seen[here.unsigned_abs()] += 1;
                }
            }
        }
        assert!(seen.iter().all(|count| *count == 1));
    }
}
