//! Loops over one or two arrays of one shape. Axes are sorted by stride and merged where possible.

use core::cmp::Reverse;

use crate::array::dims::Dims;
use crate::array::element::Element;
use crate::array::layout::order::{Order, is_contiguous};
use crate::memory::host::cells::read_unchecked;

/// The maximum number of arrays in one loop.
pub(crate) const MOST: usize = 2;

/// The step of each array along an axis, in elements. Arrays that do not exist have step 0.
pub(crate) type Steps = [isize; MOST];

/// The size of the tiles for arrays of opposite memory orders: the maximum extent of the second loop, and the number of
/// elements.
type Tile = (usize, usize);

/// The tile if the elements at the stride of the inner loop map to different cache sets.
const SQUARE: Tile = (128, 128 * 64);

/// The tile if they map to few cache sets, as with strides that are powers of two, and for elements of one byte.
const NARROW: Tile = (512, 512 * 16);

/// An inner loop with fewer steps takes longer to start than to run.
const SHORT: usize = 8;

/// The order in which elements are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    /// By address in the first array, from the lowest address on.
    Memory,
    /// By index.
    Index(Order),
}

/// One loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Axis {
    pub(crate) extent: usize,
    pub(crate) steps: Steps,
}

impl Axis {
    /// A loop with one iteration.
    pub(crate) const ONCE: Self = Self { extent: 1, steps: [0; MOST] };

    /// Returns the steps from index 0 to `index`.
    #[inline]
    pub(crate) fn to(&self, index: usize) -> Steps {
        self.steps.map(|step| step.wrapping_mul(index as isize))
    }
}

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
    /// From the outermost to the innermost. Only the first `ndim` are used.
    axes: Dims<Axis>,
    ndim: usize,
    /// The offset of the first visited element, in each array.
    first: Steps,
    /// The tile size of the two inner loops.
    tile: Option<Tile>,
}

#[inline]
fn sum(offsets: Steps, steps: Steps) -> Steps {
    core::array::from_fn(|array| offsets[array].wrapping_add(steps[array]))
}

impl Loops {
    /// Creates the loops over arrays of this shape, given the strides of each in elements. Returns `None` for arrays
    /// without elements.
    #[inline]
    pub(crate) fn new(shape: &[usize], strides: &[&[isize]], visit: Visit) -> Option<Self> {
        if shape.contains(&0) {
            return None;
        }
        let is_dense = || strides.iter().all(|strides| is_contiguous(shape, strides, Order::C));
        if visit != Visit::Index(Order::F) && !shape.is_empty() && is_dense() {
            let mut axes = Dims::zeroed(1);
            axes[0] = Axis {
                extent: shape.iter().product(),
                steps: core::array::from_fn(|array| isize::from(array < strides.len())),
            };
            return Some(Self { axes, ndim: 1, first: [0; MOST], tile: None });
        }
        // Changed in place, because loops have about two hundred bytes.
        let mut made = Some(Self::in_index_order(shape, strides, visit == Visit::Index(Order::F)));
        let loops = made.as_mut()?;
        if visit == Visit::Memory && loops.ndim > 0 {
            loops.turn_forward();
            loops.axes[..loops.ndim].sort_by_key(|axis| Reverse(reach(axis)));
        }
        loops.merge();
        made
    }

    /// As [`new`](Self::new) in memory order, in tiles if that is faster. `item` is the size of an element in bytes.
    pub(crate) fn tiled(shape: &[usize], strides: &[&[isize]], item: usize) -> Option<Self> {
        let mut made = Self::new(shape, strides, Visit::Memory);
        if let Some(loops) = &mut made {
            loops.tile(item);
        }
        made
    }

