//! A `#[pyclass]` as an array.

pub(crate) mod array_class;
pub(crate) mod attributes;
pub(crate) mod buffer;
pub(crate) mod exchange_table;
pub(crate) mod exported_array;
pub(crate) mod install;
pub(crate) mod instance;
pub(crate) mod method;
pub(crate) mod numpy;
pub(crate) mod relabel;
