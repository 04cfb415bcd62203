//! Kernels on arrays whose element type and rank are known at run time only: `kernels/dynamic.cu`.
//!
//! The driver is opened when the first kernel is launched, so the module imports where there is none.
#![expect(unsafe_code, reason = "calls the driver")]

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr::null_mut;
use std::sync::{Mutex, OnceLock, PoisonError};

use interop_core::cuda::{self, Context, CudaBuffer, MemoryKind};
use interop_core::{
    ArrayInfo, CudaArray, DType, Device, DeviceType, Error, ErrorKind, MAX_NDIM, Order, Result, StreamHandle,
};
use libloading::Library;

/// The kernels, as text that ends in a zero.
const PTX: &str = concat!(include_str!("../kernels/ptx/dynamic.ptx"), "\0");
const SCALE: &str = "dynamic_scale\0";
const SUM: &str = "dynamic_sum\0";

/// Threads of a block; `dynamic_sum` has room for so many.
const THREADS: u32 = 256;
/// Blocks at most: enough to keep a large device busy. Each thread does as many elements as it takes.
const BLOCKS: usize = 1024;

/// `Dynamic` of `dynamic.cu`.
#[repr(C)]
struct Dynamic {
    address: u64,
    size: i64,
    ndim: u32,
    code: c_int,
    bits: c_int,
    shape: [i64; MAX_NDIM],
    strides: [i64; MAX_NDIM],
}

const _: () = assert!(size_of::<Dynamic>() == 1056);

impl Dynamic {
    fn of(info: &ArrayInfo) -> Result<Self> {
        let layout = info.layout();
        let address = info.address();
        let (mut shape, mut strides) = ([0; MAX_NDIM], [0; MAX_NDIM]);
        let mut ndim = 0;
        // Most arrays are one run of elements, which needs no arithmetic on indices.
        let run = ([layout.numel()], [1]);
        let is_run = layout.is_contiguous(Order::C);
        let extents = if is_run { &run.0 } else { layout.shape() };
        let steps = if is_run { &run.1 } else { layout.strides() };
        for (axis, (extent, step)) in extents.iter().zip(steps).enumerate() {
            (shape[axis], strides[axis]) = (*extent as i64, *step as i64);
            ndim += 1;
        }
        let dtype = info.dtype();
        let item = usize::from(dtype.bits()) / 8;
        if !address.is_multiple_of(item.max(1)) {
            let allowed = format!("a multiple of {item}, the size of an element, for a kernel");
            return Err(Error::new(ErrorKind::Alignment, "data", format!("{address:#x}"), allowed));
        }
        Ok(Self {
            address: cuda::device_address(address)? as u64,
            size: layout.numel() as i64,
            ndim,
            code: dtype.code().into(),
            bits: dtype.bits().into(),
            shape,
            strides,
        })
    }
}

/// What [`NUMBERS`] are, for messages.
pub(crate) const SCALED: &str = "integers of 8 to 64 bits, float16, bfloat16, float32 and float64";

/// Those with `bool`.
pub(crate) const SUMMED: &str = "bool, integers of 8 to 64 bits, float16, bfloat16, float32 and float64";

/// The types that the kernels know, but for `bool`.
const NUMBERS: [DType; 12] = [
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
];

/// Multiplies every element by `factor`, in place, on `stream`. The kernel is queued when this returns.
///
/// # Safety
///
/// The memory stays until the kernel is done, and work on it is ordered by `stream`.
pub(crate) unsafe fn scale(info: &ArrayInfo, mut factor: f64, stream: StreamHandle) -> Result<()> {
    check(info, NUMBERS.contains(&info.dtype()), SCALED)?;
    if info.is_read_only() {
        return Err(Error::new(ErrorKind::ReadOnly, "readonly", "a read-only array", "a writable array"));
    }
    if !info.layout().is_injective() {
        let allowed = "elements that do not share memory, to write to them";
        return Err(Error::new(ErrorKind::Strides, "strides", "elements that share memory", allowed));
    }
    if info.numel() == 0 {
        return Ok(());
    }
    let mut array = Dynamic::of(info)?;
    let mut arguments = [(&raw mut array).cast(), (&raw mut factor).cast()];
    // SAFETY: the kernel's parameters, of its types.
    unsafe { launch(info, SCALE, stream, blocks(info), &mut arguments) }
}

/// The sum of the elements, as a double. Waits for the kernel.
///
/// # Safety
///
/// The memory is live, and work on it is ordered by `stream`.
pub(crate) unsafe fn sum(info: &ArrayInfo, stream: StreamHandle) -> Result<f64> {
    check(info, info.dtype() == DType::BOOL || NUMBERS.contains(&info.dtype()), SUMMED)?;
    if info.numel() == 0 {
        return Ok(0.0);
    }
    let mut array = Dynamic::of(info)?;
    let blocks = blocks(info);
    // Pinned: the kernel writes it, the host reads it.
    let parts = Parts::new(blocks)?;
    let mut address = parts.info()?.address() as u64;
    let mut arguments = [(&raw mut array).cast(), (&raw mut address).cast()];
    // SAFETY: the kernel's parameters, of its types; there is one part for each block.
    unsafe { launch(info, SUM, stream, blocks, &mut arguments) }?;
    cuda::stream_synchronize(stream, info.device())?;
    Ok(parts.to_vec::<f64>()?.iter().sum())
}

/// The sum of each block.
#[derive(CudaArray)]
#[cuda_array(shape = [len], export)]
struct Parts {
    #[cuda_array(data)]
    sums: CudaBuffer,
    len: u32,
}

