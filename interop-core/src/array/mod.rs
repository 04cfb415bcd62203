//! The description of an array as numbers: shape, strides, element type, and their checks. This module
//! accesses no array memory and calls no driver.

#[cfg(any(test, feature = "python"))]
pub(crate) mod buffer_format;
pub(crate) mod dims;
pub(crate) mod dispatch;
pub(crate) mod dtype;
pub(crate) mod element;
pub(crate) mod info;
pub(crate) mod layout;
pub(crate) mod mutability;
pub(crate) mod struct_type;
pub(crate) mod validate;
