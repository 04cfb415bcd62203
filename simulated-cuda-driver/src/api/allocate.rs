//! Functions that allocate and free memory: device, managed, pinned and registered.

#![allow(unsafe_code, reason = "the names are exported")]

use crate::access::What;
use crate::api_call::{Code, Out, call};
use crate::handle::Handle;
use crate::memory::{Kind, Memory};
use crate::report::Mistake;
use crate::state::Sim;
use crate::status::{Answer, Status};
use crate::this_thread::calling;

/// Allocates memory for the current context.
fn allocate(sim: &mut Sim, kind: Kind, bytes: usize, flags: u32) -> Answer<u64> {
    let owner = sim.current_owner()?;
    sim.check_capture_mode()?;
    sim.memory.allocate(kind, bytes as u64, owner, flags)
}

/// Returns an address to the caller. On failure it writes an address that belongs to no memory, because the driver
/// leaves the result undefined.
pub(super) fn give(out: &Out<u64>, allocated: Answer<u64>) -> Answer {
    const NOBODYS: u64 = 0x7c00_0000_0000;
    if allocated.is_err() {
        out.set_if_wanted(NOBODYS);
    }
    out.set(allocated?)
}

/// Frees an allocation immediately.
fn free_now(sim: &mut Sim, first: u64) {
    let step = sim.host_step();
    sim.report_openings(first, calling());
    sim.note_whole(&step, What::Free, first);
    if let Some(known) = sim.memory.at(first).map(|known| known.bytes) {
        sim.others.forget_numbers(first, known);
    }
    sim.memory.free(first);
}

/// Waits for all work of the allocation's device, and then frees it.
fn free_after_work(sim: &mut Sim, first: u64, device: usize) {
    let work = sim.work_of_device(device);
    sim.wait(&work);
    free_now(sim, first);
}

/// Reports that memory is freed in `context`, unless `context` owns it. Pool memory belongs to the device.
pub(super) fn check_owner(sim: &mut Sim, address: u64, context: Handle) -> Answer {
    let device = sim.context(context)?.device;
    let Some(known) = sim.memory.at(address) else { return Ok(()) };
    let own = if known.kind.is_from_a_pool() { known.device == device } else { known.context == context };
    if !own {
        let text = format!(
            "{}: {address:#x} belongs to context {:#x} of device {}, and is freed in context {context:#x} of device \
             {device}",
            calling(),
            known.context,
            known.device
        );
        sim.report(Mistake::WrongContext, text);
    }
    Ok(())
}

/// Returns the error for an address that cannot be freed. Reports a second free.
pub(super) fn unknown(sim: &mut Sim, function: &str, address: u64) -> Status {
    if sim.memory.at(address).is_some_and(|known| known.free_queued.is_some()) {
        sim.report(Mistake::DoubleFree, format!("{function}: {address:#x} is being freed already"));
    } else if sim.memory.was_freed(address) {
        sim.report(Mistake::DoubleFree, format!("{function}: {address:#x} was freed before"));
    }
    Status::INVALID_VALUE
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAlloc_v2(out: Out<u64>, bytes: usize) -> Code {
    call("cuMemAlloc_v2", |sim| give(&out, allocate(sim, Kind::Device, bytes, 0)))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocPitch_v2(
    out: Out<u64>,
    pitch: Out<usize>,
    width: usize,
    height: usize,
    _size: u32,
) -> Code {
    call("cuMemAllocPitch_v2", |sim| {
        let row = width.checked_next_multiple_of(512).ok_or(Status::OUT_OF_MEMORY)?;
        let bytes = row.checked_mul(height).ok_or(Status::OUT_OF_MEMORY)?;
        out.set(allocate(sim, Kind::Device, bytes, 0)?)?;
        pitch.set(row)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: u64) -> Code {
    call("cuMemFree_v2", |sim| {
        let context = sim.current()?;
        sim.check_capture_mode()?;
        check_owner(sim, address, context)?;
        let found = sim.memory.at(address).filter(|known| known.free_queued.is_none());
        match found.map(|known| (known.kind, known.device, known.openings)) {
            Some((Kind::Pool, _, 1..)) => sim.close_of_pool(address),
            // Memory of another process is closed, not freed.
            Some((_, _, 1..)) => return Err(unknown(sim, "cuMemFree_v2", address)),
            // Pool memory is returned immediately, even if work still uses it.
            Some((Kind::Pool | Kind::HostPool, ..)) => free_now(sim, address),
            Some((Kind::Device | Kind::Managed, device, _)) => free_after_work(sim, address, device),
            _ => return Err(unknown(sim, "cuMemFree_v2", address)),
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocManaged(out: Out<u64>, bytes: usize, flags: u32) -> Code {
    call("cuMemAllocManaged", |sim| {
        // CU_MEM_ATTACH_GLOBAL or CU_MEM_ATTACH_HOST.
        if !matches!(flags, 1 | 2) {
            return Err(Status::INVALID_VALUE);
        }
        give(&out, allocate(sim, Kind::Managed, bytes, flags))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocHost_v2(out: Out<u64>, bytes: usize) -> Code {
    call("cuMemAllocHost_v2", |sim| give(&out, allocate(sim, Kind::Pinned, bytes, 0)))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostAlloc(out: Out<u64>, bytes: usize, flags: u32) -> Code {
    call("cuMemHostAlloc", |sim| give(&out, allocate(sim, Kind::Pinned, bytes, flags)))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(address: u64) -> Code {
    call("cuMemFreeHost", |sim| {
        let context = sim.current()?;
        sim.check_capture_mode()?;
        check_owner(sim, address, context)?;
        match sim.memory.at(address).map(|known| (known.kind, known.device)) {
            Some((Kind::Pinned, device)) => free_after_work(sim, address, device),
            _ => return Err(unknown(sim, "cuMemFreeHost", address)),
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostRegister_v2(address: u64, bytes: usize, flags: u32) -> Code {
    call("cuMemHostRegister_v2", |sim| {
        let owner = sim.current_owner()?;
        sim.memory.register(address, bytes as u64, owner, flags)
    })
}

/// Does not wait. An operation that still uses the memory then fails to find it.
#[unsafe(no_mangle)]
extern "C" fn cuMemHostUnregister(address: u64) -> Code {
    call("cuMemHostUnregister", |sim| {
        sim.current()?;
        match sim.memory.at(address) {
            Some(known) if known.kind == Kind::Registered => free_now(sim, address),
            _ => return Err(Status::HOST_MEMORY_NOT_REGISTERED),
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostGetDevicePointer_v2(out: Out<u64>, address: u64, _flags: u32) -> Code {
    call("cuMemHostGetDevicePointer_v2", |sim| {
        sim.current()?;
        match sim.memory.find_live(address) {
            Some((_, known)) if matches!(known.kind, Kind::Pinned | Kind::Registered) => {
                out.set(sim.memory.on_devices(address))
            }
            _ => Err(Status::INVALID_VALUE),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostGetFlags(out: Out<u32>, address: u64) -> Code {
    call("cuMemHostGetFlags", |sim| match sim.memory.find_live(address) {
        Some((_, known)) if matches!(known.kind, Kind::Pinned | Kind::Registered) => out.set(known.flags),
        _ => Err(Status::INVALID_VALUE),
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) -> Code {
    call("cuMemGetInfo_v2", |sim| {
        let (_, device) = sim.current_owner()?;
        let left = Memory::TOTAL - sim.memory.used(device);
        free.set(usize::try_from(left).unwrap_or(usize::MAX))?;
        total.set(usize::try_from(Memory::TOTAL).unwrap_or(usize::MAX))
    })
}
