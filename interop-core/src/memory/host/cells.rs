//! Checked reads, and cells for elements that other libraries may write to meanwhile. Loops over slices of them are still vectorized.

use core::cell::UnsafeCell;
use core::fmt;
use core::mem::MaybeUninit;

use crate::array::device::DeviceType;
use crate::array::element::{Element, ElementType};
use crate::array::stream_handle::StreamHandle;
use crate::error::{Error, ErrorKind, Result, text};
use crate::order::claim::Claim;
use crate::order::handover::ArrayWork;
use crate::order::wait::Waiter;

/// An element that is read by value, and that another library may write between two reads.
///
/// A `&[ReadOnlyCell<T>]` is safe for memory that other libraries share; a `&[T]` is not. The compiler vectorizes loops
/// over it as over any slice. Like `Cell`, it is not `Sync`: only one thread may use it.
///
/// ```
/// use interop_core::view::ReadOnlyCell;
/// use interop_core::CudaArray;
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

/// Reads one element. Returns its first byte that is not a valid `bool`: the only scalar type with invalid bit patterns.
///
/// # Safety
///
/// `element` points to `size_of::<T>()` live, initialized bytes. The pointer may have any alignment.
#[inline]
pub(crate) unsafe fn read_valid<T: Element>(element: *const T) -> Result<T, u8> {
    // The bytes are copied before the check, because another library may write to the element meanwhile.
    // SAFETY: the element is live and initialized, as the caller promises, and any bits are a `MaybeUninit`.
    let copy = unsafe { element.cast::<MaybeUninit<T>>().read_unaligned() };
    if !T::TYPE.any_bits {
        for at in 0..size_of::<T>() {
            // SAFETY: one of the bytes of the copy, which are initialized as those of the element.
            let byte = unsafe { copy.as_ptr().cast::<u8>().wrapping_add(at).read() };
            if byte > 1 {
                return Err(byte);
            }
        }
    }
    // SAFETY: the bytes are a valid `T`, because all bit patterns are valid or because they were checked.
    Ok(unsafe { copy.assume_init() })
}

/// Reads one element. A byte that is not a valid `bool` is read as `true`.
///
/// # Safety
///
/// As [`read_valid`].
#[inline]
pub(crate) unsafe fn read_unchecked<T: Element>(element: *const T) -> T {
    if T::TYPE.any_bits {
        // SAFETY: as the caller promises; every bit pattern is a value.
        return unsafe { element.read_unaligned() };
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

/// Returns an error if the elements consist of `bool`s and a byte is not a valid one. `bool` is the only scalar type with
/// invalid bit patterns.
///
/// # Safety
///
/// The bytes are live and initialized, and nothing writes them during the call.
#[inline]
pub(crate) unsafe fn check_bytes(element: &ElementType, first: *const u8, count: usize) -> Result<()> {
    if element.any_bits {
        return Ok(());
    }
    // SAFETY: as the caller promises.
    let bytes = unsafe { core::slice::from_raw_parts(first, count) };
    first_invalid_bool(bytes).map_or(Ok(()), |byte| Err(invalid_bool(byte)))
}

/// The error for a byte that is not a valid `bool`.
#[cold]
pub(crate) fn invalid_bool(byte: u8) -> Error {
    let found = text!("the byte {byte} in a bool");
    let error = Error::new(ErrorKind::DType, "data", found, "0 and 1");
    error.with_rust_hint("view the array as `u8`").with_python_hint("view the array as uint8")
}

/// Returns an error for memory that the host cannot access. Waits for work that is pending on pinned and managed memory
/// at this address.
pub(crate) fn check_readable(work: ArrayWork<'_>, claim: &Claim) -> Result<()> {
    work.device.check_for_host()?;
    match work.state.placement.handle() {
        Some(StreamHandle::NothingPending) if work.state.of_storage.is_none() => Ok(()),
        Some(stream) if work.device.device_type == DeviceType::CPU => {
            let found = text!("work pending on the {stream}");
            let allowed = "no stream, because CPU memory has no pending work";
            Err(Error::new(ErrorKind::Stream, "stream", found, allowed))
        }
        _ => work.order_before(Waiter::Host, claim),
    }
}

/// Returns the first byte that is not a valid `bool`. Blocks of 1024 bytes are tested together, so that the compiler
/// vectorizes the test.
#[inline]
fn first_invalid_bool(bytes: &[u8]) -> Option<u8> {
    let is_bad = |block: &&[u8]| block.iter().fold(0, |all, byte| all | byte) > 1;
    bytes.chunks(1024).find(is_bad)?.iter().copied().find(|byte| *byte > 1)
}
