//! Elements in host-accessible memory: views, cells, and loops over all of them.
#![expect(unsafe_code, reason = "reads and writes array elements on the host")]

pub(crate) mod cells;
pub(crate) mod loops;
#[cfg(feature = "rayon")]
pub(crate) mod parallel;
pub(crate) mod strided;
pub(crate) mod view;
