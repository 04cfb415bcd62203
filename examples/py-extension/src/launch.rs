//! Launches the kernels of `kernels/`, for arrays whose element type and rank are known only at run time.
//!
//! The driver is opened at the first launch, so the module can be imported without a driver.
#![expect(unsafe_code, reason = "calls the driver")]

use core::array;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr::{self, null_mut};
use std::sync::{Mutex, OnceLock, PoisonError};

use interop_core::cuda::{self, Context};
use interop_core::kernel::{KernelArrays, KernelViewMut};
use interop_core::protocols::{RawDescriptor, Strides};
use interop_core::{
    ArrayInfo, DType, Device, DeviceType, Error, ErrorKind, LaunchSize, Result, StreamHandle,
};
use interop_demo_extension_kernels::{AXES, kind};
use libloading::Library;

use crate::parts::Parts;

/// The PTX of the kernels, as text that ends with a zero.
const PTX: &str = concat!(include_str!("../kernels/kernels.ptx"), "\0");

/// The arrays as the kernels take them.
type Arrays<'a, const COUNT: usize> = KernelArrays<'a, COUNT, AXES>;

/// The types of [`KERNELS`] except `bool`, and complex numbers, for error messages.
pub(crate) const SCALED: &str =
    "integers of 8 to 64 bits, float16, bfloat16, float32, float64, complex64 and complex128";

/// The types of [`KERNELS`] including `bool`.
pub(crate) const SUMMED: &str = "bool, integers of 8 to 64 bits, float16, bfloat16, float32 and float64";

/// The kernels of an element type.
struct Kernels {
    dtype: DType,
    scale: &'static str,
    sum: &'static str,
    /// What elements of this size are.
    kind: u32,
}

macro_rules! kernels {
    ($($dtype:ident: $bits:literal $kind:ident;)*) => {
        [$(Kernels {
            dtype: DType::$dtype,
            scale: concat!("scale_", $bits, "\0"),
            sum: concat!("sum_", $bits, "\0"),
            kind: kind::$kind,
        }),*]
    };
}

const KERNELS: [Kernels; 13] = kernels! {
    BOOL: "8" UNSIGNED;
    I8: "8" SIGNED;
    I16: "16" SIGNED;
    I32: "32" SIGNED;
    I64: "64" SIGNED;
    U8: "8" UNSIGNED;
    U16: "16" UNSIGNED;
    U32: "32" UNSIGNED;
    U64: "64" UNSIGNED;
    F16: "16" FLOAT;
    BF16: "16" BFLOAT;
    F32: "32" FLOAT;
    F64: "64" FLOAT;
};

impl Kernels {
    fn of(info: &ArrayInfo, allowed: &str) -> Result<&'static Self> {
        let known = KERNELS.iter().find(|kernels| kernels.dtype == info.dtype());
        known
            .filter(|_| !info.is_padded())
            .ok_or_else(|| Error::new(ErrorKind::DType, "dtype", info.dtype(), allowed))
    }

    fn scaling(info: &ArrayInfo) -> Result<&'static Self> {
        if info.dtype() == DType::BOOL {
            return Err(Error::new(ErrorKind::DType, "dtype", info.dtype(), SCALED));
        }
        Self::of(info, SCALED)
    }
}

/// Describes the parts of complex numbers as numbers of their own, along one more axis. Returns `None` for other types.
fn parts_of(info: &ArrayInfo) -> Result<Option<ArrayInfo>> {
    let dtype = match info.dtype() {
        DType::COMPLEX64 => DType::F32,
        DType::COMPLEX128 => DType::F64,
        _ => return Ok(None),
    };
    let shape: Vec<i64> = info.shape().iter().map(|extent| *extent as i64).chain([2]).collect();
    let strides: Vec<i64> = info.strides().iter().map(|stride| 2 * *stride as i64).chain([1]).collect();
    let raw = RawDescriptor {
        dtype,
        strides: Strides::Elements(&strides),
        mutability: info.mutability(),
        ..RawDescriptor::new(info.address(), info.device(), &shape)
    };
    raw.validate().map(Some)
}

