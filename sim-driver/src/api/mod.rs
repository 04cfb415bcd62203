//! The functions of the driver, by what they are about. Each has the name and the arguments of `cuda.h`; handles and
//! addresses are numbers, enums are integers.

#![allow(non_snake_case, reason = "the names are the driver's")]

mod allocate;
mod context;
mod copy;
mod device;
mod event;
mod graph;
mod launch;
mod misc;
mod pointer;
mod pool;
mod stream;
mod virtual_memory;
