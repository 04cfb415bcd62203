//! The state of memory: where the work on it is, who uses it now, who waits for what, and after what it is freed.
//!
//! - `placement`, `memory_state`: where the work is, and what else is known of the use of memory. `array_info` has it beside the
//!   numbers of an array.
//! - `record`, `claim`: who uses memory now, which each door asks.
//! - `wait`, `handover`: who waits for what, for streams and for arrays. `default_streams` has those of contexts that are not current.
//! - `number`, `shared_work`: work for which other processes wait, by numbers.
//! - `uses`, `release`: who has used memory, and after what work it is freed. `pool` and `block` are the memory that is freed in the
//!   order of a stream.
#![expect(unsafe_code, reason = "calls the driver")]

pub(crate) mod array_info;
pub(crate) mod block;
pub(crate) mod claim;
pub(crate) mod default_streams;
pub(crate) mod handover;
pub(crate) mod memory_check;
pub(crate) mod memory_state;
pub(crate) mod number;
pub(crate) mod owned_memory;
pub(crate) mod placement;
pub(crate) mod pool;
pub(crate) mod record;
pub(crate) mod release;
pub(crate) mod shared_work;
pub(crate) mod uses;
pub(crate) mod wait;
