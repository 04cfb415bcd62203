//! An iterator over the elements by value.

use core::fmt;
use core::iter::FusedIterator;
use core::marker::PhantomData;
use core::mem::MaybeUninit;

use crate::array::element::Element;
use crate::array::layout::order::Order;
use crate::memory::host::HostView;

/// An iterator over the elements of a view by value, in row-major order; see [`HostView::iter`].
pub struct Iter<'a, T, const N: usize> {
    /// The next element. `run` elements are left in the current run.
    next: *const T,
    step: isize,
    run: usize,
    /// The number of the other runs that are left. Each has `len` elements; the current one begins at `begin`.
    runs: usize,
    len: usize,
    begin: *const T,
    index: [usize; N],
    shape: [usize; N],
    strides: [isize; N],
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
        let layout = self.raw.layout();
        let (shape, strides) = (self.raw.shape, self.raw.strides);
        let (run, step) = match (layout.is_contiguous(Order::C), shape.last(), strides.last()) {
            (false, Some(extent), Some(stride)) => (*extent, *stride),
            _ => (layout.numel(), 1),
        };
        // An array without elements has one run of length 0.
        let runs = layout.numel().checked_div(run).map_or(0, |runs| runs - 1);
        let begin = core::ptr::with_exposed_provenance(self.raw.address);
        let index = [0; N];
        Iter { next: begin, step, run, runs, len: run, begin, index, shape, strides, marker: PhantomData }
    }
}

/// Reads an element, whose bytes may be invalid for `bool`.
///
/// # Safety
///
/// The element is live, initialized and aligned.
#[inline]
unsafe fn read<T: Element>(element: *const T) -> T {
    if T::TYPE.any_bits {
        // SAFETY: as the caller promises; every bit pattern is a value.
        return unsafe { element.read() };
    }
    let mut value = MaybeUninit::<T>::uninit();
    for at in 0..size_of::<T>() {
        // SAFETY: one of the bytes of the element.
        let byte = unsafe { element.cast::<u8>().wrapping_add(at).read() };
        // SAFETY: the byte at the same offset of `value`. The type consists of `bool`s only.
        unsafe { value.as_mut_ptr().cast::<u8>().wrapping_add(at).write(u8::from(byte != 0)) };
    }
    // SAFETY: all bytes have been written, and each is a valid `bool`.
    unsafe { value.assume_init() }
}

impl<T, const N: usize> Iter<'_, T, N> {
    /// Moves to the first element of the next run, which must exist.
    fn advance(&mut self) {
        for axis in (0..N.saturating_sub(1)).rev() {
            self.index[axis] += 1;
            self.begin = self.begin.wrapping_offset(self.strides[axis]);
            if self.index[axis] < self.shape[axis] {
                break;
            }
            let back = self.strides[axis].wrapping_mul(self.shape[axis] as isize);
            self.begin = self.begin.wrapping_offset(back.wrapping_neg());
            self.index[axis] = 0;
        }
        self.runs -= 1;
        (self.next, self.run) = (self.begin, self.len);
    }
}

impl<T: Element, const N: usize> Iterator for Iter<'_, T, N> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        if self.run == 0 {
            if self.runs == 0 {
                return None;
            }
            self.advance();
        }
        // SAFETY: an element of the borrowed view, which is live, initialized and aligned.
        let element = unsafe { read(self.next) };
        self.next = self.next.wrapping_offset(self.step);
        self.run -= 1;
        Some(element)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.run + self.runs * self.len;
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
                    folded = add(folded, unsafe { read(first.wrapping_add(at)) });
                }
            } else {
                for at in 0..self.run {
                    let element = first.wrapping_offset((at as isize).wrapping_mul(step));
                    // SAFETY: as in `next`.
                    folded = add(folded, unsafe { read(element) });
                }
            }
            if self.runs == 0 {
                return folded;
            }
            self.advance();
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
