//! The exported functions of the driver, grouped by topic.
//!
//! Each has the name and the arguments of `cuda.h`. Handles and addresses are integers, and so are enums.

#![allow(non_snake_case, reason = "the names are the driver's")]

mod allocate;
mod context;
mod copy;
mod device;
mod event;
mod graph;
mod ipc;
mod launch;
mod misc;
mod pointer;
mod pool;
mod stream;
mod stream_memory;
mod virtual_memory;
