//! Cells for elements that other libraries may write to meanwhile. Loops over slices of them are still vectorized.

use core::cell::UnsafeCell;
use core::fmt;

use crate::array::element::Element;
use crate::error::{Error, ErrorKind, Result};

/// An element that is read by value, and that another library may write between two reads.
///
/// A `&[ReadOnlyCell<T>]` is safe for memory that other libraries share; a `&[T]` is not. The compiler vectorizes loops
/// over it as over any slice. Like `Cell`, it is not `Sync`: only one thread may use it.
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
    /// Reads the current value.
    #[inline]
    #[must_use]
    pub fn get(&self) -> T {
        // SAFETY: the element is live and initialized while the cell is borrowed. Nothing else runs on this thread
        // during the read.
        unsafe { self.0.get().read() }
    }
}

impl<T> ReadOnlyCell<T> {
    /// # Safety
    ///
    /// `first` points to `count` contiguous, aligned elements, which are live and initialized for `'c`.
    pub(crate) unsafe fn slice<'c>(first: *const T, count: usize) -> &'c [Self] {
        // SAFETY: as the caller promises. The type is transparent over `T`, and its `UnsafeCell` permits writes by
        // others.
        unsafe { core::slice::from_raw_parts(first.cast(), count) }
    }

    /// Passes the elements to `see` if there are any, and clears the vector.
    pub(crate) fn lend(elements: &mut Vec<T>, see: &mut impl FnMut(&[Self])) {
        if !elements.is_empty() {
            // `as_mut_ptr`, because a pointer to cells must have permission to write.
            // SAFETY: the elements of a vector are contiguous, aligned, live and initialized.
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

/// Returns an error for element types that have invalid bit patterns, because another library may write any pattern
/// into a cell.
pub(crate) fn check_any_bits<T: Element>() -> Result<()> {
    if T::TYPE.any_bits {
        return Ok(());
    }
    let allowed = "elements without invalid bit patterns, because other libraries may write any";
    let error = Error::new(ErrorKind::DType, "dtype", T::TYPE.describe(), allowed);
    Err(error.with_rust_hint("`for_each_chunk`, `fold` and `to_vec` check each `bool`"))
}
