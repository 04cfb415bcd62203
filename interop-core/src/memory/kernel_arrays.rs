//! Arguments of elementwise kernels: arrays of one shape and any layouts, with sorted, merged and vectorized axes.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "numbers of elements and axes, which came from `usize` and were compared"
)]

use core::cmp::Ordering;
use core::marker::PhantomData;
use core::mem::{align_of, size_of};
use core::ops::RangeInclusive;

use crate::array::dims::MAX_NDIM;
use crate::array::element::Element;
use crate::array::info::ArrayInfo;
use crate::error::{Error, ErrorKind, Result, text};
use crate::memory::kernel_view;
use crate::memory::kernel_view::{KernelView, KernelViewMut};

/// The number of threads per block.
const THREADS: u32 = 256;

/// The maximum extent of a grid along x.
const MAX_BLOCKS: u32 = 0x7FFF_FFFF;

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
/// [`KernelView`].
///
/// ```
/// use interop_core::{DynKernelView, KernelArrays};
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
/// # Ok::<(), interop_core::Error>(())
/// ```
///
/// A kernel with this argument, which includes [`KERNEL_HEADER`](crate::KERNEL_HEADER):
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
    piece: i64,
    /// The number of units in one index of the outermost axis. A unit is `width` elements that are loaded at once.
    inner: u32,
    rank: u32,
    width: u32,
    /// The number of elements after the last unit. Only arrays that are contiguous as a whole have such a tail.
    tail: u32,
    addresses: [u64; K],
    /// Innermost first.
    axes: [Axis<K>; N],
    marker: PhantomData<&'a ()>,
}

const _: () = {
    assert!(size_of::<KernelArrays<'_, 1, 8>>() == 32 + 8 * 24 && align_of::<KernelArrays<'_, 1, 8>>() == 8);
    assert!(size_of::<KernelArrays<'_, 2, 4>>() == 40 + 4 * 32);
};

/// The grid and block size of a launch, in the form that `cust` and `cudarc` use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchSize {
    /// The number of blocks along x, y and z.
    pub grid: (u32, u32, u32),
    /// The number of threads of a block along x, y and z.
    pub block: (u32, u32, u32),
}

/// The layout of an array whose element type and rank are known only at run time. It borrows the shape and strides, not
/// the memory.
#[derive(Clone, Copy, Debug)]
pub struct DynKernelView<'a> {
    address: u64,
    item_size: usize,
    shape: &'a [usize],
    strides: &'a [isize],
}

impl<'a> DynKernelView<'a> {
    /// Describes an array with elements of `item_size` bytes. `address` is the device address of element \[0, …, 0\].
    /// `strides` are in elements.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Rank`] for more than [`MAX_NDIM`] axes; [`ErrorKind::Strides`] if the number of strides is not the
    /// number of axes.
    pub fn new(address: u64, item_size: usize, shape: &'a [usize], strides: &'a [isize]) -> Result<Self> {
        if shape.len() > MAX_NDIM {
            return Err(crate::array::layout::errors::too_many(shape.len()));
        }
        if shape.len() != strides.len() {
            let allowed = text!("one for each of {} axes", shape.len());
            return Err(Error::new(ErrorKind::Strides, "strides", strides.len(), allowed));
        }
        Ok(Self { address, item_size, shape, strides })
    }

    /// Describes a checked array, at the address that kernels use.
    ///
    /// # Errors
    ///
    /// As [`ArrayView::kernel_view`](crate::memory::array_view::ArrayView::kernel_view); [`ErrorKind::DType`] for
    /// packed sub-byte elements.
    pub fn from_info(info: &'a ArrayInfo) -> Result<Self> {
        let bits = info.dtype().item_bits(info.is_padded());
        if bits % 8 != 0 {
            return Err(Error::new(ErrorKind::DType, "dtype", info.dtype(), "elements of whole bytes"));
        }
        let item_size = bits / 8;
        // The lowest set bit of the size: 4 for 12 bytes.
        let align = (item_size & item_size.wrapping_neg()).clamp(1, MAX_LOAD);
        let address = kernel_view::address(info.address(), info.device(), align)?;
        Ok(Self { address, item_size, shape: info.shape(), strides: info.strides() })
    }
}

mod sealed {
    /// The parts of an array's layout.
    pub trait Layout {
        fn address(&self) -> u64;
        fn item_size(&self) -> usize;
        fn ndim(&self) -> usize;
        /// The extent and the stride.
        fn axis(&self, axis: usize) -> (i64, i64);
    }
}

/// An array that [`KernelArrays`] accepts: a [`KernelView`], a [`KernelViewMut`] or a [`DynKernelView`].
pub trait KernelOperand<'a>: sealed::Layout {}