    #[inline]
    fn in_index_order(shape: &[usize], strides: &[&[isize]], reversed: bool) -> Self {
        let (mut axes, mut ndim) = (Dims::zeroed(shape.len().max(1)), 0);
        for step in 0..shape.len() {
            let at = if reversed { shape.len() - 1 - step } else { step };
            if shape[at] != 1 {
                let steps = core::array::from_fn(|array| strides.get(array).map_or(0, |steps| steps[at]));
                axes[ndim] = Axis { extent: shape[at], steps };
                ndim += 1;
            }
        }
        Self { axes, ndim, first: [0; MOST], tile: None }
    }

    /// Reverses each axis along which the first array that moves has a negative step.
    fn turn_forward(&mut self) {
        for axis in &mut self.axes[..self.ndim] {
            if axis.steps.iter().find(|step| **step != 0).is_some_and(|step| *step < 0) {
                self.first = sum(self.first, axis.to(axis.extent - 1));
                axis.steps = axis.steps.map(isize::wrapping_neg);
            }
        }
    }

    /// Merges two adjacent loops if in all arrays the outer one continues where the inner one ends.
    fn merge(&mut self) {
        if self.ndim == 0 {
            self.axes[0] = Axis::ONCE;
            self.ndim = 1;
        }
        let mut last = 0;
        for at in 1..self.ndim {
            let (outer, inner) = (self.axes[last], self.axes[at]);
            if outer.steps == inner.to(inner.extent) {
                self.axes[last] = Axis { extent: outer.extent * inner.extent, ..inner };
            } else {
                last += 1;
                self.axes[last] = inner;
            }
        }
        self.ndim = last + 1;
    }

    /// If the second array has a smaller stride along another axis than along the inner one, makes that axis the second
    /// loop and tiles the two. If one of the two is short, the longer one becomes the inner loop.
    fn tile(&mut self, item: usize) {
        let inner = self.ndim - 1;
        let step = |axis: &Axis| axis.steps[1].unsigned_abs();
        let others = self.axes[..inner].iter().enumerate().filter(|(_, axis)| step(axis) != 0);
        let Some((at, nearest)) = others.min_by_key(|(_, axis)| step(axis)) else { return };
        if step(nearest) < step(&self.axes[inner]) {
            let stride = step(&self.axes[inner]).wrapping_mul(item);
            self.tile = Some(if item == 1 || apart(stride) < SQUARE.0 { NARROW } else { SQUARE });
            let is_short = self.axes[inner].extent < SHORT && nearest.extent >= SHORT;
            self.axes[at..inner + usize::from(is_short)].rotate_left(1);
        }
    }

    /// Splits the loops in two along the outermost loop with more than one iteration. There must be more than one
    /// element.
    #[cfg(feature = "rayon")]
    pub(crate) fn halves(mut self) -> (Self, Self) {
        let at = self.axes[..self.ndim].iter().position(|axis| axis.extent > 1).unwrap_or(0);
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
        let (outer, inner) = self.axes[..self.ndim].split_at(self.ndim.saturating_sub(2));
        let (rows, run) = match inner {
            [rows, run] => (*rows, *run),
            _ => (Axis::ONCE, inner[0]),
        };
        let whole = Plane { first: self.first, rows, run };
        Planes {
            outer,
            index: Dims::zeroed(outer.len()),
            whole: Some(whole),
            tile: self.tile.map(|size| (size, (0, 0))),
        }
    }
}

/// An iterator over planes. It lets the caller keep the loop over them in one place.
#[derive(Debug)]
pub(crate) struct Planes<'a> {
    outer: &'a [Axis],
    index: Dims<usize>,
    /// The next plane, or the plane of the next tile.
    whole: Option<Plane>,
    /// The tile size, and where the next tile begins on the two axes.
    tile: Option<(Tile, (usize, usize))>,
}

impl Planes<'_> {
    /// Returns the plane that follows the given one.
    fn behind(&mut self, whole: Plane) -> Option<Plane> {
        let mut first = whole.first;
        for (index, axis) in self.index.iter_mut().zip(self.outer).rev() {
            *index += 1;
            first = sum(first, axis.steps);
            if *index < axis.extent {
                return Some(Plane { first, ..whole });
            }
            first = sum(first, axis.to(*index).map(isize::wrapping_neg));
            *index = 0;
        }
        None
    }
}

