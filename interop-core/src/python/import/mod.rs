//! Imports any Python object. `object.rs` has the protocols in their order.

pub(crate) mod array_like;
pub(crate) mod buffer;
pub(crate) mod caveats;
pub(crate) mod dunder_dlpack;
pub(crate) mod exchange_table;
pub(crate) mod numpy_array;
pub(crate) mod object;
pub(crate) mod package;
pub(crate) mod type_cache;
