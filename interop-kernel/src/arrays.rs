//! Arrays of one shape as one argument: what the host makes and the device reads.
#![expect(unsafe_code, reason = "states that arguments of plain numbers are passed between threads")]

use core::marker::PhantomData;
use core::mem::{align_of, size_of};

use crate::view::Pointer;

/// `K` arrays of one shape, passed by value to an elementwise kernel.
///
/// In C++ the type is `interop::elementwise<N, T...>`. The `K` types are in the order of the arrays, and const if the
/// kernel only reads the array.
///
/// One kernel serves every rank and every layout:
///
/// - Axes of extent 1 are dropped.
/// - The other axes are sorted by the stride of the first array (the output), then by those of the next arrays.
/// - An axis that runs backwards in all arrays is reversed.
/// - Adjacent axes are merged if all arrays allow it.
///
/// So a transposed array is as fast as a contiguous one. Contiguous elements are loaded 16 bytes at a time if all
/// addresses and strides are aligned for it. `N` is the maximum number of axes that remain.
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
/// A kernel with this argument, which includes `interop_core::KERNEL_HEADER`:
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
    /// The number of units in one index of the outermost axis. A unit is `width` elements that are loaded at once.
    pub(crate) inner: u32,
    pub(crate) rank: u32,
    pub(crate) width: u32,
    /// The number of elements after the last unit. Only arrays that are contiguous as a whole have such a tail.
    pub(crate) tail: u32,
    pub(crate) addresses: [Pointer; K],
    /// Innermost first.
    pub(crate) axes: [Axis<K>; N],
    pub(crate) marker: PhantomData<&'a ()>,
}

// SAFETY: host code cannot reach an element through it.
unsafe impl<const K: usize, const N: usize> Send for KernelArrays<'_, K, N> {}
// SAFETY: as above.
unsafe impl<const K: usize, const N: usize> Sync for KernelArrays<'_, K, N> {}

const _: () = {
    assert!(size_of::<KernelArrays<'_, 1, 8>>() == 32 + 8 * 24 && align_of::<KernelArrays<'_, 1, 8>>() == 8);
    assert!(size_of::<KernelArrays<'_, 2, 4>>() == 40 + 4 * 32);
};

/// An axis. The extent is counted in units, the strides in elements.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Axis<const K: usize> {
    pub(crate) extent: i64,
    /// 2^64 / extent, rounded up. A multiplication by it divides any 32-bit number by the extent.
    pub(crate) inverse: u64,
    pub(crate) strides: [i64; K],
}

impl<const K: usize> Axis<K> {
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) const ONE: Self = Self { extent: 1, inverse: 0, strides: [1; K] };
}

/// The maximum number of bytes that a thread loads at once.
const MAX_LOAD: usize = 16;

/// The maximum number of elements that a thread loads at once.
const MAX_WIDTH: usize = 8;

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
    if most > MAX_LOAD {
        return 1;
    }
    if MAX_LOAD / most < MAX_WIDTH { MAX_LOAD / most } else { MAX_WIDTH }
}
