//! The CUDA driver at run time: its functions, contexts, streams, events, kernels, and what it knows about an address. It knows
//! nothing of the use of arrays.
#![expect(unsafe_code, reason = "calls the driver")]

pub(crate) mod context;
pub(crate) mod event;
pub(crate) mod functions;
pub(crate) mod kernel_module;
pub(crate) mod number;
pub(crate) mod pointer;
pub(crate) mod ptx_text;
pub(crate) mod reach;
pub(crate) mod stream;
