//! An `Import` from a CUDA Array Interface.
#![expect(unsafe_code, reason = "an import is a promise about memory")]

use crate::array::device::Device;
use crate::array::stream::StreamHandle;
use crate::cuda;
use crate::error::Result;
use crate::memory::import::Import;
use crate::memory::owner::Owner;
use crate::protocols::cai::CudaArrayInterface;

impl Import {
    /// The array in an interface dict, on the device where its address is.
    ///
    /// The interface names no device and owns nothing: the caller knows the one and provides the other. Work that is
    /// pending stays pending on [`ArrayInfo::stream`](crate::ArrayInfo::stream). Otherwise as [`from_parts`](Self::from_parts).
    ///
    /// # Errors
    ///
    /// As [`CudaArrayInterface::info`]; [`ErrorKind::Device`](crate::error::ErrorKind::Device) for memory that CUDA cannot
    /// reach.
    ///
    /// # Safety
    ///
    /// As [`from_parts`](Self::from_parts), for the address in the interface.
    pub unsafe fn from_cai_on_device(
        interface: &CudaArrayInterface,
        device: Device,
        owner: impl Send + 'static,
    ) -> Result<Self> {
        // SAFETY: as the caller promises.
        Ok(unsafe { Self::from_parts(interface.info_on_device(device)?, Owner::new(owner)) })
    }

    /// The array in an interface dict, for work on `consumer`.
    ///
    /// The driver says on which device the address is and how far the allocation goes. Work that is pending on the stream
    /// of the interface is ordered before later work on `consumer`; of an interface of an earlier version than 3, which
    /// names none, see [`MissingStreamPolicy`](crate::cuda::MissingStreamPolicy).
    ///
    /// # Errors
    ///
    /// As [`CudaArrayInterface::info`]; [`ErrorKind::Driver`](crate::error::ErrorKind::Driver) without a driver,
    /// [`ErrorKind::Device`](crate::error::ErrorKind::Device) for an address that is not CUDA's,
    /// [`ErrorKind::OutOfBounds`](crate::error::ErrorKind::OutOfBounds) for elements outside the allocation, and as
    /// [`cuda::stream_wait`](crate::cuda::stream_wait).
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
        let scope = cuda::locate_and_wait(&mut info, stated, consumer)?;
        let mut import = Self::of(info, Owner::new(owner).after(scope));
        import.put_on_stream(consumer);
        Ok(import)
    }
}
