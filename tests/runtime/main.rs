//! The runtime alone: pure rooms, both protocols, storages and views, with good input and bad.
//!
//! Names such as R54 and bug 72 (B72) are those of `conformance/TRACEABILITY.md`: requirements of the protocols, and
//! faults that other libraries had.

mod cai;
mod conformance;
mod descriptor;
mod device;
mod dlpack;
mod dtype;
mod elements;
mod errors;
mod kernel_view;
mod layout;
mod ndarray_adapter;
mod out_of_memory;
mod storage;
mod stream;
#[path = "../support/mod.rs"]
mod support;
mod views;
