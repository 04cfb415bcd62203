//! Structs and storages around memory that is there, or that is only claimed.
#![expect(unsafe_code, reason = "storages vouch for their memory in an unsafe impl")]

use interop_core::{CudaArray, Device, Element, HostVec, MemoryRegion, Mutability, Storage, StreamHandle};

/// Any storage, of any rank and strides.
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
    /// Compact, in C order.
    pub(crate) fn new(data: S, shape: &[usize]) -> Self {
        Self { data, shape: shape.to_vec(), strides: None, stream: StreamHandle::NothingPending }
    }

    /// With these strides, in elements.
    pub(crate) fn strided(data: S, shape: &[usize], strides: &[isize]) -> Self {
        Self { strides: Some(strides.to_vec()), ..Self::new(data, shape) }
    }
}

/// Two axes, compact in C order.
#[derive(Debug, CudaArray)]
#[cuda_array(shape = [rows, columns])]
pub(crate) struct Matrix<S> {
    #[cuda_array(data)]
    pub(crate) data: S,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// Two axes, compact in F order.
#[derive(Debug, CudaArray)]
#[cuda_array(shape = [rows, columns], order = "F")]
pub(crate) struct Fortran<S> {
    #[cuda_array(data)]
    pub(crate) data: S,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// A storage that says what it is told to say. Nothing may follow its address.
#[derive(Clone, Debug)]
pub(crate) struct Claimed(pub(crate) MemoryRegion);

impl Claimed {
    /// `len` elements `T` on a GPU, at an address that no test reads.
    pub(crate) fn gpu<T: Element>(len: usize, ordinal: i32) -> Self {
        Self(MemoryRegion::new::<T>(GPU_ADDRESS, len, Device::cuda(ordinal), Mutability::Writable))
    }
}

/// Where [`Claimed::gpu`] says that its memory is.
pub(crate) const GPU_ADDRESS: usize = 0x7F00_0000_0000;

// SAFETY: the tests that use it read nothing at the address; see there.
unsafe impl Storage for Claimed {
    fn memory(&self) -> MemoryRegion {
        self.0.clone()
    }
}

/// Host memory that says that it is pinned.
#[derive(Debug)]
pub(crate) struct Pinned<T>(pub(crate) HostVec<T>);

// SAFETY: as for a `HostVec`, but for 3: the host reaches the memory, and no test brings a GPU.
unsafe impl<T: Element> Storage for Pinned<T> {
    fn memory(&self) -> MemoryRegion {
        MemoryRegion { device: Device::CUDA_HOST, ..self.0.memory() }
    }
}

/// Host memory that says that it is managed: the driver is asked nothing about its address.
#[derive(Debug)]
pub(crate) struct Managed<T>(pub(crate) HostVec<T>);

// SAFETY: as for [`Pinned`].
unsafe impl<T: Element> Storage for Managed<T> {
    fn memory(&self) -> MemoryRegion {
        MemoryRegion { device: Device::CUDA_MANAGED, ..self.0.memory() }
    }
}

/// A storage of our own with [`Mutability::WhenOwned`], as one that lends plain references to its elements.
#[derive(Debug)]
pub(crate) struct Borrowable(pub(crate) Vec<u16>);

// SAFETY: as for the vector inside.
unsafe impl Storage for Borrowable {
    fn memory(&self) -> MemoryRegion {
        self.0.memory()
    }
}
