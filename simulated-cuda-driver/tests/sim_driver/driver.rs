//! The driver functions, with the types of `cuda.h`.

use std::ffi::{CStr, c_void};

use simulated_cuda::sim;

/// Declares driver functions. Results go to `&mut` arguments, which are pointers in C.
macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        #[allow(non_snake_case, reason = "the name is the driver's")]
        #[allow(dead_code, reason = "two programs of tests use this file")]
        #[allow(clippy::too_many_arguments, reason = "the signature is the driver's")]
        pub(crate) fn $name($($argument: $type),*) -> i32 {
            // SAFETY: the function has these types in `cuda.h`.
            let function: extern "C" fn($($type),*) -> i32 = unsafe { sim().function(stringify!($name)) };
            function($($argument),*)
        }
    )*};
}

functions! {
    cuInit(flags: u32);
    cuDriverGetVersion(version: &mut i32);
    cuGetErrorName(code: i32, name: &mut *const std::ffi::c_char);
    cuGetProcAddress_v2(name: *const std::ffi::c_char, out: &mut *mut c_void, version: i32, flags: u64, status: &mut i32);
    cuDeviceGet(device: &mut i32, ordinal: i32);
    cuDeviceGetCount(count: &mut i32);
    cuDeviceGetName(name: *mut u8, room: i32, device: i32);
    cuDeviceGetAttribute(value: &mut i32, attribute: i32, device: i32);
    cuDeviceGetUuid(uuid: &mut [u8; 16], device: i32);
    cuDevicePrimaryCtxRetain(context: &mut u64, device: i32);
    cuDevicePrimaryCtxRelease_v2(device: i32);
    cuDevicePrimaryCtxReset_v2(device: i32);
    cuDevicePrimaryCtxGetState(device: i32, flags: &mut u32, active: &mut i32);
    cuCtxCreate_v2(context: &mut u64, flags: u32, device: i32);
    cuCtxDestroy_v2(context: u64);
    cuCtxPushCurrent_v2(context: u64);
    cuCtxPopCurrent_v2(context: Option<&mut u64>);
    cuCtxSetCurrent(context: u64);
    cuCtxGetCurrent(context: &mut u64);
    cuCtxGetDevice(device: &mut i32);
    cuCtxGetApiVersion(context: u64, version: &mut u32);
    cuCtxGetId(context: u64, id: &mut u64);
    cuCtxSynchronize();
    cuCtxRecordEvent(context: u64, event: u64);
    cuMemAlloc_v2(address: &mut u64, bytes: usize);
    cuMemFree_v2(address: u64);
    cuMemAllocManaged(address: &mut u64, bytes: usize, flags: u32);
    cuMemHostAlloc(address: &mut u64, bytes: usize, flags: u32);
    cuMemFreeHost(address: u64);
    cuMemHostRegister_v2(address: u64, bytes: usize, flags: u32);
    cuMemHostUnregister(address: u64);
    cuMemHostGetDevicePointer_v2(out: &mut u64, address: u64, flags: u32);
    cuMemAllocAsync(address: &mut u64, bytes: usize, stream: u64);
    cuMemFreeAsync(address: u64, stream: u64);
    cuMemAllocFromPoolAsync(address: &mut u64, bytes: usize, pool: u64, stream: u64);
    cuMemPoolCreate(pool: &mut u64, properties: *const i32);
    cuMemPoolDestroy(pool: u64);
    cuMemPoolGetAttribute(pool: u64, attribute: i32, value: &mut u64);
    cuMemPoolExportToShareableHandle(descriptor: &mut i32, pool: u64, kind: u32, flags: u64);
    cuMemPoolImportFromShareableHandle(pool: &mut u64, descriptor: u64, kind: u32, flags: u64);
    cuMemPoolExportPointer(data: &mut MemoryHandle, address: u64);
    cuMemPoolImportPointer(address: &mut u64, pool: u64, data: &MemoryHandle);
    cuMemAddressReserve(address: &mut u64, bytes: usize, alignment: usize, wanted: u64, flags: u64);
    cuMemAddressFree(address: u64, bytes: usize);
    cuMemCreate(memory: &mut u64, bytes: usize, properties: *const i32, flags: u64);
    cuMemRelease(memory: u64);
    cuMemMap(address: u64, bytes: usize, offset: usize, memory: u64, flags: u64);
    cuMemSetAccess(address: u64, bytes: usize, descriptions: *const i32, count: usize);
    cuMemUnmap(address: u64, bytes: usize);
    cuMemRetainAllocationHandle(memory: &mut u64, address: u64);
    cuMemExportToShareableHandle(descriptor: &mut i32, memory: u64, kind: u32, flags: u64);
    cuMemImportFromShareableHandle(memory: &mut u64, descriptor: u64, kind: u32);
    cuMemGetInfo_v2(free: &mut usize, total: &mut usize);
    cuMemGetAddressRange_v2(base: &mut u64, size: &mut usize, address: u64);
    cuPointerGetAttribute(value: &mut u64, attribute: i32, address: u64);
    cuPointerGetAttributes(count: u32, attributes: *const i32, values: *const u64, address: u64);
    cuMemcpyHtoD_v2(to: u64, from: u64, bytes: usize);
    cuMemcpyDtoH_v2(to: u64, from: u64, bytes: usize);
    cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize);
    cuMemcpyHtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: u64);
    cuMemcpyDtoHAsync_v2(to: u64, from: u64, bytes: usize, stream: u64);
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: u64);
    cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: u64);
    cuMemsetD8_v2(to: u64, value: u8, count: usize);
    cuMemsetD8Async(to: u64, value: u8, count: usize, stream: u64);
    cuMemsetD32Async(to: u64, value: u32, count: usize, stream: u64);
    cuStreamCreate(stream: &mut u64, flags: u32);
    cuStreamDestroy_v2(stream: u64);
    cuStreamSynchronize(stream: u64);
    cuStreamQuery(stream: u64);
    cuStreamGetId(stream: u64, id: &mut u64);
    cuStreamGetCtx(stream: u64, context: &mut u64);
    cuStreamGetFlags(stream: u64, flags: &mut u32);
    cuStreamWriteValue64_v2(stream: u64, address: u64, number: u64, flags: u32);
    cuStreamWaitValue64_v2(stream: u64, address: u64, number: u64, flags: u32);
    cuIpcGetMemHandle(handle: &mut MemoryHandle, address: u64);
    cuIpcOpenMemHandle_v2(address: &mut u64, handle: MemoryHandle, flags: u32);
    cuIpcCloseMemHandle(address: u64);
    cuStreamWaitEvent(stream: u64, event: u64, flags: u32);
    cuStreamIsCapturing(stream: u64, status: &mut i32);
    cuStreamBeginCapture_v2(stream: u64, mode: u32);
    cuStreamEndCapture(stream: u64, graph: &mut u64);
    cuThreadExchangeStreamCaptureMode(mode: &mut u32);
    cuGraphInstantiateWithFlags(out: &mut u64, graph: u64, flags: u64);
    cuGraphLaunch(graph: u64, stream: u64);
    cuGraphDestroy(graph: u64);
    cuGraphExecDestroy(graph: u64);
    cuLaunchHostFunc(stream: u64, function: extern "C" fn(u64), data: u64);
    cuEventCreate(event: &mut u64, flags: u32);
    cuEventDestroy_v2(event: u64);
    cuEventRecord(event: u64, stream: u64);
    cuEventQuery(event: u64);
    cuEventSynchronize(event: u64);
    cuEventElapsedTime(time: &mut f32, start: u64, end: u64);
    cuModuleLoadData(module: &mut u64, image: *const std::ffi::c_char);
    cuModuleUnload(module: u64);
    cuModuleGetFunction(function: &mut u64, module: u64, name: *const std::ffi::c_char);
    cuLaunchKernel(
        function: u64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: u64,
        values: *const *const c_void, extra: *const c_void
    );
    cuArrayDestroy(array: u64);
}