/// Writes every element of `from`, multiplied by `factor`, to its place in `to`, which has the same shape or is the
/// same array.
///
/// The kernel is queued on `stream` when this function returns.
///
/// # Safety
///
/// Both arrays stay alive until the kernel is done. They are the same memory or share none. All work on both is ordered
/// with `stream`.
pub(crate) unsafe fn scale(
    from: &ArrayInfo,
    to: &ArrayInfo,
    mut factor: f64,
    stream: StreamHandle,
) -> Result<()> {
    if to.dtype() != from.dtype() {
        return Err(Error::new(ErrorKind::DType, "dtype", to.dtype(), from.dtype()));
    }
    if let (Some(from), Some(to)) = (parts_of(from)?, parts_of(to)?) {
        // SAFETY: the parts are in the same memory.
        return unsafe { scale(&from, &to, factor, stream) };
    }
    let kernels = Kernels::scaling(from)?;
    if to.is_read_only() {
        return Err(Error::new(ErrorKind::ReadOnly, "readonly", "a read-only array", "a writable array"));
    }
    if !to.layout().is_injective() {
        let allowed = "elements that do not share memory, to write to them";
        return Err(Error::new(ErrorKind::Strides, "strides", "elements that share memory", allowed));
    }
    if from.numel() == 0 {
        return Ok(());
    }
    let mut arrays = Arrays::<2>::new([&to.kernel_view()?, &from.kernel_view()?])?;
    let (blocks, mut kind) = (arrays.launch_size().grid.0, kernels.kind);
    let mut arguments = [(&raw mut arrays).cast(), (&raw mut factor).cast(), (&raw mut kind).cast()];
    // SAFETY: these are the kernel's parameters, with its types.
    unsafe { launch(from.device(), kernels.scale, stream, blocks, &mut arguments) }
}

/// Returns the sum of the elements as a double. Waits for the kernel.
///
/// # Safety
///
/// The memory is live, and all work on it is ordered with `stream`.
pub(crate) unsafe fn sum(info: &ArrayInfo, stream: StreamHandle) -> Result<f64> {
    let kernels = Kernels::of(info, SUMMED)?;
    if info.numel() == 0 {
        return Ok(0.0);
    }
    let mut array = Arrays::<1>::new([&info.kernel_view()?])?;
    let blocks = array.launch_size_within(Parts::MOST).grid.0;
    let driver = Driver::get()?;
    if driver.captures(info.device(), stream) {
        // During a capture the kernel would run only when the graph is launched. This call returns the error that
        // explains it.
        cuda::stream_synchronize(stream, info.device())?;
    }
    let parts = Parts::take(driver)?;
    let (mut view, mut kind) = (parts.view(blocks), kernels.kind);
    let mut arguments = [(&raw mut array).cast(), (&raw mut view).cast(), (&raw mut kind).cast()];
    // SAFETY: these are the kernel's parameters, with its types. There is one part per block.
    unsafe { launch(info.device(), kernels.sum, stream, blocks, &mut arguments) }?;
    cuda::stream_synchronize(stream, info.device())?;
    // SAFETY: the kernel has written the parts and is done.
    Ok(unsafe { parts.sum(blocks) })
}

/// Fills new memory of `len` elements with copies of the bytes of one element.
///
/// The kernel is queued on the legacy default stream when this function returns `true`. It returns `false` if a graph
/// capture is in progress that the launch would invalidate, or if 16 bytes are no whole number of elements.
///
/// # Safety
///
/// The memory has `len` elements, and nobody else uses it except in later work on that stream.
pub(crate) unsafe fn fill(device: Device, address: usize, len: usize, value: &[u8]) -> Result<bool> {
    /// The number of bytes that the kernel repeats.
    const PATTERN: usize = 16;
    if PATTERN.checked_rem(value.len()) != Some(0) {
        return Ok(false);
    }
    let driver = Driver::get()?;
    if driver.captures(device, StreamHandle::LegacyDefault) {
        return Ok(false);
    }
    let bytes = len * value.len();
    let mut pattern: [u8; PATTERN] = array::from_fn(|at| value[at % value.len()]);
    let memory = ptr::with_exposed_provenance_mut::<u8>(address);
    // SAFETY: the caller promises the memory.
    let mut view = unsafe { KernelViewMut::<u8, 1>::from_raw_parts(memory, [bytes as i64], [1]) };
    let blocks = LaunchSize::for_units(bytes.div_ceil(PATTERN)).grid.0;
    let mut arguments = [(&raw mut view).cast(), (&raw mut pattern).cast()];
    // SAFETY: these are the kernel's parameters, with its types. The caller promises the memory.
    unsafe { launch(device, "fill\0", StreamHandle::LegacyDefault, blocks, &mut arguments) }?;
    Ok(true)
}

/// Queues a kernel on a stream.
///
/// # Safety
///
/// The kernel has these parameters, and what they point to stays alive until the kernel is done.
unsafe fn launch(
    device: Device,
    kernel: &'static str,
    stream: StreamHandle,
    blocks: u32,
    arguments: &mut [*mut c_void],
) -> Result<()> {
    let driver = Driver::get()?;
    let context = driver.context_for(device)?;
    driver.within(context, || {
        let function = driver.function(context, kernel)?;
        // An array without pending work may be used on any stream.
        let stream = stream.to_raw().unwrap_or(LEGACY);
        let arguments = arguments.as_mut_ptr();
        // SAFETY: the function and the stream belong to the current context. The caller promises the parameters.
        let code = unsafe {
            (driver.launch)(function, blocks, 1, 1, THREADS, 1, 1, 0, stream, arguments, null_mut())
        };
        answer("cuLaunchKernel", code)
    })
}

