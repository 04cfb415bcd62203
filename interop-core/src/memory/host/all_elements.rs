//! Operations on all elements of a host view.

use crate::array::element::Element;
use crate::array::layout::order::Order;
use crate::error::Result;
use crate::memory::host::cells::ReadOnlyCell;
use crate::memory::host::loops::Visit;
use crate::memory::host::strided::Strided;
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
    pub fn for_each(&self, mut see: impl FnMut(T)) -> Result<()> {
        self.strided().fold(Visit::Index(Order::C), (), |(), element| see(element))
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
    pub(crate) fn strided(&mut self) -> Strided<'_, T> {
        // SAFETY: as in `HostView::strided`.
        unsafe { Strided::new(self.raw.address, &self.raw.shape, &self.raw.strides) }
    }

    /// Replaces each element by `change` of it, in memory order: by address, independent of the indices.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DType`](crate::error::ErrorKind::DType) for a byte that is not a valid `bool`. The elements before
    /// it have been changed.
    #[inline]
    pub fn map_inplace(&mut self, change: impl FnMut(T) -> T) -> Result<()> {
        // SAFETY: the elements are writable, no two indices share one, and no other Rust code uses them (contract of
        // `from_info`).
        unsafe { self.strided().map_inplace(change) }
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
    /// y.view_mut::<f32, 1>()?.into_host_view_mut()?.zip_map_inplace(&from, |y, x| 3.0 * x + y)?;
    /// assert_eq!(y.to_vec::<f32>()?, [13.0, 26.0]);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    #[inline]
    pub fn zip_map_inplace<U: Element>(
        &mut self,
        other: &HostView<'_, U, N>,
        change: impl FnMut(T, U) -> T,
    ) -> Result<()> {
        // SAFETY: as in `map_inplace`.
        unsafe { self.strided().zip_map_inplace(&other.strided(), change) }
    }

    /// Writes `value` to all elements.
    pub fn fill(&mut self, value: T) {
        // SAFETY: as in `map_inplace`.
        unsafe { self.strided().fill(value) };
    }

    /// Copies all elements of another array. The two arrays cannot share memory, because the second view would fail
    /// with [`ErrorKind::AlreadyBorrowed`](crate::error::ErrorKind::AlreadyBorrowed).
    ///
    /// # Errors
    ///
    /// As [`zip_map_inplace`](Self::zip_map_inplace).
    pub fn copy_from(&mut self, other: &HostView<'_, T, N>) -> Result<()> {
        // SAFETY: as in `map_inplace`. No other Rust code reads these elements, so none of them is an element of
        // `other`.
        unsafe { self.strided().copy_from(&other.strided()) }
    }

    /// Copies the elements of a slice, which are in row-major order of the indices.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Shape`](crate::error::ErrorKind::Shape) if the length of the slice is not the number of elements.
    pub fn copy_from_slice(&mut self, slice: &[T]) -> Result<()> {
        // SAFETY: as in `map_inplace`.
        unsafe { self.strided().copy_from_slice(slice) }
    }
}
