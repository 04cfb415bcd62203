//! The adapters of `cust` and `cudarc`, each storage both ways, on whatever driver there is.
#![expect(unsafe_code, reason = "launches, uninitialized buffers and questions to the driver are unsafe")]

#[path = "../support/alone.rs"]
mod alone;
mod contexts;
mod cudarc;
mod cust;
mod foreign;
mod imports;
mod launches;
mod pending;
mod refused;
mod releases;
mod streams;
mod support;