macro_rules! operands {
    ($($view:ident)*) => {
        $(
            impl<T: Element, const N: usize> sealed::Layout for $view<'_, T, N> {
                fn address(&self) -> u64 {
                    $view::address(self)
                }

                fn item_size(&self) -> usize {
                    size_of::<T>()
                }

                fn ndim(&self) -> usize {
                    N
                }

                fn axis(&self, axis: usize) -> (i64, i64) {
                    (self.shape()[axis], self.strides()[axis])
                }
            }

            impl<'a, T: Element, const N: usize> KernelOperand<'a> for $view<'a, T, N> {}
        )*
    };
}

operands!(KernelView KernelViewMut);

impl sealed::Layout for DynKernelView<'_> {
    fn address(&self) -> u64 {
        self.address
    }

    fn item_size(&self) -> usize {
        self.item_size
    }

    fn ndim(&self) -> usize {
        self.shape.len()
    }

    fn axis(&self, axis: usize) -> (i64, i64) {
        // An extent that does not fit is rejected by the check of the number of elements. `isize` has at most 64 bits.
        (i64::try_from(self.shape[axis]).unwrap_or(i64::MAX), self.strides[axis] as i64)
    }
}

impl<'a> KernelOperand<'a> for DynKernelView<'a> {}

impl<'a, const K: usize, const N: usize> KernelArrays<'a, K, N> {
    /// Combines arrays into one argument. The output comes first.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Shape`] unless all arrays have the same shape; [`ErrorKind::Rank`] if more than `N` axes remain;
    /// [`ErrorKind::Overflow`] if the number of elements does not fit 63 bits, or 31 bits without the longest axis.
    pub fn new(arrays: [&dyn KernelOperand<'a>; K]) -> Result<Self> {
        const { assert!(K > 0 && N > 0, "at least one array, and room for one axis") };
        let (ndim, sizes) = (arrays[0].ndim(), arrays.map(sealed::Layout::item_size));
        let shape = common_shape(&arrays)?;
        let mut merged = Axes::at(arrays.map(sealed::Layout::address));
        if numel(&shape[..ndim])? == 0 {
            merged.push(Axis { extent: 0, ..Axis::ONE });
        } else {
            for (axis, extent) in shape[..ndim].iter().enumerate().filter(|(_, extent)| **extent != 1) {
                let strides = arrays.map(|array| array.axis(axis).1);
                merged.insert(Axis { extent: *extent, strides, ..Axis::ONE }, sizes);
            }
            merged.merge();
        }
        let (width, tail) = merged.vectorize(sizes);
        let inner = merged.cut()?;
        let Axes { list, len, addresses } = merged;
        if len > N {
            let found = text!("{len} axes that do not merge");
            let allowed =
                text!("{N} at most, for this kernel; copy the array, so that its axes are without gaps");
            return Err(Error::new(ErrorKind::Rank, "shape", found, allowed));
        }
        let mut axes = [Axis::ONE; N];
        axes[..len].copy_from_slice(&list[..len]);
        for axis in &mut axes[..len] {
            axis.inverse = inverse(axis.extent);
        }
        let piece = (MAX_UNITS / i64::from(inner)).min(axes[len - 1].extent).max(1);
        Ok(Self { piece, inner, rank: len as u32, width, tail, addresses, axes, marker: PhantomData })
    }

    /// Returns the launch size in which each thread processes two vectors or four elements. Any other one-dimensional
    /// launch is correct, too.
    #[must_use]
    pub fn launch_size(&self) -> LaunchSize {
        self.launch_size_within(MAX_BLOCKS)
    }

    /// As [`launch_size`](Self::launch_size), with at most `blocks` blocks: for a reduction, which leaves one number
    /// per block.
    #[must_use]
    pub fn launch_size_within(&self, blocks: u32) -> LaunchSize {
        // The number of loads that the loops of `interop.cuh` have in flight.
        let each = if self.width > 1 { 2 } else { 4 };
        let wanted = (self.piece.unsigned_abs() * u64::from(self.inner)).div_ceil(each * u64::from(THREADS));
        let most = blocks.clamp(1, MAX_BLOCKS);
        let grid = u32::try_from(wanted).map_or(most, |wanted| wanted.clamp(1, most));
        LaunchSize { grid: (grid, 1, 1), block: (THREADS, 1, 1) }
    }

    /// The number of elements of each array.
    #[must_use]
    pub fn numel(&self) -> usize {
        (self.units() * i64::from(self.width) + i64::from(self.tail)) as usize
    }

    /// The number of axes that remain, at least 1.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank as usize
    }

