//! DLPack: managed tensors, with and without a version, imported and exported.
//!
//! Where the specification leaves it open:
//!
//! - Null strides are read as C order, whatever the version, and never written.
//! - Strides of axes of extent 1 are kept, because consumers read an order from them, unless they are negative or no multiple of
//!   the item: then they become those of a contiguous array. Arrays without elements have any strides and any address; address 0
//!   is written.
//! - The legacy form has no read-only flag. It is imported as read-only, unless an interface dict of the object says otherwise
//!   for the same address. Read-only memory is not exported in this form.
//! - Unknown type codes are kept as numbers if they have whole bytes; no typed struct is made of them. Known codes with another
//!   number of bits are refused.
//!
//! An export is one allocation that holds the C struct, shape, strides and the owner of the memory. Its deleter may be
//! called on any thread. An import owns the foreign struct and calls its deleter once, on every path.
//!
//! ```
//! use interop_core::{CudaArray, FromArray, Lease};
//!
//! #[derive(CudaArray)]
//! #[cuda_array(shape = [rows, 4])]
//! struct Table<S> {
//!     #[cuda_array(data)]
//!     cells: S,
//!     rows: usize,
//! }
//!
//! let table = Table { cells: vec![0_i64; 12], rows: 3 };
//! let tensor = table.into_dlpack()?;                 // the tensor owns the struct
//! let borrowed: Table<Lease<i64>> = Table::from_dlpack(tensor)?;  // another struct uses the memory in place
//! assert_eq!(borrowed.rows, 3);
//! drop(borrowed);                                                 // the deleter runs, and frees the vector
//! # Ok::<(), interop_core::Error>(())
//! ```
#![expect(unsafe_code, reason = "reads and writes the C structs of DLPack")]

pub(crate) mod abi;
pub(crate) mod export;
pub(crate) mod managed_tensor;

pub use crate::protocols::dlpack::abi::{
    DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor, FLAG_IS_COPIED, FLAG_READ_ONLY,
    FLAG_SUBBYTE_PADDED, Legacy, MAJOR_VERSION, MINOR_VERSION, TensorAbi, Versioned,
};
pub use crate::protocols::dlpack::abi::{DLPackExchangeAPI, DLPackExchangeAPIHeader, SetError};
pub use crate::protocols::dlpack::export::{Ownership, export};
pub use crate::protocols::dlpack::managed_tensor::ManagedTensor;

/// The text of `interop_dlpack.h`, a header for C and C++ with both structs.
///
/// Its comments state what exports guarantee to C and what imports require: the contract of [`ManagedTensor::into_raw`]
/// and [`ManagedTensor::from_raw`]. The file is also in the folder `include` of this crate. A build script can write
/// this text next to the C code.
///
/// This passes a tensor to C and back:
///
/// ```
/// use interop_core::protocols::dlpack::{DLManagedTensorVersioned, ManagedTensor};
/// use interop_core::{CudaArray, FromArray, HostVec, LeaseMut};
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len])]
/// struct Samples<S> { #[cuda_array(data)] values: S, len: usize }
///
/// let samples = Samples { values: HostVec::<f32>::zeroed(3), len: 3 };
/// let tensor: *mut DLManagedTensorVersioned = samples.into_dlpack()?.into_raw();
/// // … C has the pointer and calls the deleter once, on any thread, or returns the tensor …
/// // SAFETY: nobody else releases it.
/// let tensor = unsafe { ManagedTensor::from_raw(tensor) };
/// let samples: Samples<LeaseMut<f32>> = Samples::from_dlpack(tensor)?;
/// assert_eq!(samples.len, 3);
/// assert!(interop_core::protocols::dlpack::C_HEADER.contains("A pointer that Rust takes over"));
/// # Ok::<(), interop_core::Error>(())
/// ```
pub const C_HEADER: &str = include_str!("../../../include/interop_dlpack.h");
