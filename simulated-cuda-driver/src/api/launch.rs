//! Functions for modules, kernels and launches.

#![allow(unsafe_code, reason = "the names are exported")]

use std::ffi::c_char;
use std::fs;

use crate::api_call::{Code, In, Out, call};
use crate::handle::Handle;
use crate::kernels::{self, Function, Module};
use crate::queue::Work;
use crate::report::Mistake;
use crate::state::Sim;
use crate::status::{Answer, Status};

/// The maximum number of threads per block.
const THREADS: u64 = 1024;

/// Loads a module from its PTX.
fn load(sim: &mut Sim, out: &Out<Handle>, text: &str) -> Answer {
    let context = sim.current()?;
    let entries = kernels::entries(text)?;
    let handle = sim.fresh_handle();
    sim.modules.insert(handle, Module { context, entries });
    out.set(handle)
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadData(out: Out<Handle>, image: In<c_char>) -> Code {
    call("cuModuleLoadData", |sim| load(sim, &out, &image.text()?))
}

/// The options are for the JIT compiler and are ignored.
#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadDataEx(
    out: Out<Handle>,
    image: In<c_char>,
    _count: u32,
    _names: u64,
    _values: u64,
) -> Code {
    call("cuModuleLoadDataEx", |sim| load(sim, &out, &image.text()?))
}

