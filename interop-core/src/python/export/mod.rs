//! Exports: results of `__dlpack__` and `__cuda_array_interface__`, and objects of other libraries.

pub(crate) mod allocate;
pub(crate) mod dlpack;
pub(crate) mod library;
pub(crate) mod numpy;
pub(crate) mod results;
