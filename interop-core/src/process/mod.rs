//! State that exists once for each process: values that a forked child makes anew, and counters.

pub(crate) mod counters;
pub(crate) mod fork;
pub(crate) mod settings;
