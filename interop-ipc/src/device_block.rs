//! Memory of GPUs: how the driver lets other processes use it.

#![expect(unsafe_code, reason = "calls the driver")]

use core::ops::Range;

use interop_core::__private::processes::{IpcHandle, attribute_values, driver, run_in};
use interop_core::cuda::{self, Context, PointerAttributes};
use interop_core::{ArrayInfo, Device, DeviceType, Error, ErrorKind, Result};

/// What tells a GPU from all others, in every process.
pub(crate) type Uuid = [u8; 16];

/// The values of `CU_POINTER_ATTRIBUTE_BUFFER_ID`, `..._IS_LEGACY_CUDA_IPC_CAPABLE` and `..._MEMPOOL_HANDLE`.
const ASKED: [i32; 3] = [7, 10, 17];

/// An allocation of this process that others can open.
#[derive(Debug)]
pub(crate) struct DeviceBlock {
    range: Range<usize>,
    /// Unique in this process.
    pub(crate) id: u64,
    context: Context,
    device: Device,
}

impl DeviceBlock {
    /// Finds the allocation in which an array with elements lies.
    ///
    /// # Errors
    ///
    /// `Unsupported` for memory that no other process can open, with its allocator and the setting that changes it.
    pub(crate) fn find(info: &ArrayInfo) -> Result<Self> {
        let (address, device) = (info.address(), info.device());
        if device.device_type != DeviceType::CUDA {
            return Err(refused(&format!("memory of {device}"), "memory of a GPU, or of a `SharedVec`"));
        }
        let known = cuda::pointer_attributes(address)?.ok_or_else(|| {
            let found = format!("{address:#x}, which the driver does not know");
            Error::new(ErrorKind::Device, "memory", found, format_args!("memory of {device}"))
        })?;
        let [id, is_legacy, pool] = attribute_values(driver()?, address, ASKED)?;
        if is_legacy == 0 {
            return Err(refusal(&known, pool != 0));
        }
        let context = known.context.map_or_else(|| Context::primary(known.ordinal), Ok)?;
        Ok(Self { range: known.range, id: id as u64, context, device })
    }

    pub(crate) fn context(&self) -> Context {
        self.context
    }

    pub(crate) fn device(&self) -> Device {
        self.device
    }

    pub(crate) fn range(&self) -> &Range<usize> {
        &self.range
    }

    /// Returns what another process needs to open the allocation. It is the same for every address in it.
    pub(crate) fn handle(&self) -> Result<IpcHandle> {
        let mut handle = IpcHandle([0; 64]);
        // SAFETY: `handle` is valid for a write. Any address may be given.
        run_in(self.context, |driver| unsafe {
            driver.ipc_handle(&raw mut handle, self.range.start as u64)
        })?;
        Ok(handle)
    }
}

fn refused(found: &str, allowed: &str) -> Error {
    Error::new(ErrorKind::Unsupported, "memory", found, allowed)
}

/// The error for memory of a GPU that has no handle.
fn refusal(known: &PointerAttributes, is_of_pool: bool) -> Error {
    if is_of_pool {
        return refused(
            "memory of a pool without exportable handles (`cudaMallocAsync`: `MemoryKind::Pool`, CuPy's `MemoryAsyncPool`, `cudarc`, \
             PyTorch with `backend:cudaMallocAsync`, JAX with `cuda_async`)",
            "memory of `cudaMalloc`: `MemoryKind::Device`, CuPy's default pool, PyTorch without `backend`",
        );
    }
    if known.context.is_none() {
        return refused(
            "memory that its library maps itself (`cuMemMap`: PyTorch with `expandable_segments:True`, JAX)",
            "memory of `cudaMalloc`: PyTorch with `expandable_segments:False`",
        );
    }
    refused("memory that another process has shared with this one", "memory that this process has allocated")
}

pub(crate) fn uuid_of(ordinal: i32) -> Result<Uuid> {
    let mut uuid = [0; 16];
    // SAFETY: `uuid` is valid for a write. Any number may be queried.
    unsafe { driver()?.device_uuid(&raw mut uuid, ordinal) }?;
    Ok(uuid)
}

/// Returns the device of a message, as this process numbers it.
///
/// # Errors
///
/// `Device` if this process does not see it.
pub(crate) fn device_of(uuid: &Uuid) -> Result<Device> {
    for ordinal in 0..cuda::device_count() {
        if uuid_of(ordinal)? == *uuid {
            return Ok(Device::cuda(ordinal));
        }
    }
    // Without a driver, that is the error.
    driver()?;
    let name = uuid.iter().fold(String::new(), |name, byte| name + &format!("{byte:02x}"));
    let allowed = "a GPU that this process sees (`CUDA_VISIBLE_DEVICES`)";
    Err(Error::new(ErrorKind::Device, "parcel.device", format_args!("GPU {name}"), allowed))
}

/// An allocation of another process that is open in this one. The driver counts how often.
#[derive(Debug)]
pub(crate) struct OpenedBlock {
    address: usize,
    bytes: usize,
    context: Context,
}

impl OpenedBlock {
    /// Opens an allocation on a device, and checks that it has so many bytes.
    pub(crate) fn open(handle: IpcHandle, device: Device, bytes: u64) -> Result<Self> {
        /// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the only flag.
        const FLAGS: u32 = 1;
        let context = Context::primary(device.device_id)?;
        let mut address = 0;
        // SAFETY: `address` is valid for a write. The driver checks the handle.
        run_in(context, |driver| unsafe { driver.ipc_open(&raw mut address, handle, FLAGS) })?;
        let (address, bytes) = (usize::try_from(address), usize::try_from(bytes));
        let opened =
            Self { address: address.unwrap_or_default(), bytes: bytes.unwrap_or(usize::MAX), context };
        let known = cuda::pointer_attributes(opened.address)?;
        let is_it = |known: &PointerAttributes| {
            let end = opened.address.checked_add(opened.bytes);
            known.device == device && known.range.contains(&opened.address) && end <= Some(known.range.end)
        };
        if !known.as_ref().is_some_and(is_it) {
            let found = known.map_or("no memory".to_owned(), |known| {
                format!("{} bytes of {}", known.range.len(), known.device)
            });
            let allowed =
                format!("the {bytes:?} bytes of {device} that the message tells", bytes = opened.bytes);
            return Err(Error::new(ErrorKind::OutOfBounds, "parcel.block", found, allowed));
        }
        Ok(opened)
    }

    pub(crate) fn context(&self) -> Context {
        self.context
    }

    pub(crate) fn address(&self) -> usize {
        self.address
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for OpenedBlock {
    fn drop(&mut self) {
        // SAFETY: the allocation was opened once for this value, and no work uses it any more.
        let closed = run_in(self.context, |driver| unsafe { driver.ipc_close(self.address as u64) });
        // It fails if the context is gone, and the opening with it, and in a forked child.
        drop(closed);
    }
}
