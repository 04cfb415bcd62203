//! The ways in which a process lets another one use memory: a handle, mapped memory, and a pool.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::driver::*;
use crate::other_process::{hex, unhex};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub(crate) const DESCRIPTOR: u32 = 1;
/// The granularity of mapped memory.
pub(crate) const PIECE: usize = 2 << 20;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Way {
    /// `cuMemAlloc`, by a handle.
    Handle,
    /// Two pieces of `cuMemCreate`, one behind the other.
    Mapped,
    Pool,
}

pub(crate) const WAYS: [Way; 3] = [Way::Handle, Way::Mapped, Way::Pool];

/// Memory of this process that others can open.
pub(crate) struct Shared {
    pub(crate) way: Way,
    pub(crate) address: u64,
    pub(crate) bytes: usize,
    pool: u64,
}

pub(crate) fn new_pool() -> u64 {
    // CU_MEM_ALLOCATION_TYPE_PINNED, the type of handle, CU_MEM_LOCATION_TYPE_DEVICE, the device.
    get(|out| cuMemPoolCreate(out, [1, 1, 1, 0].as_ptr()))
}

/// Owns a descriptor that the driver has made.
pub(crate) fn owned(descriptor: i32) -> OwnedFd {
    // SAFETY: a new descriptor of this process.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// Creates memory with a type of handle, and returns it.
pub(crate) fn create() -> u64 {
    get(|out| cuMemCreate(out, PIECE, [1, 1, 1, 0].as_ptr(), 0))
}

/// Maps memory one piece behind the other, and gives the handles back.
pub(crate) fn map(pieces: &[u64], flags: i32) -> u64 {
    let bytes = pieces.len() * PIECE;
    let first = get(|out| cuMemAddressReserve(out, bytes, 0, 0, 0));
    for (index, memory) in pieces.iter().enumerate() {
        ok(cuMemMap(first + (index * PIECE) as u64, PIECE, 0, *memory, 0));
        ok(cuMemRelease(*memory));
    }
    ok(cuMemSetAccess(first, bytes, [1, 0, flags].as_ptr(), 1));
    first
}

impl Shared {
    /// Allocates memory, for pools in the order of a stream.
    pub(crate) fn new(way: Way, stream: u64) -> Self {
        let bytes = 2 * PIECE;
        let pool = if way == Way::Pool { new_pool() } else { 0 };
        let address = match way {
            Way::Handle => get(|out| cuMemAlloc_v2(out, bytes)),
            Way::Mapped => map(&[create(), create()], 3),
            Way::Pool => get(|out| cuMemAllocFromPoolAsync(out, bytes, pool, stream)),
        };
        Self { way, address, bytes, pool }
    }

    /// The order by which another process opens the memory, and the descriptors that must be open meanwhile.
    pub(crate) fn order(&self) -> (String, Vec<OwnedFd>) {
        let export = |memory: u64| get(|out| cuMemExportToShareableHandle(out, memory, DESCRIPTOR, 0));
        let files: Vec<_> = match self.way {
            Way::Handle => Vec::new(),
            Way::Mapped => [0, PIECE as u64]
                .map(|offset| {
                    let memory = get(|out| cuMemRetainAllocationHandle(out, self.address + offset + 7));
                    let file = owned(export(memory));
                    ok(cuMemRelease(memory));
                    file
                })
                .into(),
            Way::Pool => {
                vec![owned(get(|out| cuMemPoolExportToShareableHandle(out, self.pool, DESCRIPTOR, 0)))]
            }
        };
        let data = match self.way {
            Way::Handle => hex(&get(|out: &mut MemoryHandle| cuIpcGetMemHandle(out, self.address + 4096)).0),
            Way::Pool => {
                hex(&get(|out: &mut MemoryHandle| cuMemPoolExportPointer(out, self.address + 4096)).0)
            }
            Way::Mapped => String::new(),
        };
        let own = std::process::id();
        let paths: Vec<_> = files.iter().map(|file| format!("/proc/{own}/fd/{}", file.as_raw_fd())).collect();
        (format!("{:?} {} {data}", self.way, paths.join(" ")), files)
    }

    /// Frees the memory: that of a pool in the order of a stream.
    pub(crate) fn free(&self, stream: u64) {
        match self.way {
            Way::Handle => ok(cuMemFree_v2(self.address)),
            Way::Mapped => unmap(self.address, self.bytes),
            Way::Pool => {
                ok(cuMemFreeAsync(self.address, stream));
                ok(cuStreamSynchronize(stream));
                ok(cuMemPoolDestroy(self.pool));
            }
        }
    }
}

pub(crate) fn unmap(address: u64, bytes: usize) {
    ok(cuMemUnmap(address, bytes));
    ok(cuMemAddressFree(address, bytes));
}

/// Memory of another process.
pub(crate) struct Opened {
    pub(crate) address: u64,
    close: fn(u64),
}

pub(crate) fn handle(text: &str) -> MemoryHandle {
    MemoryHandle(unhex(text).try_into().expect("a handle"))
}

/// Opens a file of another process.
pub(crate) fn file(path: &str) -> File {
    File::options().read(true).write(true).open(path).expect("the descriptor of the other process")
}

pub(crate) fn number_of(file: &impl AsRawFd) -> u64 {
    u64::try_from(file.as_raw_fd()).expect("an open file")
}

impl Opened {
    pub(crate) fn none() -> Self {
        Self { address: 0, close: |_| panic!("nothing is open") }
    }

    /// Opens memory as [`Shared::order`] tells.
    pub(crate) fn new(order: &[&str]) -> Self {
        match *order {
            ["Handle", text] => Self {
                address: get(|out| cuIpcOpenMemHandle_v2(out, handle(text), 1)),
                close: |address| ok(cuIpcCloseMemHandle(address)),
            },
            ["Mapped", first, second] => {
                let import = |path| {
                    let file = file(path);
                    get(|out| cuMemImportFromShareableHandle(out, number_of(&file), DESCRIPTOR))
                };
                let address = map(&[import(first), import(second)], 3);
                Self { address, close: |address| unmap(address, 2 * PIECE) }
            }
            ["Pool", path, text] => {
                let file = file(path);
                let pool =
                    get(|out| cuMemPoolImportFromShareableHandle(out, number_of(&file), DESCRIPTOR, 0));
                let address = get(|out| cuMemPoolImportPointer(out, pool, &handle(text)));
                ok(cuMemPoolDestroy(pool));
                Self { address, close: |address| ok(cuMemFree_v2(address)) }
            }
            _ => panic!("an unknown way: {order:?}"),
        }
    }

    pub(crate) fn close(&self) {
        (self.close)(self.address);
    }
}
