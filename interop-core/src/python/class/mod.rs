//! Makes a `#[pyclass]` an array.

pub(crate) mod array_class;
pub(crate) mod attributes;
pub(crate) mod buffer;
pub(crate) mod by_numpy;
pub(crate) mod exchange_table;
pub(crate) mod exported_array;
pub(crate) mod index;
pub(crate) mod install;
pub(crate) mod instance;
pub(crate) mod method;
pub(crate) mod numpy;
pub(crate) mod pickling;
pub(crate) mod relabel;
pub(crate) mod views;
