//! The elements of an array in host memory, with any rank, strides and alignment, and the operations on all of them.

use core::marker::PhantomData;
use core::ptr;

use crate::array::dims::Dims;
use crate::array::element::Element;
use crate::array::layout::axes::{Axis, each_part, offsets};
use crate::array::layout::order::Order;
use crate::array::layout::{contiguous_strides, is_contiguous, product};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::copy::host::{HostArray, copy_axes, copy_strided, filled_vec};
use crate::memory::host::cells::{ReadOnlyCell, check_readable};
use crate::memory::host::loops::{Loops, fill, fold, map};
#[cfg(feature = "rayon")]
use crate::memory::host::parallel::pieces;
use crate::order::array_info::ArrayInfo;
use crate::order::claim::{Claim, shared_elements};

/// The size of a chunk of copied elements, in bytes. Contiguous runs of at least this size are passed in place.
const CHUNK: usize = 8192;

/// Calls `work` with the elements of an array of any rank in host memory. Meanwhile the access is recorded, as one for
/// reading or for writing.
///
/// # Safety
///
/// The memory that `info` describes is live and initialized during the call.
#[inline]
pub(crate) unsafe fn with_elements<T: Element, R>(
    info: &ArrayInfo,
    exclusive: bool,
    work: impl FnOnce(Strided<'_, T>) -> Result<R>,
) -> Result<R> {
    let claim = Claim::by_host(shared_elements(info), exclusive)?;
    check_readable(info.work(), &claim)?;
    let layout = info.layout_of(&T::TYPE)?;
    // SAFETY: the memory is live and initialized, as the caller promises, and host memory. A layout was checked when it
    // was made.
    work(unsafe { Strided::new(info.unwatched_address, layout.shape(), layout.strides()) })
}

/// As [`with_elements`], for writing. Returns an error for read-only arrays and for arrays in which two indices may share
/// an element.
///
/// # Safety
///
/// As for [`with_elements`]. The memory may be written if `info` says so. During the call, no Rust code reads or writes the
/// memory without recording an access.
#[inline]
pub(crate) unsafe fn with_elements_mut<T: Element, R>(
    info: &ArrayInfo,
    work: impl FnOnce(StridedMut<'_, T>) -> Result<R>,
) -> Result<R> {
    info.check_writable()?;
    // SAFETY: `check_writable` accepted the array, and the recorded access excludes other Rust code.
    let work = |elements: Strided<'_, T>| work(unsafe { StridedMut::new(elements) });
    // SAFETY: as the caller promises.
    unsafe { with_elements(info, true, work) }
}

/// The elements of an array in host memory.
#[derive(Clone, Copy)]
pub(crate) struct Strided<'a, T> {
    first: *mut T,
    shape: &'a [usize],
    strides: &'a [isize],
    marker: PhantomData<&'a [T]>,
}

// SAFETY: the type is a pointer and a layout. The caller of `new` permits reads, and no method writes the elements. `T` is
// `Send` and `Sync`.
unsafe impl<T: Element> Send for Strided<'_, T> {}

// SAFETY: as above.
unsafe impl<T: Element> Sync for Strided<'_, T> {}

impl<'a, T: Element> Strided<'a, T> {
    /// Creates the value from an address and a layout whose arithmetic was checked.
    ///
    /// # Safety
    ///
    /// The elements are live, initialized host memory while the value is used.
    pub(crate) unsafe fn new(address: usize, shape: &'a [usize], strides: &'a [isize]) -> Self {
        Self { first: ptr::with_exposed_provenance_mut(address), shape, strides, marker: PhantomData }
    }

    pub(crate) fn count(&self) -> usize {
        product(self.shape.iter().copied()).unwrap_or_else(|| unreachable!("a layout that was checked"))
    }

    /// A pointer to the first element.
    pub(crate) fn as_ptr(&self) -> *const T {
        self.first
    }

    pub(crate) fn loops(&self) -> Option<Loops> {
        Loops::new(self.shape, &[self.strides])
    }

    /// Returns the loops over both arrays, in the memory order of this one or in tiles. Returns an error if the shapes differ.
    pub(crate) fn loops_with<U: Element>(&self, other: &Strided<'_, U>) -> Result<Option<Loops>> {
        if self.shape != other.shape {
            return Err(other_shape(other.shape, self.shape));
        }
        Ok(Loops::tiled(self.shape, &[self.strides, other.strides], size_of::<T>()))
    }

    /// Returns an error if the length differs from the number of elements.
    fn check_len(&self, len: usize) -> Result<()> {
        let count = self.count();
        if count == len { Ok(()) } else { Err(other_length(len, count)) }
    }

    pub(crate) fn to_vec(self, order: Order) -> Result<Vec<T>> {
        // SAFETY: the vector is new, and has capacity for the elements.
        let fill = |target| unsafe { self.copy_to(order, target) };
        // SAFETY: `copy_to` writes all elements, which are valid values of `T`.
        unsafe { filled_vec(self.count(), fill) }
    }

    /// Copies the elements into contiguous memory. Without an error, all copied elements are valid values of `T`.
    ///
    /// # Safety
    ///
    /// `target` has room for [`count`](Self::count) elements, and nothing else uses it.
    pub(crate) unsafe fn copy_to(&self, order: Order, target: *mut T) -> Result<()> {
        let Self { first, shape, strides, .. } = *self;
        let array = HostArray { address: first.addr(), shape, strides, element: &T::TYPE };
        // SAFETY: the elements are live and initialized (contract of `new`). The target is as the caller promises.
        unsafe { array.copy_to(order, target.cast(), self.count() * size_of::<T>()) }
    }

    #[inline]
    pub(crate) fn fold<A>(&self, start: A, add: impl FnMut(A, T) -> A) -> Result<A> {
        let Some(loops) = self.loops() else { return Ok(start) };
        // SAFETY: the elements are live and initialized (contract of `new`).
        unsafe { fold(&loops, (self.as_ptr(),), start, add) }
    }

    /// Folds the elements on the threads of rayon.
    #[cfg(feature = "rayon")]
    pub(crate) fn par_fold<A: Send>(
        &self,
        identity: &(impl Fn() -> A + Sync),
        add: &(impl Fn(A, T) -> A + Sync),
        reduce: &(impl Fn(A, A) -> A + Sync),
    ) -> Result<A> {
        let Some(loops) = self.loops() else { return Ok(identity()) };
        // SAFETY: the elements are live and initialized (contract of `new`).
        let work = |loops: &Loops| unsafe { fold(loops, (self.as_ptr(),), identity(), add) };
        pieces(loops, &work, reduce)
    }

    /// Calls `see` with chunks of elements in memory order. Long contiguous runs are passed in place, others are
    /// copied.
    pub(crate) fn for_each_chunk(&self, mut see: impl FnMut(&[ReadOnlyCell<T>])) -> Result<()> {
        let in_place = T::TYPE.any_bits && self.first.is_aligned();
        if in_place && self.count() > 0 && is_contiguous(self.shape, self.strides, Order::C) {
            // Without loops, the sum of 16 elements of a Python array takes 350 ns instead of 420.
            // SAFETY: the elements are contiguous, live and initialized (contract of `new`), and aligned.
            see(unsafe { ReadOnlyCell::slice(self.first, self.count()) });
            return Ok(());
        }
        let Some(loops) = self.loops() else { return Ok(()) };
        let (axes, first) = loops.axes();
        let most = (CHUNK / size_of::<T>()).max(1).min(self.count());
        if in_place && axes[0].steps[0] == 1 && axes[0].extent >= most {
            for [offset, _] in offsets(&axes[1..], first) {
                // SAFETY: as above, for the elements of a run.
                see(unsafe { ReadOnlyCell::slice(self.first.wrapping_offset(offset), axes[0].extent) });
            }
            return Ok(());
        }
        let mut chunk = Vec::<T>::new();
        chunk.try_reserve_exact(most).map_err(|_| Error::no_memory(most * size_of::<T>()))?;
        let mut step = 1;
        let copied = axes.iter().map(|axis| {
            let to = step;
            step *= axis.extent as isize;
            Axis { steps: [to, axis.steps[0]], ..*axis }
        });
        each_part(&copied.collect::<Dims<_>>(), (most, usize::MAX), |[_, offset], part| {
            let from = self.first.wrapping_offset(first[0].wrapping_add(offset)).cast_const();
            // SAFETY: the elements of the part are live and initialized (contract of `new`). The chunk has capacity for as
            // many.
            unsafe { copy_axes(part, &T::TYPE, from.cast(), chunk.as_mut_ptr().cast()) }?;
            // SAFETY: they have been written, and are valid values of `T`.
            unsafe { chunk.set_len(part.iter().map(|axis| axis.extent).product()) };
            ReadOnlyCell::lend(&mut chunk, &mut see);
            Ok(())
        })
    }
}

/// The elements of a writable array in host memory.
pub(crate) struct StridedMut<'a, T>(Strided<'a, T>);