/// Treats the image as PTX text, as the other load functions do.
#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadFatBinary(out: Out<Handle>, image: In<c_char>) -> Code {
    call("cuModuleLoadFatBinary", |sim| load(sim, &out, &image.text()?))
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoad(out: Out<Handle>, file: In<c_char>) -> Code {
    call("cuModuleLoad", |sim| {
        let text = fs::read_to_string(file.text()?).map_err(|_| Status::FILE_NOT_FOUND)?;
        load(sim, &out, &text)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(module: Handle) -> Code {
    call("cuModuleUnload", |sim| {
        sim.modules.remove(&module).ok_or(Status::INVALID_HANDLE)?;
        sim.functions.retain(|_, function| function.module != module);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleGetFunction(out: Out<Handle>, module: Handle, name: In<c_char>) -> Code {
    call("cuModuleGetFunction", |sim| {
        let name = name.text()?;
        let known = sim.modules.get(&module).ok_or(Status::INVALID_HANDLE)?;
        if !known.entries.contains(&name) {
            return Err(Status::NOT_FOUND);
        }
        if !sim.kernels.contains_key(&name) {
            let text =
                format!("the kernel {name} is in the module, but no host function was registered for it");
            // A program that gets the error does not know the cure.
            eprintln!("simulated CUDA driver: {text}: see `register` of the crate `simulated-cuda`");
            sim.report(Mistake::NoKernel, text);
            return Err(Status::NOT_FOUND);
        }
        let handle = sim.fresh_handle();
        sim.functions.insert(handle, Function { module, name });
        out.set(handle)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncGetModule(out: Out<Handle>, function: Handle) -> Code {
    call("cuFuncGetModule", |sim| out.set(sim.functions.get(&function).ok_or(Status::INVALID_HANDLE)?.module))
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncGetAttribute(out: Out<i32>, attribute: i32, function: Handle) -> Code {
    call("cuFuncGetAttribute", |sim| {
        sim.kernel(function)?;
        match attribute {
            // MAX_THREADS_PER_BLOCK.
            0 => out.set(1024),
            // PTX_VERSION and BINARY_VERSION.
            5 | 6 => out.set(70),
            1..=15 => out.set(0),
            _ => Err(Status::INVALID_VALUE),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetAttribute(function: Handle, _attribute: i32, _value: i32) -> Code {
    call("cuFuncSetAttribute", |sim| sim.kernel(function).map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetCacheConfig(function: Handle, _config: i32) -> Code {
    call("cuFuncSetCacheConfig", |sim| sim.kernel(function).map(drop))
}

/// Queues a kernel with a copy of its parameters.
fn launch(
    sim: &mut Sim,
    function: Handle,
    extents: [[u32; 3]; 2],
    shared: u32,
    raw: Handle,
    values: &In<u64>,
) -> Answer {
    let stream = sim.stream(raw, "cuLaunchKernel")?;
    let (kernel, context) = sim.kernel(function)?;
    let threads: u64 = extents[1].iter().map(|extent| u64::from(*extent)).product();
    if extents.as_flattened().contains(&0) || threads > THREADS {
        return Err(Status::INVALID_VALUE);
    }
    if sim.streams[&stream].context != context {
        return Err(Status::INVALID_HANDLE);
    }
    let launch = kernel.launch(extents, shared, |index| values.get(index))?;
    sim.submit(stream, Work::Kernel(launch)).map(drop)
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernel(
    function: Handle,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared: u32,
    stream: Handle,
    values: In<u64>,
    extra: In<u64>,
) -> Code {
    call("cuLaunchKernel", |sim| {
        // Packed parameters (`extra`) are not simulated.
        if !extra.is_null() {
            return Err(Status::NOT_SUPPORTED);
        }
        let extents = [[grid_x, grid_y, grid_z], [block_x, block_y, block_z]];
        launch(sim, function, extents, shared, stream, &values)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchCooperativeKernel(
    function: Handle,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared: u32,
    stream: Handle,
    values: In<u64>,
) -> Code {
    call("cuLaunchCooperativeKernel", |sim| {
        let extents = [[grid_x, grid_y, grid_z], [block_x, block_y, block_z]];
        launch(sim, function, extents, shared, stream, &values)
    })
}

/// `CUlaunchConfig`. The attributes at its end are hints and are ignored.
#[repr(C)]
#[derive(Clone, Copy)]
struct Configuration {
    extents: [[u32; 3]; 2],
    shared: u32,
    stream: Handle,
    attributes: u64,
    count: u32,
}

const _: () = assert!(size_of::<Configuration>() == 56 && std::mem::offset_of!(Configuration, stream) == 32);

#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernelEx(
    config: In<Configuration>,
    function: Handle,
    values: In<u64>,
    extra: In<u64>,
) -> Code {
    call("cuLaunchKernelEx", |sim| {
        if !extra.is_null() {
            return Err(Status::NOT_SUPPORTED);
        }
        let Configuration { extents, shared, stream, .. } = config.get(0)?;
        launch(sim, function, extents, shared, stream, &values)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    out: Out<i32>,
    function: Handle,
    block: i32,
    _shared: usize,
) -> Code {
    call("cuOccupancyMaxActiveBlocksPerMultiprocessor", |sim| {
        sim.kernel(function)?;
        out.set(2048_i32.checked_div(block).filter(|_| block > 0).ok_or(Status::INVALID_VALUE)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    out: Out<i32>,
    function: Handle,
    block: i32,
    shared: usize,
    _flags: u32,
) -> Code {
    cuOccupancyMaxActiveBlocksPerMultiprocessor(out, function, block, shared)
}

/// Returns a grid that fills the device, and the block size for it.
#[unsafe(no_mangle)]
extern "C" fn cuOccupancyMaxPotentialBlockSize(
    grid: Out<i32>,
    block: Out<i32>,
    function: Handle,
    _shared_of_block: u64,
    _shared: usize,
    limit: i32,
) -> Code {
    call("cuOccupancyMaxPotentialBlockSize", |sim| {
        sim.kernel(function)?;
        let size = if limit > 0 { limit.min(1024) } else { 1024 };
        grid.set(4 * (2048 / size))?;
        block.set(size)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuOccupancyMaxPotentialBlockSizeWithFlags(
    grid: Out<i32>,
    block: Out<i32>,
    function: Handle,
    shared_of_block: u64,
    shared: usize,
    limit: i32,
    _flags: u32,
) -> Code {
    cuOccupancyMaxPotentialBlockSize(grid, block, function, shared_of_block, shared, limit)
}

#[unsafe(no_mangle)]
extern "C" fn cuOccupancyAvailableDynamicSMemPerBlock(
    out: Out<usize>,
    function: Handle,
    _blocks: i32,
    _threads: i32,
) -> Code {
    call("cuOccupancyAvailableDynamicSMemPerBlock", |sim| {
        sim.kernel(function)?;
        out.set(49152)
    })
}
