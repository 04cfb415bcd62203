//! Memory and its owners: imports, storages, views, and host access.

pub(crate) mod aligned_memory;
pub(crate) mod array_view;
pub(crate) mod borrow_registry;
#[cfg(any(feature = "cust", feature = "cudarc"))]
pub(crate) mod copy_to_cuda;
pub(crate) mod cuda_buffer;
#[cfg(feature = "python")]
pub(crate) mod duplicate;
pub(crate) mod elementwise;
pub(crate) mod extraction;
pub(crate) mod fetch;
pub(crate) mod from_import;
pub(crate) mod host;
pub(crate) mod host_buffer;
pub(crate) mod host_vec;
pub(crate) mod import;
pub(crate) mod info_builder;
pub(crate) mod kernel_view;
pub(crate) mod lease;
pub(crate) mod maybe_dangling;
pub(crate) mod owner;
pub(crate) mod region;
pub(crate) mod shared_buffer;
pub(crate) mod std_storage;
pub(crate) mod storage;
pub(crate) mod uninit;
#[cfg(any(feature = "cust", feature = "cudarc"))]
pub(crate) mod upload;
