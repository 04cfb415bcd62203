//! The buffer protocol of array classes, for memory that the host can access.

pub(crate) mod abi;
pub(crate) mod fill;
pub(crate) mod install;
