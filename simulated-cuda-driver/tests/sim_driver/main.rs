//! Tests the simulated driver through its C ABI, as a program uses it.

#![expect(unsafe_code, reason = "functions are found by name and kernels get raw parameters")]

mod capture;
mod contexts;
mod copies;
mod devices;
mod driver;
mod end;
mod events;
mod fixture;
mod handles;
mod hooks;
mod kernels;
mod memory;
mod pointers;
mod races;
mod releases;
mod reports;
mod streams;
mod threads;
mod virtual_memory;
