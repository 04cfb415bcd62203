//! The same memory under another device type, for libraries that do not know its own.
#![expect(unsafe_code, reason = "passes on the promises of the array inside")]

use core::mem::ManuallyDrop;

use crate::array::CudaArray;
use crate::cuda::{self, Fence};
use crate::device::{Device, DeviceType};
use crate::error::{Error, ErrorKind, Refused, Result, text};
use crate::facts::Facts;
use crate::stream::StreamHandle;

/// An array whose memory is exported under another device type: see [`CudaArray::into_device`] and
/// [`CudaArray::into_host`].
///
/// It is an array itself, with everything that arrays can do.
#[derive(Clone, Debug)]
pub struct Recast<A> {
    array: AtHome<A>,
    device: Device,
}

impl<A> Recast<A> {
    /// The array under its own device type.
    #[must_use]
    pub fn into_inner(self) -> A {
        self.array.into_inner()
    }
}

/// An array that is dropped in the context of its memory. Of memory that is called the host's nobody else can tell where
/// that is.
#[derive(Clone, Debug)]
struct AtHome<A> {
    value: ManuallyDrop<A>,
    home: Option<Fence>,
}

impl<A> AtHome<A> {
    fn into_inner(self) -> A {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: taken once: the drop of `self` does not run.
        unsafe { ManuallyDrop::take(&mut this.value) }
    }
}

impl<A> Drop for AtHome<A> {
    fn drop(&mut self) {
        let _home = self.home.and_then(cuda::at_home);
        // SAFETY: dropped once.
        unsafe { ManuallyDrop::drop(&mut self.value) };
    }
}

impl<A: CudaArray> Recast<A> {
    /// Managed memory as memory of the device that the driver says it was allocated for; memory of a device as it is.
    pub(crate) fn to_device(array: A) -> Result<Self, Refused<A>> {
        let place = array.facts().and_then(|facts| {
            let own = facts.device();
            match own.device_type {
                DeviceType::CUDA => return Ok((own, None)),
                DeviceType::CUDA_MANAGED => {}
                _ => {
                    let allowed = "CUDA (2) or CUDAManaged (13): all other memory is the host's";
                    return Err(Error::new(ErrorKind::Device, "device", own, allowed));
                }
            }
            match cuda::pointer_facts(facts.address())? {
                Some(known) => Ok((Device::cuda(known.ordinal()), None)),
                // Without elements there is no memory, so any device will do.
                None if facts.numel() == 0 => Ok((Device::cuda(0), None)),
                None => {
                    let found = text!("{:#x}, which the driver does not know", facts.address());
                    Err(Error::new(ErrorKind::Device, "data", found, "managed memory"))
                }
            }
        });
        Self::under(array, place)
    }

    /// Pinned or managed memory as host memory.
    pub(crate) fn to_host(array: A) -> Result<Self, Refused<A>> {
        let place = array.facts().and_then(|facts| {
            let own = facts.device();
            own.check_for_host()?;
            Ok((Device::CPU, if own == Device::CPU { None } else { cuda::fence_of(&facts) }))
        });
        Self::under(array, place)
    }

    fn under(array: A, place: Result<(Device, Option<Fence>)>) -> Result<Self, Refused<A>> {
        match place {
            Ok((device, home)) => {
                Ok(Self { array: AtHome { value: ManuallyDrop::new(array), home }, device })
            }
            Err(error) => Err(Refused { value: array, error }),
        }
    }
}

// SAFETY: 1 to 3: as the array inside. The host reaches what is called host memory, and a device what is called its own.
unsafe impl<A: CudaArray> CudaArray for Recast<A> {
    /// The facts of the array inside, with the other device. Under host memory pending work is waited for, because a
    /// consumer of host memory reads it at once.
    ///
    /// # Errors
    ///
    /// Those of the array inside, and as [`cuda::wait`].
    fn facts(&self) -> Result<Facts> {
        let facts = self.array.value.facts()?;
        if self.device != Device::CPU || facts.device() == Device::CPU {
            return Ok(Facts { device: self.device, ..facts });
        }
        cuda::wait_for_host(facts.stream(), facts.device())?;
        Ok(Facts { device: self.device, stream: StreamHandle::NothingPending, ..facts })
    }
}
