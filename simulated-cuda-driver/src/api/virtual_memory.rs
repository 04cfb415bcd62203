//! Functions for virtual memory management, for device memory only.

#![allow(unsafe_code, reason = "the names are exported")]

use crate::api_call::{Code, In, Out, call};
use crate::memory::{Allocation, Kind};
use crate::state::Handle;
use crate::status::Status;
use crate::virtual_memory::GRANULARITY;

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
        out.set(sim.memory.mapped.make(bytes as u64, device)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemRelease(handle: Handle) -> Code {
    call("cuMemRelease", |sim| sim.memory.mapped.release(handle))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: Handle, _flags: u64) -> Code {
    call("cuMemMap", |sim| {
        let end = address.checked_add(bytes as u64).ok_or(Status::INVALID_VALUE)?;
        let reserved = sim.memory.reserved(address).ok_or(Status::INVALID_VALUE)?;
        if offset != 0 || end > reserved.end {
            return Err(Status::INVALID_VALUE);
        }
        sim.memory.mapped.map(address, bytes as u64, handle)
    })
}

/// Every device may access all mapped memory.
#[unsafe(no_mangle)]
extern "C" fn cuMemSetAccess(address: u64, bytes: usize, _descriptions: u64, _count: usize) -> Code {
    call("cuMemSetAccess", |sim| {
        let covered = sim.memory.mapped.covers(address, bytes as u64);
        covered.then_some(()).ok_or(Status::INVALID_VALUE)
    })
}

/// Does not wait. An operation that still uses the memory then fails to find it.
#[unsafe(no_mangle)]
extern "C" fn cuMemUnmap(address: u64, bytes: usize) -> Code {
    call("cuMemUnmap", |sim| sim.memory.mapped.unmap(address, bytes as u64))
}
