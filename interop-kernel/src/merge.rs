//! Sorts, merges and vectorizes the axes of arrays for an elementwise kernel, on the host.
#![expect(unsafe_code, reason = "the caller promises that the arrays of a launch live")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "numbers of elements and axes, which came from `usize` and were compared"
)]

use core::marker::PhantomData;
use core::mem::size_of;
use core::ops::RangeInclusive;

use crate::LaunchSize;
use crate::arrays::{Extent, KernelArrays, KernelAxis, SPREAD, width_of};
use crate::axes::{Axis, MAX_NDIM, arrange};
use crate::element::KernelElement;
use crate::elementwise::sealed::Located as _;
use crate::elementwise::{Arrays, Elementwise, In, KernelElementwise, Out};
use crate::error::{ArgumentError, MistakeKind};
use crate::fields::Pointer;
use crate::view::{KernelView, KernelViewMut, View, ViewMut};

/// The number of threads per block.
const THREADS: u32 = 256;

/// The maximum extent of a grid along x.
const MAX_BLOCKS: u32 = 0x7FFF_FFFF;

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
    /// [`MistakeKind::Rank`](MistakeKind) for more than 64 axes; [`MistakeKind::Strides`](MistakeKind) if the number of strides is not the
    /// number of axes.
    pub fn new(
        address: u64,
        item_size: usize,
        shape: &'a [usize],
        strides: &'a [isize],
    ) -> Result<Self, ArgumentError> {
        if shape.len() > MAX_NDIM {
            let (found, allowed) = (format!("{} axes", shape.len()), format!("at most {MAX_NDIM} axes"));
            return Err(ArgumentError::new(MistakeKind::Rank, "shape", found, allowed));
        }
        if shape.len() != strides.len() {
            let allowed = format!("one for each of {} axes", shape.len());
            return Err(ArgumentError::new(MistakeKind::Strides, "strides", strides.len(), allowed));
        }
        Ok(Self { address, item_size, shape, strides })
    }
}

pub(crate) mod sealed {
    use crate::elementwise::Arrays;
    use crate::error::ArgumentError;

    /// The views of an `Elementwise`, which must be those of its arrays.
    pub trait Views<'a, A: Arrays, const N: usize> {
        /// Merges the axes.
        fn merged(self) -> Result<A::Arguments<'a, N>, ArgumentError>;
    }

    /// The parts of an array's layout.
    pub trait Operand {
        fn pointer(&self) -> *mut u8;
        fn item_size(&self) -> usize;
        fn ndim(&self) -> usize;
        /// The extent and the stride.
        fn axis(&self, axis: usize) -> (i64, i64);
    }
}

/// An array that [`KernelArrays`] accepts: a [`KernelView`], a [`KernelViewMut`] or a [`DynKernelView`].
pub trait KernelOperand<'a>: sealed::Operand {}

macro_rules! operands {
    ($($view:ident $($mapping:ident)?;)*) => {
        $(
            impl<T, const N: usize $(, $mapping)?> sealed::Operand for $view<'_, T, N $(, $mapping)?> {
                fn pointer(&self) -> *mut u8 {
                    self.fields.pointer.low
                }

                fn item_size(&self) -> usize {
                    size_of::<T>()
                }

                fn ndim(&self) -> usize {
                    N
                }

                fn axis(&self, axis: usize) -> (i64, i64) {
                    (self.fields.shape[axis], self.fields.strides[axis])
                }
            }
        )*
    };
}

operands!(KernelView; KernelViewMut; View; ViewMut M;);

impl<'a, T, const N: usize> KernelOperand<'a> for KernelView<'a, T, N> {}

impl<'a, T, const N: usize> KernelOperand<'a> for KernelViewMut<'a, T, N> {}

impl<'a, A: Arrays, const N: usize> Elementwise<'a, A, N> {
    /// Makes an argument of views of slices, for a run on the CPU: a tuple, in the order of `A`, with a [`ViewMut`] for `Out` and
    /// a [`View`] for `In`.
    ///
    /// # Errors
    ///
    /// As [`KernelArrays::new`].
    ///
    /// # Panics
    ///
    /// In a kernel: an `Elementwise` gives a thread other elements than the views do.
    #[track_caller]
    pub fn new(views: impl Views<'a, A, N>) -> Result<Self, ArgumentError> {
        crate::host::assert_outside("`Elementwise::new`");
        views.merged().map(|arrays| Self(arrays, PhantomData))
    }
}

