//! A CUDA driver that needs no GPU: a shared library with libcuda's C ABI and soname, for tests only.
//!
//! Device memory is host memory behind addresses that fault when the host touches them. Kernels are registered host
//! functions. Streams are queues; a scheduler runs only what it must, in any order that the program's synchronization
//! allows. The page "Test without a GPU" of the guide describes what is simulated, what is not, and how a test uses it.
//!
//! All state is one `State` (`state.rs`) behind one lock. The modules of this folder are its parts, and know nothing of it;
//! `rules/` has what happens to it. The functions of the driver in `api/` are a few lines each.

#![expect(
    clippy::cast_possible_truncation,
    reason = "addresses and sizes have 64 bits, as the next line demands"
)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("the simulated driver is for 64-bit Linux");

mod access;
mod address_space;
mod api;
mod api_call;
mod capture;
mod context;
mod copy_kernels;
mod graph;
mod handle;
mod happens_before;
mod hooks;
mod kernels;
mod memory;
mod other_processes;
mod pools;
mod queue;
mod report;
mod rules;
mod shared_memory;
mod state;
mod status;
mod stream;
mod this_thread;
mod unsupported;
mod virtual_memory;
