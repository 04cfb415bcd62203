//! Arrays between processes without a copy: a message of plain bytes, which any channel carries, checked on arrival.
//!
//! The [`guide`] shows it from Rust and from Python, and says which arrays can be shared, what a receiver may see, and what happens
//! when a process ends. An array may lie in memory of the host or of a GPU.
//!
//! | item | purpose |
//! | --- | --- |
//! | [`SharedVec`] | a storage that can be shared |
//! | [`ShareParcel`] | offers a struct, or a copy of any array |
//! | [`Parcel`] | the message, and the end of the offer |
//! | [`FromParcel`], [`open`], [`open_on`] | opens an array as a struct, or as an [`Import`] |
//! | [`share_import`], [`give_import`], [`copy_import`] | offer an array without a struct, for example of NumPy over a [`SharedVec`] |
//! | [`zeroed`] | memory that can be shared, of any element type |
//! | [`leases`], [`is_alive`], [`listen_at`] | who has what open; whether a producer runs; a path for containers |

#[cfg(not(target_os = "linux"))]
compile_error!("`interop-ipc` needs memory files and abstract sockets, which only Linux has");

// `message` is plain bytes, `office` has what a process offers, and its thread (`service`) hands descriptors and handles out, by the
// requests of `protocol`; another one drops and closes memory of a GPU. `visit` opens arrays, `idle` closes their blocks, `block` maps sealed memory files, `device_block` opens memory of
// a GPU, `page` has the numbers that order two processes: `order/shared_work.rs` of the core writes and awaits them on streams.
mod block;
mod device_block;
mod errors;
mod idle;
mod imports;
mod message;
mod office;
mod page;
mod protocol;
mod service;
mod share;
mod shared_vec;
mod socket;
mod visit;

use interop_core::{Import, Result, StreamHandle};

#[doc(hidden)]
pub use imports::lend_import;
pub use imports::{copy_import, give_import, share_import, zeroed};
pub use office::{Lease, Parcel, leases, listen_at};
pub use share::{FromParcel, ShareParcel};
pub use shared_vec::SharedVec;

#[doc = include_str!("guide.md")]
pub mod guide {}

/// Opens an array of another process, by the bytes of a [`Parcel`].
///
/// The array is read-only, unless the producer gave it away ([`ShareParcel::into_parcel`]). It is given back when the import, or what was
/// made of it, is dropped. An array in memory of a GPU is on a stream of the library, which waits for the producer's work: a library to
/// which it is passed waits for that, as for every import.
///
/// ```
/// let error = interop_ipc::open(b"no message").unwrap_err();
/// assert!(error.to_string().contains("the bytes of a parcel"));
/// ```
///
/// # Errors
///
/// - [`Type`](interop_core::ErrorKind::Type) for bytes that are no message, [`Version`](interop_core::ErrorKind::Version) for a message of another version.
/// - As [`RawDescriptor::validate`](interop_core::protocols::RawDescriptor::validate), for an array that does not lie in its block.
/// - [`Gone`](interop_core::ErrorKind::Gone) if the process has ended or does not answer within 5 s, and if the array is not offered any more.
/// - [`OutOfMemory`](interop_core::ErrorKind::OutOfMemory) if this process has 1024 arrays of the other one open, or too many files or mappings. The offer stays.
/// - [`Unsupported`](interop_core::ErrorKind::Unsupported) if the process belongs to another user.
/// - [`Device`](interop_core::ErrorKind::Device) for memory of a GPU that this process does not see, [`Driver`](interop_core::ErrorKind::Driver)
///   without a driver, and with its answer.
pub fn open(bytes: &[u8]) -> Result<Import> {
    visit::open(bytes, None)
}

/// As [`open`]. If the array is in memory of a GPU, `stream` waits for the producer's work, and the array is on this stream, as after
/// [`Import::with_stream`]. The host does not wait.
///
/// The stream must be live as long as the import. For memory of the host it means nothing.
///
/// # Errors
///
/// As [`open`], and [`StreamCapture`](interop_core::ErrorKind::StreamCapture) if the stream captures a graph: each replay would find
/// the work done.
pub fn open_on(bytes: &[u8], stream: StreamHandle) -> Result<Import> {
    visit::open(bytes, Some(stream))
}

/// Whether the process that has offered an array still runs. The bytes are those of a [`Parcel`], which may have been opened.
///
/// What this process has open stays readable without its producer. But work on a GPU that the producer had pending ends with it, and the
/// elements are then unfinished. If it still runs after your own work on the array is done, then the array was finished.
///
/// ```
/// use std::time::Duration;
///
/// let import = interop_ipc::zeroed(interop_core::DType::F32, &[3])?;
/// let parcel = interop_ipc::share_import(import, 1, Duration::from_secs(9)).map_err(|refused| refused.error)?;
/// assert!(interop_ipc::is_alive(parcel.bytes())?);
/// # Ok::<(), interop_core::Error>(())
/// ```
///
/// # Errors
///
/// As [`open`], without those of the memory and of the offer.
pub fn is_alive(bytes: &[u8]) -> Result<bool> {
    visit::is_alive(bytes)
}
