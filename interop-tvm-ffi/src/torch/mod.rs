//! Operators of `PyTorch` 2.10 and newer, by its stable C ABI. Nothing is linked: the functions are found in the process.

pub(crate) mod kernel;
pub(crate) mod library;
pub(crate) mod register;
mod stack;
pub(crate) mod tensor;
