//! Modules, and kernels that are simulated by host functions.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::Mutex;

use simulated_cuda::{Arguments, Mistake, sim};

use crate::driver::*;
use crate::fixture::{Room, address_of_mut};

const PTX: &CStr =
    c".version 7.0\n.target sm_70\n.visible .entry add(.param .u64 p) { ret; }\n.entry  lonely() { ret; }";

/// The extents and the shared memory size of the latest launch.
static EXTENTS: Mutex<([u32; 6], u32)> = Mutex::new(([0; 6], 0));

/// `add(unsigned char *bytes, size_t count, unsigned char value)`
extern "C" fn add(grid: *const u32, block: *const u32, shared: u32, parameters: *const *const c_void) {
    let mut extents = [0; 6];
    for (index, extent) in extents.iter_mut().enumerate() {
        let place = if index < 3 { grid.wrapping_add(index) } else { block.wrapping_add(index - 3) };
        // SAFETY: the grid and the block have three extents each.
        *extent = unsafe { place.read() };
    }
    *EXTENTS.lock().expect("no test panics with it") = (extents, shared);
    // SAFETY: this is the pointer that the driver passed.
    let arguments = unsafe { Arguments::new(parameters) };
    // SAFETY: the parameters are registered with this type.
    let bytes = unsafe { arguments.get::<u64>(0) };
    // SAFETY: as above.
    let count = unsafe { arguments.get::<usize>(1) };
    // SAFETY: as above.
    let value = unsafe { arguments.get::<u8>(2) };
    let Some(bytes) = sim().write::<u8>(bytes, count) else { return };
    // SAFETY: `count` bytes may be accessed there while the kernel runs, and nothing else accesses them.
    let bytes = unsafe { std::slice::from_raw_parts_mut(bytes, count) };
    for byte in bytes {
        *byte = byte.wrapping_add(value);
    }
}

/// Returns the kernel of a new module.
fn kernel(room: &Room) -> u64 {
    room.sim.register_kernel("add", &[8, 8, 1], add);
    let module = get(|out| cuModuleLoadData(out, PTX.as_ptr()));
    get(|out| cuModuleGetFunction(out, module, c"add".as_ptr()))
}

/// Launches the kernel with `threads` threads per block.
fn launch(function: u64, threads: u32, stream: u64, bytes: u64, count: usize, value: u8) -> i32 {
    let parameters =
        [ptr::from_ref(&bytes).cast(), ptr::from_ref(&count).cast(), ptr::from_ref(&value).cast::<c_void>()];
    cuLaunchKernel(function, 3, 2, 1, threads, 1, 1, 64, stream, parameters.as_ptr(), ptr::null())
}

#[test]
fn a_kernel_runs_in_its_turn_with_the_parameters_of_its_launch() {
    let room = Room::new();
    let (function, stream, memory) = (kernel(&room), room.stream(), room.memory(4));
    // The local variables no longer exist when the kernel runs.
    ok(launch(function, 32, stream, memory, 4, 5));
    ok(launch(function, 32, stream, memory + 1, 1, 1));
    assert_eq!(room.peek(memory), 0);
    ok(cuStreamSynchronize(stream));
    assert_eq!([0, 1, 2].map(|offset| room.peek(memory + offset)), [5, 6, 5]);
    assert_eq!(*EXTENTS.lock().expect("no test panics with it"), ([3, 2, 1, 32, 1, 1], 64));
}

#[test]
fn a_kernel_that_leaves_its_memory_is_an_error() {
    let room = Room::new();
    let (function, stream, memory) = (kernel(&room), room.stream(), room.memory(4));
    ok(launch(function, 1, stream, memory, 5, 1));
    ok(cuStreamSynchronize(stream));
    room.expect(Mistake::OutOfBounds, "end beyond the allocation");
    assert_eq!(room.peek(memory), 0);
}

#[test]
fn a_kernel_that_uses_freed_memory_is_an_error() {
    let room = Room::new();
    let (function, stream) = (kernel(&room), room.stream());
    let memory = get(|out| cuMemAllocAsync(out, 4, stream));
    ok(cuStreamSynchronize(stream));
    ok(launch(function, 1, stream, memory, 4, 1));
    ok(cuMemFree_v2(memory));
    ok(cuStreamSynchronize(stream));
    room.expect(Mistake::UseAfterFree, "unordered");
}

#[test]
fn kernels_take_pinned_and_managed_memory() {
    let room = Room::new();
    let (function, pinned) = (kernel(&room), room.pinned(4));
    ok(launch(function, 1, 0, pinned.0, 4, 9));
    ok(cuStreamSynchronize(0));
    assert_eq!(pinned.first(), 9);
}

#[test]
fn a_kernel_knows_registered_memory_by_the_address_of_devices() {
    let room = Room::new();
    let (function, mut memory) = (kernel(&room), vec![1_u8; 4]);
    let host = address_of_mut(&mut memory);
    room.sim.set_registered_apart(true);
    ok(cuMemHostRegister_v2(host, 4, 0));
    room.sim.set_registered_apart(false);
    let device = get(|out| cuMemHostGetDevicePointer_v2(out, host, 0));
    ok(launch(function, 1, 0, device + 1, 2, 9));
    ok(cuStreamSynchronize(0));
    ok(launch(function, 1, 0, host, 4, 1));
    ok(cuStreamSynchronize(0));
    room.expect(Mistake::OutOfBounds, "which the host has and devices see at");
    ok(cuMemHostUnregister(host));
    assert_eq!(memory, [1, 10, 10, 1]);
}

#[test]
fn a_kernel_must_be_in_the_module_and_registered() {
    let room = Room::new();
    let module = get(|out| cuModuleLoadData(out, PTX.as_ptr()));
    assert_eq!(cuModuleGetFunction(&mut 0, module, c"ad".as_ptr()), code::NOT_FOUND);
    assert_eq!(cuModuleGetFunction(&mut 0, module, c"lonely".as_ptr()), code::NOT_FOUND);
    room.expect(Mistake::NoKernel, "lonely is in the module, but no host function");
    assert_eq!(cuModuleLoadData(&mut 0, c"not PTX".as_ptr()), code::INVALID_IMAGE);
    ok(cuModuleUnload(module));
    assert_eq!(cuModuleUnload(module), code::INVALID_HANDLE);
}

#[test]
fn launches_that_no_device_takes_are_refused() {
    let room = Room::new();
    let (function, stream, memory) = (kernel(&room), room.stream(), room.memory(4));
    for threads in [0, 1025] {
        assert_eq!(launch(function, threads, stream, memory, 4, 1), code::INVALID_VALUE);
    }
    assert_eq!(launch(0, 1, stream, memory, 4, 1), code::INVALID_HANDLE);
    let other = get(|out| cuCtxCreate_v2(out, 0, 0));
    assert_eq!(launch(function, 1, room.stream(), memory, 4, 1), code::INVALID_HANDLE);
    ok(cuCtxDestroy_v2(other));
}
