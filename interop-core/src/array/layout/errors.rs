//! Errors about layouts.

use core::fmt::{Debug, Display};

use crate::array::dims::MAX_NDIM;
use crate::error::{Error, ErrorKind, text};

#[cold]
pub(crate) fn too_many(ndim: usize) -> Error {
    let found = text!("{ndim} axes");
    Error::new(ErrorKind::Rank, "shape", found, format_args!("at most {MAX_NDIM} axes"))
}

/// Formats a number of axes.
pub(crate) fn axes_in_words(number: usize) -> String {
    if number == 1 { "1 axis".into() } else { format!("{number} axes") }
}

#[cold]
pub(crate) fn wrong_rank(shape: &[usize], rank: usize) -> Error {
    let found = text!("{}, shape {:?}", axes_in_words(shape.len()), shape);
    Error::new(ErrorKind::Rank, "shape", found, axes_in_words(rank))
}

/// The error for a tensor with axes and a null pointer to its extents.
#[cold]
pub(crate) fn no_extents(ndim: usize) -> Error {
    let found = text!("a null pointer for {}", axes_in_words(ndim));
    Error::new(ErrorKind::NullPointer, "shape", found, "a pointer to one extent for each axis")
}

#[cold]
pub(crate) fn too_large(shape: &[impl Debug]) -> Error {
    let found = text!("{shape:?}");
    Error::new(ErrorKind::Overflow, "shape", found, "extents whose product fits the address space")
}

#[cold]
pub(crate) fn negative(axis: usize, claimed: impl Display) -> Error {
    Error::new(ErrorKind::Shape, format_args!("shape[{axis}]"), claimed, "0 or greater")
}

#[cold]
pub(crate) fn too_wide(axis: usize, claimed: impl Display) -> Error {
    let allowed = "a stride that fits the address space";
    Error::new(ErrorKind::Overflow, format_args!("strides[{axis}]"), claimed, allowed)
}

#[cold]
pub(crate) fn no_multiple(axis: usize, stride: isize, item: isize) -> Error {
    let (found, allowed) = (text!("{stride} bytes"), text!("a multiple of the item size, {item} bytes"));
    Error::new(ErrorKind::Strides, format_args!("strides[{axis}]"), found, allowed)
}

#[cold]
pub(crate) fn count_mismatch(found: usize, expected: usize) -> Error {
    let noun = if found == 1 { "stride" } else { "strides" };
    let allowed = text!("{expected}, one for each axis");
    Error::new(ErrorKind::Strides, "strides", format_args!("{found} {noun}"), allowed)
}

#[cold]
pub(crate) fn out_of_reach(shape: &[impl Debug], strides: &[impl Debug]) -> Error {
    let found = text!("{strides:?} for shape {shape:?}");
    let error = Error::new(ErrorKind::Overflow, "strides", found, "offsets that fit the address space");
    error.with_python_hint(
        "make it contiguous by `ascontiguousarray` of its library; CuPy exports negative strides like this",
    )
}
