//! CUDA at run time: what the driver knows about an address, stream waits, and releases that wait for work.
//!
//! Nothing here links to CUDA. The first call that needs the driver opens it. Without a driver, that call fails with
//! [`ErrorKind::Driver`](crate::ErrorKind::Driver), and everything else works.
//!
//! # Stream waits
//!
//! [`stream_wait`] makes one stream wait for another: it records an event on the one, and the other waits for the
//! event. The host does not wait, and the driver is not called if both are the same stream. A reader of pinned or
//! managed memory on the host waits on the host ([`stream_synchronize`]).
//!
//! # Release
//!
//! Dropping an import, or a consumer's call of the deleter of an export, releases memory that kernels may still be
//! reading. So the release waits for all work of the memory's context. [`ReleasePolicy`] describes the costs and the
//! limits.
//!
//! # Forks
//!
//! CUDA cannot be used in a process that was forked from one that uses it. There every call fails with
//! [`ErrorKind::Driver`](crate::ErrorKind::Driver). GPU memory that is dropped there is leaked, because it belongs to
//! the parent: no deleter runs. Host memory is used and released as everywhere.
//!
//! # Streams are trusted
//!
//! A [`StreamHandle`](crate::StreamHandle) that contains a handle is passed to the driver. The driver may end the
//! process if the handle is not a stream, which nobody can check. So only `unsafe` code creates one from a number, and
//! that code keeps the stream alive.

pub use crate::array::stream_handle::RawStream;
pub use crate::driver::context::Context;
#[cfg(any(feature = "python", feature = "counters"))]
#[doc(hidden)]
pub use crate::driver::functions::set_blocking_hook;
pub use crate::driver::functions::{device_count, is_available};
pub use crate::driver::pointer::{PointerAttributes, device_address, pointer_attributes};
pub use crate::memory::cuda_buffer::CudaBuffer;
pub use crate::order::block::MemoryKind;
pub use crate::order::pool::{set_release_limit, trim_memory_pools};
pub use crate::order::release::queue::{finish_releases, pending_releases, set_release_policy};
pub use crate::order::release::requests::{HoldReleases, start_release_thread};
pub use crate::order::release::{ReleasePolicy, release_policy};
pub use crate::order::wait::{stream_synchronize, stream_wait};
pub use crate::process::settings::{Unordered, set_unordered, unordered};
#[cfg(feature = "counters")]
#[doc(hidden)]
pub use crate::{
    driver::event::pooled_events, order::release::queue::share_events_for,
    order::release::requests::poll_releases,
};
