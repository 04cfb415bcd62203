//! Copies on a device: by the driver if it can, else by the copy kernel, which is loaded once for each context.

use core::ffi::{CStr, c_char, c_void};

use crate::array::device::Device;
use crate::array::info::ArrayInfo;
use crate::array::stream::PendingWork;
use crate::cuda::context::{Context, PerContext, Relaxed};
use crate::cuda::copy_plan::{CopyLaunch, CopyLaunches, CopyPlan, THREADS, visit};
use crate::cuda::driver::{Driver, Failure, Outcome, RawStream, driver, to_usize};
use crate::cuda::handover::synchronize;
use crate::cuda::pool::{allocate_on, finished};
use crate::error::{Error, Result};

/// The kernels of `kernels`, as `cargo xtask ptx` compiles them.
const PTX: &str = concat!(include_str!("copy.ptx"), "\0");

/// The kernels, by the logarithm of the size of a unit.
const KERNELS: [&CStr; 5] =
    [c"interop_copy_1", c"interop_copy_2", c"interop_copy_4", c"interop_copy_8", c"interop_copy_16"];

/// Queues a copy on a stream of the current context.
///
/// # Safety
///
/// `from` is the first element of the plan, and `to` has space for the copy. The device of the context can reach both
/// until the stream has executed the copy. The stream is live.
pub(crate) unsafe fn queue_copy(
    driver: &Driver,
    (context, stream): (Context, RawStream),
    plan: &CopyPlan,
    from: usize,
    to: usize,
) -> Outcome {
    if plan.run == 0 {
        return Ok(());
    }
    if plan.axes.is_empty() {
        // SAFETY: as the caller promises.
        return unsafe { driver.copy(to as u64, from as u64, plan.run, stream) };
    }
    // SAFETY: as the caller promises.
    match unsafe { launch_all(driver, (context, stream), plan, from, to) } {
        // SAFETY: as the caller promises.
        Err(failure) if failure.is_about_modules() => unsafe { by_runs(driver, stream, plan, from, to) },
        done => done,
    }
}

/// Queues one copy for each run of bytes, at a microsecond a run. For drivers that cannot load the kernel.
///
/// # Safety
///
/// As [`queue_copy`].
unsafe fn by_runs(driver: &Driver, stream: RawStream, plan: &CopyPlan, from: usize, to: usize) -> Outcome {
    visit(&plan.axes, (0, 0), &mut |from_offset, to_offset| {
        let (from, to) = (from.wrapping_add_signed(from_offset), to.wrapping_add_signed(to_offset));
        // SAFETY: the addresses are those of a run of the plan.
        unsafe { driver.copy(to as u64, from as u64, plan.run, stream) }
    })
}

/// Queues the launches of the kernel.
///
/// # Safety
///
/// As [`queue_copy`].
unsafe fn launch_all(
    driver: &Driver,
    (context, stream): (Context, RawStream),
    plan: &CopyPlan,
    from: usize,
    to: usize,
) -> Outcome {
    let launches = CopyLaunches::new(plan, from, to);
    let mut function = function_for(driver, context, &launches)?;
    let mut is_first = true;
    launches.each(|launch| {
        // SAFETY: the launch is a part of the copy.
        let mut queued = unsafe { self::launch(driver, function, stream, launch, from, to) };
        if is_first && queued.is_err_and(Failure::is_about_handles) {
            // The primary context was reset, which destroyed the module.
            LOADED.forget(context);
            function = function_for(driver, context, &launches)?;
            // SAFETY: as above.
            queued = unsafe { self::launch(driver, function, stream, launch, from, to) };
        }
        is_first = false;
        queued
    })
}

/// # Safety
///
/// `function` is the one of [`KERNELS`] for this launch; otherwise as [`queue_copy`].
unsafe fn launch(
    driver: &Driver,
    function: usize,
    stream: RawStream,
    launch: &CopyLaunch,
    from: usize,
    to: usize,
) -> Outcome {
    let (to, from) = (to.wrapping_add_signed(launch.to), from.wrapping_add_signed(launch.from));
    let (mut to, mut from) = (to as u64, from as u64);
    let mut part = launch.part;
    let mut parameters: [*mut c_void; 3] =
        [(&raw mut to).cast(), (&raw mut from).cast(), (&raw mut part).cast()];
    let (blocks, parameters, none) = (launch.blocks, parameters.as_mut_ptr(), core::ptr::null_mut());
    // SAFETY: the parameters have the number and the types of the kernel's. The driver copies them during the call.
    unsafe { driver.launch(function, blocks, 1, 1, THREADS, 1, 1, 0, stream, parameters, none) }
}

/// The kernels of a context. `module` is an error if the driver cannot load it.
struct Loaded {
    module: Outcome<usize>,
    functions: [usize; 5],
}

static LOADED: PerContext<Loaded> = PerContext::new();