impl Parts {
    fn new(len: u32) -> Result<Self> {
        let sums = CudaBuffer::zeroed(MemoryKind::Pinned, 0, DType::F64, len as usize)?;
        Ok(Self { sums, len })
    }
}

fn check(info: &ArrayInfo, known: bool, allowed: &str) -> Result<()> {
    if known && !info.is_padded() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::DType, "dtype", info.dtype(), allowed))
}

fn blocks(info: &ArrayInfo) -> u32 {
    let blocks = info.numel().div_ceil(THREADS as usize).clamp(1, BLOCKS);
    u32::try_from(blocks).unwrap_or(u32::MAX)
}

/// Queues a kernel on a stream.
///
/// # Safety
///
/// The kernel has these parameters, and what they point to stays until it is done.
unsafe fn launch(
    info: &ArrayInfo,
    kernel: &'static str,
    stream: StreamHandle,
    blocks: u32,
    arguments: &mut [*mut c_void],
) -> Result<()> {
    let driver = Driver::get()?;
    let context = driver.context_for(info.device())?;
    driver.within(context, || {
        let function = driver.function(context, kernel)?;
        // An array that is ready may be worked on anywhere.
        let stream = stream.to_raw().unwrap_or(LEGACY);
        let arguments = arguments.as_mut_ptr();
        // SAFETY: a function and a stream of the current context; the parameters as the caller promises.
        let code = unsafe {
            (driver.launch)(function, blocks, 1, 1, THREADS, 1, 1, 0, stream, arguments, null_mut())
        };
        answer("cuLaunchKernel", code)
    })
}

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

/// The functions that a launch takes. Those for order and memory are the library's.
struct Driver {
    error_name: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int,
    current: unsafe extern "C" fn(*mut usize) -> c_int,
    device: unsafe extern "C" fn(*mut c_int) -> c_int,
    push: unsafe extern "C" fn(usize) -> c_int,
    pop: unsafe extern "C" fn(*mut usize) -> c_int,
    load: unsafe extern "C" fn(*mut usize, *const c_void) -> c_int,
    find: unsafe extern "C" fn(*mut usize, usize, *const c_char) -> c_int,
    launch: Launch,
}

/// The kernels that were looked up, by context and name.
static FUNCTIONS: Mutex<Vec<(Context, &'static str, usize)>> = Mutex::new(Vec::new());

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
        // SAFETY: of this type in every driver (`cuda.h`).
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
        // The functions are used until the end of the program.
        core::mem::forget(library);
        Ok(Self { error_name, current, device, push, pop, load, find, launch })
    }

    /// The context in which memory of a device is worked on, and whose default streams are meant: as `cuda::stream_wait` has it,
    /// the current one where it is of that device, else the device's primary context.
    fn context_for(&self, device: Device) -> Result<Context> {
        let (mut current, mut ordinal) = (0, 0);
        // SAFETY: a place for a context.
        answer("cuCtxGetCurrent", unsafe { (self.current)(&raw mut current) })?;
        // SAFETY: the driver's answer.
        let current = unsafe { Context::from_raw(current) };
        let wanted = (device.device_type == DeviceType::CUDA).then_some(device.device_id);
        if current.is_some() {
            // SAFETY: a place for a number; a context is current.
            answer("cuCtxGetDevice", unsafe { (self.device)(&raw mut ordinal) })?;
        }
        match current {
            Some(context) if wanted.is_none_or(|wanted| wanted == ordinal) => Ok(context),
            _ => Context::primary(wanted.unwrap_or(0)),
        }
    }

    /// Runs `work` while `context` is current.
    fn within<T>(&self, context: Context, work: impl FnOnce() -> Result<T>) -> Result<T> {
        // SAFETY: a context of the driver's.
        answer("cuCtxPushCurrent", unsafe { (self.push)(context.to_raw().get()) })?;
        let done = work();
        let mut popped = 0;
        // SAFETY: a place for a context.
        let code = unsafe { (self.pop)(&raw mut popped) };
        done.and_then(|done| answer("cuCtxPopCurrent", code).map(|()| done))
    }

    /// A kernel in the current context, loaded at its first launch there and kept.
    fn function(&self, context: Context, kernel: &'static str) -> Result<usize> {
        let mut kept = FUNCTIONS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, _, function)) = kept.iter().find(|(of, name, _)| *of == context && *name == kernel) {
            return Ok(*function);
        }
        let (mut module, mut function) = (0, 0);
        // SAFETY: a place for a module; a text that ends in a zero.
        answer("cuModuleLoadData", unsafe { (self.load)(&raw mut module, PTX.as_ptr().cast()) })?;
        // SAFETY: a place for a function, the module, and a name that ends in a zero.
        let code = unsafe { (self.find)(&raw mut function, module, kernel.as_ptr().cast()) };
        answer("cuModuleGetFunction", code)?;
        kept.push((context, kernel, function));
        Ok(function)
    }
}

fn answer(function: &'static str, code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    let driver = Driver::get()?;
    let mut name = core::ptr::null();
    // SAFETY: a place for a pointer.
    let known = unsafe { (driver.error_name)(code, &raw mut name) };
    let name = match known {
        // SAFETY: on success the driver's own text, which is never freed.
        0 => unsafe { CStr::from_ptr(name) }.to_string_lossy(),
        _ => "an unknown error".into(),
    };
    Err(Error::new(ErrorKind::Driver, function, format!("{name} ({code})"), "CUDA_SUCCESS (0)"))
}
