//! Functions for memory pools and stream-ordered allocation.

#![allow(unsafe_code, reason = "the names are exported")]

use std::os::fd::IntoRawFd;

use crate::api_call::{Code, In, Out, call};
use crate::handle::Handle;
use crate::memory::{Kind, Life};
use crate::pools::Pool;
use crate::queue::Work;
use crate::shared_memory::{Label, SharedMemory};
use crate::state::Sim;
use crate::status::{Answer, Status};
use crate::virtual_memory::DESCRIPTOR;

use super::allocate::{check_owner, give, unknown};
use super::ipc::MemoryHandle;

/// The bits that mark the handle of a device memory pool; the device's ordinal is added.
const POOL: Handle = 0x7b00_0000_0000;
/// The handle of the host memory pool.
const HOST_POOL: Handle = 0x7b01_0000_0000;

/// Returns the pool that memory of this kind comes from, or zero.
pub(super) fn pool_of(kind: Kind, device: usize) -> Handle {
    match kind {
        Kind::Pool => POOL + device as u64,
        Kind::HostPool => HOST_POOL,
        _ => 0,
    }
}

/// Allocates pool memory in stream order.
fn allocate_async(
    sim: &mut Sim,
    out: &Out<u64>,
    (bytes, kind, pool): (usize, Kind, Handle),
    raw: Handle,
    function: &str,
) -> Answer {
    let stream = sim.stream(raw, function)?;
    let context = sim.streams[&stream].context;
    let owner = (context, sim.context(context)?.device);
    if sim.streams[&stream].capture.is_some() {
        // Allocations that belong to a graph are not simulated.
        return Err(Status::NOT_SUPPORTED);
    }
    sim.check_capture_mode()?;
    if out.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    let allocated = sim.memory.allocate(kind, bytes as u64, owner, 0);
    give(out, allocated)?;
    if pool != 0 {
        sim.memory.share_new(out.get()?, pool)?;
    }
    sim.submit(stream, Work::Alloc(out.get()?)).map(drop)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocAsync(out: Out<u64>, bytes: usize, stream: Handle) -> Code {
    call("cuMemAllocAsync", |sim| {
        allocate_async(sim, &out, (bytes, Kind::Pool, 0), stream, "cuMemAllocAsync")
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocFromPoolAsync(out: Out<u64>, bytes: usize, pool: Handle, stream: Handle) -> Code {
    call("cuMemAllocFromPoolAsync", |sim| {
        let from = match pool {
            HOST_POOL => (bytes, Kind::HostPool, 0),
            POOL.. if pool - POOL < sim.devices.len() as u64 => (bytes, Kind::Pool, 0),
            // Only the process that has created a pool allocates from it.
            _ if sim.pools.get(&pool).is_some_and(Pool::is_own) => (bytes, Kind::Pool, pool),
            _ => return Err(Status::INVALID_VALUE),
        };
        allocate_async(sim, &out, from, stream, "cuMemAllocFromPoolAsync")
    })
}

/// Creates a new pool only if it has a type of handle: else each device has one pool, and there is one pool of host memory.
#[unsafe(no_mangle)]
extern "C" fn cuMemPoolCreate(out: Out<Handle>, properties: In<i32>) -> Code {
    call("cuMemPoolCreate", |sim| {
        // `CUmemPoolProps`: CU_MEM_ALLOCATION_TYPE_PINNED, the handle types, CU_MEM_LOCATION_TYPE_..., and the
        // location's id.
        match (properties.get(0)?, properties.get(2)?, properties.get(3)?) {
            (1, 1, device) if properties.get(1)? == DESCRIPTOR as i32 => {
                let (device, pool) = (sim.device(device)?.0, sim.fresh_handle());
                let origin = (std::process::id(), pool);
                sim.pools.insert(pool, Pool { device, origin, exported: None });
                out.set(pool)
            }
            (1, 1, device) => out.set(POOL + sim.device(device)?.0 as u64),
            (1, 2 | 3, _) => out.set(HOST_POOL),
            _ => Err(Status::NOT_SUPPORTED),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolDestroy(pool: Handle) -> Code {
    // What was allocated from it stays.
    call("cuMemPoolDestroy", |sim| {
        sim.pools.remove(&pool);
        Ok(())
    })
}

/// Every device can access every pool.
#[unsafe(no_mangle)]
extern "C" fn cuMemPoolSetAccess(_pool: Handle, _map: u64, _count: usize) -> Code {
    call("cuMemPoolSetAccess", |_| Ok(()))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeAsync(address: u64, raw: Handle) -> Code {
    call("cuMemFreeAsync", |sim| {
        let stream = sim.stream(raw, "cuMemFreeAsync")?;
        if sim.streams[&stream].capture.is_some() {
            return Err(Status::NOT_SUPPORTED);
        }
        sim.check_capture_mode()?;
        let known = sim.memory.at(address).map(|known| (known.kind, known.free_queued.is_some()));
        match known {
            // `cuMemFreeAsync` also accepts memory of `cuMemAlloc`, and frees it in stream order.
            Some((Kind::Pool | Kind::HostPool | Kind::Device, false)) => {}
            _ => return Err(unknown(sim, "cuMemFreeAsync", address)),
        }
        check_owner(sim, address, sim.streams[&stream].context)?;
        let queued = sim.submit(stream, Work::Free(address))?;
        if let Some(known) = sim.memory.at(address) {
            known.free_queued = queued;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetDefaultMemPool(out: Out<Handle>, device: i32) -> Code {
    call("cuDeviceGetDefaultMemPool", |sim| out.set(POOL + sim.device(device)?.0 as u64))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetMemPool(out: Out<Handle>, device: i32) -> Code {
    call("cuDeviceGetMemPool", |sim| out.set(POOL + sim.device(device)?.0 as u64))
}

/// Accepts and ignores the attribute: a pool always releases its memory immediately.
#[unsafe(no_mangle)]
extern "C" fn cuMemPoolSetAttribute(_pool: Handle, _attribute: i32, _value: u64) -> Code {
    call("cuMemPoolSetAttribute", |_| Ok(()))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolTrimTo(_pool: Handle, _keep: usize) -> Code {
    call("cuMemPoolTrimTo", |_| Ok(()))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolGetAttribute(pool: Handle, attribute: i32, out: Out<u64>) -> Code {
    call("cuMemPoolGetAttribute", |sim| match attribute {
        // CU_MEMPOOL_ATTR_RELEASE_THRESHOLD.
        4 => out.set(0),
        // CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT and _USED_MEM_CURRENT.
        5 | 7 => {
            let (device, pool) = match sim.pools.get(&pool) {
                Some(known) => (known.device, pool),
                None => (usize::try_from(pool.wrapping_sub(POOL)).map_err(|_| Status::INVALID_VALUE)?, 0),
            };
            let used = sim.memory.live().filter(|(_, known)| {
                known.device == device && known.kind == Kind::Pool && known.pool == pool
            });
            out.set(used.filter(|(_, known)| known.life == Life::Live).map(|(_, known)| known.bytes).sum())
        }
        _ => Err(Status::NOT_SUPPORTED),
    })
}

/// The descriptor belongs to the caller. Only from then on does memory of the pool have data to export.
#[unsafe(no_mangle)]
extern "C" fn cuMemPoolExportToShareableHandle(out: Out<i32>, pool: Handle, kind: u32, flags: u64) -> Code {
    call("cuMemPoolExportToShareableHandle", |sim| {
        if kind != DESCRIPTOR || flags != 0 || out.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        let known = sim.pools.get_mut(&pool).filter(|known| known.is_own()).ok_or(Status::INVALID_VALUE)?;
        let label = Label::Pool { device: known.device, origin: known.origin };
        if known.exported.is_none() {
            known.exported = Some(SharedMemory::labelled(0, label)?);
        }
        let exported = known.exported.as_ref().ok_or(Status::INVALID_VALUE)?;
        out.set(exported.descriptor()?.into_raw_fd())
    })
}

/// The descriptor stays that of the caller.
#[unsafe(no_mangle)]
extern "C" fn cuMemPoolImportFromShareableHandle(
    out: Out<Handle>,
    descriptor: u64,
    kind: u32,
    flags: u64,
) -> Code {
    call("cuMemPoolImportFromShareableHandle", |sim| {
        if kind != DESCRIPTOR || flags != 0 || out.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        let (_, _, label) = SharedMemory::of_descriptor(descriptor)?;
        let Label::Pool { device, origin } = label else { return Err(Status::UNKNOWN) };
        if device >= sim.devices.len() {
            return Err(Status::INVALID_VALUE);
        }
        let pool = sim.fresh_handle();
        sim.pools.insert(pool, Pool { device, origin, exported: None });
        out.set(pool)
    })
}

/// Returns what opens an allocation in a process that has imported its pool. It is that of the whole allocation, whatever address in
/// it is given.
#[unsafe(no_mangle)]
extern "C" fn cuMemPoolExportPointer(out: Out<MemoryHandle>, address: u64) -> Code {
    call("cuMemPoolExportPointer", |sim| {
        let (first, known) = sim.memory.find_live(address).ok_or(Status::INVALID_VALUE)?;
        let (bytes, pool, memory) = (known.bytes, known.pool, known.shared.clone());
        let is_exported = |pool: &&Pool| pool.is_own() && pool.exported.is_some();
        sim.pools.get(&pool).filter(is_exported).ok_or(Status::INVALID_VALUE)?;
        let memory = memory.ok_or(Status::INVALID_VALUE)?;
        sim.tell_openers(&memory, first, bytes);
        out.set(MemoryHandle::new(&memory, [bytes, pool, 1]))
    })
}

/// The memory is freed here as memory of a pool, before it is freed in the process that has allocated it.
#[unsafe(no_mangle)]
extern "C" fn cuMemPoolImportPointer(out: Out<u64>, pool: Handle, data: In<MemoryHandle>) -> Code {
    call("cuMemPoolImportPointer", |sim| {
        let known = sim.pools.get(&pool).ok_or(Status::INVALID_VALUE)?;
        let (device, of_pool) = (known.device, known.origin);
        let (origin, [bytes, handle, is_of_pool]) = data.get(0)?.read()?;
        if is_of_pool != 1 || of_pool != (origin.0, handle) || known.is_own() || out.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        let memory = SharedMemory::open(origin, bytes)?;
        let address = sim.memory.open(Kind::Pool, memory.clone(), bytes, (0, device))?;
        let allocation = sim.memory.at(address).ok_or(Status::INVALID_VALUE)?;
        (allocation.openings, allocation.pool) = (1, pool);
        memory.count_opening(true);
        sim.learn_as_opener(&memory);
        out.set(address)
    })
}
