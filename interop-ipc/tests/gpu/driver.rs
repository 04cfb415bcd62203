//! The driver's functions that the program calls itself.

#![allow(non_snake_case, reason = "the names of the driver")]

use std::ffi::c_void;
use std::sync::OnceLock;

use libloading::Library;
use simulated_cuda::sim;

/// The driver of a GPU; `None` where there is none: then it is the simulated one, which `interop-core` finds under the same name.
fn real() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    let load = || {
        // SAFETY: the driver may be loaded at any time.
        let library = unsafe { Library::new("libcuda.so.1") }.ok()?;
        // SAFETY: the function has this type in `cuda.h`.
        let init = unsafe { library.get::<extern "C" fn(u32) -> i32>(b"cuInit\0") }.map(|init| *init);
        init.is_ok_and(|init| init(0) == 0).then_some(library)
    };
    LIBRARY.get_or_init(load).as_ref()
}

pub(crate) fn is_simulated() -> bool {
    real().is_none()
}

/// Takes the reports of the simulated driver about this process, and returns how many there are. `SHOW=1` prints them.
pub(crate) fn reports() -> usize {
    if !is_simulated() {
        return 0;
    }
    let reports = sim().take_reports();
    for report in reports.iter().filter(|_| std::env::var_os("SHOW").is_some()) {
        eprintln!("{report}");
    }
    reports.len()
}

/// How often this process has called a function of the simulated driver.
pub(crate) fn calls(function: &str) -> u64 {
    if is_simulated() { sim().calls(function) } else { 0 }
}

/// Lets the next calls of a function fail, on the simulated driver.
pub(crate) fn fail(function: &str, code: i32) {
    sim().fail_next(function, code);
}

/// Finds a function of this type.
unsafe fn find<T: Copy>(name: &str) -> T {
    match real() {
        // SAFETY: the function has this type in `cuda.h`, as the caller promises.
        Some(library) => *unsafe { library.get::<T>(name.as_bytes()) }.expect("a function of the driver"),
        // SAFETY: as above.
        None => unsafe { sim().function::<T>(name) },
    }
}

macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// Calls the function, and returns its result.
        pub(crate) fn $name($($argument: $type),*) -> i32 {
            type Function = extern "C" fn($($type),*) -> i32;
            static FOUND: OnceLock<Function> = OnceLock::new();
            // SAFETY: the function has this type in `cuda.h`.
            FOUND.get_or_init(|| unsafe { find(stringify!($name)) })($($argument),*)
        }
    )*};
}

functions! {
    cuInit(flags: u32);
    cuDeviceGetUuid_v2(uuid: &mut [u8; 16], device: i32);
    cuDevicePrimaryCtxRetain(context: &mut usize, device: i32);
    cuCtxSetCurrent(context: usize);
    cuCtxSynchronize();
    cuCtxCreate_v2(context: &mut usize, flags: u32, device: i32);
    cuCtxDestroy_v2(context: usize);
    cuStreamCreate(stream: &mut usize, flags: u32);
    cuStreamSynchronize(stream: usize);
    cuStreamQuery(stream: usize);
    cuStreamBeginCapture_v2(stream: usize, mode: u32);
    cuStreamEndCapture(stream: usize, graph: &mut usize);
    cuGraphDestroy(graph: usize);
    cuStreamWaitValue64_v2(stream: usize, address: u64, value: u64, flags: u32);
    cuMemAlloc_v2(address: &mut u64, bytes: usize);
    cuMemAllocAsync(address: &mut u64, bytes: usize, stream: usize);
    cuMemAllocFromPoolAsync(address: &mut u64, bytes: usize, pool: u64, stream: usize);
    cuMemPoolCreate(pool: &mut u64, properties: &[i32; 22]);
    cuMemPoolDestroy(pool: u64);
    cuMemFreeAsync(address: u64, stream: usize);
    cuMemAllocManaged(address: &mut u64, bytes: usize, flags: u32);
    cuMemFree_v2(address: u64);
    cuMemHostAlloc(address: &mut *mut c_void, bytes: usize, flags: u32);
    cuMemFreeHost(address: *mut c_void);
    cuMemGetInfo_v2(free: &mut usize, total: &mut usize);
    cuMemsetD8Async(address: u64, value: u8, bytes: usize, stream: usize);
    cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: usize);
    cuMemCreate(memory: &mut u64, bytes: usize, properties: &[i32; 8], flags: u64);
    cuMemRelease(memory: u64);
    cuMemAddressReserve(address: &mut u64, bytes: usize, alignment: usize, wanted: u64, flags: u64);
    cuMemAddressFree(address: u64, bytes: usize);
    cuMemMap(address: u64, bytes: usize, offset: usize, memory: u64, flags: u64);
    cuMemSetAccess(address: u64, bytes: usize, access: &[i32; 3], count: usize);
    cuMemUnmap(address: u64, bytes: usize);
    cuIpcGetMemHandle(handle: &mut MemoryHandle, address: u64);
    cuIpcOpenMemHandle_v2(address: &mut u64, handle: MemoryHandle, flags: u32);
    cuIpcCloseMemHandle(address: u64);
}

/// `CUipcMemHandle`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct MemoryHandle(pub(crate) [u8; 64]);

/// Expects a call to succeed.
#[track_caller]
pub(crate) fn ok(code: i32) {
    assert_eq!(code, 0, "a CUresult");
}

/// Returns what a call writes.
#[track_caller]
pub(crate) fn get<T: Default>(call: impl FnOnce(&mut T) -> i32) -> T {
    let mut value = T::default();
    ok(call(&mut value));
    value
}

/// Makes the primary context of the first device current.
pub(crate) fn start() {
    if is_simulated() {
        // Before `interop-core` looks for a driver.
        sim();
    }
    ok(cuInit(0));
    ok(cuCtxSetCurrent(get(|out| cuDevicePrimaryCtxRetain(out, 0))));
}

/// Creates a stream that is ordered with no other.
pub(crate) fn stream() -> usize {
    const NON_BLOCKING: u32 = 1;
    get(|out| cuStreamCreate(out, NON_BLOCKING))
}
