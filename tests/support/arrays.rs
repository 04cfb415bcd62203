//! Structs and storages around real memory, or around memory that is only described.
#![expect(unsafe_code, reason = "storages promise in an unsafe impl what their memory is")]

use interop_core::storage::{MemoryRegion, Mutability};
use interop_core::{CudaArray, Device, Element, HostVec, Storage, StreamHandle};

/// An array of any storage, rank and strides.
#[derive(Debug, CudaArray)]
pub(crate) struct Array<S> {
    #[cuda_array(data)]
    pub(crate) data: S,
    #[cuda_array(shape)]
    pub(crate) shape: Vec<usize>,
    #[cuda_array(strides)]
    pub(crate) strides: Option<Vec<isize>>,
    #[cuda_array(stream)]
    pub(crate) stream: StreamHandle,
}

impl<S> Array<S> {
    /// A contiguous array in C order.
    pub(crate) fn new(data: S, shape: &[usize]) -> Self {
        Self { data, shape: shape.to_vec(), strides: None, stream: StreamHandle::NothingPending }
    }

    /// An array with these strides, in elements.
    pub(crate) fn strided(data: S, shape: &[usize], strides: &[isize]) -> Self {
        Self { strides: Some(strides.to_vec()), ..Self::new(data, shape) }
    }
}

/// Two axes, contiguous in C order.
#[derive(Debug, CudaArray)]
#[cuda_array(shape = [rows, columns])]
pub(crate) struct Matrix<S> {
    #[cuda_array(data)]
    pub(crate) data: S,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// Two axes, contiguous in F order.
#[derive(Debug, CudaArray)]
#[cuda_array(shape = [rows, columns], order = "F")]
pub(crate) struct Fortran<S> {
    #[cuda_array(data)]
    pub(crate) data: S,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// A storage that describes the memory it was given. Its address must not be dereferenced.
#[derive(Clone, Debug)]
pub(crate) struct Claimed(pub(crate) MemoryRegion);

impl Claimed {
    /// `len` elements `T` on a GPU, at an address that no test reads.
    pub(crate) fn gpu<T: Element>(len: usize, ordinal: i32) -> Self {
        Self(MemoryRegion::new::<T>(GPU_ADDRESS, len, Device::cuda(ordinal), Mutability::Writable))
    }
}

/// The address of the memory that [`Claimed::gpu`] describes.
pub(crate) const GPU_ADDRESS: usize = 0x7F00_0000_0000;

// SAFETY: the tests that use it read nothing at the address; see [`Claimed`].
unsafe impl Storage for Claimed {
    fn memory(&self) -> interop_core::Result<MemoryRegion> {
        Ok(self.0.clone())
    }
}

/// Host memory that is described as pinned.
#[derive(Debug)]
pub(crate) struct Pinned<T>(pub(crate) HostVec<T>);

// SAFETY: as for a `HostVec`, except rule 3: the host can access the memory, and no test uses a GPU with it.
unsafe impl<T: Element> Storage for Pinned<T> {
    fn memory(&self) -> interop_core::Result<MemoryRegion> {
        Ok(MemoryRegion { device: Device::CUDA_HOST, ..self.0.memory()? })
    }
}

/// Host memory that is described as managed. The driver is not queried about such an address.
#[derive(Debug)]
pub(crate) struct Managed<T>(pub(crate) HostVec<T>);

// SAFETY: as for [`Pinned`].
unsafe impl<T: Element> Storage for Managed<T> {
    fn memory(&self) -> interop_core::Result<MemoryRegion> {
        Ok(MemoryRegion { device: Device::CUDA_MANAGED, ..self.0.memory()? })
    }
}

/// A storage with [`Mutability::UniqueOwner`], like one that lends ordinary references to its elements.
#[derive(Debug)]
pub(crate) struct Borrowable(pub(crate) Vec<u16>);

// SAFETY: forwards to the inner vector.
unsafe impl Storage for Borrowable {
    fn memory(&self) -> interop_core::Result<MemoryRegion> {
        self.0.memory()
    }
}
