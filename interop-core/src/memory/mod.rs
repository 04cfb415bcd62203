//! Memory and its owners: imports, storages, views, and host access.

pub(crate) mod array_view;
pub(crate) mod copy;
pub(crate) mod cuda_buffer;
pub(crate) mod cuda_storage;
pub(crate) mod extraction;
pub(crate) mod host;
pub(crate) mod host_vec;
pub(crate) mod import;
pub(crate) mod lease;
pub(crate) mod maybe_dangling;
pub(crate) mod no_references;
pub(crate) mod raw_view;
pub(crate) mod shared_buffer;
pub(crate) mod std_storage;
pub(crate) mod storage;
