//! Types of other libraries, each behind a feature of the same name: arrays of `ndarray`; buffers and streams of `cust`,
//! `cudarc` and `cuda-core`.
//!
//! Buffers and streams can be fields of a derived struct; an array of `ndarray` is exported by itself. A
//! [`KernelView`](crate::kernel::KernelView) is an argument of the launches of `cust` and `cudarc`, and a launch of `cuda-core` takes a
//! pointer to it.

// To add a crate, change these places. `cargo xtask guard lists` finds them by `cudarc`, whose memory is on a device, and `ndarray`.
// * Here: a module with the name of the feature. `device_writes` says who may write memory of a device, `failed` makes an error of a call.
//   `contiguous_elements` and `check_allocated_in` check an array that the crate uses in place.
// * `interop-core/src/adapters`: `Storage` for its buffers, and `FromImport` if an import can fill one; `AsStream` and `FromStream` for its
//   streams. The documentation of `Storage` has the duties, that of `crate::storage` an example. A default stream is that of its own
//   context: where `has_default_streams` says that its handle means another one, name a blocking stream (`proxy_stream`), or none. A stream
//   that is made of a handle belongs to the device that `ordinal_of` tells, and `order_default_stream` comes before a default stream of
//   another context. An import that the crate uses in place is noted by `note_used`, because nobody hears of the work. While
//   `is_capturing`, or `legacy_stream_joins_capture`, a wait that the crate would queue invalidates the graph: the host waits instead.
//   A context of the crate that is kept is in a `PerProcess`, because a forked child cannot use it. `NEEDS_CONTEXT` says that a buffer is
//   freed in the context that is current. A wrapper frees it in its own one: its drop asks `context_to_free`, stores the answer in an
//   `InReach`, and calls `drop_handle` in `run_blocking`. That makes the context current and then puts the thread's own one back. The driver
//   waits for the device meanwhile, and other threads of Python run.
// * `interop-core/src/memory`: an import is copied by `copy_to_buffer`, which allocates as this crate does, or by `ImportCopy` into
//   memory that the crate allocates: it may be asked for no elements, and for more bytes than it takes without a panic. In `FromImport`
//   a constant, such as `IS_FREED_ON_DEFAULT_STREAM`, if no other storage was like this one.
// * `interop-core/src/driver`: `relaxed` and `Entered` leave the capture mode and the context of the thread as they were. The features of
//   functions that only adapters call.
// * `interop-core/src/order`: `make_room_on`, before a large allocation, waits for memory that is still to be released. These features.
// * `interop-core/src/derive`: these features, too.
// * `interop-core/Cargo.toml`: the crate, optional and without its default features, and a feature, also for docs.rs.
// * `xtask/src/workspace.rs`: the feature in `FEATURES`. A crate that needs more than Rust to compile is left out, and has a suite of its
//   own, like `cuda-core` (`xtask/src/cuda_core.rs`, `tests/cuda-core`).
// * `xtask/src/guard.rs`: the feature in the checks that cannot build it: the oldest Rust, other platforms, the oldest dependencies.
// * `interop-core/src/lib.rs`: the feature in the documentation, and where the module is compiled.
// * `interop-core/src/array/layout/parts.rs`: nothing; a slice is named as in `ndarray`.
// * `interop-derive/src/pointer_rules.rs`: the names of the buffers in `STORAGES`.
// * `interop-kernel/src/adapters.rs`, `interop-kernel/src/lib.rs`, `interop-kernel/Cargo.toml`: arguments in the launches of the crate.
// * `interop-core/src/guide`: the table of storages in `memory.md`, streams in `streams.md`, launches in `kernels.md`.
// * `interop-core/public-api.txt`: by `cargo xtask bless`.
// * `tests/runtime`: memory of the host, without a driver.
// * `tests/cuda`: memory of a device, on the simulated driver and on a real one.
// * `tests/benches`, `examples/cuda`, `PERFORMANCE.md`: what a copy costs; a program, if the crate launches kernels.

#[cfg(feature = "cuda-core")]
pub mod cuda_core;
#[cfg(feature = "cudarc")]
pub mod cudarc;
#[cfg(feature = "cust")]
pub mod cust;
#[cfg(feature = "ndarray")]
pub mod ndarray;

#[cfg(any(feature = "cudarc", feature = "cuda-core"))]
use core::fmt::{Debug, Display};

#[cfg(any(feature = "cust", feature = "cudarc", feature = "cuda-core"))]
use crate::array::element::Element;
#[cfg(any(feature = "cust", feature = "cudarc", feature = "cuda-core"))]
use crate::array::mutability::Mutability;
#[cfg(any(feature = "cudarc", feature = "cuda-core"))]
use crate::{
    array::layout::order::Order,
    cuda,
    error::{Cure, Error, ErrorKind, Result, text},
    order::array_info::{ArrayInfo, kernel_address},
};

/// The mutability of device memory in another library's buffer. Exports of `bool` are read-only, because a consumer
/// could write invalid bytes, which a later copy to the host would turn into `bool`.
#[cfg(any(feature = "cust", feature = "cudarc", feature = "cuda-core"))]
pub(crate) fn device_writes<T: Element>() -> Mutability {
    if T::TYPE.any_bits { Mutability::Writable } else { Mutability::UniqueOwner }
}

/// The error for a call of another library that failed in the driver.
#[cfg(any(feature = "cudarc", feature = "cuda-core"))]
#[cold]
pub(crate) fn failed(call: &str, error: impl Debug, allowed: impl Display) -> Error {
    Error::new(ErrorKind::Driver, call, format_args!("{error:?}"), allowed)
}

/// Returns the address and the number of the elements `T` of a contiguous array.
#[cfg(any(feature = "cudarc", feature = "cuda-core"))]
pub(crate) fn contiguous_elements<T: Element>(info: &ArrayInfo) -> Result<(u64, usize)> {
    let layout = info.layout_of(&T::TYPE)?;
    if !layout.is_contiguous(Order::C) && !layout.is_contiguous(Order::F) {
        let found = text!("{:?} for shape {:?}", layout.strides(), layout.shape());
        let allowed = "strides of a contiguous array, in C or Fortran order; copy the array";
        return Err(Error::new(ErrorKind::Strides, "strides", found, allowed).with_python_hint(Cure::COrder));
    }
    Ok((kernel_address(info.unwatched_address, info.device, align_of::<T>())?, layout.numel()))
}

/// Returns an error for memory that was allocated in another context than this one. Pool memory belongs to no context.
#[cfg(any(feature = "cudarc", feature = "cuda-core"))]
pub(crate) fn check_allocated_in(address: usize, expected: Option<cuda::Context>) -> Result<()> {
    // An array without elements has address 0.
    let attributes = if address == 0 { None } else { cuda::pointer_attributes(address)? };
    match attributes.and_then(|attributes| attributes.context) {
        Some(found) if expected != Some(found) => {
            let allowed = text!(
                "{:#x}, in which the array is used; copy the array",
                expected.map_or(0, |context| context.to_raw().get())
            );
            Err(Error::new(ErrorKind::Device, "context", format_args!("{:#x}", found.to_raw()), allowed))
        }
        _ => Ok(()),
    }
}
