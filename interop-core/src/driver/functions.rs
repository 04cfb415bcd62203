//! The functions of the CUDA driver, loaded at run time.
//!
//! The first call that needs `libcuda` opens it, and it stays open. Nothing in this crate links to it: a program with
//! this crate starts on a machine without a driver, and only calls that need the driver fail there.
//!
//! The symbols without the suffix `_ptsz` are used, so streams 0 and 1 are the legacy default stream.
//!
//! To add a function, change these places. `cargo xtask guard lists` finds them by `cuStreamGetCtx` and `cuCtxRecordEvent`.
//! * Here: a line in `table!`, with the type from cuda.h. An older driver may lack it; the caller decides what to do then.
//! * `interop-core/src/driver`, `interop-core/src/order`: its caller. Only the second folder knows arrays.
//! * `simulated-cuda-driver/src/api`: the same function. It checks what a real driver checks, in the same order.
//! * `simulated-cuda-driver/src/hooks.rs`: only if tests want of it what no hook does yet, such as to lose one call.
//! * `simulated-cuda-driver/tests`: a line in the table of `driver.rs`; what it does, and what it refuses.
//! * `simulated-cuda/src/lib.rs`: the same hook for users.
//! * `tests/driver`: its purpose, its failure (`fail_next`), and the number of calls.
//! * `tests/cuda`: that a real driver behaves like the simulated one; in Python below `tests/gpu`.
//! * `tests/functions`, `tests/python`, `tests/benches`: tests that count its calls.
//! * `ARCHITECTURE.md`: the tables of driver calls, if it orders or releases.

use core::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use core::ptr::null;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::OnceLock;

use libloading::Library;

use crate::error::{Error, ErrorKind, Result};
use crate::process::fork::generation;
use crate::process::settings::SETTINGS;

/// A `CUcontext`, as a number. It is passed on and compared, never dereferenced.
pub(crate) type CUcontext = usize;

/// A `CUevent`.
pub(crate) type CUevent = usize;

/// A `CUstream`.
pub(crate) type CUstream = usize;

/// A `CUmemoryPool`.
pub(crate) type CUmemoryPool = usize;

/// The file names of the driver's library.
const LIBRARIES: &[&str] = if cfg!(windows) { &["nvcuda.dll"] } else { &["libcuda.so.1", "libcuda.so"] };

/// `CUipcMemHandle`, or `CUmemPoolPtrExportData`: plain bytes, by which another process opens memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct IpcHandle(pub [u8; 64]);

/// A failed driver call: the name of the function and the `CUresult`. It is converted to an [`Error`] where a user sees
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverError {
    pub(crate) symbol: &'static str,
    pub(crate) code: c_int,
}

/// The result of a driver call.
pub type Outcome<T = ()> = core::result::Result<T, DriverError>;

/// The `CUresult` values that this crate distinguishes.
pub(crate) mod code {
    pub(crate) const INVALID_VALUE: i32 = 1;
    pub(crate) const OUT_OF_MEMORY: i32 = 2;
    pub(crate) const NOT_INITIALIZED: i32 = 3;
    pub(crate) const INVALID_CONTEXT: i32 = 201;
    pub(crate) const INVALID_HANDLE: i32 = 400;
    pub(crate) const NOT_FOUND: i32 = 500;
    pub(crate) const NOT_READY: i32 = 600;
    pub(crate) const NOT_SUPPORTED: i32 = 801;
    pub(crate) const CONTEXT_IS_DESTROYED: i32 = 709;
    pub(crate) const CAPTURE_UNSUPPORTED: i32 = 900;
    pub(crate) const CAPTURE_IMPLICIT: i32 = 906;
    pub(crate) const CAPTURE_WRONG_THREAD: i32 = 908;

