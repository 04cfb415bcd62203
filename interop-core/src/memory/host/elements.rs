//! Operations on all elements of a host view, its cells and rows, and its iterators.

use core::cell::Cell;
use core::fmt;
use core::iter::FusedIterator;
use core::marker::PhantomData;

use crate::array::dims::Dims;
use crate::array::element::Element;
use crate::array::layout::axes::{Axis, MOST, Offsets, Steps};
use crate::array::layout::errors::axes_in_words;
use crate::array::layout::order::Order;
use crate::error::{Cure, Error, ErrorKind, Result, text};
use crate::memory::array_view::RawView;
use crate::memory::host::cells::{ReadOnlyCell, check_any_bits, read_unchecked};
use crate::memory::host::loops::Visit;
use crate::memory::host::strided::{Strided, StridedMut};
use crate::memory::host::{HostView, HostViewMut};

impl<T: Element, const N: usize> HostView<'_, T, N> {
    pub(crate) fn strided(&self) -> Strided<'_, T> {
        // SAFETY: the memory of the view is live and initialized (contract of `from_info`). `check_host` ensured that
        // it is host memory. The layout of a view was checked when the view was made.
        unsafe { Strided::new(self.raw.address, &self.raw.shape, &self.raw.strides) }
    }

    /// Copies all elements into a vector, in row-major order of their indices. The strides may have any values.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DType`](crate::error::ErrorKind::DType) for a byte that is not a valid `bool`;
    /// [`ErrorKind::OutOfMemory`](crate::error::ErrorKind::OutOfMemory) if the vector cannot be allocated.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        self.strided().to_vec(Order::C)
    }

    /// Copies all elements into a slice, in row-major order of their indices.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Shape`](crate::error::ErrorKind::Shape) if the length of the slice is not the number of elements;
    /// [`ErrorKind::DType`](crate::error::ErrorKind::DType) for a byte that is not a valid `bool`, after some elements
    /// have been copied.
    pub fn copy_to_slice(&self, slice: &mut [T]) -> Result<()> {
        self.strided().copy_to_slice(slice)
    }

    /// Calls `see` with each element, in row-major order of their indices.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DType`](crate::error::ErrorKind::DType) for a byte that is not a valid `bool`. `see` has been
    /// called for the elements before it.
    #[inline]
    pub fn for_each(&self, see: impl FnMut(T)) -> Result<()> {
        self.strided().for_each(see)
    }

    /// Calls `see` with chunks of elements, in memory order: by address, independent of the indices. Long contiguous
    /// runs are passed in place; other elements are copied into chunks. So a loop over a chunk is as fast as over any
    /// slice, with any strides.
    ///
    /// # Errors
    ///
    /// As [`for_each`](Self::for_each), after the preceding chunks;
    /// [`ErrorKind::OutOfMemory`](crate::error::ErrorKind::OutOfMemory).
    ///
    /// ```
    /// use interop_core::CudaArray;
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(shape = [rows, 2])]
    /// struct Table { #[cuda_array(data)] cells: Vec<u8>, rows: usize }
    ///
    /// let table = Table { cells: vec![1, 7, 7, 3], rows: 2 };
    /// let mut histogram = [0; 256];
    /// table.view::<u8, 2>()?.host_view()?.for_each_chunk(|chunk| {
    ///     for value in chunk {
    ///         histogram[usize::from(value.get())] += 1;
    ///     }
    /// })?;
    /// assert_eq!((histogram[1], histogram[7]), (1, 2));
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    pub fn for_each_chunk(&self, see: impl FnMut(&[ReadOnlyCell<T>])) -> Result<()> {
        self.strided().for_each_chunk(see)
    }

    /// Folds all elements in memory order: by address, independent of the indices.
    ///
    /// # Errors
    ///
    /// As [`for_each`](Self::for_each).
    #[inline]
    pub fn fold<A>(&self, start: A, add: impl FnMut(A, T) -> A) -> Result<A> {
        self.strided().fold(Visit::Memory, start, add)
    }
}

