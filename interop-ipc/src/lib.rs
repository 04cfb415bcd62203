//! Arrays between processes without a copy: a message of plain bytes, which any channel carries, checked on arrival.
//!
//! A process offers an array that lies in shared memory, and sends a message of some 160 bytes: over a socket, a queue, zenoh, HTTP or
//! `multiprocessing`. Who gets it opens the array: the memory is mapped, not copied, and a struct of the receiver is filled by the
//! same check as every other import of [`interop_core`].
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use interop_core::{CudaArray, FromArray, Lease};
//! use interop_ipc::{FromParcel, ShareParcel, SharedVec};
//!
//! #[derive(CudaArray)]
//! #[cuda_array(shape = [height, width, 3])]
//! struct Image<S = SharedVec<u8>> {
//!     #[cuda_array(data)]
//!     pixels: S,
//!     height: usize,
//!     width: usize,
//! }
//!
//! // The producer: two processes may open the image, within a minute.
//! let image = Arc::new(Image { pixels: SharedVec::<u8>::zeroed(480 * 640 * 3)?, height: 480, width: 640 });
//! let parcel = image.share_parcel(2, Duration::from_secs(60))?;
//! let bytes = parcel.bytes();
//!
//! // The consumer, usually another process:
//! let seen: Image<Lease<u8>> = Image::from_parcel(bytes)?;
//! assert_eq!((seen.height, seen.width), (480, 640));
//! drop(seen);
//!
//! // The producer may write again once nobody has the image open.
//! drop(image);
//! let mut image = parcel.take_back(Duration::from_secs(1))?;
//! let image = Arc::get_mut(&mut image).expect("the only handle");
//! image.map_inplace(|value: u8| value + 1)?;
//! # Ok::<(), interop_core::Error>(())
//! ```
//!
//! | item | purpose |
//! | --- | --- |
//! | [`SharedVec`] | a storage that can be shared |
//! | [`ShareParcel`] | offers a struct, or a copy of any array |
//! | [`Parcel`] | the message, and the end of the offer |
//! | [`FromParcel`], [`open`], [`open_on`] | opens an array as a struct, or as an [`Import`] |
//! | [`share_import`], [`give_import`], [`copy_import`] | offer an array without a struct, for example of NumPy over a [`SharedVec`] |
//! | [`zeroed`] | memory that can be shared, of any element type |
//! | [`leases`], [`listen_at`] | who has what open; a path for containers |
//!
//! # Memory of a GPU
//!
//! An array in memory of `cudaMalloc` is shared as one of the host. The driver says in which allocation it lies, and at which offset.
//! That is the memory of [`MemoryKind::Device`](interop_core::cuda::MemoryKind::Device), and the default of PyTorch, `CuPy` and Numba.
//! An array of any other memory is an error, which names the allocator and the setting that changes it.
//!
//! Both processes work in the order of numbers, which their streams write and await in a page that both have mapped:
//!
//! - The consumer's stream waits for the work that was pending when the array was shared ([`open_on`]). No host waits.
//! - The drop of an open array writes a number behind all work that may use it. The producer gets the array back after that, or at once
//!   for a stream that waits for it ([`Parcel::take_back_on`]).
//! - If the producer dies, the consumer writes its numbers, so no stream waits for ever. The elements may then be unfinished.
//!
//! An allocation stays open while any array in it is open here: keep one, if arrays of one block come and go.
//!
//! # What holds
//!
//! - **Any channel.** The message has no descriptor, address or code. One thread of the producer hands the descriptors out, by a socket
//!   to which only processes of the same user can connect. A message that was copied, guessed or changed opens nothing: it has a random
//!   number of 128 bits, each offer is counted, and ends after its time.
//! - **Only what can be shared.** An array in other memory is an error, never a silent copy: allocate it as a [`SharedVec`], or call
//!   [`copy_parcel`](ShareParcel::copy_parcel).
//! - **Checked.** The elements must lie within the block, and the block in a file that cannot shrink, or in the allocation that the driver
//!   has opened.
//! - **Ends.** If the consumer dies, at whatever step, the producer drops what it kept. If the producer dies, open arrays stay
//!   readable, and everything else is [`ErrorKind::Gone`](interop_core::ErrorKind::Gone).
//! - **Forks.** A forked child can open and offer arrays. It gives nothing back that its parent has open.
//!
//! # What does not hold
//!
//! - Who gets an array can read **the whole block** in which it lies, and a process that does not use this crate can write to it: it is of
//!   the same user. A [`SharedVec`] has a block of its own.
//! - The producer promises not to write to a shared array while it is open, as for every array that is lent to another library.
//! - A consumer that never drops an array keeps its memory. [`leases`] tells who it is.
//! - A hostile process of the same user can send a handle of the driver that ends the CUDA context of its reader.
//! - An array that a stream captures into a graph is neither shared nor opened. A device that cannot wait for numbers makes the host wait.
//! - Other users, other hosts, and other systems than Linux: not yet, or never.

#[cfg(not(target_os = "linux"))]
compile_error!("`interop-ipc` needs memory files and abstract sockets, which only Linux has");

mod block;
mod device_block;
mod errors;
mod imports;
mod message;
mod office;
mod page;
mod service;
mod share;
mod shared_vec;
mod socket;
mod visit;

use interop_core::{Import, Result, StreamHandle};

pub use imports::{copy_import, give_import, share_import, zeroed};
pub use office::{Lease, Parcel, leases, listen_at};
pub use share::{FromParcel, ShareParcel};
pub use shared_vec::SharedVec;

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
/// - As [`RawDescriptor::validate`](interop_core::descriptor::RawDescriptor::validate), for an array that does not lie in its block.
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