    /// The codes after which no work is left: `NOT_INITIALIZED` and `DEINITIALIZED`; `ECC_UNCORRECTABLE`; `CONTAINED`;
    /// `ILLEGAL_ADDRESS`; `LAUNCH_TIMEOUT`; `CONTEXT_IS_DESTROYED` and `ASSERT`; `HARDWARE_STACK_ERROR` to
    /// `LAUNCH_FAILED`; `TENSOR_MEMORY_LEAK`; `MPS_CLIENT_TERMINATED`; `EXTERNAL_DEVICE`. For the last three, and for
    /// `CONTAINED`, the driver API documentation also says that the process has to be ended (`CUresult`).
    pub(crate) const FINAL: [core::ops::RangeInclusive<i32>; 10] = [
        3..=4,
        214..=214,
        226..=226,
        700..=700,
        702..=702,
        CONTEXT_IS_DESTROYED..=710,
        714..=719,
        721..=721,
        810..=810,
        911..=911,
    ];
}

macro_rules! table {
    ($($(#[$doc:meta])* $method:ident = $symbol:ident($($argument:ident: $type:ty),*);)*) => {
        /// One field for each function, `None` if the driver is too old to have it. `CUDAAPI` is the calling convention
        /// of the system: that of C, except on 32-bit Windows.
        pub struct Driver {
            $($method: Option<unsafe extern "system" fn($($type),*) -> c_int>,)*
            /// The number of devices, once it is known.
            devices: OnceLock<i32>,
        }

        impl Driver {
            fn load(library: &Library) -> Self {
                // SAFETY: the symbols are functions of these types in every driver that has them (`cuda.h`).
                $(let $method = unsafe { library.get(concat!(stringify!($symbol), "\0").as_bytes()) }.ok().map(|found| *found);)*
                Self { $($method,)* devices: OnceLock::new() }
            }

            $(
                $(#[$doc])*
                ///
                /// # Safety
                ///
                /// Handles are live or were created by the driver. Pointers are valid for what the function reads and
                /// writes.
                ///
                /// # Errors
                ///
                /// The driver's answer.
                #[allow(clippy::too_many_arguments, reason = "as many as the driver's function has")]
                #[inline]
                pub unsafe fn $method(&self, $($argument: $type),*) -> Outcome {
                    let symbol = stringify!($symbol);
                    if is_opened_by_parent() {
                        return Err(DriverError { symbol, code: code::NOT_INITIALIZED });
                    }
                    let Some(function) = self.$method else { return Err(DriverError { symbol, code: code::NOT_FOUND }) };
                    // SAFETY: the function's own preconditions are forwarded to the caller.
                    match unsafe { function($($argument),*) } {
                        0 => Ok(()),
                        code => Err(DriverError { symbol, code }),
                    }
                }
            )*
        }
    };
}

table! {
    /// Initializes the driver.
    init = cuInit(flags: c_uint);
    /// Returns the name of a `CUresult`.
    error_name = cuGetErrorName(code: c_int, text: *mut *const c_char);
    /// Returns the description of a `CUresult`.
    error_text = cuGetErrorString(code: c_int, text: *mut *const c_char);
    /// Returns the number of devices.
    device_count = cuDeviceGetCount(count: *mut c_int);
    /// Returns the size of a device's memory in bytes.
    device_memory = cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int);
    /// Retains the primary context of a device.
    primary_retain = cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: c_int);
    /// Returns whether a device's primary context is in use.
    primary_state = cuDevicePrimaryCtxGetState(device: c_int, flags: *mut c_uint, active: *mut c_int);
    /// Returns the context that is current on this thread.
    context_current = cuCtxGetCurrent(context: *mut CUcontext);
    /// Makes a context current until it is popped.
    context_push = cuCtxPushCurrent_v2(context: CUcontext);
    /// Makes the previous context current again.
    context_pop = cuCtxPopCurrent_v2(context: *mut CUcontext);
    /// Returns the device of the current context.
    context_device = cuCtxGetDevice(device: *mut c_int);
    /// Returns the API version of a context. Fails for a context that was destroyed.
    context_version = cuCtxGetApiVersion(context: CUcontext, version: *mut c_uint);
    /// Returns the number of a context (12.0 and later). No other context of this process has it, even one that gets
    /// the same handle later.
    context_id = cuCtxGetId(context: CUcontext, id: *mut c_ulonglong);
    /// Waits on the host for all work of the current context.
    context_synchronize = cuCtxSynchronize();
    /// Records an event after all work of a context, on any stream (12.5 and later).
    context_record = cuCtxRecordEvent(context: CUcontext, event: CUevent);
    /// Makes all later work of a context wait for an event, on any stream (12.5 and later).
    context_wait = cuCtxWaitEvent(context: CUcontext, event: CUevent);
    /// Returns the context of a stream. Fails for a stream that was destroyed.
    stream_context = cuStreamGetCtx(stream: CUstream, context: *mut CUcontext);
    /// Returns whether a stream captures a graph. A handle that is not a stream ends the process.
    stream_is_capturing = cuStreamIsCapturing(stream: CUstream, status: *mut c_int);
    /// Returns the capture that a stream is part of.
    stream_capture = cuStreamGetCaptureInfo_v2(
        stream: CUstream, status: *mut c_int, id: *mut c_ulonglong, graph: *mut usize, dependencies: *mut usize,
        count: *mut usize
    );
    /// Makes later work of a stream wait for an event.
    stream_wait = cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
    /// Creates a stream in the current context.
    stream_create = cuStreamCreate(stream: *mut CUstream, flags: c_uint);
    /// Waits on the host for all work of a stream.
    stream_synchronize = cuStreamSynchronize(stream: CUstream);
    /// Returns whether the work on a stream is done.
    stream_query = cuStreamQuery(stream: CUstream);
    /// Creates an event in the current context.
    event_create = cuEventCreate(event: *mut CUevent, flags: c_uint);
    /// Records an event after the work that is on a stream now.
    event_record = cuEventRecord(event: CUevent, stream: CUstream);
    /// Returns whether the work before an event is done.
    event_query = cuEventQuery(event: CUevent);
    /// Waits on the host for the work before an event.
    event_synchronize = cuEventSynchronize(event: CUevent);
    /// Destroys an event.
    event_destroy = cuEventDestroy_v2(event: CUevent);
    /// Returns several attributes of an address in one call.
    pointer_attributes = cuPointerGetAttributes(
        count: c_uint, attributes: *mut c_int, values: *mut *mut c_void, address: c_ulonglong
    );
    /// Returns one attribute of an address.
    pointer_attribute = cuPointerGetAttribute(value: *mut c_void, attribute: c_int, address: c_ulonglong);
    /// Returns the allocation that contains an address.
    address_range = cuMemGetAddressRange_v2(start: *mut c_ulonglong, bytes: *mut usize, address: c_ulonglong);
    /// Sets the capture mode of this thread and returns the previous one.
    exchange_capture_mode = cuThreadExchangeStreamCaptureMode(mode: *mut c_int);
    /// Allocates memory on the device of the current context.
    memory_alloc = cuMemAlloc_v2(address: *mut c_ulonglong, bytes: usize);
    /// Frees device or managed memory after all work is done.
    memory_free = cuMemFree_v2(address: c_ulonglong);
    /// Allocates host memory that devices can reach.
    memory_host_alloc = cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: c_uint);
    /// Frees such host memory after all work is done.
    memory_host_free = cuMemFreeHost(address: *mut c_void);
    /// Allocates memory that host and devices share.
    memory_managed_alloc = cuMemAllocManaged(address: *mut c_ulonglong, bytes: usize, flags: c_uint);
    /// Allocates memory from a pool, in stream order.
    memory_pool_alloc = cuMemAllocFromPoolAsync(address: *mut c_ulonglong, bytes: usize, pool: CUmemoryPool, stream: CUstream);
    /// Returns memory to its pool, in stream order.
    memory_pool_free = cuMemFreeAsync(address: c_ulonglong, stream: CUstream);
    /// Creates a memory pool.
    pool_create = cuMemPoolCreate(pool: *mut CUmemoryPool, properties: *const c_void);
    /// Returns whether a device can reach the memory of another.
    peer_access = cuDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int);
    /// Lets other devices use the memory of a pool.
    pool_set_access = cuMemPoolSetAccess(pool: CUmemoryPool, access: *const c_void, count: usize);
    /// Sets an attribute of a memory pool.
    pool_set = cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_int, value: *mut c_void);
    /// Returns free memory of a pool to the driver.
    pool_trim = cuMemPoolTrimTo(pool: CUmemoryPool, kept: usize);
    /// Makes a descriptor of a memory pool, for other processes.
    pool_export = cuMemPoolExportToShareableHandle(
        descriptor: *mut c_int, pool: CUmemoryPool, kind: c_uint, flags: c_ulonglong
    );
    /// Makes a pool of the descriptor of another process. Nothing can be allocated from it.
    pool_import = cuMemPoolImportFromShareableHandle(
        pool: *mut CUmemoryPool, descriptor: *mut c_void, kind: c_uint, flags: c_ulonglong
    );
    /// Returns the bytes by which other processes open memory of a pool that was exported.
    pool_export_pointer = cuMemPoolExportPointer(handle: *mut IpcHandle, address: c_ulonglong);
    /// Opens memory of an imported pool. It is freed as memory of a pool.
    pool_import_pointer = cuMemPoolImportPointer(address: *mut c_ulonglong, pool: CUmemoryPool, handle: *const IpcHandle);
    /// Gives up a pool. What was allocated from it stays.
    pool_destroy = cuMemPoolDestroy(pool: CUmemoryPool);
    /// Returns what tells a device from all others, in every process.
    device_uuid = cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int);
    /// Lets devices use memory of the host.
    memory_host_register = cuMemHostRegister_v2(address: *mut c_void, bytes: usize, flags: c_uint);
    /// Takes such memory back. No device uses it any more.
    memory_host_unregister = cuMemHostUnregister(address: *mut c_void);
    /// Returns the handle by which other processes open the whole allocation that contains an address.
    ipc_handle = cuIpcGetMemHandle(handle: *mut IpcHandle, address: c_ulonglong);
    /// Opens an allocation of another process. One that is open has the same address again, and is counted.
    ipc_open = cuIpcOpenMemHandle_v2(address: *mut c_ulonglong, handle: IpcHandle, flags: c_uint);
    /// Closes an opened allocation, after all work of the device.
    ipc_close = cuIpcCloseMemHandle(address: c_ulonglong);
    /// Returns a handle of the memory that is mapped at an address.
    mapped_retain = cuMemRetainAllocationHandle(handle: *mut c_ulonglong, address: *mut c_void);
    /// Gives up a handle of memory. Its mappings stay.
    mapped_release = cuMemRelease(handle: c_ulonglong);
    /// Makes a descriptor of memory, for other processes.
    mapped_export = cuMemExportToShareableHandle(
        descriptor: *mut c_int, handle: c_ulonglong, kind: c_uint, flags: c_ulonglong
    );
    /// Makes a handle of the memory of another process.
    mapped_import = cuMemImportFromShareableHandle(handle: *mut c_ulonglong, descriptor: *mut c_void, kind: c_uint);
    /// Reserves addresses.
    address_reserve = cuMemAddressReserve(
        address: *mut c_ulonglong, bytes: usize, alignment: usize, wanted: c_ulonglong, flags: c_ulonglong
    );
    /// Gives reserved addresses back.
    address_free = cuMemAddressFree(address: c_ulonglong, bytes: usize);
    /// Maps memory at reserved addresses.
    memory_map = cuMemMap(address: c_ulonglong, bytes: usize, offset: usize, handle: c_ulonglong, flags: c_ulonglong);
    /// Lets a device use mapped memory.
    memory_set_access = cuMemSetAccess(address: c_ulonglong, bytes: usize, access: *const c_void, count: usize);
    /// Removes all mappings at reserved addresses.
    memory_unmap = cuMemUnmap(address: c_ulonglong, bytes: usize);
    /// Queues the write of a number, which comes after all writes of the work before it (12.0 and later).
    stream_write_number = cuStreamWriteValue64_v2(stream: CUstream, address: c_ulonglong, value: c_ulonglong, flags: c_uint);
    /// Makes later work of a stream wait for a number (12.0 and later).
    stream_wait_number = cuStreamWaitValue64_v2(stream: CUstream, address: c_ulonglong, value: c_ulonglong, flags: c_uint);
    /// Queues a copy between any two addresses that the driver knows.
    copy = cuMemcpyAsync(to: c_ulonglong, from: c_ulonglong, bytes: usize, stream: CUstream);
    /// Loads a module into the current context, and compiles it.
    module_load = cuModuleLoadData(module: *mut usize, image: *const c_char);
    /// Returns a kernel of a module.
    module_function = cuModuleGetFunction(function: *mut usize, module: usize, name: *const c_char);
    /// Queues a kernel launch.
    launch = cuLaunchKernel(
        function: usize, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint,
        shared: c_uint, stream: CUstream, parameters: *mut *mut c_void, extra: *mut *mut c_void
    );
    /// Queues setting bytes to a value.
    set = cuMemsetD8Async(address: c_ulonglong, value: u8, bytes: usize, stream: CUstream);
}

