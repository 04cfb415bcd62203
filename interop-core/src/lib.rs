//! The CUDA Array Interface and DLPack for Rust structs, in both directions.
//!
//! A struct around array memory (a `Vec`, pinned or managed memory, a device buffer, a raw pointer from C) gets
//! `#[derive(CudaArray)]`, and its memory goes to any library that speaks one of the protocols, in place. Arrays of those
//! libraries become structs the same way.
//!
//! ```
//! use interop_core::dlpack::Versioned;
//! use interop_core::{CudaArray, FromArray, HostVec, LeaseMut};
//!
//! #[derive(CudaArray)]
//! #[cuda_array(shape = [height, width, 3])]
//! struct Image<S = HostVec<f32>> {
//!     #[cuda_array(data)]
//!     pixels: S,
//!     height: usize,
//!     width: usize,
//! }
//!
//! // Out: the memory and the struct become one DLPack tensor, of one allocation.
//! let image = Image { pixels: HostVec::<f32>::zeroed(480 * 640 * 3), height: 480, width: 640 };
//! let address = image.facts()?.address();
//! let tensor = image.into_dlpack::<Versioned>()?;
//!
//! // Back: checked against the struct, used in place, released when the struct is dropped.
//! let mut image: Image<LeaseMut<f32>> = Image::from_dlpack(tensor)?;
//! assert_eq!((image.height, image.width, image.facts()?.address()), (480, 640, address));
//! image.view_mut::<f32, 3>()?.host_mut()?.set([0, 0, 2], 1.0)?;
//! # Ok::<(), interop_core::Error>(())
//! ```
//!
//! # The way of an array
//!
//! Everything that arrives is a claim until [`Descriptor::validate`] has accepted it; [`Facts`] are what the rest relies
//! on. What a struct exports, and what an import fills, is said by the attributes of the [derive](derive@CudaArray).
//!
//! | to do | use |
//! | --- | --- |
//! | describe a struct, export it, view it | [`CudaArray`] |
//! | make a struct from an array | [`FromArray`], [`Import`] |
//! | choose who owns the memory | `Vec<T>`, [`HostVec`], [`Lease`], [`LeaseMut`], [`Shared`], your own [`Storage`] |
//! | read and write elements on the host | [`CudaArray::map_inplace`] and the like, [`HostView`], [`HostViewMut`] |
//! | launch a kernel over an array | [`KernelView`], [`KernelViewMut`], [`KERNEL_HEADER`] |
//! | declare an element type | [`Element`](trait@Element) |
//! | exchange tensors, or interface dicts as plain data | [`dlpack`], [`cai`] |
//! | own CUDA memory, order streams, choose when memory is released | [`cuda`] |
//! | take part in Python (feature `python`) | `python` |
//!
//! # Features
//!
//! `derive` (default): the two derives. `python`: Python objects in and out, through PyO3. `cust`, `cudarc`: their buffers
//! and streams as fields, `ndarray`: its arrays and views, see `adapters`. `half`, `num-complex`: their types as elements.
//! `rayon`: loops over elements on the host by all cores.
//! `counters`: counts of live exports and allocations, for leak tests.
#![cfg_attr(docsrs, feature(doc_cfg))]

// The derive names this crate by its path, in the tests and examples of the crate itself too.
extern crate self as interop_core;

#[doc(hidden)]
pub mod __private;
/// What expanded code imports, by a name that no other crate has.
#[doc(hidden)]
pub use crate::__private as __interop_core;
#[cfg(any(feature = "cust", feature = "cudarc", feature = "ndarray"))]
pub mod adapters;
mod aligned;
mod array;
mod arrival;
mod borrow;
mod buffer;
pub mod cai;
mod claims;
mod counters;
pub mod cuda;
mod describe;
mod descriptor;
mod device;
mod dims;
pub mod dlpack;
mod dtype;
mod element;
mod error;
mod facts;
mod fork;
#[cfg(any(test, feature = "python"))]
mod format;
mod from_array;
mod gate;
mod host;
mod import;
mod kernel;
mod layout;
mod lease;
mod owner;
#[cfg(feature = "python")]
pub mod python;
mod raw;
mod recast;
mod record;
mod roles;
mod storage;
mod stream;
mod typestr;
mod view;

pub use array::CudaArray;
pub use buffer::{HostBuffer, HostVec};
#[cfg(feature = "counters")]
pub use counters::{live_allocations, live_exports};
pub use descriptor::{Descriptor, Strides, Writes};
pub use device::{Device, DeviceType};
pub use dims::{Dims, MAX_NDIM};
pub use dtype::DType;
pub use element::{
    Element, ElementType, Float4E2m1fnX2, Float6E2m3fn, Float6E3m2fn, Float8E3m4, Float8E4m3,
    Float8E4m3b11fnuz, Float8E4m3fn, Float8E4m3fnuz, Float8E5m2, Float8E5m2fnuz, Float8E8m0fnu, Opaque,
};
pub use error::{Error, ErrorKind, Refused, Result};
pub use facts::Facts;
pub use from_array::FromArray;
pub use host::{HostView, HostViewMut, Iter, Lanes, ReadOnlyCell};
pub use import::Import;
pub use kernel::{KERNEL_HEADER, KernelView, KernelViewMut};
pub use layout::{Layout, Order};
pub use lease::{Lease, LeaseMut, Shared};
pub use owner::Owner;
pub use recast::Recast;
pub use record::{Record, RecordField};
pub use roles::{AsStream, FromStream};
pub use storage::{FromImport, Memory, Storage};
pub use stream::{RawStream, StreamHandle};
pub use typestr::Typestr;
pub use view::{ArrayView, ArrayViewMut};

#[cfg(feature = "derive")]
pub use interop_derive::{CudaArray, Element};

/// The examples in the README of the package and in that of the repository, compiled as tests.
#[cfg(all(doctest, feature = "derive", feature = "python"))]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../repository.md")]
struct Readme;