/// Returns the kernel for these launches in the current context. The first call in a context loads the module, which
/// the driver compiles.
fn function_for(driver: &Driver, context: Context, launches: &CopyLaunches) -> Outcome<usize> {
    let size = launches.unit.ilog2() as usize;
    let make = || match load(driver) {
        Err(failure) if !failure.is_about_modules() => Err(failure),
        module => Ok(Loaded { module, functions: [0; 5] }),
    };
    LOADED.with(driver, context, make, |loaded| {
        let (module, function) = (loaded.module?, &mut loaded.functions[size]);
        if *function == 0 {
            let name: *const c_char = KERNELS[size].as_ptr();
            // SAFETY: `function` is valid for a write, the module belongs to this context, and the name is a C string.
            unsafe { driver.module_function(&raw mut *function, module, name) }?;
        }
        Ok(*function)
    })?
}

fn load(driver: &Driver) -> Outcome<usize> {
    let mut module = 0;
    // SAFETY: `module` is valid for a write, and the text ends with a zero.
    unsafe { driver.module_load(&raw mut module, PTX.as_ptr().cast()) }?;
    Ok(module)
}

/// Temporary memory from the device's pool. Its drop returns it in stream order.
pub(crate) struct Scratch<'d> {
    driver: &'d Driver,
    pub(crate) address: usize,
    stream: RawStream,
}

impl<'d> Scratch<'d> {
    /// Allocates in the current context, to which `stream` belongs.
    pub(crate) fn new(driver: &'d Driver, bytes: usize, stream: RawStream) -> Outcome<Self> {
        let address = allocate_on(driver, Context::current_ordinal(driver)?, bytes, stream)?;
        Ok(Self { driver, address: to_usize(address), stream })
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        // SAFETY: it owns the memory and frees it once, after all work that was queued for it on its stream. If the
        // context is gone, the memory was freed with it.
        let _ = unsafe { self.driver.memory_pool_free(self.address as u64, self.stream) };
    }
}

/// Copies bytes between any two addresses that the driver knows, and waits for the copy.
///
/// # Safety
///
/// Both ranges have this many bytes. Nobody writes to the source or uses the target meanwhile.
pub(crate) unsafe fn copy_now(
    driver: &Driver,
    context: Context,
    to: usize,
    from: usize,
    bytes: usize,
) -> Outcome {
    if bytes == 0 {
        return Ok(());
    }
    let _entered = context.enter(driver)?;
    let _relaxed = Relaxed::new(driver);
    // SAFETY: as the caller promises; the stream is live.
    finished(driver, |stream| unsafe { driver.copy(to as u64, from as u64, bytes, stream) })
}

/// A copy in host memory of all bytes that the elements of an array span, made after the work that is pending on it.
pub(crate) struct Staged {
    /// Aligned for any element; kept while `info` is in use.
    _bytes: Vec<u128>,
    pub(crate) info: ArrayInfo,
}

/// Copies the bytes of an array to the host. The copy has the same layout at another address.
///
/// # Errors
///
/// As [`stream_synchronize`], and [`ErrorKind::OutOfMemory`](crate::error::ErrorKind::OutOfMemory) if the host does not
/// have the memory.
///
/// # Safety
///
/// The memory that `info` describes is live.
pub(crate) unsafe fn stage(info: &ArrayInfo) -> Result<Staged> {
    let (driver, range) = (driver()?, info.span());
    synchronize(info)?;
    let words = range.len().div_ceil(size_of::<u128>());
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(words).map_err(|_| Error::no_memory(range.len()))?;
    bytes.resize(words, 0_u128);
    let start = bytes.as_mut_ptr().expose_provenance();
    let context = crate::cuda::context::context_for(driver, info.device())?;
    // SAFETY: the range is the array's own, live as the caller promises; the vector is new and as long.
    unsafe { copy_now(driver, context, start, range.start, range.len()) }?;
    Ok(Staged { _bytes: bytes, info: moved(info, start, Device::CPU) })
}

/// Returns the description of the same bytes at another address, where nothing is pending on them.
pub(crate) fn moved(info: &ArrayInfo, start: usize, device: Device) -> ArrayInfo {
    let range = info.span();
    ArrayInfo {
        address: if info.numel() == 0 { 0 } else { start + (info.address - range.start) },
        range: start..start + range.len(),
        device,
        pending: PendingWork::NOTHING,
        ..info.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_has_every_kernel_and_drivers_from_535_on_take_it() {
        assert!(PTX.contains(".target sm_70\n"));
        for name in KERNELS {
            assert!(PTX.contains(&format!(".entry {}(", name.to_str().unwrap())), "{name:?}");
        }
        let size = size_of::<interop_kernel::copy::CopyPart>();
        assert!(PTX.contains(&format!("interop_copy_4_param_2[{size}]")), "{size} bytes of arguments");
        assert!(!PTX.contains(".local"), "the arguments or units of a thread are in slow memory");
    }
}
