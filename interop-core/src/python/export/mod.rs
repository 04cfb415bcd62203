//! What `__dlpack__` and `__cuda_array_interface__` answer.

pub(crate) mod dlpack;
pub(crate) mod interface_dict;
pub(crate) mod request;
