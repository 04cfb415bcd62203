//! The CUDA driver at run time: its functions, contexts, streams, events, what it knows about an address, and releases that
//! wait for work. It knows no arrays.
#![expect(unsafe_code, reason = "calls the driver")]

pub(crate) mod context;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod functions;
pub(crate) mod memory_state;
pub(crate) mod order;
pub(crate) mod placement;
pub(crate) mod pointer;
pub(crate) mod pool;
pub(crate) mod release;
pub(crate) mod stream;
pub(crate) mod stream_handle;
pub(crate) mod uses;
