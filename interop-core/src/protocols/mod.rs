//! DLPack and the CUDA Array Interface, as C structs and as plain data, both ways.

pub mod cai;
pub mod dlpack;
