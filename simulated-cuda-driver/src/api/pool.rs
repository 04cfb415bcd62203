//! Functions for memory pools and stream-ordered allocation.

#![allow(unsafe_code, reason = "the names are exported")]

use crate::api_call::{Code, In, Out, call};
use crate::memory::{Kind, Life};
use crate::queue::Work;
use crate::state::{Handle, Sim};
use crate::status::{Answer, Status};

use super::allocate::{check_owner, give, unknown};

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
    (bytes, kind): (usize, Kind),
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
    sim.submit(stream, Work::Alloc(out.get()?)).map(drop)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocAsync(out: Out<u64>, bytes: usize, stream: Handle) -> Code {
    call("cuMemAllocAsync", |sim| allocate_async(sim, &out, (bytes, Kind::Pool), stream, "cuMemAllocAsync"))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocFromPoolAsync(out: Out<u64>, bytes: usize, pool: Handle, stream: Handle) -> Code {
    call("cuMemAllocFromPoolAsync", |sim| {
        let kind = match pool {
            HOST_POOL => Kind::HostPool,
            POOL.. if pool - POOL < sim.devices.len() as u64 => Kind::Pool,
            _ => return Err(Status::INVALID_VALUE),
        };
        allocate_async(sim, &out, (bytes, kind), stream, "cuMemAllocFromPoolAsync")
    })
}

/// Creates no new pool: each device has one pool, and there is one pool of host memory.
#[unsafe(no_mangle)]
extern "C" fn cuMemPoolCreate(out: Out<Handle>, properties: In<i32>) -> Code {
    call("cuMemPoolCreate", |sim| {
        // `CUmemPoolProps`: CU_MEM_ALLOCATION_TYPE_PINNED, the handle types, CU_MEM_LOCATION_TYPE_..., and the
        // location's id.
        match (properties.get(0)?, properties.get(2)?, properties.get(3)?) {
            (1, 1, device) => out.set(POOL + sim.device(device)?.0 as u64),
            (1, 2 | 3, _) => out.set(HOST_POOL),
            _ => Err(Status::NOT_SUPPORTED),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolDestroy(_pool: Handle) -> Code {
    call("cuMemPoolDestroy", |_| Ok(()))
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
            let device = usize::try_from(pool - POOL).map_err(|_| Status::INVALID_VALUE)?;
            let used =
                sim.memory.live().filter(|(_, known)| known.device == device && known.kind == Kind::Pool);
            out.set(used.filter(|(_, known)| known.life == Life::Live).map(|(_, known)| known.bytes).sum())
        }
        _ => Err(Status::NOT_SUPPORTED),
    })
}