    /// The number of elements that a thread loads at once: 1, or as many of the largest element type as fit 16 bytes,
    /// at most 8.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width as usize
    }

    fn units(&self) -> i64 {
        self.axes[self.rank() - 1].extent * i64::from(self.inner)
    }

    /// Returns the address in an array from which [`offsets`](Self::offsets) are counted: that of the first element in
    /// kernel order.
    ///
    /// # Panics
    ///
    /// If there is no such array.
    #[must_use]
    pub fn address(&self, array: usize) -> u64 {
        self.addresses[array]
    }

    /// Returns the offset of an element in each array, in elements. `number` is its position in kernel order.
    ///
    /// ```
    /// use interop_core::{DynKernelView, KernelArrays};
    ///
    /// let backwards = DynKernelView::new(0x7F00_0000_0100, 4, &[3], &[-2])?;
    /// let arrays = KernelArrays::<1, 1>::new([&backwards])?;
    /// assert_eq!(arrays.address(0), 0x7F00_0000_0100 - 2 * 2 * 4);
    /// assert_eq!([0, 1, 2].map(|number| arrays.offsets(number)), [[0], [2], [4]]);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    #[must_use]
    pub fn offsets(&self, number: usize) -> [i64; K] {
        let width = i64::from(self.width);
        let (mut unit, within) = (number as i64 / width, number as i64 % width);
        if unit >= self.units() {
            // The tail of contiguous arrays.
            return [number as i64; K];
        }
        let mut offsets = [within; K];
        for axis in &self.axes[..self.rank()] {
            let index = unit % axis.extent;
            unit /= axis.extent;
            for (offset, stride) in offsets.iter_mut().zip(axis.strides) {
                *offset += index * stride;
            }
        }
        offsets
    }

    /// Returns the lowest and the highest offset in an array, which must have elements.
    ///
    /// # Panics
    ///
    /// As [`address`](Self::address).
    #[must_use]
    pub fn span(&self, array: usize) -> RangeInclusive<i64> {
        let ends = self.axes[..self.rank()].iter().map(|axis| (axis.extent - 1) * axis.strides[array]);
        let (low, high) = ends.fold((0, 0), |(low, high), end| (low + end.min(0), high + end.max(0)));
        // `high` is the first element of the last unit. The other elements of the unit and the tail follow it.
        low..=high + i64::from(self.width) - 1 + i64::from(self.tail)
    }
}

/// Returns the extents, which must be the same for all arrays.
fn common_shape<const K: usize>(arrays: &[&dyn KernelOperand<'_>; K]) -> Result<[i64; MAX_NDIM]> {
    let mut shape = [1; MAX_NDIM];
    for (at, array) in arrays.iter().enumerate() {
        let (ndim, first) = (array.ndim(), arrays[0].ndim());
        if ndim != first {
            let found = text!("{ndim} in array {at} of the launch");
            return Err(Error::new(ErrorKind::Shape, "axes", found, text!("{first}, as in the first")));
        }
        for (axis, extent) in shape.iter_mut().enumerate().take(ndim) {
            let found = array.axis(axis).0;
            if at > 0 && found != *extent {
                let found = text!("{found} in axis {axis} of array {at} of the launch");
                return Err(Error::new(ErrorKind::Shape, "shape", found, text!("{extent}, as in the first")));
            }
            *extent = found;
        }
    }
    Ok(shape)
}

fn numel(shape: &[i64]) -> Result<i64> {
    if shape.contains(&0) {
        return Ok(0);
    }
    shape.iter().try_fold(1_i64, |product, extent| product.checked_mul(*extent)).ok_or_else(|| {
        Error::new(ErrorKind::Overflow, "shape", format_args!("{shape:?}"), "fewer than 2^63 elements")
    })
}

/// The maximum number of bytes that a thread loads at once.
pub(crate) const MAX_LOAD: usize = 16;

/// The maximum number of elements that a thread loads at once.
const MAX_WIDTH: usize = 8;

/// The maximum number of units in a slab. The indices by which a launch exceeds the slab still fit 32 bits.
pub(crate) const MAX_UNITS: i64 = i32::MAX as i64;

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
    pub(crate) const ONE: Self = Self { extent: 1, inverse: 0, strides: [1; K] };
}

/// Returns 2^64 / extent, rounded up, or 0 for extents 1 and 0, by which kernels do not divide.
pub(crate) fn inverse(extent: i64) -> u64 {
    if extent < 2 { 0 } else { u64::MAX / extent.unsigned_abs() + 1 }
}

/// Axes that are being sorted and merged, innermost first.
pub(crate) struct Axes<const K: usize> {
    pub(crate) list: [Axis<K>; MAX_NDIM],
    pub(crate) len: usize,
    pub(crate) addresses: [u64; K],
}

impl<const K: usize> Axes<K> {
    pub(crate) fn at(addresses: [u64; K]) -> Self {
        Self { list: [Axis::ONE; MAX_NDIM], len: 0, addresses }
    }

