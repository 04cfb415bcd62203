//! Fills and releases the buffers of array classes.
#![expect(unsafe_code, reason = "fills the C struct of the protocol")]

use core::ffi::{c_char, c_int};
use core::ptr::{null_mut, with_exposed_provenance_mut};
use std::ffi::CString;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::array::buffer_format::format_of;
use crate::array::info::ArrayInfo;
use crate::array::layout::Layout;
use crate::array::layout::order::Order;
use crate::error::{Error, ErrorKind, Result, text};
use crate::memory::array_view::shared_range;
use crate::memory::borrow_registry::Borrow;
use crate::memory::host::checked_read::check_readable;
use crate::process::counters;
use crate::python::class::array_class::{ArrayClass, struct_of};
use crate::python::class::buffer::abi::{Buffer, Flags};
use crate::python::export::dlpack::waiting;
use crate::python::ffi_boundary::catch_panics;
use crate::python::py_owner::release_deferred_refs;

/// The memory that the pointers of a [`Buffer`] point to, until its release.
struct Kept {
    format: CString,
    /// The extents, followed by the strides in bytes.
    numbers: Vec<isize>,
}

/// `bf_getbuffer` of an array class.
///
/// # Safety
///
/// Called by Python with an instance of `T`, a pointer for the buffer, and the thread attached.
pub(crate) unsafe extern "C" fn get<T: ArrayClass>(
    this: *mut ffi::PyObject,
    place: *mut Buffer,
    flags: c_int,
) -> c_int {
    let run = |py: Python<'_>| {
        // SAFETY: the object is alive; Python holds a reference to it during the call.
        let array = unsafe { Borrowed::from_ptr(py, this) };
        // SAFETY: the object is of this class, as the caller promises.
        let array = unsafe { array.cast_unchecked::<T>() };
        lend(&array, array.as_any(), flags)
    };
    // SAFETY: as the caller promises.
    unsafe { fill(place, run) }
}

/// Writes the buffer that `run` creates. On failure sets an exception and writes an empty buffer.
///
/// # Safety
///
/// `place` is valid for writing a buffer or null, and the thread is attached.
pub(crate) unsafe fn fill(place: *mut Buffer, run: impl FnOnce(Python<'_>) -> PyResult<Buffer>) -> c_int {
    let run = |py: Python<'_>| {
        release_deferred_refs(py);
        if place.is_null() {
            Err(PyBufferError::new_err("the pointer to the buffer is null"))
        } else {
            run(py)
        }
    };
    // SAFETY: the thread is attached, as the caller promises.
    let buffer = unsafe { catch_panics(run) };
    let done = if buffer.is_some() { 0 } else { -1 };
    if !place.is_null() {
        // SAFETY: `place` is valid for a write. After a failure the buffer has no object, which means that there is
        // none.
        unsafe { place.write(buffer.unwrap_or(Buffer::EMPTY)) };
    }
    done
}

/// Creates the buffer of an array that `owner` keeps alive.
///
/// Waits for pending device work on the memory. Fails while Rust code writes the memory, and for a writable buffer also
/// while Rust code reads it.
pub(crate) fn lend<T: ArrayClass>(
    array: &Bound<'_, T>,
    owner: &Bound<'_, PyAny>,
    flags: c_int,
) -> PyResult<Buffer> {
    let (info, flags) = (struct_of(array).info()?, Flags(flags));
    permit(array.py(), &info, flags)?;
    check_padding(&info)?;
    let kept = Kept { format: format_of(info.dtype(), info.struct_type())?, numbers: numbers(&info)? };
    let itemsize = (info.dtype().packed_bits() / 8) as isize;
    let len = (info.numel() as isize).checked_mul(itemsize);
    let len = len.ok_or_else(|| {
        let found = text!("{} elements of {itemsize} bytes", info.numel());
        Error::new(ErrorKind::Overflow, "nbytes", found, "a size within the address space")
    })?;
    // An array without elements has no address, but some consumers require one that is not null.
    let address = if info.layout().is_empty() { align_of::<u128>() } else { info.address() };
    let ndim = info.ndim();
    let kept = Box::into_raw(Box::new(kept));
    // SAFETY: the box was created above.
    let Kept { format, numbers } = unsafe { &*kept };
    let numbers = numbers.as_ptr().cast_mut();
    let said = |what: Flags| flags.ask(what) && ndim > 0;
    counters::EXPORTS.add();
    Ok(Buffer {
        buf: with_exposed_provenance_mut(address),
        obj: owner.clone().into_ptr(),
        len,
        itemsize,
        readonly: c_int::from(info.is_read_only()),
        // Without a shape, the buffer is a row of bytes.
        #[expect(clippy::cast_possible_truncation, reason = "a layout has 64 axes at most")]
        ndim: if flags.ask(Flags::ND) { ndim as c_int } else { 1 },
        format: if flags.ask(Flags::FORMAT) {
            format.as_ptr().cast::<c_char>().cast_mut()
        } else {
            null_mut()
        },
        shape: if said(Flags::ND) { numbers } else { null_mut() },
        strides: if said(Flags::STRIDES) { numbers.wrapping_add(ndim) } else { null_mut() },
        suboffsets: null_mut(),
        internal: kept.cast(),
    })
}

