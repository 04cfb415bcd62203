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

    fn lanes<T: Element, C>(&self, axis: usize) -> Result<Lanes<'_, C, N>> {
        check_any_bits::<T>()?;
        let Some(len) = self.shape.get(axis).copied() else {
            let allowed = text!("less than {N}, the number of axes");
            return Err(Error::new(ErrorKind::Rank, "axis", axis, allowed));
        };
        if len > 1 && self.strides[axis] != 1 && !self.shape.contains(&0) {
            let found = text!("{} along axis {axis}", self.strides[axis]);
            let error =
                Error::new(ErrorKind::Strides, "strides", found, "1, for contiguous elements along the axis");
            let error = error.with_rust_hint("`iter`, `fold` and `for_each_chunk` take any strides");
            return Err(error.with_python_hint(Cure::COrder));
        }
        let mut shape = self.shape;
        shape[axis] = 1;
        let left = shape.iter().fold(1_usize, |all, extent| all.saturating_mul(*extent));
        let first = core::ptr::with_exposed_provenance(self.address);
        Ok(Lanes { first, len, shape, strides: self.strides, index: [0; N], left, marker: PhantomData })
    }
}

impl<T: Element, const N: usize> HostView<'_, T, N> {
    /// Returns the elements as a slice of cells in C order.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Strides`] unless the array is C-contiguous; [`rows`](Self::rows) and [`lanes`](Self::lanes) require
    /// less. [`ErrorKind::DType`] for `bool`, because another library may write an invalid byte after the check.
    pub fn as_cells(&self) -> Result<&[ReadOnlyCell<T>]> {
        // SAFETY: the elements are live and initialized while the view is borrowed (contract of `from_info`), and the
        // cell is transparent over `T`. Nothing is written through these cells, so read-only memory is allowed.
        unsafe { self.raw.cells::<T, ReadOnlyCell<T>>() }
    }

    /// Returns an iterator over the rows, each a slice of cells. A row is a lane along the last axis.
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

    /// Returns an iterator over the lanes along an axis, each a slice of cells, in row-major order of the other
    /// indices.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Strides`] unless the elements along the axis are contiguous; [`ErrorKind::Rank`] if the axis does
    /// not exist; [`ErrorKind::DType`] as [`as_cells`](Self::as_cells).
    pub fn lanes(&self, axis: usize) -> Result<Lanes<'_, ReadOnlyCell<T>, N>> {
        self.raw.lanes::<T, _>(axis)
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
    /// As [`HostView::lanes`].
    pub fn rows(&mut self) -> Result<Lanes<'_, Cell<T>, N>> {
        self.lanes(last_axis::<N>()?)
    }

    /// As [`HostView::lanes`], with writable cells.
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

/// An iterator over the lanes of a view along one axis; see [`HostView::lanes`].
pub struct Lanes<'a, C, const N: usize> {
    first: *const C,
    len: usize,
    /// The extents, with 1 for the axis of the lanes.
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
        // SAFETY: the elements of a lane are contiguous (checked in `RawView::lanes`), and live, initialized and
        // aligned while the view is borrowed.
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
