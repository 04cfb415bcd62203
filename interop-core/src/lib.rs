//! The CUDA Array Interface and DLPack for Rust structs, in both directions.
//!
//! Put `#[derive(CudaArray)]` on a struct that holds array memory: a `Vec`, pinned or managed memory, a device buffer,
//! or a raw pointer from C. The struct can then be exported, without a copy, to every library that supports one of the
//! protocols. Arrays of those libraries can be imported into such structs in the same way.
//!
//! Most programs start from six items:
//!
//! | item | what it does |
//! | --- | --- |
//! | [`CudaArray`](trait@CudaArray) | the [derive](derive@CudaArray) describes a struct; the trait exports and views it |
//! | [`FromArray`] | makes such a struct of an array of another library |
//! | [`HostVec`] | owns new memory of the host |
//! | [`LeaseMut`] | is memory of another library, used in place; [`Lease`] is its read-only twin |
//! | [`LaunchScope`] | lends structs to kernels on a GPU, and orders the work |
//! | [`Error`] | says what was found, what is allowed, and where |
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
//! An import first makes an unchecked [`RawDescriptor`](protocols::RawDescriptor) of each array. Its
//! [`validate`](protocols::RawDescriptor::validate) checks it and returns an [`ArrayInfo`], on which all other code relies.
//! The attributes of the [derive](derive@CudaArray) define what a struct exports and which fields an import fills.
//!
//! # The modules
//!
//! | to | use |
//! | --- | --- |
//! | pass arrays without a struct of your own | [`arrays`] |
//! | exchange arrays with Python (feature `python`) | `python` |
//! | store memory of another crate, or of your own | `adapters`, [`storage`] |
//! | use arrays that are lent for a call | [`lent`] |
//! | read and write elements, of types of your own | [`view`], [`element`] |
//! | launch kernels in Rust or in C++ | [`kernel`], [`launch`] |
//! | wait for work, and free memory of a GPU | [`cuda`] |
//! | read or write a protocol yourself | [`protocols`] |
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
#![cfg_attr(docsrs, feature(doc_cfg))]
// The error below is the only message then.
#![cfg_attr(python_too_old, allow(dead_code, unused_imports))]

// The derive emits paths that begin with `interop_core`, also in the tests and examples of this crate.
extern crate self as interop_core;

#[doc(hidden)]
pub mod __private {
    //! Items that expanded code uses. The interface is not stable: the derive is pinned to the same version.

    pub use crate::derive::expansion::*;
    /// What `interop-ipc` needs for memory of devices.
    pub mod processes {
        pub use crate::driver::context::run_in;
        pub use crate::driver::functions::{Driver, IpcHandle, Outcome, driver};
        pub use crate::driver::number::{EndsInNumber, SharedNumber};
        pub use crate::driver::pointer::attribute_values;
        pub use crate::memory::copy::duplicate::copy_for_others;
        pub use crate::order::shared_work::{SharedWork, await_number, drop_after_all_work};
    }
    pub use crate::process::fork::PerProcess;
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
mod order;
mod process;
pub mod protocols;
#[cfg(python_too_old)]
compile_error!(
    "`interop-core` needs Python 3.11, whose stable ABI has the buffer protocol: write `abi3-py311` in the place of an older \
     `abi3-py3…` in the features of `pyo3`, and build with Python 3.11 or newer"
);
#[cfg(all(feature = "python", not(python_too_old)))]
pub mod python;

pub use interop_kernel as kernel;

pub use derive::cuda_array::CudaArray;
pub use derive::from_array::FromArray;
pub use memory::host_vec::HostVec;
pub use memory::lease::{Lease, LeaseMut};

pub use array::device::{Device, DeviceType};
pub use array::dtype::DType;
pub use array::layout::order::Order;
pub use error::{Error, ErrorKind, Refused, Result};
pub use memory::import::Import;
pub use order::array_info::ArrayInfo;

pub use derive::kept::Kept;
pub use memory::shared_buffer::SharedBuffer;
pub use memory::storage::Storage;

pub use array::element::Element;
pub use memory::host::view::{HostView, HostViewMut};

pub use array::stream_handle::StreamHandle;
pub use derive::launch_scope::LaunchScope;
pub use driver::kernel_module::KernelModule;
pub use interop_kernel::LaunchSize;

pub mod arrays {
    //! Structs for arrays that need no name of their own: a vector, a matrix, and an array of any rank and layout.
    //!
    //! They are generic over the storage, as a struct of your own is, and are arguments and results of functions of Python
    //! (feature `python`) and of TVM FFI: `Array1<Lease<f32>>`, `Array2<HostVec<f64>>`, `ArrayD<Borrowed<'_, f32>>`. Write a
    //! struct of your own for names of its own, such as `height`, for fixed extents, or for other values beside the array.

