//! DLPack and the CUDA Array Interface: C structs and plain data, import and export.

pub mod cai;
pub mod dlpack;