/// Returns whether a context is current on this thread.
pub(crate) fn has_context() -> bool {
    let mut current = 0;
    // SAFETY: the pointer is valid for the write of a context.
    Driver::get().is_ok_and(|driver| unsafe { (driver.current)(&raw mut current) } == 0) && current != 0
}

/// Threads per block, as `KernelArrays` assumes when it computes the number of blocks.
const THREADS: u32 = 256;

/// `CU_STREAM_LEGACY`.
const LEGACY: usize = 1;

type Launch = unsafe extern "C" fn(
    usize,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    usize,
    *mut *mut c_void,
    *mut *mut c_void,
) -> c_int;

/// The driver functions that a launch needs. The library itself provides stream waits and memory.
pub(crate) struct Driver {
    error_name: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int,
    current: unsafe extern "C" fn(*mut usize) -> c_int,
    device: unsafe extern "C" fn(*mut c_int) -> c_int,
    push: unsafe extern "C" fn(usize) -> c_int,
    pop: unsafe extern "C" fn(*mut usize) -> c_int,
    load: unsafe extern "C" fn(*mut usize, *const c_void) -> c_int,
    find: unsafe extern "C" fn(*mut usize, usize, *const c_char) -> c_int,
    launch: Launch,
    is_capturing: unsafe extern "C" fn(usize, *mut c_int) -> c_int,
    exchange_capture_mode: unsafe extern "C" fn(*mut c_int) -> c_int,
    host_alloc: unsafe extern "C" fn(*mut *mut c_void, usize, c_uint) -> c_int,
}

