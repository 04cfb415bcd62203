//! Copies of arrays: on the host, on a device, between the two, and into new memory of the same kind.
#![expect(unsafe_code, reason = "copies memory whose lifetime the caller promises")]

pub(crate) mod device;
pub(crate) mod duplicate;
pub(crate) mod fetch;
pub(crate) mod host;
pub(crate) mod transfer;
