//! DLPack: managed tensors in both forms, owned in both directions.
//!
//! An export is one allocation that holds the C struct, shape, strides and the owner of the memory; its deleter may be
//! called on any thread. An import owns the foreign struct and calls its deleter once, on every path.
//!
//! ```
//! use interop_core::dlpack::Versioned;
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
//! let tensor = table.into_dlpack::<Versioned>()?;                 // memory and struct are one package now
//! let borrowed: Table<Lease<i64>> = Table::from_dlpack(tensor)?;  // another struct uses the memory in place
//! assert_eq!(borrowed.rows, 3);
//! drop(borrowed);                                                 // the deleter runs, and frees the vector
//! # Ok::<(), interop_core::Error>(())
//! ```
#![expect(unsafe_code, reason = "this room reads and writes the C structs of DLPack")]

mod abi;
mod exchange;
mod export;
mod import;

pub use abi::{
    Abi, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor, FLAG_IS_COPIED, FLAG_READ_ONLY,
    FLAG_SUBBYTE_PADDED, MAJOR_VERSION, MINOR_VERSION,
};
pub use exchange::{DLPackExchangeAPI, DLPackExchangeAPIHeader, SetError};
pub(crate) use export::export_described;
pub use export::{Access, export};
pub use import::ManagedTensor;
pub(crate) use import::release;

/// The form with version and flags, which says whether the array may be written.
pub type Versioned = DLManagedTensorVersioned;
/// The form from before 1.0, which cannot say that an array is read-only.
pub type Legacy = DLManagedTensor;
