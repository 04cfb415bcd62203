//! Imports of DLPack tensors.
#![expect(unsafe_code, reason = "takes ownership of a tensor")]
#![expect(
    clippy::inline_always,
    reason = "the description is built in place, because a move costs more than reading the tensor"
)]

use core::ptr::NonNull;

use crate::array::device::Device;
use crate::array::info::ArrayInfo;
use crate::array::stream::{PendingWork, StreamHandle};
use crate::cuda;
use crate::cuda::release::scope::ReleaseScope;
use crate::cuda::verify::Verification;
use crate::error::{Refused, Result};
use crate::memory::import::{Import, Protocol};
use crate::memory::owner::Owner;
use crate::protocols::dlpack::abi::TensorAbi;
use crate::protocols::dlpack::managed_tensor::{ManagedTensor, release};

impl Import {
    /// Imports the array of a managed tensor, in place.
    ///
    /// # Errors
    ///
    /// The tensor is returned with the reason: as [`ManagedTensor::info`], and if there is a driver:
    ///
    /// - [`ErrorKind::Device`](crate::error::ErrorKind::Device) if the memory is on another device than the tensor
    ///   states.
    /// - [`ErrorKind::OutOfBounds`](crate::error::ErrorKind::OutOfBounds) for elements outside the allocation.
    /// - [`ErrorKind::Driver`](crate::error::ErrorKind::Driver) if a driver call fails.
    ///
    /// ```
    /// use interop_core::{CudaArray, FromArray, Import};
    ///
    /// #[derive(CudaArray)]
    /// struct Samples { #[cuda_array(data)] values: Vec<f32>, #[cuda_array(shape)] shape: Vec<usize> }
    ///
    /// let tensor = Samples { values: vec![1.0; 6], shape: vec![2, 3] }.into_dlpack()?;
    /// let import = Import::from_dlpack(tensor)?;
    /// assert_eq!(import.info().shape(), [2, 3]);
    /// assert_eq!(Samples::from_import(import)?.values, [1.0; 6]);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    #[inline(always)]
    pub fn from_dlpack<A: TensorAbi>(tensor: ManagedTensor<A>) -> Result<Self, Refused<ManagedTensor<A>>> {
        Self::from_dlpack_with(tensor, Verification::Full)
    }

    /// As [`from_dlpack`](Self::from_dlpack), but does not ask the driver about the device and size of the memory.
    ///
    /// This saves one driver call for CUDA memory, and one more for each piece of memory that was mapped in pieces. It
    /// is the only way to import memory that a graph allocates during capture, because the driver knows it only after
    /// the graph has run.
    ///
    /// # Errors
    ///
    /// As [`from_dlpack`](Self::from_dlpack), for rules that need no driver.
    ///
    /// # Safety
    ///
    /// The device and the extent in the tensor are correct; nothing else checks them. Work on the memory is in primary
    /// contexts, as with the CUDA runtime and nearly all libraries, because the release scope is not looked up either.
    #[inline]
    pub unsafe fn from_dlpack_unchecked<A: TensorAbi>(
        tensor: ManagedTensor<A>,
    ) -> Result<Self, Refused<ManagedTensor<A>>> {
        Self::from_dlpack_with(tensor, Verification::Skipped)
    }

    #[inline(always)]
    fn from_dlpack_with<A: TensorAbi>(
        tensor: ManagedTensor<A>,
        verification: Verification,
    ) -> Result<Self, Refused<ManagedTensor<A>>> {
        let mut import = Self::EMPTY;
        // SAFETY: `release::<A>` releases a struct of type `A` on any thread (3 of `ManagedTensor::from_raw`).
        unsafe { import.receive(tensor, release::<A>, verification) }?;
        Ok(import)
    }

    /// Replaces [`EMPTY`](Self::EMPTY) by the array of any tensor, in any memory. On failure the import stays empty.
    ///
    /// # Errors
    ///
    /// As [`from_dlpack`](Self::from_dlpack).
    ///
    /// # Safety
    ///
    /// `release` releases a struct of type `A` on any thread.
    #[inline(never)]
    pub(crate) unsafe fn receive<A: TensorAbi>(
        &mut self,
        tensor: ManagedTensor<A>,
        release: unsafe fn(NonNull<()>),
        verification: Verification,
    ) -> Result<(), Refused<ManagedTensor<A>>> {
        let checked = tensor.info_into(&mut self.info);
        let scope = match checked.and_then(|()| cuda::check(&self.info, verification)) {
            Ok(scope) => scope,
            Err(error) => {
                self.info = ArrayInfo::EMPTY;
                return Err(Refused::new(tensor, error));
            }
        };
        if self.info.device != Device::CPU {
            // Without a `stream` argument the producer synchronizes with the legacy default stream.
            self.info.pending = PendingWork::on(StreamHandle::LegacyDefault);
        }
        // SAFETY: the owner releases the struct once, on any thread (1 and 3 of `ManagedTensor::from_raw`).
        self.owner = unsafe { Owner::from_raw(tensor.into_non_null(), release) }
            .after(scope.map(ReleaseScope::self_reliant));
        self.protocol =
            Some(if A::IS_VERSIONED { Protocol::DlpackVersioned } else { Protocol::DlpackLegacy });
        Ok(())
    }
}
