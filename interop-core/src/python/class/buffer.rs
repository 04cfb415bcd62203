//! The buffer protocol of array classes.
#![expect(unsafe_code, reason = "fills the C struct of the protocol")]

use core::ffi::{c_char, c_int};
use core::ptr::{null_mut, with_exposed_provenance_mut};
use std::ffi::CString;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::array::buffer_format::format_of;
use crate::array::layout::Layout;
use crate::array::layout::order::Order;
use crate::error::{Error, ErrorKind, Result, text};
use crate::memory::host::cells::check_readable;
use crate::order::array_info::ArrayInfo;
use crate::order::claim::{Claim, shared_elements};
use crate::process::counters::COUNTERS;
use crate::python::class::array_class::ArrayMethods;
use crate::python::interpreter::{release_deferred_refs, waiting};

/// The memory that the pointers of a buffer point to, until its release.
struct BufferLists {
    format: CString,
    /// The extents, followed by the strides in bytes.
    numbers: Vec<isize>,
}

/// `__getbuffer__`: fills the buffer of an array. The buffer keeps the object alive.
///
/// Waits for pending device work on the memory. Fails while Rust code writes the memory, and for a writable buffer also
/// while Rust code reads it.
///
/// # Safety
///
/// `place` is null or valid for writing a buffer.
#[doc(hidden)]
pub unsafe fn get_buffer<T: ArrayMethods>(
    object: &Bound<'_, T>,
    place: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    if place.is_null() {
        return Err(PyBufferError::new_err("the pointer to the buffer is null"));
    }
    // SAFETY: `place` is valid for a write. A buffer without an object means that there is none, which holds until the
    // last line.
    unsafe { place.write(ffi::Py_buffer::new()) };
    release_deferred_refs(object.py());
    let buffer = lend(object.as_any(), &T::of(object).info()?, flags)?;
    // SAFETY: as above.
    unsafe { place.write(buffer) };
    Ok(())
}

/// `__releasebuffer__`. Python drops the reference to the object.
///
/// # Safety
///
/// Called once for a buffer that [`get_buffer`] filled, or that has no `internal`.
#[doc(hidden)]
pub unsafe fn release_buffer(buffer: *mut ffi::Py_buffer) {
    // SAFETY: the buffer is valid, as the caller promises.
    let kept = unsafe { buffer.read() }.internal;
    // A subclass inherits this function even if it fills its buffers itself.
    if kept.is_null() {
        return;
    }
    // SAFETY: this is the box of `lend`, and it is freed once.
    drop(unsafe { Box::from_raw(kept.cast::<BufferLists>()) });
    COUNTERS.exports.sub();
}

/// Returns whether a request has all these flags. Flags of `CPython` include those that they imply.
fn has(request: c_int, flags: c_int) -> bool {
    request & flags == flags
}

/// Returns a buffer of an object whose array has this description.
fn lend(object: &Bound<'_, PyAny>, info: &ArrayInfo, request: c_int) -> PyResult<ffi::Py_buffer> {
    permit(object.py(), info, request)?;
    check_padding(info)?;
    let kept = BufferLists { format: format_of(info.dtype(), info.struct_type())?, numbers: numbers(info)? };
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
    let BufferLists { format, numbers } = unsafe { &*kept };
    let numbers = numbers.as_ptr().cast_mut();
    COUNTERS.exports.add();
    let mut buffer = ffi::Py_buffer::new();
    buffer.buf = with_exposed_provenance_mut(address);
    buffer.obj = object.clone().into_ptr();
    buffer.len = len;
    buffer.itemsize = itemsize;
    buffer.readonly = c_int::from(info.is_read_only());
    buffer.internal = kept.cast();
    // Without a shape, the buffer is a row of bytes.
    buffer.ndim = 1;
    if has(request, ffi::PyBUF_FORMAT) {
        buffer.format = format.as_ptr().cast::<c_char>().cast_mut();
    }
    if has(request, ffi::PyBUF_ND) {
        #[expect(clippy::cast_possible_truncation, reason = "a layout has 64 axes at most")]
        {
            buffer.ndim = ndim as c_int;
        }
        buffer.shape = if ndim > 0 { numbers } else { null_mut() };
    }
    if has(request, ffi::PyBUF_STRIDES) && ndim > 0 {
        buffer.strides = numbers.wrapping_add(ndim);
    }
    Ok(buffer)
}

/// Fails if the request needs a property that the array does not have.
fn permit(py: Python<'_>, info: &ArrayInfo, request: c_int) -> Result<()> {
    let writes = has(request, ffi::PyBUF_WRITABLE);
    let claim = Claim::by_host(shared_elements(info), writes)?;
    waiting(py, info, || check_readable(info.work(), &claim))?;
    if writes && info.is_read_only() {
        let allowed = "a request for reading only, or a copy of the array";
        return Err(Error::new(ErrorKind::ReadOnly, "readonly", "a read-only array", allowed));
    }
    let compact = |order: Order| info.layout().is_contiguous(order);
    // A request without strides needs C order.
    let refused = (has(request, ffi::PyBUF_C_CONTIGUOUS) || !has(request, ffi::PyBUF_STRIDES))
        && !compact(Order::C)
        || has(request, ffi::PyBUF_F_CONTIGUOUS) && !compact(Order::F)
        || has(request, ffi::PyBUF_ANY_CONTIGUOUS) && !compact(Order::C) && !compact(Order::F);
    if refused {
        let allowed = "the contiguous array that was asked for, or a request with PyBUF_STRIDES";
        return Err(Error::new(ErrorKind::Strides, "strides", format_args!("{:?}", info.strides()), allowed));
    }
    // The consumer is responsible for later accesses, as in every protocol.
    drop(claim);
    Ok(())
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