/// Returns the driver. The first call opens and initializes it.
///
/// # Errors
///
/// [`ErrorKind::Driver`] if there is no driver, or if it cannot be initialized.
#[inline]
pub fn driver() -> Result<&'static Driver> {
    opened().map_or_else(open_once, Ok)
}

#[cold]
fn open_once() -> Result<&'static Driver> {
    let known = OPENED.driver.get().map_or_else(open_here, Ok)?;
    known.as_ref().map_err(Error::clone)
}

/// Opens the driver, unless a process that this one was forked from had opened it or was about to.
fn open_here() -> Result<&'static Result<Driver>> {
    let here = generation();
    let earlier = OPENED.by.compare_exchange(0, here, Ordering::Relaxed, Ordering::Relaxed);
    if earlier.is_err_and(|other| other != here) {
        return Err(DriverError { symbol: "cuInit", code: code::NOT_INITIALIZED }.into());
    }
    let driver = OPENED.driver.get_or_init(open);
    if driver.is_err() {
        OPENED.by.store(0, Ordering::Relaxed);
    }
    Ok(driver)
}

/// What is remembered of the driver.
struct Opened {
    /// The [process](generation) that opened it, or is about to; 0 for none.
    by: AtomicUsize,
    driver: OnceLock<Result<Driver>>,
}

