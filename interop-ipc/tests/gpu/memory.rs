//! Arrays of bytes in memory of the GPU, and work that starts late.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use interop_core::protocols::RawDescriptor;
use interop_core::storage::{Mutability, Owner};
use interop_core::{DType, Device, Import, StreamHandle, cuda};
use interop_ipc::{Parcel, share_import};

#[allow(clippy::wildcard_imports, reason = "the functions of the driver")]
use crate::driver::*;

/// Shorter than a row may take.
pub(crate) const LONG: Duration = Duration::from_secs(10);

/// Pinned memory of the host.
pub(crate) struct Pinned {
    place: *mut c_void,
    bytes: usize,
}

impl Pinned {
    pub(crate) fn new(bytes: usize) -> Self {
        /// Portable and mapped.
        const FLAGS: u32 = 3;
        let mut place = null_mut();
        ok(cuMemHostAlloc(&mut place, bytes, FLAGS));
        Self { place, bytes }
    }

    pub(crate) fn address(&self) -> u64 {
        self.place.expose_provenance() as u64
    }

    fn number(&self) -> &AtomicU64 {
        // SAFETY: at least eight bytes, aligned, and an atomic for the host and the device.
        unsafe { &*self.place.cast() }
    }

    /// Whether all bytes have a value. No work writes to the memory.
    pub(crate) fn is_all(&self, value: u8) -> bool {
        self.starts_with(self.bytes, value)
    }

    /// Whether the first bytes have a value. No work writes to the memory.
    pub(crate) fn starts_with(&self, bytes: usize, value: u8) -> bool {
        // SAFETY: `bytes` bytes, which a copy has written.
        let all = unsafe { std::slice::from_raw_parts(self.place.cast::<u8>(), self.bytes) };
        all[..bytes].iter().all(|byte| *byte == value)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        ok(cuMemFreeHost(self.place));
    }
}

/// Memory of several pieces, as a library maps it that grows its blocks.
pub(crate) struct Pieces {
    pub(crate) address: u64,
    bytes: usize,
}

impl Pieces {
    /// The granularity of every GPU.
    pub(crate) const PIECE: usize = 2 << 20;

    /// Maps pieces with a type of handle, or with none.
    pub(crate) fn new(count: usize, handle_type: i32) -> Self {
        let bytes = count * Self::PIECE;
        let address = get(|out| cuMemAddressReserve(out, bytes, 0, 0, 0));
        for index in 0..count {
            // `CUmemAllocationProp`: pinned, the type of handle, a device, its ordinal.
            let memory = get(|out| cuMemCreate(out, Self::PIECE, &[1, handle_type, 1, 0, 0, 0, 0, 0], 0));
            ok(cuMemMap(address + (index * Self::PIECE) as u64, Self::PIECE, 0, memory, 0));
            ok(cuMemRelease(memory));
        }
        // `CUmemAccessDesc`: a device, its ordinal, reads and writes.
        ok(cuMemSetAccess(address, bytes, &[1, 0, 3], 1));
        Self { address, bytes }
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        ok(cuMemUnmap(self.address, self.bytes));
        ok(cuMemAddressFree(self.address, self.bytes));
    }
}

/// Memory of a pool that others can open, freed in the order of a stream.
pub(crate) struct OfPool {
    pub(crate) address: u64,
    pool: u64,
    stream: usize,
}

/// Creates a pool with a type of handle.
pub(crate) fn new_pool() -> u64 {
    // `CUmemPoolProps`: pinned, a descriptor, a device, its ordinal.
    let mut properties = [0; 22];
    properties[..3].fill(1);
    get(|out| cuMemPoolCreate(out, &properties))
}

impl OfPool {
    /// Allocates from a pool of its own.
    pub(crate) fn new(bytes: usize, stream: usize) -> Self {
        let pool = new_pool();
        let address = get(|out| cuMemAllocFromPoolAsync(out, bytes, pool, stream));
        Self { address, pool, stream }
    }

    /// Allocates from the same pool.
    pub(crate) fn another(&self, bytes: usize) -> u64 {
        get(|out| cuMemAllocFromPoolAsync(out, bytes, self.pool, self.stream))
    }
}

impl Drop for OfPool {
    fn drop(&mut self) {
        ok(cuMemFreeAsync(self.address, self.stream));
        ok(cuStreamSynchronize(self.stream));
        ok(cuMemPoolDestroy(self.pool));
    }
}

/// Holds a stream back until the host opens it: work that is queued behind it starts late.
pub(crate) struct Gate {
    number: Pinned,
    last: u64,
}

impl Gate {
    pub(crate) fn new() -> Self {
        let number = Pinned::new(8);
        number.number().store(0, Ordering::Release);
        Self { number, last: 0 }
    }

    pub(crate) fn close(&mut self, stream: usize) {
        self.last += 1;
        ok(cuStreamWaitValue64_v2(stream, self.number.address(), self.last, 0));
    }

    pub(crate) fn open(&self) {
        self.number.number().store(self.last, Ordering::Release);
    }
}

/// Counts the arrays that were not dropped yet.
#[derive(Clone, Default)]
pub(crate) struct Count(Arc<AtomicUsize>);

struct Counted(Count);

impl Count {
    fn add(&self) -> Counted {
        self.0.fetch_add(1, Ordering::SeqCst);
        Counted(self.clone())
    }

    /// Whether all were dropped, after the work of this process.
    pub(crate) fn is_zero(&self) -> bool {
        cuda::finish_releases();
        self.0.load(Ordering::SeqCst) == 0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The handle of a stream of this program.
pub(crate) fn handle(stream: usize) -> StreamHandle {
    // SAFETY: the streams live until the end of the program.
    unsafe { StreamHandle::from_raw(stream) }
}

/// An array of bytes at an address, with pending work on a stream, or on any.
pub(crate) fn array(address: u64, bytes: usize, stream: Option<usize>, count: &Count) -> Import {
    array_on(Device::cuda(0), address, bytes, stream, count)
}

pub(crate) fn array_on(
    device: Device,
    address: u64,
    bytes: usize,
    stream: Option<usize>,
    count: &Count,
) -> Import {
    let stream = stream.map(handle);
    let shape = [bytes as i64];
    let address = usize::try_from(address).expect("64 bits");
    let descriptor = RawDescriptor {
        dtype: DType::U8,
        stream,
        mutability: Mutability::Writable,
        ..RawDescriptor::new(address, device, &shape)
    };
    let info = descriptor.validate().expect("an array");
    // SAFETY: 1: the program frees memory after its last use. 2: it is in no `Box`. 3: work is on the stream, or in the context.
    unsafe { Import::from_parts(info, Owner::new(count.add())) }
}

/// Offers an array once.
pub(crate) fn share(address: u64, bytes: usize, stream: Option<usize>, count: &Count) -> Parcel<Import> {
    share_import(array(address, bytes, stream, count), 1, LONG).expect("memory that can be shared")
}

/// Waits for something that happens soon.
pub(crate) fn soon(mut is_so: impl FnMut() -> bool) -> bool {
    let start = std::time::Instant::now();
    while !is_so() {
        if start.elapsed() > Duration::from_secs(5) {
            return false;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    true
}
