//! Iterators over the elements of a view by value, and over its rows.

use core::fmt;
use core::iter::FusedIterator;
use core::marker::PhantomData;

use crate::array::element::Element;
use crate::array::layout::order::Order;
use crate::memory::array_view::RawView;
use crate::memory::host::HostView;
use crate::memory::host::cells::read_unchecked;

/// The offsets of the runs of elements along the last axis, in row-major order of the other indices.
pub(crate) struct Walk<const N: usize> {
    /// The extents, with 1 for the last axis.
    shape: [usize; N],
    strides: [isize; N],
    index: [usize; N],
    offset: isize,
    left: usize,
}

impl<const N: usize> Walk<N> {
    pub(crate) fn new(view: &RawView<N>) -> Self {
        let mut shape = view.shape;
        if let Some(last) = shape.last_mut() {
            *last = 1;
        }
        let left = shape.iter().fold(1_usize, |all, extent| all.saturating_mul(*extent));
        Self { shape, strides: view.strides, index: [0; N], offset: 0, left }
    }

    fn next(&mut self) -> Option<isize> {
        self.left = self.left.checked_sub(1)?;
        let offset = self.offset;
        for axis in (0..N).rev() {
            self.index[axis] += 1;
            self.offset = self.offset.wrapping_add(self.strides[axis]);
            if self.index[axis] < self.shape[axis] {
                break;
            }
            let back = self.strides[axis].wrapping_mul(self.shape[axis] as isize);
            (self.index[axis], self.offset) = (0, self.offset.wrapping_sub(back));
        }
        Some(offset)
    }
}

/// An iterator over the elements of a view by value, in row-major order; see [`HostView::iter`].
pub struct Iter<'a, T, const N: usize> {
    first: *const T,
    /// The next element. `run` elements are left in the current run.
    next: *const T,
    run: usize,
    step: isize,
    /// The other runs, of `len` elements each.
    runs: Walk<N>,
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
        let mut runs = Walk::new(raw);
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
        self.next = self.first.wrapping_offset(self.runs.next()?);
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

/// An iterator over the rows of a view; see [`HostView::rows`].
pub struct Rows<'a, C, const N: usize> {
    pub(super) first: *const C,
    pub(super) len: usize,
    pub(super) starts: Walk<N>,
    pub(super) marker: PhantomData<&'a [C]>,
}

impl<'a, C, const N: usize> Iterator for Rows<'a, C, N> {
    type Item = &'a [C];

    #[inline]
    fn next(&mut self) -> Option<&'a [C]> {
        let row = self.first.wrapping_offset(self.starts.next()?);
        if self.len == 0 {
            return Some(&[]);
        }
        // SAFETY: the elements of a row are contiguous (checked in `RawView::rows`), and live, initialized and
        // aligned while the view is borrowed.
        Some(unsafe { core::slice::from_raw_parts(row, self.len) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.starts.left, Some(self.starts.left))
    }
}

impl<C, const N: usize> ExactSizeIterator for Rows<'_, C, N> {}

impl<C, const N: usize> FusedIterator for Rows<'_, C, N> {}

impl<C, const N: usize> fmt::Debug for Rows<'_, C, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rows({} of {} elements)", self.starts.left, self.len)
    }
}
