//! Tests without a driver: arrays as numbers, both protocols, storages and views, with valid and invalid input.
//!
//! Names such as R54 and bug 72 (B72) refer to `tests/conformance/traceability.toml`: requirements of the protocols, and bugs
//! of other libraries.

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
