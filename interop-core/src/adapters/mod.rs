//! Types of other libraries, each behind a feature of the same name: arrays of `ndarray`; buffers, streams and launches
//! of `cust` and `cudarc`.
//!
//! Buffers and streams can be fields of a derived struct, and a [`KernelView`](crate::KernelView) is an argument of a
//! launch.

#[cfg(feature = "cudarc")]
pub mod cudarc;
#[cfg(feature = "cust")]
pub mod cust;
#[cfg(feature = "ndarray")]
pub mod ndarray;

#[cfg(any(feature = "cust", feature = "cudarc"))]
use crate::array::element::Element;
#[cfg(any(feature = "cust", feature = "cudarc"))]
use crate::array::mutability::Mutability;

/// The mutability of device memory in another library's buffer. Exports of `bool` are read-only, because a consumer
/// could write invalid bytes, which a later copy to the host would turn into `bool`.
#[cfg(any(feature = "cust", feature = "cudarc"))]
pub(crate) fn device_writes<T: Element>() -> Mutability {
    if T::TYPE.any_bits { Mutability::Writable } else { Mutability::UniqueOwner }
}
