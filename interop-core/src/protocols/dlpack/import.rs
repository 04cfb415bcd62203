//! An `Import` from a DLPack tensor.
#![expect(unsafe_code, reason = "takes over a tensor with the function that releases it")]
#![expect(
    clippy::inline_always,
    reason = "facts are built where they stay: to move them costs more than to read the tensor"
)]

use core::ptr::NonNull;

use crate::array::device::Device;
use crate::array::info::ArrayInfo;
use crate::array::stream::StreamHandle;
use crate::cuda;
use crate::cuda::verify::Verification;
use crate::error::{Refused, Result};
use crate::memory::import::Import;
use crate::memory::owner::Owner;
use crate::protocols::dlpack::abi::TensorAbi;
use crate::protocols::dlpack::managed_tensor::{ManagedTensor, release};

impl Import {
    /// The array in a managed tensor, which is used in place.
    ///
    /// # Errors
    ///
    /// The tensor comes back with the reason: as [`ManagedTensor::info`]; where there is a driver,
    /// [`ErrorKind::Device`](crate::error::ErrorKind::Device) for memory that it says is elsewhere,
    /// [`ErrorKind::OutOfBounds`](crate::error::ErrorKind::OutOfBounds) for elements outside the allocation, and
    /// [`ErrorKind::Driver`](crate::error::ErrorKind::Driver) when it cannot answer.
    ///
    /// ```
    /// use interop_core::dlpack::Versioned;
    /// use interop_core::{CudaArray, FromArray, Import};
    ///
    /// #[derive(CudaArray)]
    /// struct Samples { #[cuda_array(data)] values: Vec<f32>, #[cuda_array(shape)] shape: Vec<usize> }
    ///
    /// let tensor = Samples { values: vec![1.0; 6], shape: vec![2, 3] }.into_dlpack::<Versioned>()?;
    /// let import = Import::from_dlpack(tensor)?;
    /// assert_eq!(import.info().shape(), [2, 3]);
    /// assert_eq!(Samples::from_import(import)?.values, [1.0; 6]);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    #[inline(always)]
    pub fn from_dlpack<A: TensorAbi>(tensor: ManagedTensor<A>) -> Result<Self, Refused<ManagedTensor<A>>> {
        Self::from_dlpack_with(tensor, Verification::Full)
    }

    /// As [`from_dlpack`](Self::from_dlpack), but what the tensor says of its memory is believed: the driver is not asked
    /// where the address is and how far it goes. It saves one driver call for memory of CUDA, and one more for each piece of
    /// memory that was mapped in pieces. Memory that a graph allocates while it is captured comes in this way only, because
    /// the driver knows it when the graph has run.
    ///
    /// # Errors
    ///
    /// As [`from_dlpack`](Self::from_dlpack), for what can be seen without the driver.
    ///
    /// # Safety
    ///
    /// The tensor tells the truth about its device and extent. (Elsewhere that is the promise of whoever made the
    /// [`ManagedTensor`], and here nothing stands behind it.) Work on it is in primary contexts, as that of the CUDA runtime
    /// and of nearly all libraries is: what the release comes after is not asked for either.
    #[inline]
    pub unsafe fn from_dlpack_unchecked<A: TensorAbi>(
        tensor: ManagedTensor<A>,
    ) -> Result<Self, Refused<ManagedTensor<A>>> {
        Self::from_dlpack_with(tensor, Verification::Skipped)
    }

    #[inline(always)]
    fn from_dlpack_with<A: TensorAbi>(
        tensor: ManagedTensor<A>,
        trust: Verification,
    ) -> Result<Self, Refused<ManagedTensor<A>>> {
        // SAFETY: `release::<A>` releases a struct of the form `A`, and may be called on any thread (3 of
        // `ManagedTensor::from_raw`).
        match unsafe { Self::from_dlpack_fast(tensor, release::<A>, trust, None) } {
            Ok(import) => Ok(import),
            Err(tensor) => {
                let mut import = Self::EMPTY;
                // SAFETY: as above.
                unsafe { import.receive(tensor, release::<A>, trust) }?;
                Ok(import)
            }
        }
    }

    /// The fast path: a tensor as nearly all are, about whose memory the driver need not be asked. `axes` is their number,
    /// where it is known. Any other tensor comes back.
    ///
    /// # Safety
    ///
    /// `release` releases a struct of the form `A`, on any thread.
    #[inline(always)]
    pub(crate) unsafe fn from_dlpack_fast<A: TensorAbi>(
        tensor: ManagedTensor<A>,
        release: unsafe fn(NonNull<()>),
        trust: Verification,
        axes: Option<usize>,
    ) -> Result<Self, ManagedTensor<A>> {
        let asked = trust == Verification::Full && cuda::is_opened();
        match tensor.info_fast(axes, |address| !asked || cuda::is_host_memory(address)) {
            Some(info) => {
                // SAFETY: the struct is ours to release once, on any thread (1 and 3 of `ManagedTensor::from_raw`).
                let owner = unsafe { Owner::from_raw(tensor.into_non_null(), release) };
                Ok(Self::of(info, owner))
            }
            None => Err(tensor),
        }
    }

    /// Takes the place of [`EMPTY`](Self::EMPTY): any tensor, in any memory. If it is refused nothing has arrived.
    ///
    /// # Safety
    ///
    /// As [`from_dlpack_fast`](Self::usual).
    #[inline(never)]
    pub(crate) unsafe fn receive<A: TensorAbi>(
        &mut self,
        tensor: ManagedTensor<A>,
        release: unsafe fn(NonNull<()>),
        trust: Verification,
    ) -> Result<(), Refused<ManagedTensor<A>>> {
        let scope = match tensor.info_into(&mut self.info).and_then(|()| cuda::check(&self.info, trust)) {
            Ok(scope) => scope,
            Err(error) => {
                self.info = ArrayInfo::EMPTY;
                return Err(Refused { value: tensor, error });
            }
        };
        if self.info.device != Device::CPU {
            // A producer that is told no stream orders its work before this one.
            self.info.stream = StreamHandle::LegacyDefault;
        }
        // SAFETY: the struct is ours to release once, on any thread (1 and 3 of `ManagedTensor::from_raw`).
        self.owner = unsafe { Owner::from_raw(tensor.into_non_null(), release) }.after(scope);
        Ok(())
    }
}