/// The kernels that were looked up, by context and name.
static FUNCTIONS: Mutex<Vec<(Context, &'static str, usize)>> = Mutex::new(Vec::new());

/// The modules, by context.
static MODULES: Mutex<Vec<(Context, usize)>> = Mutex::new(Vec::new());

impl Driver {
    fn get() -> Result<&'static Self> {
        static DRIVER: OnceLock<core::result::Result<Driver, String>> = OnceLock::new();
        let opened = DRIVER.get_or_init(|| Self::open().map_err(|error| error.to_string()));
        opened.as_ref().map_err(|error| {
            Error::new(ErrorKind::Driver, "libcuda", error, "an installed NVIDIA driver, to launch kernels")
        })
    }

    fn open() -> core::result::Result<Self, libloading::Error> {
        let name = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };
        // SAFETY: the driver's library may be loaded at any time.
        let library = unsafe { Library::new(name) }?;
        // SAFETY: the function has this type in every driver (`cuda.h`).
        let error_name = *unsafe { library.get(b"cuGetErrorName\0") }?;
        // SAFETY: as above.
        let current = *unsafe { library.get(b"cuCtxGetCurrent\0") }?;
        // SAFETY: as above.
        let device = *unsafe { library.get(b"cuCtxGetDevice\0") }?;
        // SAFETY: as above.
        let push = *unsafe { library.get(b"cuCtxPushCurrent_v2\0") }?;
        // SAFETY: as above.
        let pop = *unsafe { library.get(b"cuCtxPopCurrent_v2\0") }?;
        // SAFETY: as above.
        let load = *unsafe { library.get(b"cuModuleLoadData\0") }?;
        // SAFETY: as above.
        let find = *unsafe { library.get(b"cuModuleGetFunction\0") }?;
        // SAFETY: as above.
        let launch = *unsafe { library.get(b"cuLaunchKernel\0") }?;
        // SAFETY: as above.
        let is_capturing = *unsafe { library.get(b"cuStreamIsCapturing\0") }?;
        // SAFETY: as above.
        let exchange_capture_mode = *unsafe { library.get(b"cuThreadExchangeStreamCaptureMode\0") }?;
        // SAFETY: as above.
        let host_alloc = *unsafe { library.get(b"cuMemHostAlloc\0") }?;
        // Keeps the library loaded until the end of the program.
        core::mem::forget(library);
        Ok(Self {
            error_name,
            current,
            device,
            push,
            pop,
            load,
            find,
            launch,
            is_capturing,
            exchange_capture_mode,
            host_alloc,
        })
    }

    /// Returns the context for work on a device's memory. It also determines which default stream is meant.
    ///
    /// As in `cuda::stream_wait`, this is the current context if it belongs to the device, else the device's primary
    /// context.
    fn context_for(&self, device: Device) -> Result<Context> {
        let (mut current, mut ordinal) = (0, 0);
        // SAFETY: the pointer is valid for the write of a context.
        answer("cuCtxGetCurrent", unsafe { (self.current)(&raw mut current) })?;
        // SAFETY: the driver returned this context.
        let current = unsafe { Context::from_raw(current) };
        let wanted = (device.device_type == DeviceType::CUDA).then_some(device.device_id);
        if current.is_some() {
            // SAFETY: the pointer is valid for the write of a number, and a context is current.
            answer("cuCtxGetDevice", unsafe { (self.device)(&raw mut ordinal) })?;
        }
        match current {
            Some(context) if wanted.is_none_or(|wanted| wanted == ordinal) => Ok(context),
            _ => Context::primary(wanted.unwrap_or(0)),
        }
    }

    /// Runs `work` while `context` is current.
    fn within<T>(&self, context: Context, work: impl FnOnce() -> Result<T>) -> Result<T> {
        // SAFETY: the driver created this context.
        answer("cuCtxPushCurrent", unsafe { (self.push)(context.to_raw().get()) })?;
        let done = work();
        let mut popped = 0;
        // SAFETY: the pointer is valid for the write of a context.
        let code = unsafe { (self.pop)(&raw mut popped) };
        done.and_then(|done| answer("cuCtxPopCurrent", code).map(|()| done))
    }

    /// Whether work on a stream would become part of a graph or invalidate a capture. Also `true` if the query fails.
    fn captures(&self, device: Device, stream: StreamHandle) -> bool {
        const NONE: c_int = 0;
        let mut status = NONE;
        let asked = self.context_for(device).and_then(|context| {
            self.within(context, || {
                // SAFETY: the stream belongs to the current context, and the pointer is valid for the write of the
                // status.
                let code = unsafe { (self.is_capturing)(stream.to_raw().unwrap_or(LEGACY), &raw mut status) };
                answer("cuStreamIsCapturing", code)
            })
        });
        asked.is_err() || status != NONE
    }

    /// Allocates pinned memory that every context can access. It is never freed.
    pub(crate) fn pinned(&self, bytes: usize) -> Result<usize> {
        const PORTABLE: c_uint = 1;
        const RELAXED: c_int = 2;
        let (mut mode, mut memory) = (RELAXED, null_mut());
        self.within(Context::primary(0)?, || {
            // A capture elsewhere is not affected by this allocation.
            // SAFETY: the pointer is valid for the exchange of the mode, which is restored below.
            answer("cuThreadExchangeStreamCaptureMode", unsafe {
                (self.exchange_capture_mode)(&raw mut mode)
            })?;
            // SAFETY: the pointer is valid for the write of an address.
            let code = unsafe { (self.host_alloc)(&raw mut memory, bytes, PORTABLE) };
            // SAFETY: `mode` holds the previous mode.
            let back = unsafe { (self.exchange_capture_mode)(&raw mut mode) };
            answer("cuMemHostAlloc", code)?;
            answer("cuThreadExchangeStreamCaptureMode", back)
        })?;
        Ok(memory.expose_provenance())
    }

    /// Returns a kernel in the current context. It is looked up at its first launch there and cached.
    fn function(&self, context: Context, kernel: &'static str) -> Result<usize> {
        let mut kept = FUNCTIONS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, _, function)) = kept.iter().find(|(of, name, _)| *of == context && *name == kernel) {
            return Ok(*function);
        }
        let module = self.module(context)?;
        let mut function = 0;
        // SAFETY: the pointer is valid for the write of a function, the module is loaded, and the name ends with a
        // zero.
        let code = unsafe { (self.find)(&raw mut function, module, kernel.as_ptr().cast()) };
        answer("cuModuleGetFunction", code)?;
        kept.push((context, kernel, function));
        Ok(function)
    }

    /// Returns the module in the current context. It is compiled at the first launch there and cached.
    fn module(&self, context: Context) -> Result<usize> {
        let mut kept = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, module)) = kept.iter().find(|(of, _)| *of == context) {
            return Ok(*module);
        }
        let mut module = 0;
        // SAFETY: the pointer is valid for the write of a module, and the text ends with a zero.
        answer("cuModuleLoadData", unsafe { (self.load)(&raw mut module, PTX.as_ptr().cast()) })?;
        kept.push((context, module));
        Ok(module)
    }
}

fn answer(function: &'static str, code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    let driver = Driver::get()?;
    let mut name = ptr::null();
    // SAFETY: the pointer is valid for the write of a pointer.
    let known = unsafe { (driver.error_name)(code, &raw mut name) };
    let name = match known {
        // SAFETY: on success this is the driver's own text, which is never freed.
        0 => unsafe { CStr::from_ptr(name) }.to_string_lossy(),
        _ => "an unknown error".into(),
    };
    Err(Error::new(ErrorKind::Driver, function, format!("{name} ({code})"), "CUDA_SUCCESS (0)"))
}
