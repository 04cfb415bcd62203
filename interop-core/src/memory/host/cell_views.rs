//! Contiguous elements of a view lent as slices of cells.

use core::cell::Cell;
use core::fmt;
use core::iter::FusedIterator;
use core::marker::PhantomData;

use crate::array::element::Element;
use crate::array::layout::errors::axes_in_words;
use crate::array::layout::order::Order;
use crate::error::{Cure, Error, ErrorKind, Result, text};
use crate::memory::array_view::RawView;
use crate::memory::host::cells::{ReadOnlyCell, check_any_bits};
use crate::memory::host::{HostView, HostViewMut};

impl<const N: usize> RawView<N> {
    /// # Safety
    ///
    /// The elements are live and initialized for `'c`. `C` is a cell with the layout of `T`.
    unsafe fn cells<'c, T: Element, C>(&self) -> Result<&'c [C]> {
        check_any_bits::<T>()?;
        let (first, count) = self.run::<T>(Order::C)?;
        // SAFETY: `count` contiguous elements, aligned because of `check_host`, and otherwise as the caller promises.
        // The `UnsafeCell` in a cell permits writes by others.
        Ok(unsafe { core::slice::from_raw_parts(first.cast_const().cast::<C>(), count) })
    }

    fn rows<T: Element, C>(&self) -> Result<Rows<'_, C, N>> {
        check_any_bits::<T>()?;
        let Some(axis) = N.checked_sub(1) else {
            return Err(Error::new(ErrorKind::Rank, "shape", axes_in_words(0), "1 axis or more, for rows"));
        };
        let len = self.shape[axis];
        if len > 1 && self.strides[axis] != 1 && !self.shape.contains(&0) {
            let found = text!("{} along axis {axis}", self.strides[axis]);
            let error =
                Error::new(ErrorKind::Strides, "strides", found, "1, for contiguous elements in a row");
            let error = error.with_rust_hint("`iter`, `fold` and `for_each_chunk` take any strides");
            return Err(error.with_python_hint(Cure::COrder));
        }
        let mut shape = self.shape;
        shape[axis] = 1;
        let left = shape.iter().fold(1_usize, |all, extent| all.saturating_mul(*extent));
        let first = core::ptr::with_exposed_provenance(self.address);
        Ok(Rows { first, len, shape, strides: self.strides, index: [0; N], left, marker: PhantomData })
    }
}

impl<T: Element, const N: usize> HostView<'_, T, N> {
    /// Returns the elements as a slice of cells in C order.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Strides`] unless the array is C-contiguous; [`rows`](Self::rows) requires less. [`ErrorKind::DType`] for `bool`, because another library may write an invalid byte after the check.
    pub fn as_cells(&self) -> Result<&[ReadOnlyCell<T>]> {
        // SAFETY: the elements are live and initialized while the view is borrowed (contract of `from_info`), and the
        // cell is transparent over `T`. Nothing is written through these cells, so read-only memory is allowed.
        unsafe { self.raw.cells::<T, ReadOnlyCell<T>>() }
    }

    /// Returns an iterator over the rows, each a slice of cells, in row-major order of the other indices. A row goes along
    /// the last axis.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Strides`] unless the elements of a row are contiguous; [`ErrorKind::Rank`] without an axis;
    /// [`ErrorKind::DType`] as [`as_cells`](Self::as_cells).
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
    pub fn rows(&self) -> Result<Rows<'_, ReadOnlyCell<T>, N>> {
        self.raw.rows::<T, _>()
    }
}

impl<T: Element, const N: usize> HostViewMut<'_, T, N> {
    /// Returns the elements as a slice of writable cells in C order.
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
        // SAFETY: as in `HostView::as_cells`. The memory is writable, and no other Rust code uses it while the view is
        // borrowed.
        unsafe { self.raw.cells::<T, Cell<T>>() }
    }

    /// As [`HostView::rows`], with writable cells.
    ///
    /// # Errors
    ///
    /// As [`HostView::rows`].
    pub fn rows(&mut self) -> Result<Rows<'_, Cell<T>, N>> {
        self.raw.rows::<T, _>()
    }
}

/// An iterator over the rows of a view; see [`HostView::rows`].
pub struct Rows<'a, C, const N: usize> {
    first: *const C,
    len: usize,
    /// The extents, with 1 for the axis of the rows.
    shape: [usize; N],
    strides: [isize; N],
    index: [usize; N],
    left: usize,
    marker: PhantomData<&'a [C]>,
}

impl<'a, C, const N: usize> Iterator for Rows<'a, C, N> {
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
        // SAFETY: the elements of a row are contiguous (checked in `RawView::rows`), and live, initialized and
        // aligned while the view is borrowed.
        Some(unsafe { core::slice::from_raw_parts(here, self.len) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<C, const N: usize> ExactSizeIterator for Rows<'_, C, N> {}

impl<C, const N: usize> FusedIterator for Rows<'_, C, N> {}

impl<C, const N: usize> fmt::Debug for Rows<'_, C, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rows({} of {} elements)", self.left, self.len)
    }
}
