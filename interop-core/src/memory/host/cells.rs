//! Elements lent as cells: slices that may be written by others meanwhile, and are as fast as any.

use core::cell::{Cell, UnsafeCell};
use core::fmt;
use core::iter::FusedIterator;
use core::marker::PhantomData;

use crate::array::element::Element;
use crate::array::layout::errors::axes_in_words;
use crate::array::layout::order::Order;
use crate::error::{Error, ErrorKind, Result, text};
use crate::memory::array_view::RawView;
use crate::memory::host::{HostView, HostViewMut};

/// An element that is read by value, and that others may write between two reads.
///
/// A slice of these is what a slice of `T` cannot be: safe to have of memory that other libraries share. Loops over it are
/// vectorised as any. It is for one thread, as a `Cell` is.
///
/// ```
/// use interop_core::{CudaArray, ReadOnlyCell};
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len])]
/// struct Samples { #[cuda_array(data)] values: Vec<f32>, len: usize }
///
/// let samples = Samples { values: vec![1.0, 2.0, 4.0], len: 3 };
/// let view = samples.view::<f32, 1>()?.host_view()?;
/// let cells: &[ReadOnlyCell<f32>] = view.as_cells()?;
/// assert_eq!(cells.iter().map(ReadOnlyCell::get).sum::<f32>(), 7.0);
/// # Ok::<(), interop_core::Error>(())
/// ```
#[repr(transparent)]
pub struct ReadOnlyCell<T>(UnsafeCell<T>);

impl<T: Copy> ReadOnlyCell<T> {
    /// The value that is there now.
    #[inline]
    #[must_use]
    pub fn get(&self) -> T {
        // SAFETY: live and initialized while the cell is borrowed; nothing else runs on this thread during the read.
        unsafe { self.0.get().read() }
    }
}

impl<T> ReadOnlyCell<T> {
    /// # Safety
    ///
    /// There are `count` elements next to one another, live and initialized for `'c`, and aligned.
    pub(crate) unsafe fn slice<'c>(first: *const T, count: usize) -> &'c [Self] {
        // SAFETY: as the caller promises; transparent, and a cell says nothing of who writes.
        unsafe { core::slice::from_raw_parts(first.cast(), count) }
    }

    /// Lends some elements, if there are any, which are gone then.
    pub(crate) fn lend(elements: &mut Vec<T>, see: &mut impl FnMut(&[Self])) {
        if !elements.is_empty() {
            // The pointer that may write, as it is for cells.
            // SAFETY: elements of a vector.
            see(unsafe { Self::slice(elements.as_mut_ptr(), elements.len()) });
            elements.clear();
        }
    }
}

impl<T: Copy + fmt::Debug> fmt::Debug for ReadOnlyCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadOnlyCell").field(&self.get()).finish()
    }
}

/// Refuses elements of which not every bit pattern is a value: others may write any into a cell.
pub(crate) fn check_any_bits<T: Element>() -> Result<()> {
    if T::TYPE.any_bits {
        return Ok(());
    }
    let allowed = "elements of which every bit pattern is a value, as others may write any";
    let error = Error::new(ErrorKind::DType, "dtype", T::TYPE.describe(), allowed);
    Err(error.with_rust_hint("`for_each_chunk`, `fold` and `to_vec` check a `bool` before they give it"))
}

impl<const N: usize> RawView<N> {
    /// # Safety
    ///
    /// The elements are live and initialized for `'c`, and a `C` is a cell of a `T`.
    unsafe fn cells<'c, T: Element, C>(&self) -> Result<&'c [C]> {
        check_any_bits::<T>()?;
        let (first, count) = self.run::<T>(Order::C)?;
        // SAFETY: `count` elements without gaps, aligned (`check_host`), as the caller promises; a cell says nothing of who writes.
        Ok(unsafe { core::slice::from_raw_parts(first.cast_const().cast::<C>(), count) })
    }

    fn lanes<T: Element, C>(&self, axis: usize) -> Result<Lanes<'_, C, N>> {
        check_any_bits::<T>()?;
        let Some(len) = self.shape.get(axis).copied() else {
            let allowed = text!("less than {N}, the number of axes");
            return Err(Error::new(ErrorKind::Rank, "axis", axis, allowed));
        };
        if len > 1 && self.strides[axis] != 1 && !self.shape.contains(&0) {
            let found = text!("{} along axis {axis}", self.strides[axis]);
            let error =
                Error::new(ErrorKind::Strides, "strides", found, "1: elements that lie next to one another");
            return Err(error.with_rust_hint("`iter`, `fold` and `for_each_chunk` take any strides"));
        }
        let mut shape = self.shape;
        shape[axis] = 1;
        let left = shape.iter().fold(1_usize, |all, extent| all.saturating_mul(*extent));
        let first = core::ptr::with_exposed_provenance(self.address);
        Ok(Lanes { first, len, shape, strides: self.strides, index: [0; N], left, marker: PhantomData })
    }
}

