//! Loops over the elements of several arrays, in a launch on the CPU.
#![expect(
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::cast_possible_truncation,
    reason = "extents, strides and offsets are those of arrays in memory, below 2^63"
)]

use core::array;

use crate::arrays::KernelArrays;
use crate::host_part::HostPart;

/// The elements of a tile along the two innermost axes, where arrays have opposite orders: the lines of the cache of both stay there until
/// they are done.
const TILE: (i64, i64) = (128, 64);

/// The number of elements that a part visits before it looks for its next ones.
const BLOCK: i64 = TILE.0 * TILE.1;

impl<const K: usize, const N: usize> KernelArrays<'_, K, N> {
    /// Calls `work` for neighbours along the innermost axis that belong to a part: with the offset of the first in each array, the strides,
    /// and their number.
    #[inline(always)]
    pub(crate) fn for_each_run(&self, part: HostPart<'_>, mut work: impl FnMut([i64; K], [isize; K], usize)) {
        if self.numel() == 0 {
            return;
        }
        let (row, strides) = self.axis(0);
        let (rows, down) = if self.rank() > 1 { self.axis(1) } else { (1, [0; K]) };
        let is_crossed = (0..K).any(|array| down[array] != 0 && down[array].abs() < strides[array].abs());
        let (length, height) = if is_crossed { TILE } else { (BLOCK, (BLOCK / row).max(1)) };
        let (runs, tiles) = (div_ceil(row, length), div_ceil(rows, height));
        let planes = self.numel() as i64 / (row * rows);
        for number in part.units((planes * tiles * runs) as u64) {
            let (tile, run) = (number as i64 / runs, number as i64 % runs);
            let (plane, top, left) = (tile / tiles, tile % tiles * height, run * length);
            let first = moved(self.offsets((plane * row * rows) as usize), strides, left);
            for y in top..rows.min(top + height) {
                work(
                    moved(first, down, y),
                    strides.map(|stride| stride as isize),
                    length.min(row - left) as usize,
                );
            }
        }
    }
}

/// Returns offsets of which each is some strides further.
#[inline(always)]
fn moved<const K: usize>(offsets: [i64; K], strides: [i64; K], times: i64) -> [i64; K] {
    array::from_fn(|array| offsets[array] + strides[array] * times)
}

#[inline(always)]
fn div_ceil(number: i64, divisor: i64) -> i64 {
    (number + divisor - 1) / divisor
}