impl<'a, T: Element> StridedMut<'a, T> {
    /// # Safety
    ///
    /// The elements may be written. No two indices share an element. No other Rust code reads or writes the elements
    /// while the value is used.
    pub(crate) unsafe fn new(elements: Strided<'a, T>) -> Self {
        Self(elements)
    }

    /// A mutable pointer to the first element.
    pub(crate) fn as_mut_ptr(&self) -> *mut T {
        self.0.first
    }

    pub(crate) fn fill(&mut self, value: T) {
        if let Some(loops) = self.0.loops() {
            // SAFETY: the elements are writable (contract of `new`).
            unsafe { fill(&loops, self.as_mut_ptr(), value) };
        }
    }

    pub(crate) fn copy_from_slice(&mut self, slice: &[T]) -> Result<()> {
        self.0.check_len(slice.len())?;
        let strides = contiguous_strides(self.0.shape, Order::C);
        let (from, to) = (slice.as_ptr().cast(), self.as_mut_ptr().cast());
        // SAFETY: the elements are writable, and no two indices share one (contract of `new`). The slice has as many, and
        // none of them, because no other Rust code uses those of `self`.
        unsafe { copy_strided(self.0.shape, size_of::<T>(), (from, &strides), (to, self.0.strides)) };
        Ok(())
    }