    pub use crate::array::dims::Dims;
    #[cfg(feature = "derive")]
    pub use crate::derive::arrays::{Array1, Array2, ArrayD};
}

pub mod storage {
    //! What a [`Storage`](crate::Storage) of your own needs, and storages for special cases.
    //!
    //! This is a complete storage of another crate: blocks of an allocator of C that frees memory of a GPU in the order of the
    //! legacy default stream. Imports are copied into it. `double` is called by C with a stream, and does its work there.
    //!
    //! ```no_run
    //! use interop_core::protocols::dlpack::DLTensor;
    //! use interop_core::element::ElementType;
    //! use interop_core::lent::{BorrowedFor, BorrowedTensor};
    //! use interop_core::storage::{FromImport, MemoryRegion, Mutability, copy_import};
    //! use interop_core::{
    //!     CudaArray, Device, Element, Error, ErrorKind, Import, KernelModule, LaunchScope, LaunchSize, Order, Result, Storage,
    //!     StreamHandle,
    //! };
    //! # mod c {
    //! #     pub unsafe fn allocate(_bytes: usize) -> *mut u8 { unimplemented!() }
    //! #     pub unsafe fn free(_first: *mut u8) { unimplemented!() }
    //! # }
    //!
    //! /// The allocator has memory of the first GPU.
    //! struct Block<T> { first: *mut T, len: usize }
    //!
    //! // SAFETY: nothing else has the pointer, and `&Block` gives no access to the elements.
    //! unsafe impl<T: Send> Send for Block<T> {}
    //! // SAFETY: as above.
    //! unsafe impl<T: Sync> Sync for Block<T> {}
    //!
    //! impl<T: Element> Block<T> {
    //!     /// Allocates memory that the caller fills.
    //!     fn uninit(len: usize) -> Result<Self> {
    //!         let too_large = || Error::new(ErrorKind::Overflow, "shape", len, "a size that fits the address space");
    //!         let bytes = len.checked_mul(size_of::<T>()).ok_or_else(too_large)?;
    //!         // SAFETY: the function takes any size.
    //!         let first = if len == 0 { std::ptr::null_mut() } else { unsafe { c::allocate(bytes) } };
    //!         if len != 0 && first.is_null() {
    //!             return Err(Error::new(ErrorKind::OutOfMemory, "allocate", "null", format!("{bytes} bytes of free memory")));
    //!         }
    //!         Ok(Self { first: first.cast(), len })
    //!     }
    //! }
    //!
    //! impl<T> Drop for Block<T> {
    //!     fn drop(&mut self) {
    //!         if self.len != 0 {
    //!             // SAFETY: allocated by `uninit`, freed once, and in the order of the stream that `stream` returns.
    //!             unsafe { c::free(self.first.cast()) }
    //!         }
    //!     }
    //! }
    //!
    //! // SAFETY: 1, 2: `from_import` fills the memory, which lives until the drop. 3: it is on the first GPU. 4: no method returns a
    //! // reference or copies elements to the host. 5: no struct type is stated. 6: the drop frees in the order of the stream.
    //! unsafe impl<T: Element> Storage for Block<T> {
    //!     fn memory(&self) -> Result<MemoryRegion> {
    //!         Ok(MemoryRegion::new::<T>(self.first.expose_provenance(), self.len, Device::cuda(0), Mutability::Writable))
    //!     }
    //!
    //!     // A launch on another stream makes this stream wait, so the memory is freed after it.
    //!     fn stream(&self) -> Option<StreamHandle> {
    //!         Some(StreamHandle::LegacyDefault)
    //!     }
    //! }
    //!
    //! impl<T: Element> FromImport for Block<T> {
    //!     const COPIES: bool = true;
    //!     const IS_FREED_ON_DEFAULT_STREAM: bool = true;
    //!
    //!     fn element() -> Option<ElementType> {
    //!         Some(T::TYPE)
    //!     }
    //!
    //!     fn check(info: &interop_core::ArrayInfo) -> Result<()> {
    //!         if info.device() == Device::cuda(0) {
    //!             return Ok(());
    //!         }
    //!         Err(Error::new(ErrorKind::Device, "device", info.device(), "CUDA (2), ordinal 0"))
    //!     }
    //!
    //!     fn from_import(import: &mut Import, order: Order) -> Result<Self> {
    //!         Self::check(import.info())?;
    //!         let block = Self::uninit(import.info().numel() / T::TYPE.axes().iter().product::<usize>())?;
    //!         // SAFETY: the new memory has room for the elements, on the device of the import.
    //!         unsafe { copy_import(import, order, block.first) }?;
    //!         Ok(block)
    //!     }
    //! }
    //!
    //! // SAFETY: a copy, which is complete when `from_import` returns.
    //! unsafe impl<T: Element> BorrowedFor<'_> for Block<T> {}
    //!
    //! #[derive(CudaArray)]
    //! #[cuda_array(shape = [len])]
    //! struct Row<S = Block<f32>> { #[cuda_array(data)] values: S, len: usize }
    //!
    //! # const PTX: &str = "";
    //! // SAFETY: the PTX has no kernels in Rust.
    //! static KERNELS: KernelModule = unsafe { KernelModule::new(PTX) };
    //!
    //! /// Copies a tensor and doubles the copy.
    //! ///
    //! /// # Safety
    //! ///
    //! /// `tensor` is live during the call, and its pending work is on `stream`, which is live, too.
    //! unsafe fn double(tensor: *const DLTensor, stream: StreamHandle) -> Result<Row> {
    //!     // SAFETY: as the caller promises.
    //!     let tensor = unsafe { BorrowedTensor::new(tensor, Mutability::ReadOnly) }?;
    //!     // SAFETY: as above.
    //!     let tensor = unsafe { tensor.with_stream(stream) };
    //!     let mut row: Row = tensor.into_array()?;        // copied on `stream`; the host waits for the copy
    //!
    //!     let size = LaunchSize::for_units(row.len);
    //!     let scope = LaunchScope::on(&stream);
    //!     let out = scope.write::<f32, 1>(&mut row)?;
    //!     // SAFETY: this is the kernel's parameter, an `interop::view<float, 1>`, and it stays within the view.
    //!     unsafe { scope.launch_unchecked(&KERNELS, "twice", size, &[&out]) }?;
    //!     scope.finish()?;                                // the stream of the block waits for the kernel; the host does not
    //!     Ok(row)
    //! }
    //! ```

