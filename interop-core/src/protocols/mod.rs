//! For code that reads or writes a protocol itself: the C structs of DLPack, the CUDA Array Interface as plain data, and
//! what is checked.
//!
//! All reads end in a [`RawDescriptor`], which [`validate`](RawDescriptor::validate) checks by one set of rules.

pub mod cai;
pub mod dlpack;

pub use crate::array::description::Description;
pub use crate::array::dims::MAX_NDIM;
pub use crate::array::layout::Layout;
pub use crate::array::validate::{RawDescriptor, Strides};
