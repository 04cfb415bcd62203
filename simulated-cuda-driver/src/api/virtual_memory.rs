//! Functions for virtual memory management, for device memory only.

#![allow(unsafe_code, reason = "the names are exported")]

use std::os::fd::IntoRawFd;

use crate::api_call::{Code, In, Out, call};
use crate::handle::Handle;
use crate::memory::{Allocation, Kind};
use crate::status::Status;
use crate::virtual_memory::{DESCRIPTOR, GRANULARITY};

#[unsafe(no_mangle)]
extern "C" fn cuMemGetAllocationGranularity(out: Out<usize>, _properties: In<i32>, _option: i32) -> Code {
    call("cuMemGetAllocationGranularity", |_| out.set(usize::try_from(GRANULARITY).unwrap_or(usize::MAX)))
}

/// Reserves a range. Its bytes exist from the start, and can be used where memory is mapped.
#[unsafe(no_mangle)]
extern "C" fn cuMemAddressReserve(
    out: Out<u64>,
    bytes: usize,
    _alignment: usize,
    _address: u64,
    _flags: u64,
) -> Code {
    call("cuMemAddressReserve", |sim| {
        // No current context is needed, because the range belongs to no context.
        let allocated = sim.memory.allocate(Kind::Reserved, bytes as u64, (0, 0), 0)?;
        out.set(allocated)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAddressFree(address: u64, bytes: usize) -> Code {
    call("cuMemAddressFree", |sim| {
        let whole = |known: &&mut Allocation| known.kind == Kind::Reserved && known.bytes == bytes as u64;
        let _known = sim.memory.at(address).filter(whole).ok_or(Status::INVALID_VALUE)?;
        // Mapped memory must be unmapped first.
        if sim.memory.mapped.touches(address, bytes as u64) {
            return Err(Status::INVALID_VALUE);
        }
        sim.memory.free(address);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemCreate(out: Out<Handle>, bytes: usize, properties: In<i32>, _flags: u64) -> Code {
    call("cuMemCreate", |sim| {
        // `CUmemAllocationProp`: CU_MEM_ALLOCATION_TYPE_PINNED, the handle types, CU_MEM_LOCATION_TYPE_DEVICE, the
        // device.
        let (1, 1, device) = (properties.get(0)?, properties.get(2)?, properties.get(3)?) else {
            return Err(Status::NOT_SUPPORTED);
        };
        let device = sim.device(device)?.0;
        let types = u32::try_from(properties.get(1)?).map_err(|_| Status::INVALID_VALUE)?;
        out.set(sim.memory.mapped.make(bytes as u64, device, types)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemRelease(handle: Handle) -> Code {
    call("cuMemRelease", |sim| sim.memory.mapped.release(handle))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: Handle, _flags: u64) -> Code {
    call("cuMemMap", |sim| {
        if offset != 0 {
            return Err(Status::INVALID_VALUE);
        }
        sim.memory.map(address, bytes as u64, handle)
    })
}

/// Every device may access all mapped memory; none may write if the first description says so.
#[unsafe(no_mangle)]
extern "C" fn cuMemSetAccess(address: u64, bytes: usize, descriptions: In<i32>, _count: usize) -> Code {
    /// `CU_MEM_ACCESS_FLAGS_PROT_READ`.
    const READ: i32 = 1;
    call("cuMemSetAccess", |sim| {
        if !sim.memory.mapped.covers(address, bytes as u64) {
            return Err(Status::INVALID_VALUE);
        }
        // `CUmemAccessDesc`: the location in two words, the flags.
        let is_writable = descriptions.is_null() || descriptions.get(2)? != READ;
        sim.memory.mapped.set_access(address, bytes as u64, is_writable);
        Ok(())
    })
}

/// Does not wait. An operation that still uses the memory then fails to find it.
#[unsafe(no_mangle)]
extern "C" fn cuMemUnmap(address: u64, bytes: usize) -> Code {
    call("cuMemUnmap", |sim| sim.memory.unmap(address, bytes as u64))
}

/// Returns one more handle of memory that is mapped.
#[unsafe(no_mangle)]
extern "C" fn cuMemRetainAllocationHandle(out: Out<Handle>, address: u64) -> Code {
    call("cuMemRetainAllocationHandle", |sim| out.set(sim.memory.mapped.retain(address)?))
}

/// The descriptor belongs to the caller, and keeps the memory.
#[unsafe(no_mangle)]
extern "C" fn cuMemExportToShareableHandle(out: Out<i32>, handle: Handle, kind: u32, flags: u64) -> Code {
    call("cuMemExportToShareableHandle", |sim| {
        if kind != DESCRIPTOR || flags != 0 || out.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        let (memory, descriptor) = sim.memory.mapped.export(handle)?;
        let (first, bytes) = sim.memory.mapped.mapping_of(&memory).unwrap_or_default();
        sim.tell_openers(&memory, first, bytes);
        out.set(descriptor.into_raw_fd())
    })
}

/// The descriptor stays that of the caller. The process that has exported the memory may import it too.
#[unsafe(no_mangle)]
extern "C" fn cuMemImportFromShareableHandle(out: Out<Handle>, descriptor: u64, kind: u32) -> Code {
    call("cuMemImportFromShareableHandle", |sim| {
        if kind != DESCRIPTOR || out.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        let (handle, memory) = sim.memory.mapped.import(descriptor)?;
        sim.learn_as_opener(&memory);
        out.set(handle)
    })
}
