//! The buffer protocol of array classes, for memory that the host can reach.
#![expect(unsafe_code, reason = "fills the C struct of the protocol")]

mod abi;
mod lender;

use core::ffi::{c_char, c_int};
use core::ptr::{null_mut, with_exposed_provenance_mut};
use std::ffi::CString;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use self::abi::{Buffer, Flags};
pub(super) use self::lender::install;
use super::border::guarded;
use super::class::{ArrayClass, struct_of};
use super::export::waiting;
use super::release::drain_releases;
use crate::borrow::Borrow;
use crate::counters;
use crate::error::{Error, ErrorKind, Result, text};
use crate::facts::Facts;
use crate::format::format_of;
use crate::host::check_readable;
use crate::layout::Order;
use crate::view::shared;

/// What the pointers of a [`Buffer`] point to, until its release.
struct Kept {
    format: CString,
    /// The extents, then the strides in bytes.
    numbers: Vec<isize>,
}

/// `bf_getbuffer` of an array class.
///
/// # Safety
///
/// Called by Python with an instance of `T`, a place for the buffer, and the thread attached.
unsafe extern "C" fn get<T: ArrayClass>(this: *mut ffi::PyObject, place: *mut Buffer, flags: c_int) -> c_int {
    let run = |py: Python<'_>| {
        // SAFETY: a live object, to which Python holds a reference during the call.
        let array = unsafe { Borrowed::from_ptr(py, this) };
        // SAFETY: of this class, as the caller promises.
        let array = unsafe { array.cast_unchecked::<T>() };
        lend(&array, array.as_any(), flags)
    };
    // SAFETY: as the caller promises.
    unsafe { fill(place, run) }
}

/// Writes the buffer that `run` makes, or one without an object and an exception.
///
/// # Safety
///
/// A place for the buffer or null, and the thread attached.
unsafe fn fill(place: *mut Buffer, run: impl FnOnce(Python<'_>) -> PyResult<Buffer>) -> c_int {
    let run = |py: Python<'_>| {
        drain_releases(py);
        if place.is_null() { Err(PyBufferError::new_err("no place for a buffer")) } else { run(py) }
    };
    // SAFETY: the thread is attached, as the caller promises.
    let buffer = unsafe { guarded(run) };
    let done = if buffer.is_some() { 0 } else { -1 };
    if !place.is_null() {
        // SAFETY: a place for the buffer; without an object, which says that there is none, where it was refused.
        unsafe { place.write(buffer.unwrap_or(Buffer::NOTHING)) };
    }
    done
}

/// The buffer of an array that `owner` keeps alive.
///
/// Rust code that works on the memory at the time is respected: its consumer gets none while it is written, and none to
/// write to while it is read. Work of a device that is pending on it is waited for.
fn lend<T: ArrayClass>(array: &Bound<'_, T>, owner: &Bound<'_, PyAny>, flags: c_int) -> PyResult<Buffer> {
    let (facts, flags) = (struct_of(array).facts()?, Flags(flags));
    permit(array.py(), &facts, flags)?;
    check_padding(&facts)?;
    let kept = Kept { format: format_of(facts.dtype(), facts.record())?, numbers: numbers(&facts)? };
    let itemsize = (facts.dtype().packed_bits() / 8) as isize;
    let len = (facts.numel() as isize).checked_mul(itemsize);
    let len = len.ok_or_else(|| {
        let found = text!("{} elements of {itemsize} bytes", facts.numel());
        Error::new(ErrorKind::Overflow, "nbytes", found, "a size within the address space")
    })?;
    // An array without elements has no address; some consumers ask for one that is not null.
    let address = if facts.layout().is_empty() { align_of::<u128>() } else { facts.address() };
    let ndim = facts.ndim();
    let kept = Box::into_raw(Box::new(kept));
    // SAFETY: just made.
    let Kept { format, numbers } = unsafe { &*kept };
    let numbers = numbers.as_ptr().cast_mut();
    let said = |what: Flags| flags.ask(what) && ndim > 0;
    counters::EXPORTS.add();
    Ok(Buffer {
        buf: with_exposed_provenance_mut(address),
        obj: owner.clone().into_ptr(),
        len,
        itemsize,
        readonly: c_int::from(facts.is_readonly()),
        // Without a shape it is a row of bytes.
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

/// Refuses what the consumer asks for and the array is not.
fn permit(py: Python<'_>, facts: &Facts, flags: Flags) -> Result<()> {
    waiting(py, facts, || check_readable(facts.device(), facts.stream()))?;
    let writes = flags.ask(Flags::WRITABLE);
    if writes && facts.is_readonly() {
        let allowed = "a request for reading only, or a copy of the array";
        return Err(Error::new(ErrorKind::ReadOnly, "readonly", "a read-only array", allowed));
    }
    let compact = |order: Order| facts.layout().is_contiguous(order);
    // A request without strides is one for C order.
    let refused = (flags.ask(Flags::C_CONTIGUOUS) || !flags.ask(Flags::STRIDES)) && !compact(Order::C)
        || flags.ask(Flags::F_CONTIGUOUS) && !compact(Order::F)
        || flags.ask(Flags::ANY_CONTIGUOUS) && !compact(Order::C) && !compact(Order::F);
    if refused {
        let allowed = "the contiguous array that was asked for, or a request with PyBUF_STRIDES";
        return Err(Error::new(
            ErrorKind::Strides,
            "strides",
            format_args!("{:?}", facts.strides()),
            allowed,
        ));
    }
    // What comes later is the consumer's affair, as with every protocol.
    Borrow::of(shared(facts), writes).map(drop)
}

/// Refuses Rust structs with bytes that are in none of their fields: what was in the memory before would leave the process.
fn check_padding(facts: &Facts) -> Result<()> {
    if !facts.has_stale_padding {
        return Ok(());
    }
    let size = facts.dtype().packed_bits() / 8;
    let padding = facts.record().map_or_else(Vec::new, |record| record.padding(size));
    let Some(gap) = padding.first() else { return Ok(()) };
    let bytes: usize = padding.iter().map(ExactSizeIterator::len).sum();
    let found = text!("{bytes} bytes of padding, the first at byte {} of an element", gap.start);
    let allowed = "a struct without padding, whose bytes are all in its fields";
    let error = Error::new(ErrorKind::DType, "dtype", found, allowed);
    Err(error.with_advice("write the padding as a field, such as `_pad: [u8; 7]`"))
}

fn numbers(facts: &Facts) -> Result<Vec<isize>> {
    let strides = facts.byte_strides().ok_or_else(|| {
        let allowed = "elements of whole bytes, which the buffer protocol can count";
        Error::new(ErrorKind::DType, "dtype", format_args!("{} below the byte", facts.dtype()), allowed)
    })?;
    Ok(facts.shape().iter().map(|extent| *extent as isize).chain(strides).collect())
}

/// `bf_releasebuffer`; the reference in `obj` is Python's to give back.
///
/// # Safety
///
/// Called by Python once for a buffer that `lend` made.
unsafe extern "C" fn release(_: *mut ffi::PyObject, buffer: *mut Buffer) {
    // SAFETY: a buffer that `lend` filled, as the caller promises.
    let kept = unsafe { buffer.read() }.internal;
    // SAFETY: the box of `lend`, once.
    drop(unsafe { Box::from_raw(kept.cast::<Kept>()) });
    counters::EXPORTS.sub();
}
