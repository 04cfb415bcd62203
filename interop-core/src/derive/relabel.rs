//! The same memory under another device type, for libraries that do not know its own.
#![expect(unsafe_code, reason = "passes on the promises of the array inside")]

use core::mem::ManuallyDrop;

use crate::array::device::{Device, DeviceType};
use crate::array::info::ArrayInfo;
use crate::array::stream::StreamHandle;
use crate::cuda;
use crate::cuda::release::scope::ReleaseScope;
use crate::derive::cuda_array::CudaArray;
use crate::error::{Error, ErrorKind, Refused, Result, text};

/// An array whose memory is exported under another device type: see [`CudaArray::relabel_as_device`] and
/// [`CudaArray::relabel_as_host`].
///
/// It is an array itself, with everything that arrays can do.
#[derive(Clone, Debug)]
pub struct Relabeled<A> {
    array: InScope<A>,
    device: Device,
}

impl<A> Relabeled<A> {
    /// The array under its own device type.
    #[must_use]
    pub fn into_inner(self) -> A {
        self.array.into_inner()
    }
}

/// An array that is dropped in the context of its memory. Of memory that is called the host's nobody else can tell where
/// that is.
#[derive(Clone, Debug)]
struct InScope<A> {
    value: ManuallyDrop<A>,
    scope: Option<ReleaseScope>,
}

impl<A> InScope<A> {
    fn into_inner(self) -> A {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: taken once: the drop of `self` does not run.
        unsafe { ManuallyDrop::take(&mut this.value) }
    }
}

impl<A> Drop for InScope<A> {
    fn drop(&mut self) {
        let _entered = self.scope.and_then(cuda::enter_scope);
        // SAFETY: dropped once.
        unsafe { ManuallyDrop::drop(&mut self.value) };
    }
}

impl<A: CudaArray> Relabeled<A> {
    /// Managed memory as memory of the device that the driver says it was allocated for; memory of a device as it is.
    pub(crate) fn to_device(array: A) -> Result<Self, Refused<A>> {
        let place = array.info().and_then(|info| {
            let own = info.device();
            match own.device_type {
                DeviceType::CUDA => return Ok((own, None)),
                DeviceType::CUDA_MANAGED => {}
                _ => {
                    let allowed = "CUDA (2) or CUDAManaged (13): all other memory is the host's";
                    return Err(Error::new(ErrorKind::Device, "device", own, allowed));
                }
            }
            match cuda::pointer_attributes(info.address())? {
                Some(known) => Ok((Device::cuda(known.ordinal()), None)),
                // Without elements there is no memory, so any device will do.
                None if info.numel() == 0 => Ok((Device::cuda(0), None)),
                None => {
                    let found = text!("{:#x}, which the driver does not know", info.address());
                    Err(Error::new(ErrorKind::Device, "data", found, "managed memory"))
                }
            }
        });
        Self::under(array, place)
    }

    /// Pinned or managed memory as host memory.
    pub(crate) fn to_host(array: A) -> Result<Self, Refused<A>> {
        let place = array.info().and_then(|info| {
            let own = info.device();
            own.check_for_host()?;
            Ok((Device::CPU, if own == Device::CPU { None } else { cuda::release_scope_of(&info) }))
        });
        Self::under(array, place)
    }

    fn under(array: A, place: Result<(Device, Option<ReleaseScope>)>) -> Result<Self, Refused<A>> {
        match place {
            Ok((device, scope)) => {
                Ok(Self { array: InScope { value: ManuallyDrop::new(array), scope }, device })
            }
            Err(error) => Err(Refused { value: array, error }),
        }
    }
}

// SAFETY: 1 to 3: as the array inside. The host reaches what is called host memory, and a device what is called its own.
unsafe impl<A: CudaArray> CudaArray for Relabeled<A> {
    /// The facts of the array inside, with the other device. Under host memory pending work is waited for, because a
    /// consumer of host memory reads it at once.
    ///
    /// # Errors
    ///
    /// Those of the array inside, and as [`cuda::stream_synchronize`].
    fn info(&self) -> Result<ArrayInfo> {
        let info = self.array.value.info()?;
        if self.device != Device::CPU || info.device() == Device::CPU {
            return Ok(ArrayInfo { device: self.device, ..info });
        }
        cuda::synchronize_if_available(info.stream(), info.device())?;
        Ok(ArrayInfo { device: self.device, stream: StreamHandle::NothingPending, ..info })
    }
}