static OPENED: Opened = Opened { by: AtomicUsize::new(0), driver: OnceLock::new() };

/// Returns whether a process that this one was forked from has opened the driver. CUDA leaves the use of the driver in
/// such a process undefined, so the driver is not called there.
#[inline]
pub(crate) fn is_opened_by_parent() -> bool {
    let opener = OPENED.by.load(Ordering::Relaxed);
    opener != 0 && opener != generation()
}

/// Returns the driver if it is already open and initialized.
#[inline]
pub(crate) fn opened() -> Option<&'static Driver> {
    OPENED.driver.get()?.as_ref().ok()
}

fn open() -> Result<Driver> {
    let mut missing = Vec::new();
    // Miri loads no libraries: under Miri there is no driver, as on a computer without a GPU.
    let names = if cfg!(miri) { &[] } else { LIBRARIES };
    let library = names.iter().find_map(|name| {
        // SAFETY: the driver's library may be loaded at any time; its initializers have no preconditions.
        unsafe { Library::new(*name) }.map_err(|error| missing.push(error.to_string())).ok()
    });
    let library = library.ok_or_else(|| {
        let sentence = format!("no NVIDIA driver could be loaded: {}", missing.join("; "));
        Error::state(ErrorKind::Driver, "libcuda", sentence)
    })?;
    let driver = Driver::load(&library);
    // The library stays loaded, because its functions are used until the end of the program.
    core::mem::forget(library);
    // SAFETY: the function has no preconditions.
    match unsafe { driver.init(0) } {
        Ok(()) => Ok(driver),
        // `From<DriverError>` would ask the opened driver for its texts, but no driver is open yet.
        Err(failure) => Err(failure.explain(Some(&driver), "a driver that can start, and a device")),
    }
}

