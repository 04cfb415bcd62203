//! Makes a `#[pyclass]` an array, and the class of arrays that functions return.

pub(crate) mod array_class;
pub(crate) mod buffer;
pub(crate) mod copied_array;
pub(crate) mod exchange_table;
pub(crate) mod exported_array;
pub(crate) mod no_number;
