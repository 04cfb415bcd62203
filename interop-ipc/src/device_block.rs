//! Memory of GPUs: how the driver lets other processes use it.

#![expect(unsafe_code, reason = "calls the driver")]

use core::ffi::{c_int, c_void};
use core::ops::Range;
use core::ptr::{with_exposed_provenance_mut, without_provenance_mut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use interop_core::__private::processes::{Driver, IpcHandle, Outcome, attribute_values, driver, run_in};
use interop_core::cuda::{self, Context, PointerAttributes};
use interop_core::{ArrayInfo, Device, DeviceType, Error, ErrorKind, Result};

use crate::protocol::Handle;

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
    pub(crate) range: Range<usize>,
    /// Unique in this process, while anybody has the memory open.
    pub(crate) id: u64,
    pub(crate) context: Context,
    pub(crate) device: Device,
    way: Way,
}

/// How others open memory, by what the driver says of its address.
#[derive(Debug)]
enum Way {
    /// By the handle of the whole allocation.
    Allocation,
    /// By a descriptor of the pool, as the driver numbers it, and the bytes of the allocation.
    Pool(usize),
    /// By a descriptor of each piece that its library has mapped.
    Pieces(Vec<Range<usize>>),
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
            let allowed = "memory of a GPU, or of a `SharedVec`; or a copy: `copy_parcel`, in Python `share(array, copy=True)`";
            return Err(refused(&format!("memory of {device}"), allowed));
        }
        let known = cuda::pointer_attributes(address)?.ok_or_else(|| {
            let found = format!("{address:#x}, which the driver does not know");
            Error::new(ErrorKind::Device, "memory", found, format_args!("memory of {device}"))
        })?;
        let [id, is_legacy, pool, types] = attribute_values(driver()?, address, ASKED)?;
        let context = known.context.map_or_else(|| Context::primary(known.ordinal), Ok)?;
        let has_descriptor = types & DESCRIPTOR as usize != 0;
        let (range, id, way) = match (is_legacy != 0, has_descriptor, pool != 0) {
            (true, _, _) => (known.range, id, Way::Allocation),
            // As long as an array in the memory is open, nothing else is at its address. Only pieces may be several, from a multiple
            // of 2 MiB on.
            (_, true, true) => (known.range.clone(), known.range.start, Way::Pool(pool)),
            (_, true, false) => {
                let pieces = pieces_of(&info.byte_range())?;
                let range = pieces[0].start..pieces[pieces.len() - 1].end;
                (range.clone(), range.start + pieces.len(), Way::Pieces(pieces))
            }
            (_, false, is_of_pool) => return Err(refusal(&known, is_of_pool)),
        };
        Ok(Self { range, id: id as u64, context, device, way })
    }

    /// Returns how another process opens the memory, with the descriptors for it. They keep the memory, so they are closed as soon as
    /// they are sent.
    pub(crate) fn handle(&self) -> Result<(Handle, Vec<OwnedFd>)> {
        let mut handle = IpcHandle([0; 64]);
        let start = self.range.start as u64;
        match &self.way {
            Way::Allocation => {
                // SAFETY: `handle` is valid for a write. Any address may be given.
                run_in(self.context, |driver| unsafe { driver.ipc_handle(&raw mut handle, start) })?;
                Ok((Handle::Allocation(handle.0.to_vec()), Vec::new()))
            }
            Way::Pool(pool) => {
                // First, because only a pool that was exported has bytes for others.
                // SAFETY: the pool has the memory, and `out` is valid for a write.
                let export = |driver: &Driver, out| unsafe { driver.pool_export(out, *pool, DESCRIPTOR, 0) };
                let file = self.descriptor(export)?;
                // SAFETY: `handle` is valid for a write. Any address may be given.
                run_in(self.context, |driver| unsafe { driver.pool_export_pointer(&raw mut handle, start) })?;
                Ok((Handle::Pool(*pool as u64, handle.0.to_vec()), vec![file]))
            }
            Way::Pieces(pieces) => {
                let files = pieces.iter().map(|piece| self.descriptor_of_piece(piece.start));
                let sizes = pieces.iter().map(|piece| piece.len() as u64);
                Ok((Handle::Pieces(sizes.collect()), files.collect::<Result<_>>()?))
            }
        }
    }

    fn descriptor_of_piece(&self, address: usize) -> Result<OwnedFd> {
        let place = with_exposed_provenance_mut(address);
        self.descriptor(|driver, out| {
            let mut handle = 0;
            // SAFETY: `handle` is valid for a write. Any address may be given.
            unsafe { driver.mapped_retain(&raw mut handle, place) }?;
            // SAFETY: the handle is live, and `out` valid for a write.
            let made = unsafe { driver.mapped_export(out, handle, DESCRIPTOR, 0) };
            // SAFETY: the handle was retained here.
            unsafe { driver.mapped_release(handle) }?;
            made
        })
    }

    /// Returns the descriptor that a function of the driver writes.
    fn descriptor(&self, export: impl FnOnce(&Driver, *mut c_int) -> Outcome) -> Result<OwnedFd> {
        let mut descriptor = -1;
        run_in(self.context, |driver| export(driver, &raw mut descriptor))?;
        // SAFETY: the driver has made the descriptor for this process, which nothing else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
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
            "memory of a pool without a type of handle (`cudaMallocAsync`: `MemoryKind::Pool`, CuPy's `MemoryAsyncPool`, \
             `cudarc`, PyTorch with `backend:cudaMallocAsync`, JAX with `cuda_async`), or of another process's pool",
            "memory of `cudaMalloc` (`MemoryKind::Device`, CuPy's default pool, PyTorch without `backend`), of a pool with \
             a type of handle (cuda.core's `ipc_enabled=True`); or a copy: `copy_parcel`, in Python `share(array, copy=True)`",
        );
    }
    if known.context.is_none() {
        return refused(
            "memory that its library has mapped without a type of handle (`cuMemMap`)",
            "memory of `cuMemCreate` with `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`, or of `cudaMalloc`; or a copy: \
             `copy_parcel`, in Python `share(array, copy=True)`",
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
    pub(crate) address: usize,
    pub(crate) bytes: usize,
    pub(crate) context: Context,
    mapping: Mapping,
}

/// How memory of another process was opened.
#[derive(Debug)]
enum Mapping {
    /// The driver counts how often it is open.
    Allocation,
    Pool(#[expect(dead_code, reason = "it is kept")] Arc<ImportedPool>),
    /// Mapped at addresses that were reserved for it.
    Pieces,
}

/// A pool of another process. It is kept as long as memory of it is open.
#[derive(Debug)]
pub(crate) struct ImportedPool {
    pool: usize,
    context: Context,
}

impl ImportedPool {
    pub(crate) fn new(file: &OwnedFd, device: Device) -> Result<Arc<Self>> {
        let (context, mut pool) = (Context::primary(device.device_id)?, 0);
        // SAFETY: `pool` is valid for a write. The driver checks the descriptor.
        run_in(context, |driver| unsafe {
            driver.pool_import(&raw mut pool, number_of(file), DESCRIPTOR, 0)
        })?;
        Ok(Arc::new(Self { pool, context }))
    }
}

impl Drop for ImportedPool {
    fn drop(&mut self) {
        // SAFETY: the pool was imported here, and all of its memory was freed.
        let gone = run_in(self.context, |driver| unsafe { driver.pool_destroy(self.pool) });
        // It fails if the context is gone, and in a forked child.
        drop(gone);
    }
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
        Self::new(address, bytes, context, Mapping::Allocation).checked(device)
    }

    /// Opens memory of a pool on a device, and checks that it has so many bytes. It must not be open already: the driver counts no
    /// openings, and the first end would be that of all.
    pub(crate) fn open_of_pool(
        pool: Arc<ImportedPool>,
        handle: IpcHandle,
        device: Device,
        bytes: u64,
    ) -> Result<Self> {
        let (context, mut address) = (pool.context, 0);
        // SAFETY: the pool is live, `address` valid for a write, and `handle` for a read. The driver checks the bytes.
        run_in(context, |driver| unsafe {
            driver.pool_import_pointer(&raw mut address, pool.pool, &raw const handle)
        })?;
        Self::new(address, bytes, context, Mapping::Pool(pool)).checked(device)
    }

    fn new(address: u64, bytes: u64, context: Context, mapping: Mapping) -> Self {
        let (address, bytes) = (usize::try_from(address), usize::try_from(bytes));
        Self { address: address.unwrap_or_default(), bytes: bytes.unwrap_or(usize::MAX), context, mapping }
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
        let opened = Self::new(first, bytes, context, Mapping::Pieces);
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
        let known = cuda::pointer_attributes(self.address)?;
        let end = self.address.checked_add(self.bytes);
        let is_it = |known: &PointerAttributes| {
            known.device == device && known.range.contains(&self.address) && end <= Some(known.range.end)
        };
        if !known.as_ref().is_some_and(is_it) {
            let found = known.map_or("no memory".to_owned(), |known| {
                format!("{} bytes of {}", known.range.len(), known.device)
            });
            let allowed = format!("the {} bytes of {device} that the message tells", self.bytes);
            return Err(Error::new(ErrorKind::OutOfBounds, "parcel.block", found, allowed));
        }
        Ok(self)
    }

    pub(crate) fn is_of_pool(&self) -> bool {
        matches!(self.mapping, Mapping::Pool(_))
    }
}

/// `CUmemAccessDesc`: a device, and whether it may read, or write as well.
#[repr(C)]
struct Access {
    location: [i32; 2],
    flags: i32,
}

/// A descriptor, as the driver takes it.
fn number_of(file: &OwnedFd) -> *mut c_void {
    without_provenance_mut(usize::try_from(file.as_raw_fd()).unwrap_or_default())
}

/// Maps one piece of memory at reserved addresses. The mapping keeps the memory.
fn map_piece(context: Context, descriptor: &OwnedFd, address: u64, bytes: u64) -> Result<()> {
    let (number, bytes) = (number_of(descriptor), usize::try_from(bytes).unwrap_or_default());
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
            match self.mapping {
                // SAFETY: the allocation was opened once for this value, and no work uses it any more.
                Mapping::Allocation => unsafe { driver.ipc_close(address) },
                // SAFETY: as above. It waits for no work.
                Mapping::Pool(_) => unsafe { driver.memory_free(address) },
                Mapping::Pieces => {
                    // It fails if nothing was mapped yet.
                    // SAFETY: the addresses were reserved for this value, and no work uses them any more.
                    let _ = unsafe { driver.memory_unmap(address, bytes) };
                    // SAFETY: as above.
                    unsafe { driver.address_free(address, bytes) }
                }
            }
        });
        // It fails if the context is gone, and the opening with it, and in a forked child.
        drop(closed);
    }
}
