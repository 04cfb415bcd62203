//! The CUDA Array Interface as plain data.

mod descr;
mod export;
mod import;