impl Driver {
    /// Returns the number of devices.
    pub(crate) fn devices(&self) -> Outcome<i32> {
        if let Some(count) = self.devices.get() {
            return Ok(*count);
        }
        let mut count = 0;
        // SAFETY: `count` is valid for a write.
        unsafe { self.device_count(&raw mut count) }?;
        Ok(*self.devices.get_or_init(|| count))
    }
}

impl DriverError {
    /// Returns the error for a call that should succeed under the condition `allowed`.
    #[cold]
    pub(crate) fn expecting(self, allowed: impl core::fmt::Display) -> Error {
        self.explain(opened(), allowed)
    }

    #[cold]
    fn explain(self, driver: Option<&Driver>, allowed: impl core::fmt::Display) -> Error {
        let Self { symbol, code } = self;
        if is_opened_by_parent() {
            let sentence = "CUDA was in use when this process was forked (CUDA_ERROR_NOT_INITIALIZED, 3); \
                            in Python, use `multiprocessing` with the start method \"spawn\"";
            return Error::state(ErrorKind::Driver, symbol, sentence);
        }
        // A missing kernel is a mistake in the PTX.
        if code == code::NOT_FOUND && symbol != "cuModuleGetFunction" {
            return Error::state(ErrorKind::Driver, symbol, "this driver is too old and lacks the function");
        }
        let text = |ask: unsafe fn(&Driver, c_int, *mut *const c_char) -> Outcome| {
            let mut text = null();
            // SAFETY: `text` is valid for a write.
            unsafe { ask(driver?, code, &raw mut text) }.ok()?;
            // SAFETY: on success `text` points to the driver's own string, which is never freed.
            Some(unsafe { CStr::from_ptr(text) }.to_string_lossy())
        };
        let name = text(Driver::error_name).unwrap_or("an unknown error".into());
        let meaning = text(Driver::error_text).unwrap_or_default();
        Error::new(ErrorKind::Driver, symbol, format_args!("{name} ({code}): {meaning}"), allowed)
    }

