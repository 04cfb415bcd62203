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