/// Fails if the request needs a property that the array does not have.
pub(crate) fn permit(py: Python<'_>, info: &ArrayInfo, flags: Flags) -> Result<()> {
    waiting(py, info, || check_readable(info.pending, info.address, info.device()))?;
    let writes = flags.ask(Flags::WRITABLE);
    if writes && info.is_read_only() {
        let allowed = "a request for reading only, or a copy of the array";
        return Err(Error::new(ErrorKind::ReadOnly, "readonly", "a read-only array", allowed));
    }
    let compact = |order: Order| info.layout().is_contiguous(order);
    // A request without strides needs C order.
    let refused = (flags.ask(Flags::C_CONTIGUOUS) || !flags.ask(Flags::STRIDES)) && !compact(Order::C)
        || flags.ask(Flags::F_CONTIGUOUS) && !compact(Order::F)
        || flags.ask(Flags::ANY_CONTIGUOUS) && !compact(Order::C) && !compact(Order::F);
    if refused {
        let allowed = "the contiguous array that was asked for, or a request with PyBUF_STRIDES";
        return Err(Error::new(ErrorKind::Strides, "strides", format_args!("{:?}", info.strides()), allowed));
    }
    // The consumer is responsible for later accesses, as in every protocol.
    Borrow::of(shared_range(info), writes).map(drop)
}

/// Rejects Rust structs with padding bytes, because these would expose old contents of the memory.
fn check_padding(info: &ArrayInfo) -> Result<()> {
    if !info.has_stale_padding {
        return Ok(());
    }
    let size = info.dtype().packed_bits() / 8;
    let padding = info.struct_type().map_or_else(Vec::new, |struct_type| struct_type.padding(size));
    let Some(gap) = padding.first() else { return Ok(()) };
    let bytes: usize = padding.iter().map(ExactSizeIterator::len).sum();
    let found = text!("{bytes} bytes of padding, the first at byte {} of an element", gap.start);
    let allowed = "a struct without padding, whose bytes are all in its fields";
    let error = Error::new(ErrorKind::DType, "dtype", found, allowed);
    Err(error.with_rust_hint("write the padding as a field, such as `_pad: [u8; 7]`"))
}

/// Returns the extents and the strides in bytes. Those of an array without elements are a contiguous array's: Python
/// compares them even if there is nothing to step along, and NumPy 2.5 exports such arrays with strides of 0.
fn numbers(info: &ArrayInfo) -> Result<Vec<isize>> {
    let mut strides = info.byte_strides().ok_or_else(|| {
        let allowed = "elements of whole bytes, which the buffer protocol can count";
        Error::new(ErrorKind::DType, "dtype", format_args!("{} below the byte", info.dtype()), allowed)
    })?;
    if info.numel() == 0 {
        let item = info.dtype().packed_bits() / 8;
        strides = Layout::contiguous(info.shape(), Order::C)?.strides_in_bytes(item);
    }
    Ok(info.shape().iter().map(|extent| *extent as isize).chain(strides).collect())
}

/// `bf_releasebuffer`. Python drops the reference in `obj`.
///
/// # Safety
///
/// Called by Python once for a buffer that `lend` made.
pub(crate) unsafe extern "C" fn release(_: *mut ffi::PyObject, buffer: *mut Buffer) {
    // SAFETY: `lend` filled the buffer, as the caller promises.
    let kept = unsafe { buffer.read() }.internal;
    // SAFETY: this is the box of `lend`, and it is freed once.
    drop(unsafe { Box::from_raw(kept.cast::<Kept>()) });
    counters::EXPORTS.sub();
}
