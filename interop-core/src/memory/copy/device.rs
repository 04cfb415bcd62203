//! Copies on a device: by the driver if it can, else by the copy kernel.

use interop_kernel::LaunchSize;
use interop_kernel::copy::{NAMES, SIZES};
use interop_kernel::copy_plan::{CopyLaunches, CopyPlan, FROM, THREADS, TO};

use crate::array::layout::axes::offsets;
use crate::array::layout::order::Order;
use crate::array::layout::{Layout, contiguous_strides};
use crate::driver::context::{Context, Relaxed};
use crate::driver::functions::{CUstream, Driver, Outcome};
use crate::driver::kernel_module::{EntryPoint, KernelModule};
use crate::driver::stream::LocatedStream;
use crate::order::wait::queue_and_finish;

/// The kernels of `interop_kernel::copy`, as `cargo xtask ptx` compiles them.
const PTX: &str = include_str!("copy.ptx");

// SAFETY: the entry points are compiled from the kernels with these names.
static KERNELS: KernelModule = unsafe { KernelModule::new(PTX) };

/// Queues a copy on a stream of the current context.
///
/// # Safety
///
/// `from` is the first element of the plan, and `to` has space for the copy. The device of the context can reach both
/// until the stream has executed the copy. The stream is live.
pub(crate) unsafe fn queue_copy(
    driver: &Driver,
    stream: LocatedStream,
    plan: &CopyPlan,
    from: usize,
    to: usize,
) -> Outcome {
    if plan.run == 0 {
        return Ok(());
    }
    if plan.axes.is_empty() {
        // SAFETY: as the caller promises.
        return unsafe { driver.copy(to as u64, from as u64, plan.run, stream.raw) };
    }
    // SAFETY: as the caller promises.
    match unsafe { launch_all(driver, stream, plan, from, to) } {
        // SAFETY: as the caller promises.
        Err(failure) if failure.is_about_modules() => unsafe { by_runs(driver, stream.raw, plan, from, to) },
        done => done,
    }
}

/// Queues one copy for each run of bytes, at a microsecond a run. For drivers that cannot load the kernel.
///
/// # Safety
///
/// As [`queue_copy`].
unsafe fn by_runs(driver: &Driver, stream: CUstream, plan: &CopyPlan, from: usize, to: usize) -> Outcome {
    offsets(&*plan.axes, [0; 2]).try_for_each(|offset| {
        let (from, to) = (from.wrapping_add_signed(offset[FROM]), to.wrapping_add_signed(offset[TO]));
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
    stream: LocatedStream,
    plan: &CopyPlan,
    from: usize,
    to: usize,
) -> Outcome {
    let launches = CopyLaunches::new(plan, from, to);
    let name = NAMES[launches.unit.ilog2() as usize];
    let kernel = EntryPoint { name, sizes: SIZES, layout: &[], is_team: false };
    launches.each(|launch| {
        let mut to = to.wrapping_add_signed(launch.offset[TO]) as u64;
        let mut from = from.wrapping_add_signed(launch.offset[FROM]) as u64;
        let (mut part, size) =
            (launch.part, LaunchSize { grid: (launch.blocks, 1, 1), block: (THREADS, 1, 1) });
        let mut parameters = [(&raw mut to).cast(), (&raw mut from).cast(), (&raw mut part).cast()];
        // SAFETY: these are the parameters of the kernel, and the launch is a part of the copy.
        unsafe { KERNELS.launch(driver, stream, kernel, size, &mut parameters) }
    })
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
    queue_and_finish(driver, |stream| unsafe { driver.copy(to as u64, from as u64, bytes, stream.raw) })
}

/// Plans a copy of elements of `item` bytes into memory that is contiguous in `order`.
pub(crate) fn contiguous_plan(layout: &Layout, order: Order, item: usize) -> CopyPlan {
    CopyPlan::new(layout.shape(), &contiguous_strides(layout.shape(), order), layout.strides(), item)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::ptx_text::sizes_in;

    #[test]
    fn the_module_has_every_kernel_and_drivers_from_535_on_take_it() {
        assert!(PTX.contains(".target sm_70\n"));
        for name in NAMES {
            assert_eq!(sizes_in(PTX, name).as_deref(), Some(SIZES), "{name}");
        }
        assert!(!PTX.contains(".local"), "the arguments or units of a thread are in slow memory");
    }
}