    /// Returns whether a handle belongs to another context, or to one that is gone or was reset.
    pub(crate) fn is_about_handles(self) -> bool {
        matches!(self.code, code::INVALID_HANDLE | code::INVALID_CONTEXT | code::CONTEXT_IS_DESTROYED)
    }

    /// Returns whether no work is left: the context is gone or broken, or the driver has shut down, as at the end of
    /// the program. After a kernel has failed, every call in its context fails in the same way.
    pub(crate) fn is_final(self) -> bool {
        code::FINAL.iter().any(|codes| codes.contains(&self.code))
    }

    /// Returns whether the driver cannot load a module, because it is older than the module's PTX or has no compiler:
    /// `INVALID_IMAGE`, `NO_BINARY_FOR_GPU`, `INVALID_PTX` and the codes after it about compilation.
    pub(crate) fn is_about_modules(self) -> bool {
        self.symbol == "cuModuleLoadData"
            && matches!(self.code, 200 | 209 | 218 | 221..=223 | code::NOT_FOUND)
    }

    /// Returns whether the call was refused because a stream captures a graph.
    pub(crate) fn is_about_capture(self) -> bool {
        (code::CAPTURE_UNSUPPORTED..=code::CAPTURE_WRONG_THREAD).contains(&self.code)
    }
}

impl From<DriverError> for Error {
    fn from(failure: DriverError) -> Self {
        failure.expecting("CUDA_SUCCESS (0)")
    }
}

/// Returns the number of devices, or 0 without a driver that reports it.
#[must_use]
pub fn device_count() -> i32 {
    driver().map_or(0, |driver| driver.devices().unwrap_or(0))
}

/// Returns whether there is a driver that can be initialized.
#[must_use]
pub fn is_available() -> bool {
    driver().is_ok()
}

/// Converts a device address of the driver. CUDA has no 32-bit machines any more.
#[expect(clippy::cast_possible_truncation, reason = "as wide as an address")]
pub(crate) const fn to_usize(address: u64) -> usize {
    address as usize
}

/// Runs a closure that may wait for the work of a device, as freeing memory does, or that takes long. The hook gives up the locks that
/// this work may need.
pub(crate) fn run_blocking(run: impl FnOnce()) {
    let Some(wait) = SETTINGS.run_blocking.get() else { return run() };
    let mut run = Some(run);
    wait(&mut || run.take().map_or((), |run| run()));
}

/// Sets the function that runs everything that may wait for a device, such as freeing memory. `wait` first gives up
/// every lock that the work of the device may need.
#[cfg(any(feature = "python", feature = "counters"))]
pub fn set_blocking_hook(wait: fn(&mut dyn FnMut())) {
    // The first hook stays.
    let _ = SETTINGS.run_blocking.set(wait);
}
