//! Tests the simulated driver with two processes: memory and numbers that both use, and the end of one of them.

#![expect(unsafe_code, reason = "functions are found by name, and both processes map one file")]
#![allow(
    dead_code,
    reason = "the driver's functions and the fixture are those of `sim_driver`, which uses all of them"
)]

mod consumer;
#[path = "../sim_driver/driver.rs"]
mod driver;
#[path = "../sim_driver/fixture.rs"]
mod fixture;
mod numbers;
mod order;
#[path = "../../../tests/support/other_process.rs"]
mod other_process;
mod page;
mod pieces;
mod pools;
mod ways;
