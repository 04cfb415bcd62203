//! Memory of GPUs: how the driver lets other processes use it.

#![expect(unsafe_code, reason = "calls the driver")]

use core::ops::Range;
use core::ptr::{with_exposed_provenance_mut, without_provenance_mut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use interop_core::__private::processes::{IpcHandle, attribute_values, driver, run_in};
use interop_core::cuda::{self, Context, PointerAttributes};
use interop_core::{ArrayInfo, Device, DeviceType, Error, ErrorKind, Result};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const DESCRIPTOR: u32 = 1;
/// The greatest number of pieces, each of which has a descriptor.
pub(crate) const MAX_PIECES: usize = 250;

/// What tells a GPU from all others, in every process.
pub(crate) type Uuid = [u8; 16];

/// The values of `CU_POINTER_ATTRIBUTE_BUFFER_ID`, `..._IS_LEGACY_CUDA_IPC_CAPABLE`, `..._MEMPOOL_HANDLE` and
/// `..._ALLOWED_HANDLE_TYPES`.
const ASKED: [i32; 4] = [7, 10, 17, 14];

/// Memory of this process that others can open.
#[derive(Debug)]
pub(crate) struct DeviceBlock {
    range: Range<usize>,
    /// Unique in this process, while anybody has the memory open.
    pub(crate) id: u64,
    context: Context,
    device: Device,
    /// The pieces of memory that its library maps itself; none for an allocation with a handle.
    pieces: Vec<Range<usize>>,
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
        let [id, is_legacy, pool, types] = attribute_values(driver()?, address, ASKED)?;
        let context = known.context.map_or_else(|| Context::primary(known.ordinal), Ok)?;
        if is_legacy != 0 {
            return Ok(Self { range: known.range, id: id as u64, context, device, pieces: Vec::new() });
        }
        if pool != 0 || types & DESCRIPTOR as usize == 0 {
            return Err(refusal(&known, pool != 0));
        }
        let pieces = pieces_of(&info.byte_range())?;
        let range = pieces[0].start..pieces[pieces.len() - 1].end;
        // As long as an array in these pieces is open, they are mapped here and nowhere else. Their start is a multiple of 2 MiB.
        let id = (range.start + pieces.len()) as u64;
        Ok(Self { range, id, context, device, pieces })
    }

    /// Whether descriptors of pieces are sent, and no handle.
    pub(crate) fn is_mapped(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// The bytes of each piece.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = u64> {
        self.pieces.iter().map(|piece| piece.len() as u64)
    }

    /// Returns a descriptor of each piece. They keep the memory, so they are closed as soon as they are sent.
    pub(crate) fn descriptors(&self) -> Result<Vec<OwnedFd>> {
        self.pieces.iter().map(|piece| self.descriptor(piece.start)).collect()
    }

    fn descriptor(&self, address: usize) -> Result<OwnedFd> {
        let place = with_exposed_provenance_mut(address);
        let mut descriptor = -1;
        run_in(self.context, |driver| {
            let mut handle = 0;
            // SAFETY: `handle` is valid for a write. Any address may be given.
            unsafe { driver.mapped_retain(&raw mut handle, place) }?;
            // SAFETY: the handle is live, and `descriptor` valid for a write.
            let made = unsafe { driver.mapped_export(&raw mut descriptor, handle, DESCRIPTOR, 0) };
            // SAFETY: the handle was retained here.
            unsafe { driver.mapped_release(handle) }?;
            made
        })?;
        // SAFETY: the driver has made the descriptor for this process, which nothing else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
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

    /// Returns what another process needs to open an allocation that has a handle. It is the same for every address in it.
    pub(crate) fn handle(&self) -> Result<IpcHandle> {
        let mut handle = IpcHandle([0; 64]);
        // SAFETY: `handle` is valid for a write. Any address may be given.
        run_in(self.context, |driver| unsafe {
            driver.ipc_handle(&raw mut handle, self.range.start as u64)
        })?;
        Ok(handle)
    }
}

/// Returns the mapped pieces that contain a range.
fn pieces_of(range: &Range<usize>) -> Result<Vec<Range<usize>>> {
    /// The values of `CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR` and `..._MAPPING_SIZE`.
    const MAPPING: [i32; 2] = [19, 18];
    let (mut pieces, mut at): (Vec<Range<usize>>, usize) = (Vec::new(), range.start);
    while at < range.end {
        let [base, bytes] = attribute_values(driver()?, at, MAPPING)?;
        let piece = base..base.saturating_add(bytes);
        let follows = pieces.last().is_none_or(|last| last.end == piece.start);
        if !piece.contains(&at) || !follows || pieces.len() == MAX_PIECES {
            let found = format!("memory of {} bytes in more than {} pieces", range.len(), pieces.len());
            return Err(refused(&found, &format!("at most {MAX_PIECES} pieces, one behind the other")));
        }
        at = piece.end;
        pieces.push(piece);
    }
    Ok(pieces)
}

fn refused(found: &str, allowed: &str) -> Error {
    Error::new(ErrorKind::Unsupported, "memory", found, allowed)
}

/// The error for memory of a GPU that has no handle.
fn refusal(known: &PointerAttributes, is_of_pool: bool) -> Error {
    if is_of_pool {
        return refused(
            "memory of a pool (`cudaMallocAsync`: `MemoryKind::Pool`, CuPy's `MemoryAsyncPool`, `cudarc`, \
             PyTorch with `backend:cudaMallocAsync`, JAX with `cuda_async`)",
            "memory of `cudaMalloc`: `MemoryKind::Device`, CuPy's default pool, PyTorch without `backend`",
        );
    }
    if known.context.is_none() {
        return refused(
            "memory that its library has mapped without a type of handle (`cuMemMap`)",
            "memory of `cuMemCreate` with `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`, or of `cudaMalloc`",
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

/// Memory of another process that is open in this one.
#[derive(Debug)]
pub(crate) struct OpenedBlock {
    address: usize,
    bytes: usize,
    context: Context,
    /// Whether pieces are mapped here. Else it is an allocation, and the driver counts how often it is open.
    is_mapped: bool,
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
        let (address, bytes) = (address.unwrap_or_default(), bytes.unwrap_or(usize::MAX));
        Self { address, bytes, context, is_mapped: false }.checked(device)
    }

    /// Maps pieces of memory on a device, one behind the other, which have so many bytes together.
    pub(crate) fn map(
        files: &[OwnedFd],
        sizes: &[u64],
        device: Device,
        bytes: u64,
        is_writable: bool,
    ) -> Result<Self> {
        let whole = sizes.iter().try_fold(0_u64, |sum, bytes| sum.checked_add(*bytes));
        let Some(total) = whole.filter(|whole| *whole == bytes).and_then(|bytes| usize::try_from(bytes).ok())
        else {
            let found = format!("{} pieces of other sizes", sizes.len());
            let allowed = format!("the {bytes} bytes of the message");
            return Err(Error::new(ErrorKind::OutOfBounds, "parcel.block", found, allowed));
        };
        let context = Context::primary(device.device_id)?;
        let mut first = 0;
        // SAFETY: `first` is valid for a write.
        run_in(context, |driver| unsafe { driver.address_reserve(&raw mut first, total, 0, 0, 0) })?;
        let address = usize::try_from(first).unwrap_or_default();
        let opened = Self { address, bytes: total, context, is_mapped: true };
        let mut at = first;
        for (descriptor, bytes) in files.iter().zip(sizes) {
            map_piece(context, descriptor, at, *bytes)?;
            at += bytes;
        }
        let access = Access { location: [1, device.device_id], flags: if is_writable { 3 } else { 1 } };
        // SAFETY: the addresses are mapped, and `access` lives during the call.
        run_in(context, |driver| unsafe {
            driver.memory_set_access(first, total, (&raw const access).cast(), 1)
        })?;
        opened.checked(device)
    }

    fn checked(self, device: Device) -> Result<Self> {
        let opened = self;
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

/// `CUmemAccessDesc`: a device, and whether it may read, or write as well.
#[repr(C)]
struct Access {
    location: [i32; 2],
    flags: i32,
}

/// Maps one piece of memory at reserved addresses. The mapping keeps the memory.
fn map_piece(context: Context, descriptor: &OwnedFd, address: u64, bytes: u64) -> Result<()> {
    let number = without_provenance_mut(usize::try_from(descriptor.as_raw_fd()).unwrap_or_default());
    let bytes = usize::try_from(bytes).unwrap_or_default();
    run_in(context, |driver| {
        let mut handle = 0;
        // SAFETY: `handle` is valid for a write. The driver checks the descriptor.
        unsafe { driver.mapped_import(&raw mut handle, number, DESCRIPTOR) }?;
        // SAFETY: the handle is live, and the addresses are reserved.
        let mapped = unsafe { driver.memory_map(address, bytes, 0, handle, 0) };
        // SAFETY: the handle was imported here.
        unsafe { driver.mapped_release(handle) }?;
        mapped
    })
}

impl Drop for OpenedBlock {
    fn drop(&mut self) {
        let (address, bytes) = (self.address as u64, self.bytes);
        let closed = run_in(self.context, |driver| {
            if !self.is_mapped {
                // SAFETY: the allocation was opened once for this value, and no work uses it any more.
                return unsafe { driver.ipc_close(address) };
            }
            // It fails if nothing was mapped yet.
            // SAFETY: the addresses were reserved for this value, and no work uses them any more.
            let _ = unsafe { driver.memory_unmap(address, bytes) };
            // SAFETY: as above.
            unsafe { driver.address_free(address, bytes) }
        });
        // It fails if the context is gone, and the opening with it, and in a forked child.
        drop(closed);
    }
}
