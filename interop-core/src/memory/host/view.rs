//! Views that read and write elements of host-accessible memory one at a time, as cells, or by an iterator. Only unsafe
//! methods return slices of elements.

use core::cell::Cell;
use core::fmt;
use core::iter::FusedIterator;
use core::marker::PhantomData;
use std::sync::Arc;

use crate::array::element::Element;
use crate::array::layout::order::Order;
use crate::error::Result;
use crate::memory::host::cells::{ReadOnlyCell, check_bytes, invalid_bool, read_unchecked, read_valid};
use crate::memory::raw_view::{RawView, Runs, viewed};
use crate::order::claim::Claim;
use crate::order::record::OpenAccess;

/// A view whose elements host code can read: the memory is host-accessible and aligned, and no work is pending on it.
///
/// Elements are read by value, because another library that shares the memory may write to it between two reads.
/// References are only returned by the unsafe [`as_slice`](Self::as_slice). Rust code that shares the memory through
/// another struct cannot write to it while the view exists.
#[derive(Clone)]
pub struct HostView<'a, T, const N: usize> {
    pub(crate) raw: RawView<N>,
    _access: BorrowGuard<'a>,
    marker: PhantomData<&'a T>,
}

/// A view whose elements host code can read and write. [`as_view`](Self::as_view) returns a [`HostView`] of the same
/// elements, which has more methods for reading.
///
/// A leaked view, for example after `mem::forget`, keeps its memory borrowed: the memory of a
/// [`HostVec`](crate::HostVec) until it is freed, imported memory until the program ends.
///
/// ```
/// use interop_core::{CudaArray, HostVec};
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [rows, 2])]
/// struct Table { #[cuda_array(data)] cells: HostVec<f32>, rows: usize }
///
/// let mut table = Table { cells: HostVec::zeroed(8), rows: 4 };
/// let mut view = table.view_mut::<f32, 2>()?.host_view_mut()?;
/// view.write([0, 1], 5.0)?;
/// assert_eq!(view.read([0, 1])?, 5.0);
///
/// for row in view.rows()? {
///     row[0].set(1.0);
/// }
/// drop(view);
/// assert_eq!(table.to_vec::<f32>()?, [1.0, 5.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
/// # Ok::<(), interop_core::Error>(())
/// ```
pub struct HostViewMut<'a, T, const N: usize> {
    pub(crate) raw: RawView<N>,
    access: BorrowGuard<'a>,
    marker: PhantomData<&'a mut T>,
}

viewed!(HostView HostViewMut);

/// The recorded access to memory that may be shared. The access ends when the last clone is dropped.
///
/// The type has the lifetime of the view's borrow and implements `Drop`, so the compiler extends the borrow to the
/// drop. A writer that comes earlier is a compile error and not a runtime error.
#[derive(Clone)]
struct BorrowGuard<'a> {
    _recorded: Option<Arc<OpenAccess>>,
    marker: PhantomData<&'a ()>,
}

impl BorrowGuard<'_> {
    fn new(claim: Claim) -> Self {
        Self { _recorded: claim.into_access().map(Arc::new), marker: PhantomData }
    }
}

impl Drop for BorrowGuard<'_> {
    fn drop(&mut self) {}
}

impl<'a, T: Element, const N: usize> HostView<'a, T, N> {
    /// Checks that the host can use the elements, and records that they are read.
    pub(crate) fn new(raw: RawView<N>) -> Result<Self> {
        let claim = raw.claim_host::<T>(false)?;
        Ok(Self { raw, _access: BorrowGuard::new(claim), marker: PhantomData })
    }

