//! The buffers, streams and launches of the libraries that wrap the driver, each behind the feature of its name.
//!
//! Their types can be fields of a derived struct, and a [`KernelView`](crate::KernelView) is an argument of their
//! launches. There is nothing to call here but what those libraries lack.

#[cfg(feature = "cudarc")]
pub mod cudarc;
#[cfg(feature = "cust")]
pub mod cust;
