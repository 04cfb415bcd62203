//! The driver room: contexts, events, order, waits, pointer facts, memory and releases, on the simulated driver.
//!
//! `cargo xtask sim` builds the driver; the tests load it by its place. They take turns, because a process has one
//! driver (`turn`), and at the end of each nothing may be left. Names such as R150 and bug 72 (B72) are those of
//! `conformance/TRACEABILITY.md`. On other systems than Linux there is no simulated driver, and so no test here.
#![cfg(target_os = "linux")]

mod absent;
mod acts;
mod arrivals;
mod batches;
mod beside;
mod both_ways;
mod cai;
mod capture;
mod children;
mod claims;
mod ended;
mod exports;
mod facts;
mod faults;
mod fences;
mod forks;
mod gpu;
mod in_place;
mod lost;
mod memory;
mod order;
mod pieces;
mod places;
mod recasts;
mod registered;
mod release;
mod reused;
mod schedules;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod support;
mod threads;
mod turn;
