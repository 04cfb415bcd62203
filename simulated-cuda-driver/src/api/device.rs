//! Functions for devices and their primary contexts.

#![allow(unsafe_code, reason = "the names are exported")]

use crate::api_call::{Code, Out, call};
use crate::handle::Handle;
use crate::memory::Memory;
use crate::status::Status;

/// The name of every device.
const NAME: &[u8] = b"Simulated CUDA device\0";

/// The attributes of a device, by their number in `CUdevice_attribute`. All others are zero.
const ATTRIBUTES: [(i32, i32); 25] = [
    (1, 1024),       // MAX_THREADS_PER_BLOCK
    (2, 1024),       // MAX_BLOCK_DIM_X
    (3, 1024),       // MAX_BLOCK_DIM_Y
    (4, 64),         // MAX_BLOCK_DIM_Z
    (5, i32::MAX),   // MAX_GRID_DIM_X
    (6, 65535),      // MAX_GRID_DIM_Y
    (7, 65535),      // MAX_GRID_DIM_Z
    (8, 49152),      // MAX_SHARED_MEMORY_PER_BLOCK
    (9, 65536),      // TOTAL_CONSTANT_MEMORY
    (10, 32),        // WARP_SIZE
    (12, 65536),     // MAX_REGISTERS_PER_BLOCK
    (13, 1_000_000), // CLOCK_RATE
    (15, 1),         // GPU_OVERLAP
    (16, 4),         // MULTIPROCESSOR_COUNT
    (19, 1),         // CAN_MAP_HOST_MEMORY
    (31, 1),         // CONCURRENT_KERNELS
    (39, 2048),      // MAX_THREADS_PER_MULTIPROCESSOR
    (40, 2),         // ASYNC_ENGINE_COUNT
    (41, 1),         // UNIFIED_ADDRESSING
    (75, 7),         // COMPUTE_CAPABILITY_MAJOR
    (83, 1),         // MANAGED_MEMORY
    (89, 1),         // CONCURRENT_MANAGED_ACCESS
    (115, 1),        // MEMORY_POOLS_SUPPORTED
    (122, 1),        // CAN_USE_64_BIT_STREAM_MEM_OPS
    (123, 1),        // CAN_USE_STREAM_WAIT_VALUE_NOR
];
/// `CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM`; a test chooses its value.
const REGISTERED_AS_ON_HOST: i32 = 91;
/// `CAN_USE_64_BIT_STREAM_MEM_OPS` and `CAN_USE_STREAM_WAIT_VALUE_NOR`.
const NUMBERS: [i32; 2] = [122, 123];
/// The greatest attribute number.
const LAST_ATTRIBUTE: i32 = 150;

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGet(device: Out<i32>, ordinal: i32) -> Code {
    call("cuDeviceGet", |sim| {
        sim.device(ordinal)?;
        device.set(ordinal)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetCount(count: Out<i32>) -> Code {
    call("cuDeviceGetCount", |sim| count.set(i32::try_from(sim.devices.len()).unwrap_or(i32::MAX)))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetName(name: Out<u8>, room: i32, device: i32) -> Code {
    call("cuDeviceGetName", |sim| {
        sim.device(device)?;
        let room = usize::try_from(room).map_err(|_| Status::INVALID_VALUE)?;
        for (index, letter) in NAME.iter().take(room).enumerate() {
            name.set_at(index, if index + 1 == room { 0 } else { *letter })?;
        }
        Ok(())
    })
}

/// Returns the UUID of a device; its last byte is the device's ordinal.
fn uuid(device: usize) -> [u8; 16] {
    let mut uuid = *b"interop-sim-gpu\0";
    uuid[15] = u8::try_from(device).unwrap_or(u8::MAX);
    uuid
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetUuid(out: Out<[u8; 16]>, device: i32) -> Code {
    call("cuDeviceGetUuid", |sim| out.set(uuid(sim.device(device)?.0)))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetUuid_v2(out: Out<[u8; 16]>, device: i32) -> Code {
    call("cuDeviceGetUuid_v2", |sim| out.set(uuid(sim.device(device)?.0)))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: i32) -> Code {
    call("cuDeviceTotalMem_v2", |sim| {
        sim.device(device)?;
        bytes.set(usize::try_from(Memory::TOTAL).unwrap_or(usize::MAX))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetAttribute(out: Out<i32>, attribute: i32, device: i32) -> Code {
    call("cuDeviceGetAttribute", |sim| {
        sim.device(device)?;
        if !(1..=LAST_ATTRIBUTE).contains(&attribute) {
            return Err(Status::INVALID_VALUE);
        }
        if NUMBERS.contains(&attribute) && !sim.has_numbers {
            return out.set(0);
        }
        if attribute == REGISTERED_AS_ON_HOST {
            return out.set((!sim.memory.registered_apart).into());
        }
        out.set(ATTRIBUTES.iter().find(|(number, _)| *number == attribute).map_or(0, |(_, value)| *value))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) -> Code {
    call("cuDeviceComputeCapability", |sim| {
        sim.device(device)?;
        major.set(7)?;
        minor.set(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) -> Code {
    call("cuDeviceCanAccessPeer", |sim| {
        sim.device(device)?;
        sim.device(peer)?;
        can.set(i32::from(device != peer))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRetain(out: Out<Handle>, device: i32) -> Code {
    call("cuDevicePrimaryCtxRetain", |sim| {
        let (index, known) = sim.device(device)?;
        let (primary, flags) = (known.primary, known.flags);
        let context = primary.unwrap_or_else(|| sim.create_context(index, flags));
        let (_, known) = sim.device(device)?;
        known.primary = Some(context);
        known.retained += 1;
        out.set(context)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(device: i32) -> Code {
    call("cuDevicePrimaryCtxRelease_v2", |sim| {
        let (_, known) = sim.device(device)?;
        let context = known.primary.ok_or(Status::INVALID_CONTEXT)?;
        known.retained -= 1;
        if known.retained == 0 {
            known.primary = None;
            sim.destroy_context(context);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxReset_v2(device: i32) -> Code {
    call("cuDevicePrimaryCtxReset_v2", |sim| {
        if let Some(context) = sim.device(device)?.1.primary {
            sim.empty_context(context);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) -> Code {
    call("cuDevicePrimaryCtxSetFlags_v2", |sim| {
        let (_, known) = sim.device(device)?;
        known.flags = flags;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) -> Code {
    call("cuDevicePrimaryCtxGetState", |sim| {
        let (_, known) = sim.device(device)?;
        flags.set(known.flags)?;
        active.set(known.primary.is_some().into())
    })
}
