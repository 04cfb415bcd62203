//! The CUDA Array Interface and DLPack for Rust structs, in both directions.
//!
//! Put `#[derive(CudaArray)]` on a struct that holds array memory: a `Vec`, pinned or managed memory, a device buffer,
//! or a raw pointer from C. The struct can then be exported, without a copy, to every library that supports one of the
//! protocols. Arrays of those libraries can be imported into such structs in the same way.
//!
//! ```
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
//! // Export: the tensor owns the struct and its memory.
//! let image = Image { pixels: HostVec::<f32>::zeroed(480 * 640 * 3), height: 480, width: 640 };
//! let address = image.info()?.address();
//! let tensor = image.into_dlpack()?;
//!
//! // Import: the array is checked, used in place, and released when the struct is dropped.
//! let mut image: Image<LeaseMut<f32>> = Image::from_dlpack(tensor)?;
//! assert_eq!((image.height, image.width, image.info()?.address()), (480, 640, address));
//! image.view_mut::<f32, 3>()?.host_view_mut()?.write([0, 0, 2], 1.0)?;
//! # Ok::<(), interop_core::Error>(())
//! ```
//!
//! The [`guide`] has a page for each task, in the order in which a new user needs them.
//!
//! # How an array is passed
//!
//! An import first makes an unchecked [`RawDescriptor`] of each array. [`RawDescriptor::validate`] checks it and returns an
//! [`ArrayInfo`], on which all other code relies. The attributes of the [derive](derive@CudaArray) define what a struct
//! exports and which fields an import fills.
//!
//! | task | items |
//! | --- | --- |
//! | describe, export and view a struct | [`CudaArray`] |
//! | import an array into a struct | [`FromArray`], [`Import`] |
//! | choose the owner of the memory | start with [`HostVec`] and [`LeaseMut`]; then `Vec<T>`, [`Lease`], [`SharedBuffer`], your own [`Storage`] |
//! | read and write elements on the host | [`CudaArray::map_inplace`] and similar methods, [`HostView`], [`HostViewMut`] |
//! | write and launch a kernel in Rust | [`kernel`], [`KernelModule`], [`LaunchScope`] |
//! | pass an array to a kernel in C++ | [`KernelView`], [`KernelViewMut`], [`KERNEL_HEADER`] |
//! | declare an element type | [`Element`](trait@Element) |
//! | exchange tensors, or interface dicts as plain data | [`dlpack`], [`cai`] |
//! | allocate CUDA memory, synchronize streams, control releases | [`cuda`] |
//! | exchange arrays with Python (feature `python`) | `python` |
//!
//! # Features
//!
//! - `derive` (default): `#[derive(CudaArray)]` and `#[derive(Element)]`.
//! - `python`: import and export of Python objects, through PyO3.
//! - `cust`, `cudarc`, `ndarray`: buffers, streams, arrays and views of these crates as fields; see `adapters`.
//! - `cuda-core`: the same for NVIDIA's CUDA Rust; it needs Rust 1.89, CUDA headers and libclang to compile.
//! - `half`, `num-complex`: the types of these crates as elements.
//! - `rayon`: parallel loops over elements on the host.
//! - `stubs`: types for type checkers, by `maturin generate-stubs`; implies `python`.
//! - `counters`: counts of live exports and allocations, for leak tests.
#![cfg_attr(docsrs, feature(doc_cfg))]
// The error below is the only message then.
#![cfg_attr(python_too_old, allow(dead_code, unused_imports))]

// The derive emits paths that begin with `interop_core`, also in the tests and examples of this crate.
extern crate self as interop_core;

#[doc(hidden)]
pub mod __private {
    //! Items that expanded code uses. The interface is not stable: the derive is pinned to the same version.

    pub use crate::derive::expansion::*;
    #[cfg(all(feature = "python", not(python_too_old)))]
    pub use crate::python::expansion as python;
}
#[doc(hidden)]
pub use crate::__private as __interop_core;
#[cfg(any(feature = "cust", feature = "cudarc", feature = "cuda-core", feature = "ndarray"))]
pub mod adapters;
mod array;
pub mod cuda;
mod derive;
mod driver;
mod error;
#[cfg(any(doc, doctest))]
pub mod guide;
mod memory;
mod process;
mod protocols;
#[cfg(python_too_old)]
compile_error!(
    "`interop-core` needs Python 3.11, whose stable ABI has the buffer protocol: write `abi3-py311` in the place of an older \
     `abi3-py3…` in the features of `pyo3`, and build with Python 3.11 or newer"
);
#[cfg(all(feature = "python", not(python_too_old)))]
pub mod python;

pub use protocols::{cai, dlpack};

/// The arguments of kernels, and kernels in Rust.
pub use interop_kernel as kernel;
pub use interop_kernel::{
    DynKernelView, InScope, KernelArrays, KernelOperand, KernelView, KernelViewMut, LaunchSize,
};

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
pub use array::struct_type::{StructField, StructType};
pub use array::validate::{RawDescriptor, Strides};
pub use cuda::KernelModule;
pub use derive::bare_tensor::{BorrowedFor, BorrowedTensor, LentTensor};
pub use derive::cuda_array::CudaArray;
pub use derive::elementwise::{ElementwiseArrays, ElementwiseOperand};
pub use derive::fields::stream::{AsStream, FromStream};
pub use derive::from_array::FromArray;
pub use derive::kept::Kept;
pub use derive::launch_scope::{ArrayInScope, LaunchScope};
pub use derive::relabel::Relabeled;
pub use driver::device::{Device, DeviceType};
pub use driver::stream_handle::{RawStream, StreamHandle};
pub use error::{Error, ErrorKind, Refused, Result};
pub use memory::array_view::{ArrayView, ArrayViewMut, KERNEL_HEADER};
pub use memory::extraction::FromImport;
pub use memory::host::cells::ReadOnlyCell;
pub use memory::host::elements::Iter;
pub use memory::host::{HostView, HostViewMut};
pub use memory::host_vec::{HostBuffer, HostVec};
pub use memory::import::{Import, Protocol};
pub use memory::lease::{Borrowed, BorrowedMut, Lease, LeaseMut};
pub use memory::owner::Owner;
pub use memory::shared_buffer::SharedBuffer;
pub use memory::storage::{MemoryRegion, Storage};
#[cfg(feature = "counters")]
pub use process::counters::{live_allocations, live_exports};

#[cfg(feature = "derive")]
pub use interop_derive::{CudaArray, Element};

/// Compiles the examples of the README as tests.
#[cfg(all(doctest, feature = "derive", feature = "python"))]
#[doc = include_str!(env!("INTEROP_README"))]
struct Readme;
