//! The traits of field types. Their messages are shown when a field has the wrong type.
//!
//! Each trait has hidden methods that expanded code calls: `describe_field` for exports, `take` for imports.

pub(crate) mod axes;
pub(crate) mod raw_memory;
pub(crate) mod stream;