    pub use crate::array::mutability::Mutability;
    pub use crate::derive::relabel::Relabeled;
    pub use crate::memory::copy::transfer::copy_import;
    pub use crate::memory::extraction::FromImport;
    pub use crate::memory::host_vec::HostBuffer;
    pub use crate::memory::import::Protocol;
    pub use crate::memory::storage::MemoryRegion;
    pub use crate::order::release::owner::Owner;
}

pub mod element {
    //! Element types that are not numbers of Rust: opaque bytes, structs, floats of 8 bits and less.

    pub use crate::array::element::{ElementType, MiniFloat, Opaque};
    pub use crate::array::struct_type::{StructField, StructType};
}

pub mod view {
    //! Borrowed arrays with an element type and a rank, and what a [`HostView`](crate::HostView) returns.

    pub use crate::memory::array_view::{ArrayView, ArrayViewMut};
    pub use crate::memory::host::cells::ReadOnlyCell;
    pub use crate::memory::host::view::Iter;
}

pub mod launch {
    //! What a [`LaunchScope`](crate::LaunchScope) takes and returns, and the header for kernels in C++.

    pub use crate::derive::elementwise::{ElementwiseArrays, ElementwiseOperand};
    pub use crate::derive::fields::stream::{AsStream, FromStream};
    pub use crate::derive::launch_scope::ArrayInScope;
    pub use crate::driver::kernel_module::KernelArgument;
    pub use crate::memory::array_view::KERNEL_HEADER;
}

pub mod lent {
    //! Arrays that are lent for the time of a call: a `DLTensor` of TVM FFI, of `PyTorch`'s stable ABI or of XLA.

    pub use crate::derive::bare_tensor::{BorrowedFor, BorrowedTensor, LentTensor};
    pub use crate::memory::lease::{Borrowed, BorrowedMut};
}

#[cfg(feature = "counters")]
#[doc(hidden)]
pub use process::counters::{live_allocations, live_exports};

#[cfg(feature = "derive")]
pub use interop_derive::{CudaArray, Element};

/// Compiles the examples of the README as tests.
#[cfg(all(doctest, feature = "derive", feature = "python"))]
#[doc = include_str!(env!("INTEROP_README"))]
struct Readme;