    /// Replaces each element by `change` of it, in memory order.
    #[inline]
    pub(crate) fn map_inplace(&mut self, change: impl FnMut(T) -> T) -> Result<()> {
        let Some(loops) = self.0.loops() else { return Ok(()) };
        // SAFETY: the elements are live and initialized (contract of `Strided::new`), and writable (contract of `new`).
        unsafe { map(&loops, self.as_mut_ptr(), (self.0.as_ptr(),), change) }
    }

    /// As [`map_inplace`](Self::map_inplace), on the threads of rayon.
    #[cfg(feature = "rayon")]
    pub(crate) fn par_map_inplace(&mut self, change: impl Fn(T) -> T + Sync) -> Result<()> {
        let all = &*self;
        let Some(loops) = all.0.loops() else { return Ok(()) };
        // SAFETY: as in `map_inplace`. No two indices share an element, so no two parts do.
        let work = |loops: &Loops| unsafe { map(loops, all.as_mut_ptr(), (all.0.as_ptr(),), &change) };
        pieces(loops, &work, &|(), ()| ())
    }

    #[inline]
    pub(crate) fn zip_map_inplace<U: Element>(
        &mut self,
        other: &Strided<'_, U>,
        mut change: impl FnMut(T, U) -> T,
    ) -> Result<()> {
        let Some(loops) = self.0.loops_with(other)? else { return Ok(()) };
        let from = (self.0.as_ptr(), other.as_ptr());
        // SAFETY: as in `map_inplace`.
        unsafe { map(&loops, self.as_mut_ptr(), from, |(one, other)| change(one, other)) }
    }
}

#[cold]
fn other_shape(found: &[usize], wanted: &[usize]) -> Error {
    let allowed = format!("{wanted:?}, the shape of the other array");
    Error::new(ErrorKind::Shape, "shape", format_args!("{found:?}"), allowed)
}

#[cold]
fn other_length(found: usize, wanted: usize) -> Error {
    let allowed = format!("a slice of {wanted}, as the array has");
    Error::new(ErrorKind::Shape, "slice", format_args!("{found} elements"), allowed)
}