    pub(crate) fn push(&mut self, axis: Axis<K>) {
        self.list[self.len] = axis;
        self.len += 1;
    }

    /// Inserts an axis at its position by strides. An axis that runs backwards in all arrays is reversed first.
    pub(crate) fn insert(&mut self, mut axis: Axis<K>, sizes: [usize; K]) {
        let last = axis.extent - 1;
        if axis.strides.iter().all(|stride| *stride <= 0) {
            for ((address, stride), size) in self.addresses.iter_mut().zip(&mut axis.strides).zip(sizes) {
                *address = address.wrapping_add_signed(stride.wrapping_mul(last).wrapping_mul(size as i64));
                *stride = stride.wrapping_neg();
            }
        }
        let at = self.list[..self.len].partition_point(|other| compare(other, &axis) != Ordering::Greater);
        self.push(axis);
        self.list[at..self.len].rotate_right(1);
    }

    /// Merges adjacent axes if in every array the outer one continues where the inner one ends.
    pub(crate) fn merge(&mut self) {
        let mut kept = 0;
        for at in 1..self.len {
            let (inner, outer) = (self.list[kept], self.list[at]);
            let goes_on = |(inner_stride, outer_stride): (&i64, &i64)| {
                inner_stride.checked_mul(inner.extent) == Some(*outer_stride)
            };
            if inner.strides.iter().zip(&outer.strides).all(goes_on) {
                self.list[kept].extent *= outer.extent;
            } else {
                kept += 1;
                self.list[kept] = outer;
            }
        }
        if self.len == 0 {
            // The arrays have one element.
            self.push(Axis::ONE);
        } else {
            self.len = kept + 1;
        }
    }

    /// Returns the number of units in one index of the outermost axis, along which slabs are split. If that number
    /// exceeds [`MAX_UNITS`], the longest axis becomes the outermost. Accesses are then not coalesced, but the units
    /// can be counted.
    pub(crate) fn cut(&mut self) -> Result<u32> {
        let inner =
            |axes: &[Axis<K>]| axes.iter().try_fold(1_i64, |units, axis| units.checked_mul(axis.extent));
        let fits = |units: &i64| *units <= MAX_UNITS;
        let list = &mut self.list[..self.len];
        let outermost = list.len() - 1;
        if !inner(&list[..outermost]).is_some_and(|units| fits(&units)) {
            let longest = (0..=outermost).max_by_key(|axis| list[*axis].extent).unwrap_or(outermost);
            list[longest..].rotate_left(1);
        }
        let units = inner(&list[..outermost]).filter(fits).ok_or_else(|| {
            let found = text!("more than {MAX_UNITS} elements, the longest axis not counted");
            Error::new(
                ErrorKind::Overflow,
                "shape",
                found,
                "fewer; copy the array, so that its axes are without gaps",
            )
        })?;
        Ok(units as u32)
    }

    /// Counts the innermost axis in units that are loaded at once, if all arrays allow it. Returns the number of
    /// elements of a unit, and the number of elements after the last unit.
    pub(crate) fn vectorize(&mut self, sizes: [usize; K]) -> (u32, u32) {
        let width = width_of(sizes);
        let wide = width as i64;
        let (inner, others) = (self.list[0], &self.list[1..self.len]);
        let is_even = |(address, size): (&u64, usize)| address % (width * size).max(1) as u64 == 0;
        let fits = inner.strides == [1; K]
            && inner.extent >= wide
            && (inner.extent % wide == 0 || others.is_empty())
            && others.iter().all(|axis| axis.strides.iter().all(|stride| stride % wide == 0))
            && self.addresses.iter().zip(sizes).all(is_even);
        if width == 1 || !fits {
            return (1, 0);
        }
        self.list[0] = Axis { extent: inner.extent / wide, strides: [wide; K], ..inner };
        if self.list[0].extent == 1 && self.len > 1 {
            self.list[..self.len].rotate_left(1);
            self.len -= 1;
        }
        (width as u32, (inner.extent % wide) as u32)
    }
}

/// Compares axes: the one with the smaller stride is further in, and axes that repeat elements are the outermost.
fn compare<const K: usize>(left: &Axis<K>, right: &Axis<K>) -> Ordering {
    let key = |axis: &Axis<K>| axis.strides.map(|stride| stride.unsigned_abs().wrapping_sub(1));
    key(left).cmp(&key(right))
}

/// Returns how many elements of these sizes are loaded at once. `interop.cuh` computes the same number.
fn width_of<const K: usize>(sizes: [usize; K]) -> usize {
    let most = sizes.into_iter().max().unwrap_or(1);
    if most > MAX_LOAD || !sizes.iter().all(|size| size.is_power_of_two()) {
        return 1;
    }
    (MAX_LOAD / most).min(MAX_WIDTH)
}