    /// Returns a pointer to element \[0, …, 0\], for a library that takes a pointer, extents and
    /// [`strides`](Self::strides): BLAS, `faer`, C code. It may be used for reading all elements as long as the view
    /// exists. Without elements it must not be read.
    ///
    /// ```
    /// use interop_core::{CudaArray, HostVec};
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(shape = [rows, columns], order = "F")]
    /// struct Matrix { #[cuda_array(data)] cells: HostVec<f64>, rows: usize, columns: usize }
    ///
    /// let matrix = Matrix { cells: HostVec::from([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), rows: 2, columns: 3 };
    /// let view = matrix.view::<f64, 2>()?.host_view()?;
    /// let ([_, columns], [_, step]) = (view.shape(), view.strides());
    /// // SAFETY: the elements of the last row lie within the array, and nobody writes to it meanwhile.
    /// let last = (0..columns).map(|at| unsafe { view.as_ptr().offset(1 + at as isize * step).read() });
    /// assert_eq!(last.collect::<Vec<f64>>(), [2.0, 4.0, 6.0]);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    #[must_use]
    pub fn as_ptr(&self) -> *const T {
        self.raw.pointer()
    }

    /// Returns the elements as a slice.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Strides`](crate::error::ErrorKind::Strides) unless the array is C-contiguous;
    /// [`ErrorKind::DType`](crate::error::ErrorKind::DType) if a byte is not a valid `bool`.
    ///
    /// # Safety
    ///
    /// Nothing writes to the elements during `'a`: no other library that shares them, none of its threads, no kernel.
    pub unsafe fn as_slice(&self) -> Result<&'a [T]> {
        let (first, count) = self.raw.run::<T>(Order::C)?;
        // SAFETY: as in `read`, for `count` contiguous elements.
        unsafe { check_bytes(&T::TYPE, first.cast(), count * size_of::<T>())? };
        // SAFETY: the elements are live, initialized, aligned and within one object. Nothing writes to them during
        // `'a`, as the caller promises.
        Ok(unsafe { core::slice::from_raw_parts(first, count) })
    }

    /// Returns the elements as a slice of cells in C order.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Strides`](crate::error::ErrorKind::Strides) unless the array is C-contiguous; [`rows`](Self::rows)
    /// requires less. [`ErrorKind::DType`](crate::error::ErrorKind::DType) for `bool`, because another library may
    /// write an invalid byte after the check.
    pub fn as_cells(&self) -> Result<&[ReadOnlyCell<T>]> {
        // SAFETY: the elements are live and initialized while the view is borrowed (contract of `from_info`), and the
        // cell is transparent over `T`. Nothing is written through these cells, so read-only memory is allowed.
        unsafe { self.raw.cells::<T, ReadOnlyCell<T>>() }
    }

    /// Returns an iterator over the rows, each a slice of cells, in row-major order of the other indices. A row goes
    /// along the last axis.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Strides`](crate::error::ErrorKind::Strides) unless the elements of a row are contiguous;
    /// [`ErrorKind::Rank`](crate::error::ErrorKind::Rank) without an axis;
    /// [`ErrorKind::DType`](crate::error::ErrorKind::DType) as [`as_cells`](Self::as_cells).
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

    /// Returns an iterator over the elements by value, in row-major order of their indices.
    ///
    /// The [`fold`](crate::CudaArray::fold) of the struct is faster if the order does not matter, and
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
    /// assert_eq!(view.iter().collect::<Vec<_>>(), [1, 2, 3, 4]);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    #[must_use]
    pub fn iter(&self) -> Iter<'_, T, N> {
        let (raw, layout) = (&self.raw, self.raw.layout());
        let mut runs = raw.runs();
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

impl<'a, T: Element, const N: usize> HostViewMut<'a, T, N> {
    /// Checks that the host can use the elements, and records that they are written.
    pub(crate) fn new(raw: RawView<N>) -> Result<Self> {
        let claim = raw.claim_host::<T>(true)?;
        Ok(Self { raw, access: BorrowGuard::new(claim), marker: PhantomData })
    }

    /// Returns a read-only view of the same elements.
    #[must_use]
    pub fn as_view(&self) -> HostView<'_, T, N> {
        HostView { raw: self.raw, _access: self.access.clone(), marker: PhantomData }
    }

    /// As [`HostView::as_ptr`], for reading and writing. Bytes of `bool` elements must stay 0 or 1.
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.raw.pointer()
    }

    /// Writes the element at `index`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::IndexOutOfBounds`](crate::error::ErrorKind::IndexOutOfBounds) outside the array.
    #[inline]
    pub fn write(&mut self, index: [usize; N], value: T) -> Result<()> {
        let element = self.raw.element::<T>(index)?;
        // SAFETY: the memory of the view is live, writable and not shared with other Rust code (contract of
        // `from_info`). `element` lies within it and is aligned, as in `HostView::read`.
        unsafe { element.write(value) };
        Ok(())
    }

    /// Returns the elements as a mutable slice.
    ///
    /// # Errors
    ///
    /// As [`HostView::as_slice`].
    ///
    /// # Safety
    ///
    /// Nothing else reads or writes the elements during `'a`: no other library that shares them, none of its threads,
    /// no kernel.
    pub unsafe fn into_slice(self) -> Result<&'a mut [T]> {
        let (first, count) = self.raw.run::<T>(Order::C)?;
        // SAFETY: as in `HostView::as_slice`.
        unsafe { check_bytes(&T::TYPE, first.cast(), count * size_of::<T>())? };
        // SAFETY: the elements are live, initialized, aligned and writable. Nothing else uses them during `'a`, as the
        // caller promises.
        Ok(unsafe { core::slice::from_raw_parts_mut(first, count) })
    }

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

macro_rules! readable {
    ($($View:ident)*) => {
        $(
            impl<T: Element, const N: usize> $View<'_, T, N> {
                /// Reads the element at `index`.
                ///
                /// # Errors
                ///
                /// [`ErrorKind::IndexOutOfBounds`](crate::error::ErrorKind::IndexOutOfBounds) outside the array;
                /// [`ErrorKind::DType`](crate::error::ErrorKind::DType) for a byte that is not a valid `bool`.
                #[inline]
                pub fn read(&self, index: [usize; N]) -> Result<T> {
                    let element = self.raw.element::<T>(index)?;
                    // SAFETY: the memory of the view is live and initialized (contract of `from_info`). `element` lies
                    // within it. `check_host` ensured that it is host memory and that the address is aligned for `T`;
                    // strides count whole elements.
                    unsafe { read_valid(element) }.map_err(invalid_bool)
                }
            }
        )*
    };
}

readable!(HostView HostViewMut);

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