/// `CUipcMemHandle` and `CUmemPoolPtrExportData`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "two programs of tests use this file")]
pub(crate) struct MemoryHandle(pub(crate) [u8; 64]);

impl Default for MemoryHandle {
    fn default() -> Self {
        Self([0; 64])
    }
}

/// The result codes that tests expect.
pub(crate) mod code {
    pub(crate) const OK: i32 = 0;
    pub(crate) const INVALID_VALUE: i32 = 1;
    pub(crate) const OUT_OF_MEMORY: i32 = 2;
    pub(crate) const NOT_INITIALIZED: i32 = 3;
    pub(crate) const INVALID_DEVICE: i32 = 101;
    pub(crate) const INVALID_IMAGE: i32 = 200;
    pub(crate) const INVALID_CONTEXT: i32 = 201;
    pub(crate) const INVALID_HANDLE: i32 = 400;
    pub(crate) const NOT_FOUND: i32 = 500;
    pub(crate) const NOT_READY: i32 = 600;
    pub(crate) const DESTROYED: i32 = 709;
    pub(crate) const NOT_PERMITTED: i32 = 800;
    pub(crate) const NOT_SUPPORTED: i32 = 801;
    pub(crate) const UNSUPPORTED: i32 = 900;
    pub(crate) const INVALIDATED: i32 = 901;
    pub(crate) const MERGE: i32 = 902;
    pub(crate) const UNMATCHED: i32 = 903;
    pub(crate) const UNJOINED: i32 = 904;
    pub(crate) const ISOLATION: i32 = 905;
    pub(crate) const IMPLICIT: i32 = 906;
    pub(crate) const CAPTURED_EVENT: i32 = 907;
    pub(crate) const WRONG_THREAD: i32 = 908;
    #[allow(dead_code, reason = "two programs of tests use this file")]
    pub(crate) const UNKNOWN: i32 = 999;
}

/// Checks that a call succeeded. Fails with the driver's name for the code.
#[track_caller]
pub(crate) fn ok(answer: i32) {
    let mut name = c"no name".as_ptr();
    if answer != code::OK {
        cuGetErrorName(answer, &mut name);
    }
    // SAFETY: the driver's names live as long as the process, and so does the literal above.
    let name = unsafe { CStr::from_ptr(name) };
    assert_eq!(answer, code::OK, "{}", name.to_string_lossy());
}

/// Returns what a function writes to its first argument.
#[track_caller]
pub(crate) fn get<T: Default>(function: impl FnOnce(&mut T) -> i32) -> T {
    let mut value = T::default();
    ok(function(&mut value));
    value
}