impl<T: Element, const N: usize> HostViewMut<'_, T, N> {
    pub(crate) fn strided(&mut self) -> StridedMut<'_, T> {
        // SAFETY: as in `HostView::strided`.
        let elements = unsafe { Strided::new(self.raw.address, &self.raw.shape, &self.raw.strides) };
        // SAFETY: the elements are writable, no two indices share one, and no other Rust code uses them (contract of
        // `from_info`).
        unsafe { StridedMut::new(elements) }
    }

    /// Replaces each element by `change` of it, in memory order: by address, independent of the indices.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DType`](crate::error::ErrorKind::DType) for a byte that is not a valid `bool`. The elements before
    /// it have been changed.
    #[inline]
    pub fn map_inplace(&mut self, change: impl FnMut(T) -> T) -> Result<()> {
        self.strided().map_inplace(change)
    }

    /// Replaces each element by `change` of it and of the element at the same index in another array, in memory order.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Shape`](crate::error::ErrorKind::Shape) unless both arrays have the same shape; otherwise as
    /// [`map_inplace`](Self::map_inplace).
    ///
    /// ```
    /// use interop_core::{CudaArray, HostVec};
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(shape = [len])]
    /// struct Samples<S> { #[cuda_array(data)] values: S, len: usize }
    ///
    /// let x = Samples { values: vec![1.0_f32, 2.0], len: 2 };
    /// let mut y = Samples { values: HostVec::from([10.0_f32, 20.0]), len: 2 };
    /// let from = x.view::<f32, 1>()?.host_view()?;
    /// y.view_mut::<f32, 1>()?.host_view_mut()?.zip_map_inplace(&from, |y, x| 3.0 * x + y)?;
    /// assert_eq!(y.to_vec::<f32>()?, [13.0, 26.0]);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    #[inline]
    pub fn zip_map_inplace<U: Element>(
        &mut self,
        other: &HostView<'_, U, N>,
        change: impl FnMut(T, U) -> T,
    ) -> Result<()> {
        self.strided().zip_map_inplace(&other.strided(), change)
    }

    /// Writes `value` to all elements.
    pub fn fill(&mut self, value: T) {
        self.strided().fill(value);
    }

    /// Copies the elements of a slice, which are in row-major order of the indices.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Shape`](crate::error::ErrorKind::Shape) if the length of the slice is not the number of elements.
    pub fn copy_from_slice(&mut self, slice: &[T]) -> Result<()> {
        self.strided().copy_from_slice(slice)
    }
}

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

    /// # Safety
    ///
    /// As [`cells`](Self::cells), while the view is borrowed.
    unsafe fn rows<'c, T: Element, C: 'c>(
        &'c self,
    ) -> Result<impl ExactSizeIterator<Item = &'c [C]> + fmt::Debug> {
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
        let first = core::ptr::with_exposed_provenance::<C>(self.address);
        let row = move |[start, _]: Steps| match len {
            0 => &[][..],
            // SAFETY: the elements of a row are contiguous, aligned because of `check_host`, and otherwise as the caller
            // promises.
            _ => unsafe { core::slice::from_raw_parts(first.wrapping_offset(start), len) },
        };
        Ok(runs(self).map(row))
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
    pub fn rows(&self) -> Result<impl ExactSizeIterator<Item = &[ReadOnlyCell<T>]> + fmt::Debug> {
        // SAFETY: as in `as_cells`.
        unsafe { self.raw.rows::<T, ReadOnlyCell<T>>() }
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
    /// let mut view = samples.view_mut::<f32, 1>()?.host_view_mut()?;
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
    pub fn rows(&mut self) -> Result<impl ExactSizeIterator<Item = &[Cell<T>]> + fmt::Debug> {
        // SAFETY: as in `as_cells`.
        unsafe { self.raw.rows::<T, Cell<T>>() }
    }
}

/// The offsets of the runs of elements along the last axis, in row-major order of the other indices.
type Runs = Offsets<Dims<Axis>>;

