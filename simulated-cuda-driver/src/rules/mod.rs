//! What the functions of the driver do to the state: each file adds methods to [`State`](crate::state::State), or to the
//! locked one.

pub(crate) mod access;
pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod end_of_process;
pub(crate) mod exec;
pub(crate) mod happens_before;
pub(crate) mod kernels;
pub(crate) mod other_processes;
pub(crate) mod report;
pub(crate) mod sharing;
pub(crate) mod stream;
