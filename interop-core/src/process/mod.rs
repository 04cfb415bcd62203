//! What a process has once: locks that a forked child makes anew, and counts of what is alive.

pub(crate) mod counters;
pub(crate) mod fork;
