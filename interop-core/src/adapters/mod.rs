//! The types of other libraries, each behind the feature of its name: arrays of `ndarray`; buffers, streams and launches of
//! those that wrap the driver.
//!
//! The buffers and streams can be fields of a derived struct, and a [`KernelView`](crate::KernelView) is an argument of their
//! launches. There is nothing to call here but what those libraries lack.

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

/// Who may write to device memory of another library's buffer. There are no references to it, but copies to the host make
/// elements of whatever bits a consumer left: not every byte is a `bool`.
#[cfg(any(feature = "cust", feature = "cudarc"))]
pub(crate) fn device_writes<T: Element>() -> Mutability {
    if T::TYPE.any_bits { Mutability::Writable } else { Mutability::WhenOwned }
}
