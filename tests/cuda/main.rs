//! Tests of the `cust` and `cudarc` adapters: each storage in both directions, with any driver.
#![expect(unsafe_code, reason = "launches, uninitialized buffers and questions to the driver are unsafe")]

mod atomics;
mod callers_stream;
mod contexts;
mod cudarc;
mod cust;
mod device_copies;
mod failed_imports;
mod foreign_contexts;
mod foreign_records;
mod imports;
mod launches;
mod lent_slices;
#[path = "../support/order_settings.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod order_settings;
mod own_adapter;
mod pending_work;
#[path = "../support/random_layouts.rs"]
mod random_layouts;
mod releases;
mod streams;
#[path = "../support/subprocess.rs"]
mod subprocess;
mod support;
