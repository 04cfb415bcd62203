//! Arrays of one shape as one argument: what the host makes and the device reads.
#![expect(unsafe_code, reason = "states that arguments of plain numbers are passed between threads")]

use core::marker::PhantomData;
use core::mem::{align_of, size_of};

use crate::fields::Pointer;

/// `K` arrays of one shape, passed by value to an elementwise kernel.
///
/// In C++ the type is `interop::elementwise<N, T...>`. The `K` types are in the order of the arrays, and const if the
/// kernel only reads the array.
///
/// One kernel serves every rank and every layout:
///
/// - Axes of extent 1 are dropped.
/// - The other axes are sorted by the stride of the first array (the output), then by those of the next arrays.
/// - An axis along which the first array that moves runs backwards is reversed.
/// - Adjacent axes are merged if all arrays allow it.
///
/// So a transposed array is as fast as a contiguous one. Contiguous elements are loaded 16 bytes at a time if all strides are
/// aligned for it, and all addresses alike. `N` is the maximum number of axes that remain.
///
/// The kernel visits the elements in memory order, not in index order. For memory, lifetime and streams see
/// [`KernelView`](crate::KernelView).
///
/// ```
/// use interop_kernel::{DynKernelView, KernelArrays};
///
/// // A C-ordered array and a transposed one, by their numbers: nothing here follows an address.
/// let c = DynKernelView::new(0x7F00_0000_0000, 4, &[480, 640], &[640, 1])?;
/// let transposed = DynKernelView::new(0x7F00_1000_0000, 4, &[640, 480], &[1, 640])?;
/// for array in [c, transposed] {
///     let arrays = KernelArrays::<1, 8>::new([&array])?;
///     assert_eq!((arrays.rank(), arrays.width(), arrays.numel()), (1, 4, 480 * 640));
///     assert_eq!(arrays.launch_size().grid, (150, 1, 1));
/// }
///
/// // Rows that are padded stay two axes; both are loaded in one piece.
/// let padded = DynKernelView::new(0x7F00_2000_0000, 4, &[480, 640], &[1024, 1])?;
/// let arrays = KernelArrays::<2, 8>::new([&c, &padded])?;
/// assert_eq!((arrays.rank(), arrays.width()), (2, 4));
/// # Ok::<(), interop_kernel::ArgumentError>(())
/// ```
///
/// A kernel with this argument, which includes `interop_core::launch::KERNEL_HEADER`:
///
/// ```cuda
/// extern "C" __global__ void add(interop::elementwise<8, float, const float, const float> arrays) {
///     arrays.map([](float left, float right) { return left + right; });
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub struct KernelArrays<'a, const K: usize, const N: usize> {
    /// The number of indices of the outermost axis in a slab. The units of a slab are counted in 32 bits.
    pub(crate) piece: i64,
    /// The number of indices of the outermost axis.
    pub(crate) outer: i64,
    /// The number of elements along the innermost axis.
    pub(crate) row: i64,
    /// The number of units along the innermost axis that are loaded at once. The others have the elements after them, then the
    /// `head`.
    pub(crate) full: i64,
    /// The distance of the elements of another unit along the innermost axis.
    pub(crate) step: i64,
    /// The number of units in one index of the outermost axis. A unit is the work of a thread: `width` elements that are loaded at
    /// once, or [`SPREAD`] elements along the innermost axis.
    pub(crate) inner: u32,
    pub(crate) rank: u32,
    pub(crate) width: u32,
    /// The number of elements before the first one whose address allows a wide load, in all arrays.
    pub(crate) head: u32,
    pub(crate) addresses: [Pointer; K],
    /// Innermost first.
    pub(crate) axes: [KernelAxis<K>; N],
    pub(crate) marker: PhantomData<&'a ()>,
}

// SAFETY: host code cannot reach an element through it.
unsafe impl<const K: usize, const N: usize> Send for KernelArrays<'_, K, N> {}
// SAFETY: as above.
unsafe impl<const K: usize, const N: usize> Sync for KernelArrays<'_, K, N> {}

const _: () = {
    assert!(size_of::<KernelArrays<'_, 1, 8>>() == 64 + 8 * 24 && align_of::<KernelArrays<'_, 1, 8>>() == 8);
    assert!(size_of::<KernelArrays<'_, 2, 4>>() == 72 + 4 * 32);
};

/// An axis. The strides are in elements. The extent of the innermost one is counted in units.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct KernelAxis<const K: usize> {
    /// That of the outermost axis is not used.
    pub(crate) extent: Extent,
    pub(crate) strides: [i64; K],
}

/// An extent of less than 2^31, and the numbers with which a device divides by it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Extent {
    /// The extent.
    pub value: u32,
    multiplier: u32,
    shift: u32,
    unused: u32,
}

impl Extent {
    /// Prepares the division by an extent (Granlund and Montgomery).
    #[cfg(not(target_arch = "nvptx64"))]
    #[expect(clippy::cast_possible_truncation, reason = "below 2^32, because `rest` is less than the extent")]
    #[must_use]
    pub fn new(value: u32) -> Self {
        let shift = value.next_power_of_two().ilog2();
        let rest = (1_u64 << shift) - u64::from(value);
        let multiplier = ((rest << 32) / u64::from(value.max(1)) + 1) as u32;
        Self { value, multiplier, shift, unused: 0 }
    }

    /// Returns the quotient of a number below 2^31 by the extent, and the remainder.
    #[inline(always)]
    #[must_use]
    pub const fn divide(&self, number: u32) -> (u32, u32) {
        let high = (number as u64 * self.multiplier as u64) >> 32;
        let quotient = (high as u32).wrapping_add(number) >> (self.shift & 31);
        (quotient, number.wrapping_sub(quotient.wrapping_mul(self.value)))
    }
}

/// The number of elements of a unit that is not loaded at once.
pub(crate) const SPREAD: usize = 4;

/// The maximum number of bytes that a thread loads at once.
const MAX_LOAD: usize = 16;

/// Returns how many elements of these sizes are loaded at once. `interop.cuh` computes the same number.
pub(crate) const fn width_of<const K: usize>(sizes: [usize; K]) -> usize {
    let (mut most, mut at) = (1, 0);
    while at < K {
        if !sizes[at].is_power_of_two() {
            return 1;
        }
        most = if sizes[at] > most { sizes[at] } else { most };
        at += 1;
    }
    if most > MAX_LOAD { 1 } else { MAX_LOAD / most }
}

#[cfg(test)]
mod tests {
    use super::Extent;

    #[test]
    fn extents_divide() {
        const MOST: u32 = 0x7FFF_FFFF;
        for extent in [1, 2, 3, 5, 7, 64, 641, 65_537, 1 << 30, MOST - 1, MOST] {
            let divisor = Extent::new(extent);
            let times = |factor: u32| extent.saturating_mul(factor).min(MOST);
            for number in [0, 1, extent - 1, extent, times(2) - 1, times(2), times(3), MOST - 1, MOST] {
                assert_eq!(divisor.divide(number), (number / extent, number % extent), "{number} / {extent}");
            }
        }
    }
}