impl<'a, A: Arrays, const N: usize> KernelElementwise<'a, A, N> {
    /// Makes an argument of arrays that were merged.
    ///
    /// # Safety
    ///
    /// The arrays are those of `A`: they have elements of these types, which live for `'a`, at addresses that are aligned
    /// for them. If `A` begins with `Out`, nobody else
    /// uses the elements of the first array, and each index of it has its own.
    #[must_use]
    pub unsafe fn from_arrays(arrays: A::Arguments<'a, N>) -> Self {
        Self(arrays)
    }

    /// Returns the launch size of [`KernelArrays::launch_size`].
    #[must_use]
    pub fn launch_size(&self) -> LaunchSize {
        self.0.launch_size_within(MAX_BLOCKS)
    }

    /// Returns the launch size of [`KernelArrays::launch_size_within`].
    #[must_use]
    pub fn launch_size_within(&self, blocks: u32) -> LaunchSize {
        self.0.launch_size_within(blocks)
    }
}

/// Views of the arrays of an [`Elementwise`], as a tuple.
#[diagnostic::on_unimplemented(message = "`{Self}` are no views of the arrays `{A}`")]
pub trait Views<'a, A: Arrays, const N: usize>: sealed::Views<'a, A, N> {}

macro_rules! views {
    ($($count:literal: $($other:ident $number:tt)*;)*) => {
        $(
            impl<'a, A: KernelElement, $($other: KernelElement,)* M, const N: usize, const R: usize>
                Views<'a, (Out<A>, $(In<$other>,)*), N> for (ViewMut<'a, A, R, M>, $(View<'a, $other, R>,)*)
            {
            }

            impl<'a, A: KernelElement, $($other: KernelElement,)* M, const N: usize, const R: usize>
                sealed::Views<'a, (Out<A>, $(In<$other>,)*), N> for (ViewMut<'a, A, R, M>, $(View<'a, $other, R>,)*)
            {
                fn merged(self) -> Result<KernelArrays<'a, $count, N>, ArgumentError> {
                    KernelArrays::merged([&self.0 as &dyn sealed::Operand, $(&self.$number),*])
                }
            }

            impl<'a, A: KernelElement, $($other: KernelElement,)* const N: usize, const R: usize>
                Views<'a, (In<A>, $(In<$other>,)*), N> for (View<'a, A, R>, $(View<'a, $other, R>,)*)
            {
            }

            impl<'a, A: KernelElement, $($other: KernelElement,)* const N: usize, const R: usize>
                sealed::Views<'a, (In<A>, $(In<$other>,)*), N> for (View<'a, A, R>, $(View<'a, $other, R>,)*)
            {
                fn merged(self) -> Result<KernelArrays<'a, $count, N>, ArgumentError> {
                    KernelArrays::merged([&self.0 as &dyn sealed::Operand, $(&self.$number),*])
                }
            }
        )*
    };
}

views! {
    1: ;
    2: B 1;
    3: B 1 C 2;
    4: B 1 C 2 D 3;
}

impl sealed::Operand for DynKernelView<'_> {
    fn pointer(&self) -> *mut u8 {
        // Host code does not follow it.
        core::ptr::without_provenance_mut(self.address as usize)
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
    /// [`MistakeKind::Shape`](MistakeKind) unless all arrays have the same shape; [`MistakeKind::Rank`](MistakeKind) if more than `N` axes remain;
    /// [`MistakeKind::Overflow`](MistakeKind) if the number of elements does not fit 63 bits, or that of units, of two elements or more,
    /// 31 bits without the longest axis.
    pub fn new(arrays: [&dyn KernelOperand<'a>; K]) -> Result<Self, ArgumentError> {
        Self::merged(arrays)
    }

    fn merged<L: sealed::Operand + ?Sized>(arrays: [&L; K]) -> Result<Self, ArgumentError> {
        const { assert!(K > 0 && N > 0, "at least one array, and room for one axis") };
        check_shapes(&arrays)?;
        // Few arrays have many axes, and a long list takes longer than the rest.
        match arrays[0].ndim() {
            ..=FEW_AXES => Self::arranged::<L, FEW_AXES>(arrays),
            _ => Self::arranged::<L, MAX_NDIM>(arrays),
        }
    }

    /// As [`merged`](Self::merged), for arrays of one shape with up to `M` axes.
    fn arranged<L: sealed::Operand + ?Sized, const M: usize>(arrays: [&L; K]) -> Result<Self, ArgumentError> {
        let sizes = arrays.map(L::item_size);
        let mut axes = Axes::<K, M>::new(&arrays)?;
        let (inner, wide) = axes.cut(sizes)?;
        let Axes { ref mut list, len, addresses } = axes;
        if len > N {
            let found = format!("{len} axes that do not merge");
            let allowed =
                format!("{N} at most, for this kernel; copy the array, so that its axes are without gaps");
            return Err(ArgumentError::new(MistakeKind::Rank, "shape", found, allowed));
        }
        let row = list[0].extent as i64;
        let units = units_of(row, wide);
        list[0].extent = units as usize;
        let outer = list[len - 1].extent as i64;
        let mut axes = [KernelAxis { extent: Extent::default(), strides: [0; K] }; N];
        for (at, axis) in list[..len].iter().enumerate() {
            // That of the outermost axis, which may be larger, is `outer`.
            let extent = if at + 1 < len { Extent::new(axis.extent as u32) } else { Extent::default() };
            axes[at] = KernelAxis { extent, strides: axis.steps.map(|step| step as i64) };
        }
        Ok(Self {
            piece: (MAX_UNITS / i64::from(inner)).min(outer).max(1),
            outer,
            row,
            full: wide.units(row),
            step: if wide.width > 1 { 1 } else { units },
            inner,
            rank: len as u32,
            width: wide.width as u32,
            head: wide.head as u32,
            addresses: addresses.map(Pointer::new),
            axes,
            marker: PhantomData,
        })
    }

    /// Returns the same argument for a lifetime that the caller chooses: no element can be reached through it.
    #[doc(hidden)]
    #[must_use]
    pub fn unbound<'b>(self) -> KernelArrays<'b, K, N> {
        KernelArrays { marker: PhantomData, ..self }
    }

    /// Returns the launch size in which each thread processes two vectors or eight elements. Any other launch is correct, too.
    #[must_use]
    pub fn launch_size(&self) -> LaunchSize {
        self.launch_size_within(MAX_BLOCKS)
    }

    /// As [`launch_size`](Self::launch_size), with at most `blocks` blocks: for a reduction, which leaves one number
    /// per block.
    #[must_use]
    pub fn launch_size_within(&self, blocks: u32) -> LaunchSize {
        /// The number of units that repay the start of a thread.
        const EACH: u64 = 2;
        let units = self.piece.unsigned_abs() * u64::from(self.inner);
        let wanted = units.div_ceil(EACH * u64::from(THREADS));
        let most = blocks.clamp(1, MAX_BLOCKS);
        let grid = u32::try_from(wanted).map_or(most, |wanted| wanted.clamp(1, most));
        LaunchSize { grid: (grid, 1, 1), block: (THREADS, 1, 1) }
    }

    /// The number of elements of each array.
    #[must_use]
    pub fn numel(&self) -> usize {
        (0..self.rank()).map(|axis| self.axis(axis).0).product::<i64>() as usize
    }

    /// The number of axes that remain, at least 1.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank as usize
    }

    /// The number of elements that a thread loads at once: 1, or as many of the largest element type as fit 16 bytes.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width as usize
    }

    /// Returns the number of elements along an axis, and their distance in each array.
    pub(crate) fn axis(&self, axis: usize) -> (i64, [i64; K]) {
        let KernelAxis { extent, strides } = &self.axes[axis];
        match axis {
            0 => (self.row, *strides),
            _ if axis + 1 == self.rank() => (self.outer, *strides),
            _ => (i64::from(extent.value), *strides),
        }
    }

    /// Returns the address in an array from which [`offsets`](Self::offsets) are counted: that of the first element in
    /// kernel order.
    ///
    /// # Panics
    ///
    /// If there is no such array.
    #[must_use]
    pub fn address(&self, array: usize) -> u64 {
        self.addresses[array].low.addr() as u64
    }

    /// Returns the offset of an element in each array, in elements. `number` is its position in kernel order.
    ///
    /// ```
    /// use interop_kernel::{DynKernelView, KernelArrays};
    ///
    /// let backwards = DynKernelView::new(0x7F00_0000_0100, 4, &[3], &[-2])?;
    /// let arrays = KernelArrays::<1, 1>::new([&backwards])?;
    /// assert_eq!(arrays.address(0), 0x7F00_0000_0100 - 2 * 2 * 4);
    /// assert_eq!([0, 1, 2].map(|number| arrays.offsets(number)), [[0], [2], [4]]);
    /// # Ok::<(), interop_kernel::ArgumentError>(())
    /// ```
    #[must_use]
    pub fn offsets(&self, number: usize) -> [i64; K] {
        let (mut rest, mut offsets) = (number as i64, [0; K]);
        for (extent, strides) in (0..self.rank()).map(|axis| self.axis(axis)) {
            let index = rest % extent;
            rest /= extent;
            for (offset, stride) in offsets.iter_mut().zip(strides) {
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
        let axes = (0..self.rank()).map(|axis| self.axis(axis));
        let ends = axes.map(|(extent, strides)| (extent - 1) * strides[array]);
        let (low, high) = ends.fold((0, 0), |(low, high), end| (low + end.min(0), high + end.max(0)));
        low..=high
    }
}

/// The number of axes that nearly all arrays have at most.
const FEW_AXES: usize = 8;

/// Compares the shapes of all arrays.
fn check_shapes<L: sealed::Operand + ?Sized>(arrays: &[&L]) -> Result<(), ArgumentError> {
    let (ndim_of_first, count) = (arrays[0].ndim(), arrays.len());
    for (at, array) in arrays.iter().enumerate().skip(1) {
        let (ndim, first) = (array.ndim(), ndim_of_first);
        if ndim != first {
            let found = format!("{ndim} in array {} of {count}", at + 1);
            return Err(ArgumentError::new(
                MistakeKind::Shape,
                "axes",
                found,
                format!("{first}, as in array 1"),
            ));
        }
        for axis in 0..ndim {
            let (found, extent) = (array.axis(axis).0, arrays[0].axis(axis).0);
            if found != extent {
                let found = format!("{found} in axis {axis} of array {} of {count}", at + 1);
                return Err(ArgumentError::new(
                    MistakeKind::Shape,
                    "shape",
                    found,
                    format!("{extent}, as in array 1"),
                ));
            }
        }
    }
    Ok(())
}

/// Returns the number of elements of an array.
fn numel<L: sealed::Operand + ?Sized>(array: &L) -> Result<i64, ArgumentError> {
    let extents = (0..array.ndim()).map(|axis| array.axis(axis).0);
    if extents.clone().any(|extent| extent == 0) {
        return Ok(0);
    }
    let count = extents.clone().try_fold(1_i64, i64::checked_mul);
    count.filter(|count| isize::try_from(*count).is_ok()).ok_or_else(|| {
        let shape = format!("{:?}", extents.collect::<Vec<_>>());
        ArgumentError::new(MistakeKind::Overflow, "shape", shape, "fewer than 2^63 elements")
    })
}

/// The maximum number of units in a slab, which 31 bits count.
const MAX_UNITS: i64 = i32::MAX as i64;

/// How the elements along the innermost axis are loaded at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wide {
    /// The number of elements of a load.
    width: i64,
    /// The number of elements before the first load, less than `width`.
    head: i64,
}

impl Wide {
    const NONE: Self = Self { width: 1, head: 0 };

    /// Returns the number of loads along an axis with this number of elements.
    fn units(self, row: i64) -> i64 {
        if self.width > 1 { (row - self.head) / self.width } else { 0 }
    }
}

/// Returns the number of units of an innermost axis with this number of elements.
fn units_of(row: i64, wide: Wide) -> i64 {
    let full = wide.units(row);
    let (rest, spread) = (row - full * wide.width, SPREAD as i64);
    full + rest / spread + i64::from(rest % spread > 0)
}

/// The axes of the arrays in elements, and the addresses from which their steps are counted.
struct Axes<const K: usize, const M: usize> {
    list: [Axis<K>; M],
    len: usize,
    addresses: [*mut u8; K],
}

impl<const K: usize, const M: usize> Axes<K, M> {
    /// Turns, sorts and merges the axes of arrays of one shape.
    fn new<L: sealed::Operand + ?Sized>(arrays: &[&L; K]) -> Result<Self, ArgumentError> {
        let mut axes = Self { list: [Axis::ONCE; M], len: 0, addresses: arrays.map(L::pointer) };
        if numel(arrays[0])? == 0 {
            (axes.list[0], axes.len) = (Axis { extent: 0, steps: [1; K] }, 1);
            return Ok(axes);
        }
        for axis in (0..arrays[0].ndim()).rev() {
            let extent = arrays[0].axis(axis).0 as usize;
            if extent != 1 {
                let steps = arrays.map(|array| array.axis(axis).1 as isize);
                axes.list[axes.len] = Axis { extent, steps };
                axes.len += 1;
            }
        }
        axes.arrange(arrays.map(L::item_size));
        Ok(axes)
    }

    /// Turns, sorts and merges the axes. At least one is left.
    fn arrange(&mut self, sizes: [usize; K]) {
        let (first, left) = arrange(&mut self.list[..self.len]);
        for ((address, offset), size) in self.addresses.iter_mut().zip(first).zip(sizes) {
            *address = address.wrapping_offset(offset.wrapping_mul(size as isize));
        }
        self.len = left;
        if left == 0 {
            // The arrays have one element.
            (self.list[0], self.len) = (Axis { extent: 1, steps: [1; K] }, 1);
        }
    }

    /// Returns the number of units in one index of the outermost axis, along which slabs are split, and what is loaded at once.
    /// If the number of units exceeds [`MAX_UNITS`], the longest axis becomes the outermost. Accesses are then not coalesced, but
    /// the units can be counted.
    fn cut(&mut self, sizes: [usize; K]) -> Result<(u32, Wide), ArgumentError> {
        let found = self.inner(sizes).or_else(|| {
            let longest = (0..self.len).max_by_key(|axis| self.list[*axis].extent)?;
            self.list[longest..self.len].rotate_left(1);
            self.inner(sizes)
        });
        found.ok_or_else(|| {
            let found = format!("more than {MAX_UNITS} units, the longest axis not counted");
            ArgumentError::new(
                MistakeKind::Overflow,
                "shape",
                found,
                "fewer; copy the array, so that its axes are without gaps",
            )
        })
    }

    /// What [`cut`](Self::cut) returns, for the axes as they are.
    fn inner(&self, sizes: [usize; K]) -> Option<(u32, Wide)> {
        let wide = self.wide(sizes);
        let units = |(at, axis): (usize, &Axis<K>)| match at {
            0 => units_of(axis.extent as i64, wide),
            _ => axis.extent as i64,
        };
        let mut inner = self.list[..self.len - 1].iter().enumerate().map(units);
        let inner = inner.try_fold(1_i64, i64::checked_mul).filter(|units| *units <= MAX_UNITS)?;
        Some((inner as u32, wide))
    }

    /// Returns what is loaded at once along the innermost axis: nothing unless all arrays allow it.
    fn wide(&self, sizes: [usize; K]) -> Wide {
        let width = width_of(sizes);
        let (inner, others) = (self.list[0], &self.list[1..self.len]);
        // The first array decides where a load begins: as many elements on, all others are aligned too.
        let past = self.addresses[0].addr() / sizes[0].max(1) % width;
        let head = (width - past) % width;
        let is_even = |(address, size): (&*mut u8, usize)| {
            address.addr().wrapping_add(head * size) % (width * size).max(1) == 0
        };
        let wide = Wide { width: width as i64, head: head as i64 };
        let fits = inner.steps == [1; K]
            && wide.units(inner.extent as i64) > 0
            && others.iter().all(|axis| axis.steps.iter().all(|step| step % width as isize == 0))
            && self.addresses.iter().zip(sizes).all(is_even);
        if fits { wide } else { Wide::NONE }
    }
}
