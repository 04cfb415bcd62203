//! The description of an array as numbers: shape, strides, element type, and their checks. This module
//! accesses no array memory and calls no driver.

#[cfg(any(test, feature = "python"))]
pub(crate) mod buffer_format;
pub(crate) mod description;
pub(crate) mod device;
pub(crate) mod dims;
pub(crate) mod dispatch;
pub(crate) mod dtype;
pub(crate) mod element;
pub(crate) mod elements;
pub(crate) mod layout;
pub(crate) mod mutability;
pub(crate) mod stream_handle;
pub(crate) mod struct_type;
pub(crate) mod validate;