impl<T: Element, const N: usize> HostView<'_, T, N> {
    /// The elements as a slice of cells, in C order.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Strides`] unless the array is C-contiguous: [`rows`](Self::rows) and [`lanes`](Self::lanes) ask for less.
    /// [`ErrorKind::DType`] for `bool`: somebody else may write a byte that is none, after it was checked.
    pub fn as_cells(&self) -> Result<&[ReadOnlyCell<T>]> {
        // SAFETY: live and initialized (contract of `from_info`) for as long as the view is borrowed; transparent. Nothing is
        // written through these cells, so it may be memory that is lent for reading.
        unsafe { self.raw.cells::<T, ReadOnlyCell<T>>() }
    }

    /// The rows, each a slice of cells: the lanes along the last axis.
    ///
    /// # Errors
    ///
    /// As [`lanes`](Self::lanes).
    ///
    /// ```
    /// use interop_core::CudaArray;
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(shape = [rows, 2])]
    /// struct Table { #[cuda_array(data)] cells: Vec<u8>, rows: usize }
    ///
    /// let table = Table { cells: vec![1, 2, 3, 4], rows: 2 };
    /// let view = table.view::<u8, 2>()?.host_view()?;
    /// let sums: Vec<u8> = view.rows()?.map(|row| row.iter().map(|cell| cell.get()).sum()).collect();
    /// assert_eq!(sums, [3, 7]);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    pub fn rows(&self) -> Result<Lanes<'_, ReadOnlyCell<T>, N>> {
        self.lanes(last_axis::<N>()?)
    }

    /// The lanes along an axis, each a slice of cells, in the order of the other indices.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Strides`] unless elements lie next to one another along the axis; [`ErrorKind::Rank`] where there is no
    /// such axis; [`ErrorKind::DType`] as [`as_cells`](Self::as_cells).
    pub fn lanes(&self, axis: usize) -> Result<Lanes<'_, ReadOnlyCell<T>, N>> {
        self.raw.lanes::<T, _>(axis)
    }
}

impl<T: Element, const N: usize> HostViewMut<'_, T, N> {
    /// The elements as a slice of cells, in C order, to read and to write.
    ///
    /// # Errors
    ///
    /// As [`HostView::as_cells`].
    ///
    /// ```
    /// use interop_core::{CudaArray, HostVec};
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(shape = [len])]
    /// struct Samples { #[cuda_array(data)] values: HostVec<f32>, len: usize }
    ///
    /// let mut samples = Samples { values: HostVec::from([1.0, 2.0, 4.0]), len: 3 };
    /// let mut view = samples.view_mut::<f32, 1>()?.into_host_view_mut()?;
    /// for pair in view.as_cells()?.windows(2) {
    ///     pair[1].set(pair[0].get() + pair[1].get());
    /// }
    /// drop(view);
    /// assert_eq!(samples.to_vec::<f32>()?, [1.0, 3.0, 7.0]);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    pub fn as_cells(&mut self) -> Result<&[Cell<T>]> {
        // SAFETY: as in `HostView::as_cells`; writable, and unshared among Rust code while the view is borrowed.
        unsafe { self.raw.cells::<T, Cell<T>>() }
    }

    /// As [`HostView::rows`], to read and to write.
    ///
    /// # Errors
    ///
    /// As [`HostView::lanes`].
    pub fn rows(&mut self) -> Result<Lanes<'_, Cell<T>, N>> {
        self.lanes(last_axis::<N>()?)
    }

    /// As [`HostView::lanes`], to read and to write.
    ///
    /// # Errors
    ///
    /// As [`HostView::lanes`].
    pub fn lanes(&mut self, axis: usize) -> Result<Lanes<'_, Cell<T>, N>> {
        self.raw.lanes::<T, _>(axis)
    }
}

fn last_axis<const N: usize>() -> Result<usize> {
    let none = || Error::new(ErrorKind::Rank, "shape", axes_in_words(0), "1 axis or more, for rows");
    N.checked_sub(1).ok_or_else(none)
}

/// The lanes of a view along one axis: see [`HostView::lanes`].
pub struct Lanes<'a, C, const N: usize> {
    first: *const C,
    len: usize,
    /// The extents, 1 along the lanes.
    shape: [usize; N],
    strides: [isize; N],
    index: [usize; N],
    left: usize,
    marker: PhantomData<&'a [C]>,
}

impl<'a, C, const N: usize> Iterator for Lanes<'a, C, N> {
    type Item = &'a [C];

    #[inline]
    fn next(&mut self) -> Option<&'a [C]> {
        self.left = self.left.checked_sub(1)?;
        if self.len == 0 {
            return Some(&[]);
        }
        let mut here = self.first;
        for axis in 0..N {
            here = here.wrapping_offset((self.index[axis] as isize).wrapping_mul(self.strides[axis]));
        }
        for axis in (0..N).rev() {
            self.index[axis] += 1;
            if self.index[axis] < self.shape[axis] {
                break;
            }
            self.index[axis] = 0;
        }
        // SAFETY: elements of the view next to one another (`RawView::lanes`), live, initialized and aligned while it is borrowed.
        Some(unsafe { core::slice::from_raw_parts(here, self.len) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<C, const N: usize> ExactSizeIterator for Lanes<'_, C, N> {}

impl<C, const N: usize> FusedIterator for Lanes<'_, C, N> {}

impl<C, const N: usize> fmt::Debug for Lanes<'_, C, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lanes({} of {} elements)", self.left, self.len)
    }
}
