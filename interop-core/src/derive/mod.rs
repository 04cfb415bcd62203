//! The traits that the derives implement, and the functions that expanded code calls.

#[cfg(feature = "derive")]
pub(crate) mod arrays;
pub(crate) mod bare_tensor;
pub(crate) mod cuda_array;
pub(crate) mod elementwise;
pub(crate) mod expansion;
pub(crate) mod fields;
pub(crate) mod from_array;
pub(crate) mod host_launch;
pub(crate) mod kept;
pub(crate) mod launch_scope;
pub(crate) mod relabel;
pub(crate) mod same_extent;
pub(crate) mod scope_state;
pub(crate) mod shared_array;
pub(crate) mod single_error;