fn runs<const N: usize>(view: &RawView<N>) -> Runs {
    let axis = |at: usize| Axis { extent: view.shape[at], steps: [view.strides[at], 0] };
    let outer = Dims::from_fn(N.saturating_sub(1), axis);
    Offsets::new(outer, [0; MOST])
}

/// An iterator over the elements of a view by value, in row-major order; see [`HostView::iter`].
pub struct Iter<'a, T, const N: usize> {
    first: *const T,
    /// The next element. `run` elements are left in the current run.
    next: *const T,
    run: usize,
    step: isize,
    /// The other runs, of `len` elements each.
    runs: Runs,
    len: usize,
    marker: PhantomData<&'a T>,
}

impl<T: Element, const N: usize> HostView<'_, T, N> {
    /// Returns an iterator over the elements by value, in row-major order of their indices.
    ///
    /// [`fold`](Self::fold) and [`for_each_chunk`](Self::for_each_chunk) are faster if the order does not matter, and
    /// [`as_cells`](Self::as_cells) if the array is contiguous. A byte that is not a valid `bool` is read as `true`;
    /// the other methods return an error for it.
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
    /// assert_eq!(view.t().iter().collect::<Vec<_>>(), [1, 3, 2, 4]);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    #[must_use]
    pub fn iter(&self) -> Iter<'_, T, N> {
        let (raw, layout) = (&self.raw, self.raw.layout());
        let mut runs = runs(raw);
        let (len, step) = match (layout.is_contiguous(Order::C), raw.shape.last(), raw.strides.last()) {
            (false, Some(extent), Some(stride)) => (*extent, *stride),
            _ => (layout.numel(), 1),
        };
        // An array without elements has no run.
        runs.left = layout.numel().checked_div(len).unwrap_or(0);
        let first = core::ptr::with_exposed_provenance(raw.address);
        Iter { first, next: first, run: 0, step, runs, len, marker: PhantomData }
    }
}

impl<T, const N: usize> Iter<'_, T, N> {
    /// Moves to the first element of the next run.
    fn advance(&mut self) -> Option<()> {
        self.next = self.first.wrapping_offset(self.runs.next()?[0]);
        self.run = self.len;
        Some(())
    }
}

impl<T: Element, const N: usize> Iterator for Iter<'_, T, N> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        if self.run == 0 {
            self.advance()?;
        }
        // SAFETY: an element of the borrowed view, which is live, initialized and aligned.
        let element = unsafe { read_unchecked(self.next) };
        self.next = self.next.wrapping_offset(self.step);
        self.run -= 1;
        Some(element)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.run + self.runs.left * self.len;
        (left, Some(left))
    }

    fn fold<A, F: FnMut(A, T) -> A>(mut self, start: A, mut add: F) -> A {
        let mut folded = start;
        loop {
            let (first, step) = (self.next, self.step);
            // With a constant step of 1, the compiler vectorizes the loop.
            if step == 1 {
                for at in 0..self.run {
                    // SAFETY: as in `next`.
                    folded = add(folded, unsafe { read_unchecked(first.wrapping_add(at)) });
                }
            } else {
                for at in 0..self.run {
                    let element = first.wrapping_offset((at as isize).wrapping_mul(step));
                    // SAFETY: as in `next`.
                    folded = add(folded, unsafe { read_unchecked(element) });
                }
            }
            if self.advance().is_none() {
                return folded;
            }
        }
    }
}

impl<'a, T: Element, const N: usize> IntoIterator for &'a HostView<'_, T, N> {
    type Item = T;
    type IntoIter = Iter<'a, T, N>;

    fn into_iter(self) -> Iter<'a, T, N> {
        self.iter()
    }
}

impl<T: Element, const N: usize> ExactSizeIterator for Iter<'_, T, N> {}

impl<T: Element, const N: usize> FusedIterator for Iter<'_, T, N> {}

impl<T: Element, const N: usize> fmt::Debug for Iter<'_, T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Iter({} elements left)", self.size_hint().0)
    }
}