impl Iterator for Planes<'_> {
    type Item = Plane;

    fn next(&mut self) -> Option<Plane> {
        let whole = self.whole?;
        let Some((size, (row, at))) = self.tile else {
            self.whole = self.behind(whole);
            return Some(whole);
        };
        let Plane { first, rows, run } = whole;
        let height = size.0.min(rows.extent);
        let length = size.1 / height;
        let next = match (row + height, at + length) {
            (_, next) if next < run.extent => (row, next),
            (next, _) if next < rows.extent => (next, 0),
            _ => {
                self.whole = self.behind(whole);
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
fn apart(stride: usize) -> usize {
    const LINE: usize = 64;
    const WAY: usize = 4096;
    // The greatest power of two that divides both. The cache is 8-way associative, so a set holds eight lines.
    let common = 1_usize << stride.trailing_zeros().min(WAY.trailing_zeros());
    8 * WAY / common.max(LINE)
}

/// The sort key of an axis: the step of each array. Axes along which an array repeats its elements are the outermost.
fn reach(axis: &Axis) -> [usize; MOST] {
    axis.steps.map(|step| step.unsigned_abs().wrapping_sub(1))
}

/// The maximum number of elements that are checked together, before they are read from the cache.
pub(crate) const CHECKED: usize = 4096;

/// Pointers to one element in each of one or two arrays, with any alignment.
pub(crate) trait Operands: Copy {
    /// The values of the elements, one of each array.
    type Item;

    /// Whether every bit pattern is valid for all element types.
    const ANY_BITS: bool;

    /// Moves the pointer of each array by its number of steps.
    fn moved(self, steps: Steps) -> Self;

    /// Whether the elements of a run are contiguous in all arrays.
    fn is_dense(steps: Steps) -> bool;

    /// # Safety
    ///
    /// The pointers point to live, initialized elements.
    unsafe fn read(self) -> Self::Item;

    /// Returns the number of elements before the first byte that is not a valid `bool`, and that byte. It has a meaning
    /// only if the number is less than `count`.
    ///
    /// # Safety
    ///
    /// The pointers point to the first of `count` live elements in each array.
    unsafe fn count_valid(self, steps: Steps, count: usize) -> (usize, u8);
}

/// As [`Operands::count_valid`], for one array.
///
/// # Safety
///
/// `from` points to the first of `count` live elements, which are `step` elements apart.
unsafe fn count_valid<T: Element>(from: *const T, step: isize, count: usize) -> (usize, u8) {
    if T::TYPE.any_bits {
        return (count, 0);
    }
    let size = size_of::<T>();
    let (runs, bytes) = if step == 1 { (1, count * size) } else { (count, size) };
    let byte = |run: usize, at: usize| {
        let element = from.wrapping_offset(step.wrapping_mul(run as isize)).cast::<u8>();
        // SAFETY: a byte of an element, as the caller promises.
        unsafe { element.wrapping_add(at).read() }
    };
    let mut bits = 0;
    for run in 0..runs {
        for at in 0..bytes {
            bits |= byte(run, at);
        }
    }
    if bits <= 1 {
        return (count, 0);
    }
    let all = (0..runs).flat_map(|run| (0..bytes).map(move |at| (run, at)));
    // Another library may have changed the byte since.
    let mut invalid = all.map(|(run, at)| (run * bytes + at, byte(run, at))).filter(|(_, byte)| *byte > 1);
    invalid.next().map_or((count, 0), |(at, byte)| (at / size, byte))
}

macro_rules! operands {
    ($($type:ident $at:tt),+) => {
        // Two arrays are a tuple, and so are their elements. The single element of one array is no tuple.
        #[allow(unused_parens, reason = "one array is no tuple")]
        impl<$($type: Element),+> Operands for ($(*const $type),+,) {
            type Item = ($($type),+);
            const ANY_BITS: bool = $($type::TYPE.any_bits)&&+;
            #[inline(always)]
            fn moved(self, steps: Steps) -> Self {
                ($(self.$at.wrapping_offset(steps[$at])),+,)
            }

            #[inline(always)]
            fn is_dense(steps: Steps) -> bool {
                $(steps[$at] == 1)&&+
            }

            #[inline(always)]
            unsafe fn read(self) -> Self::Item {
                // SAFETY: as the caller promises; any alignment is allowed.
                ($(unsafe { read_unchecked(self.$at) }),+)
            }

            unsafe fn count_valid(self, steps: Steps, count: usize) -> (usize, u8) {
                let mut valid = (count, 0);
                $(
                    // SAFETY: as the caller promises.
                    let found = unsafe { count_valid(self.$at, steps[$at], count) };
                    if found.0 < valid.0 {
                        valid = found;
                    }
                )+
                valid
            }
        }
    };
}

operands!(A 0);

operands!(A 0, B 1);

#[cfg(test)]
mod tests {
    use super::*;

    fn axes(shape: &[usize], strides: &[&[isize]], visit: Visit) -> (Vec<(usize, Steps)>, Steps, bool) {
        let mut loops = Loops::new(shape, strides, visit).unwrap();
        loops.tile(4);
        let axes = loops.axes[..loops.ndim].iter().map(|axis| (axis.extent, axis.steps)).collect();
        (axes, loops.first, loops.tile.is_some())
    }

    #[test]
    fn axes_are_turned_sorted_and_merged() {
        let memory = |shape: &[usize], strides: &[isize]| axes(shape, &[strides], Visit::Memory);
        assert_eq!(memory(&[2, 3, 4], &[12, 4, 1]), (vec![(24, [1, 0])], [0; 2], false));
        assert_eq!(memory(&[2, 3, 4], &[1, 2, 6]), (vec![(24, [1, 0])], [0; 2], false), "F order");
        assert_eq!(memory(&[4, 3], &[-3, -1]), (vec![(12, [1, 0])], [-11, 0], false), "backwards");
        assert_eq!(memory(&[4, 1, 3], &[8, 9, 1]).0, [(4, [8, 0]), (3, [1, 0])], "padded rows");
        assert_eq!(memory(&[4, 3], &[1, 0]).0, [(3, [0, 0]), (4, [1, 0])], "repeated elements");
        assert_eq!(memory(&[], &[]).0, [(1, [0; 2])]);
        let index = |strides: &[isize], order| axes(&[2, 3], &[strides], Visit::Index(order)).0;
        assert_eq!(index(&[1, 2], Order::C), [(2, [1, 0]), (3, [2, 0])]);
        assert_eq!(index(&[1, 2], Order::F), [(6, [1, 0])]);
        assert_eq!(index(&[-3, -1], Order::C), [(6, [-1, 0])]);
    }

    #[test]
    fn opposite_orders_meet_in_tiles() {
        let found = axes(&[5, 7, 9], &[&[63, 9, 1], &[1, 5, 35]], Visit::Memory);
        assert_eq!(found.0, [(7, [9, 5]), (5, [63, 1]), (9, [1, 35])]);
        assert!(found.2);
        let found = axes(&[10, 7, 3], &[&[21, 3, 1], &[1, 10, 70]], Visit::Memory);
        assert_eq!(found.0, [(7, [3, 10]), (3, [1, 70]), (10, [21, 1])], "the longer of the two");
        assert!(!axes(&[5, 7], &[&[7, 1], &[9, 1]], Visit::Memory).2);
        assert!(!axes(&[5, 7], &[&[7, 1], &[0, 0]], Visit::Memory).2, "a repeated element has no order");
    }

    #[test]
    fn strides_that_share_places() {
        assert_eq!([4000, 4096, 1600, 256, 12, 0].map(apart), [512, 8, 512, 128, 512, 8]);
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
