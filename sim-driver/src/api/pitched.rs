//! Copies of rows and planes, between memory of devices: `cuMemcpy2DAsync` and `cuMemcpy3DAsync`.

#![allow(unsafe_code, reason = "the names are exported")]

use super::copy::on_device;
use crate::api_call::{Code, In, call};
use crate::queue::{Rows, Work};
use crate::state::{Handle, Sim};
use crate::status::{Answer, Status};

/// `CU_MEMORYTYPE_DEVICE` and `CU_MEMORYTYPE_UNIFIED`.
const DEVICE: u32 = 2;
const UNIFIED: u32 = 4;
/// `CU_DEVICE_ATTRIBUTE_MAX_PITCH` of every device.
const MAX_PITCH: u64 = 0x7fff_ffff;

/// One end of `CUDA_MEMCPY2D`.
#[derive(Clone, Copy)]
#[repr(C)]
struct End2 {
    x: u64,
    y: u64,
    kind: u32,
    host: u64,
    device: u64,
    array: Handle,
    pitch: u64,
}

/// `CUDA_MEMCPY2D`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Copy2 {
    from: End2,
    to: End2,
    width: u64,
    height: u64,
}

/// One end of `CUDA_MEMCPY3D`.
#[derive(Clone, Copy)]
#[repr(C)]
struct End3 {
    x: u64,
    y: u64,
    z: u64,
    lod: u64,
    kind: u32,
    host: u64,
    device: u64,
    array: Handle,
    reserved: u64,
    pitch: u64,
    height: u64,
}

/// `CUDA_MEMCPY3D`. The word before the target's pitch, which is in both ends here, is reserved.
#[derive(Clone, Copy)]
#[repr(C)]
struct Copy3 {
    from: End3,
    to: End3,
    width: u64,
    height: u64,
    depth: u64,
}

const _: () = assert!(size_of::<Copy2>() == 128 && size_of::<Copy3>() == 200);

/// Queues the rows. Only the beginning of memory of devices can be an end.
fn submit(sim: &mut Sim, stream: Handle, ends: [(u32, u64, [u64; 3]); 2], rows: Rows) -> Answer {
    if ends.iter().any(|(kind, _, begin)| ![DEVICE, UNIFIED].contains(kind) || *begin != [0; 3]) {
        return Err(Status::NOT_SUPPORTED);
    }
    if rows.bytes == 0 || rows.height == 0 || rows.depth == 0 {
        return Ok(());
    }
    for [pitch, plane] in [rows.to, rows.from] {
        if pitch < rows.bytes || pitch > MAX_PITCH || (rows.depth > 1 && plane < pitch * rows.height) {
            return Err(Status::INVALID_VALUE);
        }
    }
    let [(_, to, _), (_, from, _)] = ends;
    on_device(sim, to, rows.reach(rows.to))?;
    on_device(sim, from, rows.reach(rows.from))?;
    sim.submit(stream, Work::Rows { to, from, rows }).map(drop)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpy2DAsync_v2(copy: In<Copy2>, stream: Handle) -> Code {
    call("cuMemcpy2DAsync_v2", |sim| {
        sim.current()?;
        let stream = sim.stream(stream, "cuMemcpy2DAsync_v2")?;
        let Copy2 { from, to, width, height } = copy.get(0)?;
        let [to_rows, from_rows] = [to, from].map(|end| [end.pitch, 0]);
        let rows = Rows { bytes: width, height, depth: 1, to: to_rows, from: from_rows };
        let ends = [to, from].map(|end| (end.kind, end.device, [end.x, end.y, 0]));
        submit(sim, stream, ends, rows)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpy3DAsync_v2(copy: In<Copy3>, stream: Handle) -> Code {
    call("cuMemcpy3DAsync_v2", |sim| {
        sim.current()?;
        let stream = sim.stream(stream, "cuMemcpy3DAsync_v2")?;
        let Copy3 { from, to, width, height, depth } = copy.get(0)?;
        let [to_rows, from_rows] = [to, from].map(|end| [end.pitch, end.pitch * end.height]);
        let rows = Rows { bytes: width, height, depth, to: to_rows, from: from_rows };
        let ends = [to, from].map(|end| (end.kind, end.device, [end.x, end.y, end.z]));
        submit(sim, stream, ends, rows)
    })
}
