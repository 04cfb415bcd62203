//! The bytes of a view, as the host and a device have them.
#![expect(unsafe_code, reason = "elements are read and written through pointers")]

use core::any::type_name;
use core::fmt;
use core::mem::size_of;

use crate::element::KernelElement;

/// Folds over the axes. There is no loop over the first four: the compiler looks for the loop along a row before it unrolls loops inside of
/// it.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
pub(crate) fn fold_axes<const N: usize, A>(start: A, step: impl Fn(A, usize) -> A) -> A {
    let mut folded = start;
    if N > 0 {
        folded = step(folded, 0);
    }
    if N > 1 {
        folded = step(folded, 1);
    }
    if N > 2 {
        folded = step(folded, 2);
    }
    if N > 3 {
        folded = step(folded, 3);
    }
    (4..N).fold(folded, step)
}

/// The bytes of every view: a pointer, the extents, and the strides in elements.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub struct Fields<const N: usize> {
    pub(crate) pointer: Pointer,
    pub(crate) shape: [i64; N],
    pub(crate) strides: [i64; N],
}

/// A pointer of 64 bits, also where those of the host have 32.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(crate) struct Pointer {
    pub(crate) low: *mut u8,
    #[cfg(target_pointer_width = "32")]
    high: u32,
}

impl Pointer {
    pub(crate) const fn new(low: *mut u8) -> Self {
        Self {
            low,
            #[cfg(target_pointer_width = "32")]
            high: 0,
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "extents and offsets come from `usize` and `isize`"
)]
impl<const N: usize> Fields<N> {
    #[inline(always)]
    pub(crate) fn extents(&self) -> [usize; N] {
        self.shape.map(|extent| extent as usize)
    }

    /// Returns the offset of an element, in elements.
    #[inline(always)]
    pub(crate) fn offset(&self, at: [usize; N]) -> isize {
        #[cfg(target_arch = "nvptx64")]
        let offset = at.iter().zip(&self.strides).map(|(at, stride)| *at as i64 * stride).sum::<i64>();
        #[cfg(not(target_arch = "nvptx64"))]
        let offset = fold_axes::<N, i64>(0, |sum, axis| sum + at[axis] as i64 * self.strides[axis]);
        offset as isize
    }

    /// Returns the lowest and the highest offset, in elements. The array has elements.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn span(&self) -> (i64, i64) {
        let ends = self.shape.iter().zip(&self.strides).map(|(extent, stride)| (extent - 1) * stride);
        ends.fold((0, 0), |(low, high), end| (low + end.min(0), high + end.max(0)))
    }

    /// Describes a part of a slice.
    #[track_caller]
    pub(crate) fn from_slice(
        pointer: *mut u8,
        len: usize,
        size: usize,
        first: usize,
        shape: [usize; N],
        strides: [isize; N],
    ) -> Self {
        let fields = Self {
            pointer: Pointer::new(pointer.wrapping_add(first.wrapping_mul(size))),
            shape: shape.map(|extent| i64::try_from(extent).expect("an extent below 2^63")),
            strides: strides.map(|stride| stride as i64),
        };
        if shape.contains(&0) {
            return fields;
        }
        let ends = fields.shape.iter().zip(&fields.strides);
        let mut ends = ends.map(|(extent, stride)| i128::from(extent - 1) * i128::from(*stride));
        let first = first as i128;
        // Three products are enough for more than 128 bits.
        let span = ends.try_fold((first, first), |(low, high), end| {
            Some((low.checked_add(end.min(0))?, high.checked_add(end.max(0))?))
        });
        assert!(
            span.is_some_and(|(low, high)| low >= 0 && high < len as i128),
            "an array of the shape {shape:?} with the strides {strides:?} from element {first} on does not lie in {len} elements"
        );
        fields
    }

    /// Whether every index has its own element.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn is_injective(&self) -> bool {
        if self.shape.contains(&0) {
            return true;
        }
        let mut axes = [(0, 0); N];
        for (axis, (extent, stride)) in axes.iter_mut().zip(self.shape.iter().zip(&self.strides)) {
            *axis = if *extent > 1 { (stride.unsigned_abs(), extent - 1) } else { (0, 0) };
        }
        axes.sort_unstable();
        let mut reach = 0_u128;
        axes.iter().filter(|(_, last)| *last > 0).all(|(stride, last)| {
            let is_apart = u128::from(*stride) > reach;
            reach += u128::from(*stride) * u128::from(last.unsigned_abs());
            is_apart
        })
    }

    pub(crate) fn describe<T>(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pointer, shape, strides } = self;
        write!(f, "{name}({} {shape:?} at {:p}, strides {strides:?})", type_name::<T>(), pointer.low)
    }

    /// Returns where a pack begins, how far its elements are apart, how many there are, and whether it can be moved in one
    /// piece.
    #[inline(always)]
    fn pack<T, const W: usize>(&self, first: [usize; N]) -> (*mut T, isize, usize, bool) {
        let place = self.pointer.low.cast::<T>().wrapping_offset(self.offset(first));
        let (stride, count) = (self.strides[N - 1], (self.extents()[N - 1] - first[N - 1]).min(W));
        let is_whole = stride == 1 && count == W && place.addr() % (W * size_of::<T>()) == 0;
        (place, stride as isize, count, is_whole)
    }

    /// # Safety
    ///
    /// The elements of the pack live, and no other thread writes them.
    #[inline(always)]
    pub(crate) unsafe fn load<T: KernelElement, const W: usize>(
        &self,
        first: [usize; N],
        beyond: T,
    ) -> [T; W] {
        let (place, stride, count, is_whole) = self.pack::<T, W>(first);
        if is_whole {
            // SAFETY: `W` elements, aligned as a whole.
            return unsafe { crate::wide::load(place) };
        }
        let mut pack = [beyond; W];
        // By number, which is constant in each step once the loop is unrolled: an iterator would keep the pack in local memory.
        // Volatile, or the compiler shares accesses between this loop and the wide one, and that is wide no longer.
        #[expect(clippy::needless_range_loop, reason = "the comment above")]
        for number in 0..W {
            if number < count {
                // SAFETY: the row has the element.
                pack[number] = unsafe { place.wrapping_offset(number as isize * stride).read_volatile() };
            }
        }
        pack
    }

    /// # Safety
    ///
    /// The elements of the pack live, and no other thread uses them.
    #[inline(always)]
    pub(crate) unsafe fn store<T: KernelElement, const W: usize>(&self, first: [usize; N], pack: [T; W]) {
        let (place, stride, count, is_whole) = self.pack::<T, W>(first);
        if is_whole {
            // SAFETY: `W` elements, aligned as a whole.
            return unsafe { crate::wide::store(place, pack) };
        }
        #[expect(clippy::needless_range_loop, reason = "as in `load`")]
        for number in 0..W {
            if number < count {
                // SAFETY: the row has the element.
                unsafe { place.wrapping_offset(number as isize * stride).write_volatile(pack[number]) };
            }
        }
    }
}
