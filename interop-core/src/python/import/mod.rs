//! Imports any Python object. `steps.rs` has the steps in their order.

pub(crate) mod array_like;
pub(crate) mod buffer;
pub(crate) mod dunder_dlpack;
pub(crate) mod exchange_table;
pub(crate) mod gradients;
pub(crate) mod numpy_array;
pub(crate) mod package;
pub(crate) mod steps;
pub(crate) mod type_cache;
