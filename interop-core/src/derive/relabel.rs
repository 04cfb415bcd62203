//! Exports of memory under another device type, for libraries that do not support its own.
#![expect(unsafe_code, reason = "implements `CudaArray` for a wrapper")]

use crate::array::device::{Device, DeviceType};
use crate::array::stream_handle::StreamHandle;
use crate::cuda;
use crate::derive::cuda_array::CudaArray;
use crate::driver::reach::{InReach, Reach, Sole};
use crate::error::{Error, ErrorKind, Refused, Result, text};
use crate::order::array_info::ArrayInfo;
use crate::order::claim::Claim;
use crate::order::memory_check::reach_of;
use crate::order::placement::Placement;
use crate::order::wait::Waiter;

/// An array whose memory is exported under another device type, for libraries that do not accept its own. It is a
/// [`CudaArray`] itself, and nothing is moved.
///
/// ```no_run
/// use interop_core::cuda::{CudaBuffer, MemoryKind};
/// use interop_core::storage::Relabeled;
/// use interop_core::{CudaArray, DType};
///
/// #[derive(Debug, CudaArray)]
/// #[cuda_array(shape = [len], export)]
/// struct Samples { #[cuda_array(data)] values: CudaBuffer, len: usize }
///
/// let values = CudaBuffer::zeroed(MemoryKind::Managed, 0, DType::F32, 8)?;
/// let tensor = Relabeled::as_device(Samples { values, len: 8 })?.into_dlpack()?;
/// # Ok::<(), interop_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Relabeled<A> {
    array: InReach<Sole<A>>,
    device: Device,
}

impl<A> Relabeled<A> {
    /// Returns the array with its own device type.
    #[must_use]
    pub fn into_inner(mut self) -> A {
        self.array.take()
    }
}

/// Under which device type an array is exported.
struct Label {
    device: Device,
    /// Once the memory is labelled as CPU memory, its context cannot be looked up any more.
    reach: Option<Reach>,
}

// SAFETY: 1 to 6: as for the array, which is only moved as bytes.
unsafe impl<A: CudaArray> CudaArray for InReach<Sole<A>> {
    fn info(&self) -> Result<ArrayInfo> {
        self.handle().0.info()
    }

    fn note_read(&self, stream: StreamHandle) -> bool {
        self.handle().0.note_read(stream)
    }

    fn note_write(&mut self, stream: StreamHandle) -> bool {
        self.handle_mut().0.note_write(stream)
    }

    fn __is_only_handle(&mut self) -> bool {
        self.handle_mut().0.__is_only_handle()
    }
}

impl<A: CudaArray> Relabeled<A> {
    /// Exports managed memory as memory of the CUDA device for which it was allocated. Kernels use it in place. Use this for
    /// libraries that do not accept `CUDAManaged` (13), such as `PyTorch`. Device memory is unchanged.
    ///
    /// # Errors
    ///
    /// The struct is returned with the reason: [`ErrorKind::Device`] for CPU and pinned memory, [`ErrorKind::Driver`] without
    /// a driver; otherwise as [`CudaArray::info`].
    pub fn as_device(array: A) -> Result<Self, Refused<A>> {
        let label = array.info().and_then(|info| {
            let device = info.device();
            match device.device_type {
                DeviceType::CUDA => return Ok(Label { device, reach: None }),
                DeviceType::CUDA_MANAGED => {}
                _ => {
                    let allowed = "CUDA (2) or CUDAManaged (13)";
                    return Err(Error::new(ErrorKind::Device, "device", device, allowed));
                }
            }
            let ordinal = match cuda::pointer_attributes(info.unwatched_address)? {
                Some(attributes) => attributes.ordinal,
                // Without elements any device is correct.
                None if info.numel() == 0 => 0,
                None => {
                    let found = text!("{:#x}, which the driver does not know", info.unwatched_address);
                    return Err(Error::new(ErrorKind::Device, "data", found, "managed memory"));
                }
            };
            Ok(Label { device: Device::cuda(ordinal), reach: None })
        });
        Self::new(array, label)
    }

    /// Exports pinned or managed memory as CPU memory, for libraries that do not accept `CUDAHost` (3) or `CUDAManaged` (13).
    /// Each view and export then waits for pending work. CPU memory is unchanged.
    ///
    /// # Errors
    ///
    /// The struct is returned with the reason: [`ErrorKind::Device`] for memory that the host cannot access; otherwise as
    /// [`CudaArray::info`].
    pub fn as_host(array: A) -> Result<Self, Refused<A>> {
        let label = array.info().and_then(|info| {
            let device = info.device();
            device.check_for_host()?;
            let reach = if device == Device::CPU { None } else { reach_of(&info) };
            Ok(Label { device: Device::CPU, reach })
        });
        Self::new(array, label)
    }

    fn new(array: A, label: Result<Label>) -> Result<Self, Refused<A>> {
        match label {
            Ok(Label { device, reach }) => Ok(Self { array: InReach::new(Sole(array), reach), device }),
            Err(error) => Err(Refused::new(array, error)),
        }
    }
}

// SAFETY: 1 to 6: as for the inner array, which nothing else has. The host can access what is labelled as CPU memory, and
// the device what is labelled as its own.
unsafe impl<A: CudaArray> CudaArray for Relabeled<A> {
    /// The description of the inner array with the other device. If that is the CPU, it first waits for pending work,
    /// because a consumer of CPU memory does not wait.
    ///
    /// # Errors
    ///
    /// Errors of the inner array, and as [`cuda::stream_synchronize`].
    fn info(&self) -> Result<ArrayInfo> {
        let mut info = self.array.info()?;
        if self.device == Device::CPU && info.device() != Device::CPU {
            let claim = Claim::asked(&info, None)?;
            info.work().order_before(Waiter::Host, claim)?;
            info = info.with_work(Placement::Nothing);
        }
        info.description.device = self.device;
        Ok(info)
    }

    fn note_read(&self, stream: StreamHandle) -> bool {
        self.array.note_read(stream)
    }

    fn note_write(&mut self, stream: StreamHandle) -> bool {
        self.array.note_write(stream)
    }

    fn __is_only_handle(&mut self) -> bool {
        self.array.__is_only_handle()
    }
}
