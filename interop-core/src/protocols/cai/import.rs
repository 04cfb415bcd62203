//! Imports from the CUDA Array Interface.
#![expect(unsafe_code, reason = "creates imports of memory that the caller vouches for")]

use crate::array::device::Device;
use crate::array::stream::StreamHandle;
use crate::cuda;
use crate::error::Result;
use crate::memory::import::{Import, Protocol};
use crate::memory::owner::Owner;
use crate::protocols::cai::CudaArrayInterface;

impl Import {
    /// Imports the array of an interface dict, in memory of `device`.
    ///
    /// The interface contains neither a device nor an owner, so the caller provides both. Pending work stays on the
    /// stream [`ArrayInfo::stream`](crate::ArrayInfo::stream). Otherwise as [`from_parts`](Self::from_parts).
    ///
    /// # Errors
    ///
    /// As [`CudaArrayInterface::info`]; [`ErrorKind::Device`](crate::error::ErrorKind::Device) for memory that CUDA
    /// cannot access.
    ///
    /// # Safety
    ///
    /// As [`from_parts`](Self::from_parts), for the address in the interface.
    pub unsafe fn from_cai_on_device(
        interface: &CudaArrayInterface,
        device: Device,
        owner: impl Send + 'static,
    ) -> Result<Self> {
        // SAFETY: forwarded to the caller.
        let mut import = unsafe { Self::from_parts(interface.info_on_device(device)?, Owner::new(owner)) };
        import.protocol = Some(Protocol::CudaArrayInterface);
        Ok(import)
    }

    /// Imports the array of an interface dict for use on the stream `consumer`.
    ///
    /// The driver determines the device and the size of the allocation. `consumer` is made to wait for the stream of
    /// the interface. An interface of a version before 3 contains no stream, see
    /// [`MissingStreamPolicy`](crate::cuda::MissingStreamPolicy).
    ///
    /// # Errors
    ///
    /// - As [`CudaArrayInterface::info`] and [`cuda::stream_wait`](crate::cuda::stream_wait).
    /// - [`ErrorKind::Driver`](crate::error::ErrorKind::Driver) without a driver.
    /// - [`ErrorKind::Device`](crate::error::ErrorKind::Device) for an address that does not belong to CUDA.
    /// - [`ErrorKind::OutOfBounds`](crate::error::ErrorKind::OutOfBounds) for elements outside the allocation.
    ///
    /// # Safety
    ///
    /// As [`from_parts`](Self::from_parts), for the address in the interface.
    pub unsafe fn from_cai_for_stream(
        interface: &CudaArrayInterface,
        consumer: StreamHandle,
        owner: impl Send + 'static,
    ) -> Result<Self> {
        let mut info = interface.info()?;
        let stated = interface.version >= 3 || interface.stream != StreamHandle::NothingPending;
        let (scope, captured) = cuda::locate_and_wait(&mut info, stated, consumer)?;
        let mut import = Self::new(info, Owner::new(owner).after(scope));
        import.protocol = Some(Protocol::CudaArrayInterface);
        let own = import.context();
        import.put_on_ordered_stream(consumer, captured, own);
        Ok(import)
    }
}
