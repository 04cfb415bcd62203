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
//! let address = image.info()?.address();
//! let tensor = image.into_dlpack::<Versioned>()?;
//!
//! // Back: checked against the struct, used in place, released when the struct is dropped.
//! let mut image: Image<LeaseMut<f32>> = Image::from_dlpack(tensor)?;
//! assert_eq!((image.height, image.width, image.info()?.address()), (480, 640, address));
//! image.view_mut::<f32, 3>()?.into_host_view_mut()?.write([0, 0, 2], 1.0)?;
//! # Ok::<(), interop_core::Error>(())
//! ```
//!
//! The [`guide`] has a page for each job, in the order in which a new user meets them.
//!
//! # The way of an array
//!
//! Everything that arrives is a claim until [`RawDescriptor::validate`] has accepted it; [`ArrayInfo`] are what the rest relies
//! on. What a struct exports, and what an import fills, is said by the attributes of the [derive](derive@CudaArray).
//!
//! | to do | use |
//! | --- | --- |
//! | describe a struct, export it, view it | [`CudaArray`] |
//! | make a struct from an array | [`FromArray`], [`Import`] |
//! | choose who owns the memory | `Vec<T>`, [`HostVec`], [`Lease`], [`LeaseMut`], [`SharedBuffer`], your own [`Storage`] |
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
pub mod __private {
    //! What expanded code names. No stable interface: the derive is pinned to the same version.

    pub use crate::derive::expansion::*;
    #[cfg(feature = "python")]
    pub use crate::python::expansion as python;
}
#[doc(hidden)]
pub use crate::__private as __interop_core;
#[cfg(any(feature = "cust", feature = "cudarc", feature = "ndarray"))]
pub mod adapters;
mod array;
pub mod cuda;
mod derive;
mod error;
#[cfg(any(doc, doctest))]
pub mod guide;
mod memory;
mod process;
mod protocols;
#[cfg(feature = "python")]
pub mod python;

pub use protocols::{cai, dlpack};

pub use array::device::{Device, DeviceType};
pub use array::dims::{Dims, MAX_NDIM};
pub use array::dtype::DType;
pub use array::element::{Element, ElementType, Opaque};
pub use array::info::ArrayInfo;
pub use array::layout::Layout;
pub use array::layout::order::Order;
pub use array::minifloat::{
    Float4E2m1fnX2, Float6E2m3fn, Float6E3m2fn, Float8E3m4, Float8E4m3, Float8E4m3b11fnuz, Float8E4m3fn,
    Float8E4m3fnuz, Float8E5m2, Float8E5m2fnuz, Float8E8m0fnu,
};
pub use array::mutability::Mutability;
pub use array::raw_descriptor::{RawDescriptor, Strides};
pub use array::stream::{RawStream, StreamHandle};
pub use array::struct_type::{StructField, StructType};
pub use array::typestr::Typestr;
pub use derive::cuda_array::CudaArray;
pub use derive::fields::stream::{AsStream, FromStream};
pub use derive::from_array::FromArray;
pub use derive::relabel::Relabeled;
pub use error::{Error, ErrorKind, Refused, Result};
pub use memory::array_view::{ArrayView, ArrayViewMut};
pub use memory::from_import::FromImport;
pub use memory::host::cells::{Lanes, ReadOnlyCell};
pub use memory::host::iter::Iter;
pub use memory::host::{HostView, HostViewMut};
pub use memory::host_buffer::HostBuffer;
pub use memory::host_vec::HostVec;
pub use memory::import::Import;
pub use memory::kernel_view::{KERNEL_HEADER, KernelView, KernelViewMut};
pub use memory::lease::{Lease, LeaseMut};
pub use memory::owner::Owner;
pub use memory::region::MemoryRegion;
pub use memory::shared_buffer::SharedBuffer;
pub use memory::storage::Storage;
#[cfg(feature = "counters")]
pub use process::counters::{live_allocations, live_exports};

#[cfg(feature = "derive")]
pub use interop_derive::{CudaArray, Element};

/// The examples in the README of the package and in that of the repository, compiled as tests.
#[cfg(all(doctest, feature = "derive", feature = "python"))]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../repository.md")]
struct Readme;
