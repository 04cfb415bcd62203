//! CUDA at run time: what the driver knows of an address, order between streams, and releases that come after the work.
//!
//! Nothing here links to CUDA. The driver is opened at the first call that needs it; where there is none, that call fails
//! with [`ErrorKind::Driver`](crate::ErrorKind::Driver) and everything else works.
//!
//! # Order
//!
//! Two streams are ordered by an event edge ([`order`]): an event is recorded on the one and waited for on the other.
//! Nothing waits on the host, and nothing at all is called when both are the same stream. A host reader of pinned or
//! managed memory waits ([`wait`]).
//!
//! # Release
//!
//! Dropping an import, or a consumer's call of the deleter of an export, releases memory that kernels may still be reading.
//! The release therefore comes after all work of the context: see [`ReleasePolicy`] for what that costs and where it ends.
//!
//! # Forks
//!
//! CUDA cannot be used in a process that was forked from one that uses it. There every call fails with
//! [`ErrorKind::Driver`](crate::ErrorKind::Driver), and what is dropped of the GPU's memory is forgotten: it is the parent's, and
//! no deleter runs. Memory of the host is used and released as everywhere.
//!
//! # Streams are trusted
//!
//! A [`StreamHandle`](crate::StreamHandle) with a handle in it is passed to the driver, which may end the process over one that is
//! no stream. Nobody can tell. So `unsafe` code makes it of a number, and keeps the stream alive.
#![expect(unsafe_code, reason = "calls the driver")]

mod arrive;
mod background;
mod block;
mod check;
mod context;
#[cfg(any(feature = "cust", feature = "cudarc"))]
mod copy;
mod driver;
mod event;
mod intake;
mod memory;
mod order;
mod parked;
mod pending;
mod place;
mod pointer;
mod queue;
mod release;
mod signal;
mod stand_in;

pub use arrive::{UnstatedStream, set_unstated_stream, unstated_stream};
pub use background::release_in_background;
#[cfg(any(feature = "python", feature = "counters"))]
#[doc(hidden)]
pub use block::free_inside;
pub use context::Context;
#[cfg(feature = "counters")]
pub use event::kept_events;
pub use memory::{CudaBuffer, MemoryKind};
pub use order::{order, wait};
pub use parked::{drain_releases, finish_releases, pending_releases};
pub use pointer::{PointerFacts, device_address, pointer_facts};
pub use release::{HoldReleases, ReleasePolicy, release_policy, set_release_policy};

pub(crate) use arrive::arrive;
#[cfg(feature = "cust")]
pub(crate) use arrive::current_device;
#[cfg(feature = "python")]
pub(crate) use arrive::order_unstated;
#[cfg(feature = "cust")]
pub(crate) use block::without_locks;
pub(crate) use check::{Trust, check, fence_in_use, fence_of, is_host_memory};
#[cfg(any(feature = "cust", feature = "cudarc"))]
pub(crate) use context::relaxed;
#[cfg(feature = "cust")]
pub(crate) use copy::copied;
#[cfg(feature = "cudarc")]
pub(crate) use copy::{DefaultSite, copy_on_default_stream, ordinal_of};
pub(crate) use driver::is_opened;
#[cfg(feature = "python")]
pub(crate) use memory::duplicate;
pub(crate) use memory::stage;
#[cfg(any(feature = "cust", feature = "cudarc"))]
pub(crate) use memory::to_usize;
#[cfg(feature = "python")]
pub(crate) use order::hand_to_host;
pub(crate) use order::{captures, hand_over, take_back, wait_for_host};
#[cfg(feature = "cudarc")]
pub(crate) use order::{joins_a_capture, order_namesakes};
pub(crate) use parked::poll_releases;
pub(crate) use pending::Pending;
#[cfg(feature = "cust")]
pub(crate) use place::current_for;
#[cfg(feature = "python")]
pub(crate) use place::current_while;
#[cfg(feature = "cudarc")]
pub(crate) use place::{current_in, has_default_streams, primary_while};
pub(crate) use pointer::address_for_kernels;
#[cfg(feature = "python")]
pub(crate) use release::{DeferDecisions, watch_captures};
pub(crate) use release::{Fence, after_work, at_home};
pub(crate) use stand_in::bring_back;
#[cfg(feature = "cudarc")]
pub(crate) use stand_in::stands_in;

/// The number of devices, 0 without a driver that says how many.
#[must_use]
pub fn device_count() -> i32 {
    driver::driver().map_or(0, |driver| driver.devices().unwrap_or(0))
}

/// Whether there is a driver that can start.
#[must_use]
pub fn is_available() -> bool {
    driver::driver().is_ok()
}
