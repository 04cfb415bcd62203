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
#![expect(unsafe_code, reason = "calls the driver")]

pub(crate) mod allocation;
pub(crate) mod block;
pub(crate) mod blocking;
pub(crate) mod buffer;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod copy_plan;
pub(crate) mod default_context;
pub(crate) mod driver;
pub(crate) mod event;
pub(crate) mod handover;
pub(crate) mod kernel_module;
pub(crate) mod locate;
pub(crate) mod missing_stream;
pub(crate) mod own_streams;
pub(crate) mod pending_work;
pub(crate) mod pointer;
pub(crate) mod pool;
pub(crate) mod release;
pub(crate) mod stream_query;
pub(crate) mod stream_wait;
pub(crate) mod verify;

pub use crate::cuda::allocation::MemoryKind;
pub(crate) use crate::cuda::block::note_work;
pub(crate) use crate::cuda::blocking::run_blocking;
#[cfg(any(feature = "python", feature = "counters"))]
#[doc(hidden)]
pub use crate::cuda::blocking::set_blocking_hook;
pub use crate::cuda::buffer::CudaBuffer;
pub use crate::cuda::context::Context;
#[cfg(any(feature = "cust", feature = "cudarc", feature = "cuda-core"))]
pub(crate) use crate::cuda::context::relaxed;
#[cfg(feature = "cudarc")]
pub(crate) use crate::cuda::default_context::enter_context;
#[cfg(feature = "cust")]
pub(crate) use crate::cuda::default_context::enter_context_of;
#[cfg(feature = "python")]
pub(crate) use crate::cuda::default_context::enter_device_context;
#[cfg(any(feature = "cudarc", feature = "cuda-core"))]
pub(crate) use crate::cuda::default_context::has_default_streams;
pub use crate::cuda::driver::{device_count, is_available};
#[cfg(feature = "counters")]
pub use crate::cuda::event::pooled_events;
pub(crate) use crate::cuda::handover::{
    make_consumer_wait, make_stream_wait_for_unknown, stream_for_interface, synchronize_if_available,
    wait_for_consumer,
};
#[cfg(feature = "python")]
pub(crate) use crate::cuda::handover::{make_context_wait_for, synchronize_for_host};
pub use crate::cuda::kernel_module::KernelModule;
pub(crate) use crate::cuda::locate::locate_and_wait;
#[cfg(feature = "cudarc")]
pub(crate) use crate::cuda::missing_stream::register_proxy;
pub(crate) use crate::cuda::missing_stream::wait_for_missing_stream;
#[cfg(feature = "python")]
pub(crate) use crate::cuda::missing_stream::wait_for_unknown_stream;
pub use crate::cuda::missing_stream::{
    MissingStreamPolicy, missing_stream_policy, set_missing_stream_policy,
};
pub(crate) use crate::cuda::pointer::address_for_kernels;
pub use crate::cuda::pointer::{PointerAttributes, device_address, pointer_attributes};
pub use crate::cuda::pool::{set_release_limit, trim_memory_pools};
#[cfg(feature = "counters")]
#[doc(hidden)]
pub use crate::cuda::release::batch::share_events_for;
pub use crate::cuda::release::hold::HoldReleases;
#[cfg(feature = "python")]
pub(crate) use crate::cuda::release::hold::set_capture_hook;
pub use crate::cuda::release::policy::{ReleasePolicy, release_policy};
pub(crate) use crate::cuda::release::queue::poll_in_passing;
pub use crate::cuda::release::queue::set_release_policy;
pub(crate) use crate::cuda::release::records_events;
pub use crate::cuda::release::requests::{
    finish_releases, pending_releases, poll_releases, start_release_thread,
};
#[cfg(any(feature = "python", feature = "cudarc"))]
pub(crate) use crate::cuda::release::room::make_room_on;
pub(crate) use crate::cuda::release::scope::enter_scope;
#[cfg(feature = "python")]
pub(crate) use crate::cuda::stream_query::is_stream_of;
#[cfg(feature = "cudarc")]
pub(crate) use crate::cuda::stream_query::legacy_stream_captures;
pub(crate) use crate::cuda::stream_query::{capture_error, captures};
#[cfg(any(feature = "cudarc", feature = "cuda-core"))]
pub(crate) use crate::cuda::stream_wait::wait_for_default_streams;
pub(crate) use crate::cuda::stream_wait::{
    make_context_wait, stream_wait_in, synchronize_stream_of, wait_between,
};
pub use crate::cuda::stream_wait::{stream_synchronize, stream_wait};
pub(crate) use crate::cuda::verify::{check, release_scope_in_use, release_scope_of};
pub use crate::process::promise::OrderedByProgram;
