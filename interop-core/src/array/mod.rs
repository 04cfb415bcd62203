//! What an array is, as numbers: shape, strides, element type, device, stream; and the checks that make a claim an
//! `ArrayInfo`. No memory is touched and no driver called here.

#[cfg(any(test, feature = "python"))]
pub(crate) mod buffer_format;
pub(crate) mod device;
pub(crate) mod dims;
pub(crate) mod dtype;
pub(crate) mod element;
pub(crate) mod info;
pub(crate) mod layout;
pub(crate) mod minifloat;
pub(crate) mod mutability;
pub(crate) mod raw_descriptor;
pub(crate) mod stream;
pub(crate) mod struct_type;
pub(crate) mod typestr;
pub(crate) mod validate;
