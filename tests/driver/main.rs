//! Tests with the simulated driver: contexts, events, stream waits, pointer attributes, memory and releases.
//!
//! `cargo xtask sim` builds the driver; the tests load it by its path. A process has one driver, so the tests run one
//! at a time (`turn`), and each must leave nothing behind. Names such as R150 and bug 72 (B72) refer to
//! `tests/conformance/traceability.toml`. The simulated driver exists only on Linux, so these tests do too.
#![cfg(target_os = "linux")]

mod beside_captures;
mod borrowed_tensors;
mod cai;
mod callers_stream;
mod capture;
mod children;
mod concurrent_releases;
mod counted_imports;
mod cuda_buffer;
mod cuda_program;
mod dead_driver;
mod default_streams;
mod deferred_releases;
mod destroyed_handles;
mod device_copies;
mod exclusive_driver;
mod exports;
mod failing_calls;
mod false_descriptions;
mod foreign_kernels;
mod forks;
mod happens_before;
mod host_launches;
mod joined_streams;
mod journeys;
mod launch_scopes;
mod leased_memory;
mod loops;
mod mapped_memory;
mod no_driver;
mod order_hazards;
#[path = "../support/order_settings.rs"]
mod order_settings;
mod pointer_attributes;
mod random_contexts;
#[path = "../support/random_layouts.rs"]
mod random_layouts;
mod random_schedules;
mod random_uses;
mod registered_memory;
mod relabeled;
mod release;
mod release_scope;
mod reused_handles;
mod rust_kernels;
mod shared_events;
mod stream_wait;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod support;
mod threads;
mod unknown_work;
mod uses_now;
