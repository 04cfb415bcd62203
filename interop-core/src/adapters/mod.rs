//! Types of other libraries, each behind a feature of the same name: arrays of `ndarray`; buffers and streams of `cust`,
//! `cudarc` and `cuda-core`.
//!
//! Buffers and streams can be fields of a derived struct; an array of `ndarray` is exported by itself. A
//! [`KernelView`](crate::kernel::KernelView) is an argument of the launches of `cust` and `cudarc`, and a launch of `cuda-core` takes a
//! pointer to it.

// To add a crate:
//
// 1. `Cargo.toml`: the crate, optional and without its default features, and a feature with its name, also for docs.rs.
//    `xtask/src/workspace.rs`: the feature again; a test compares the two. A crate that needs more than Rust to compile is left out
//    of "all features" and gets its own suite, like `cuda-core` (`xtask/src/cuda_core.rs`, `tests/cuda-core/`).
// 2. Here: `Storage` for its buffers, with `note_read` and `note_write` if it orders its functions by its own records;
//    `FromImport` if an import can make one; `AsStream` and `FromStream` for its streams. The documentation of `crate::Storage` says
//    who calls these and when, and that of `crate::storage` has an example. The names of the buffers in
//    `interop-derive/src/pointer_rules.rs`.
// 3. Tests: `tests/runtime/` for host memory, `tests/cuda/` for what needs a driver.
// 4. The table in `guide/memory.md`; the feature in the README and in `lib.rs`.

#[cfg(feature = "cuda-core")]
pub mod cuda_core;
#[cfg(feature = "cudarc")]
pub mod cudarc;
#[cfg(feature = "cust")]
pub mod cust;
#[cfg(feature = "ndarray")]
pub mod ndarray;

#[cfg(any(feature = "cudarc", feature = "cuda-core"))]
use core::fmt::{Debug, Display};

#[cfg(any(feature = "cust", feature = "cudarc", feature = "cuda-core"))]
use crate::array::element::Element;
#[cfg(any(feature = "cust", feature = "cudarc", feature = "cuda-core"))]
use crate::array::mutability::Mutability;
#[cfg(any(feature = "cudarc", feature = "cuda-core"))]
use crate::{
    array::{
        info::{ArrayInfo, kernel_address},
        layout::order::Order,
    },
    cuda,
    error::{Cure, Error, ErrorKind, Result, text},
};

/// The mutability of device memory in another library's buffer. Exports of `bool` are read-only, because a consumer
/// could write invalid bytes, which a later copy to the host would turn into `bool`.
#[cfg(any(feature = "cust", feature = "cudarc", feature = "cuda-core"))]
pub(crate) fn device_writes<T: Element>() -> Mutability {
    if T::TYPE.any_bits { Mutability::Writable } else { Mutability::UniqueOwner }
}

/// The error for a call of another library that failed in the driver.
#[cfg(any(feature = "cudarc", feature = "cuda-core"))]
#[cold]
pub(crate) fn failed(call: &str, error: impl Debug, allowed: impl Display) -> Error {
    Error::new(ErrorKind::Driver, call, format_args!("{error:?}"), allowed)
}

/// Returns the address and the number of the elements `T` of a contiguous array.
#[cfg(any(feature = "cudarc", feature = "cuda-core"))]
pub(crate) fn contiguous_elements<T: Element>(info: &ArrayInfo) -> Result<(u64, usize)> {
    let layout = info.layout_of(&T::TYPE)?;
    if !layout.is_contiguous(Order::C) && !layout.is_contiguous(Order::F) {
        let found = text!("{:?} for shape {:?}", layout.strides(), layout.shape());
        let allowed = "strides of a contiguous array, in C or Fortran order; copy the array";
        return Err(Error::new(ErrorKind::Strides, "strides", found, allowed).with_python_hint(Cure::COrder));
    }
    Ok((kernel_address(info.unwatched_address, info.device, align_of::<T>())?, layout.numel()))
}

/// Returns an error for memory that was allocated in another context than this one. Pool memory belongs to no context.
#[cfg(any(feature = "cudarc", feature = "cuda-core"))]
pub(crate) fn check_allocated_in(address: usize, expected: Option<cuda::Context>) -> Result<()> {
    // An array without elements has address 0.
    let attributes = if address == 0 { None } else { cuda::pointer_attributes(address)? };
    match attributes.and_then(|attributes| attributes.context) {
        Some(found) if expected != Some(found) => {
            let allowed = text!(
                "{:#x}, in which the array is used; copy the array",
                expected.map_or(0, |context| context.to_raw().get())
            );
            Err(Error::new(ErrorKind::Device, "context", format_args!("{:#x}", found.to_raw()), allowed))
        }
        _ => Ok(()),
    }
}
