//! Launches on the CPU, as fast as it can: few parts with many elements each, in the place of a device's many threads.
#![expect(unsafe_code, reason = "each part of a launch gets the same arguments")]

use core::cell::Cell;
use std::ptr;

use crate::LaunchSize;
use crate::host::{Shared, assert_launchable, call, run};
use crate::host_part::{HostPart, OpenLoops};
use crate::kernel::{Kernel, Memory, Parameters};
use crate::layout::Layouts;
use crate::place::Place;

/// The number of threads of a launch whose work repays the start of a thread of the system.
const REPAYS: u128 = 8192;

/// The number of parts for each worker, so that one that is late leaves some to the others.
const PARTS_OF_WORKER: u32 = 4;

/// The maximum number of neighbouring rows of a part. What it writes for them is rarely in a line of the cache of another one.
const NEIGHBOURS: u128 = 16;

/// Runs a kernel on the CPU for the arrays of a launch: the results are those of a device, and of the kernel's function `run`, bit for bit
/// but for [`math`](crate::math), and for sums of rows whose array is not aligned to 16 bytes on the device.
///
/// `workers` is the number of threads of the system that can share the work. `spread` gets the number of parts, and a function that runs
/// the part of a number. It is not called for work that one thread does best.
///
/// A part is one thread with many elements next to each other. So a kernel has to be right for every grid, and to go over all of its
/// elements. A kernel with a [`BlockThread`](crate::BlockThread) or an array by [`Blocks`](crate::Blocks) runs on the grid of the launch
/// instead, as in `run`, which is slow.
///
/// # Panics
///
/// In a kernel; for a launch that no device takes; with the name of the kernel, if it leaves elements of its own, or asks for the number of
/// its thread; and as the kernel.
///
/// # Safety
///
/// `spread` calls the function at most once for each number below that of the parts, on any threads, and returns after these calls.
///
/// # Example
///
/// ```
/// use interop_kernel::{Elementwise, In, LaunchSize, Out, Thread, View, ViewMut, host, kernel};
///
/// #[kernel]
/// fn double(thread: Thread<'_>, arrays: Elementwise<'_, (Out<f32>, In<f32>)>) {
///     arrays.map(&thread, |x| 2.0 * x);
/// }
///
/// let mut doubled = [0.0; 3];
/// let arrays = (ViewMut::<_, 1>::new(&mut doubled, [3]), View::new(&[1.0, 2.0, 3.0], [3]));
/// let parameters = (Elementwise::new(arrays)?,);
/// // SAFETY: each part runs once.
/// unsafe { host::launch::<double>(LaunchSize::for_units(3), parameters, 1, |parts, run| (0..parts).for_each(run)) };
/// assert_eq!(doubled, [2.0, 4.0, 6.0]);
/// # Ok::<(), interop_kernel::ArgumentError>(())
/// ```
#[track_caller]
#[expect(clippy::cast_possible_truncation, reason = "clamped before")]
pub unsafe fn launch<K: Kernel>(
    size: LaunchSize,
    parameters: K::Parameters<'_>,
    workers: u32,
    spread: impl FnOnce(u32, &(dyn Fn(u32) + Sync)),
) {
    if K::NEEDS_BLOCK || <K::Parameters<'_> as Parameters>::ARE_BY_BLOCK.contains(&true) {
        return run::<K>(size, parameters);
    }
    assert_launchable(size);
    let width = if K::IS_TEAM { size.block.0 } else { 1 };
    // Parts that add to one element take turns, which costs more than what they share: one part adds without atomic instructions.
    let is_shared = workers > 1 && !<K::Parameters<'_> as Layouts>::HAS_ATOMIC;
    let most = if is_shared { workers.saturating_mul(PARTS_OF_WORKER) } else { 1 };
    let parts = (size.threads() / REPAYS).clamp(1, u128::from(most)) as u32;
    let teams = size.threads() / u128::from(width);
    let rows = if parts > 1 { (teams / u128::from(parts)).clamp(1, NEIGHBOURS) as u32 } else { u32::MAX };
    let size = LaunchSize { grid: (parts, 1, 1), block: (width, 1, 1) };
    let instructions = Instructions::of_this_cpu();
    if parts == 1 {
        return run_part::<K>(instructions, HostPlace { number: 0, rows, size }, parameters.of_one_thread());
    }
    let parameters = Shared::new(parameters);
    let part = |number| {
        run_part::<K>(instructions, HostPlace { number, rows, size }, parameters.copy());
    };
    spread(parts, &part);
}

/// Where a part is in its launch.
#[derive(Clone, Copy)]
struct HostPlace {
    number: u32,
    rows: u32,
    size: LaunchSize,
}

/// The instructions for which a part is compiled.
#[derive(Clone, Copy)]
enum Instructions {
    /// Those of every processor for which the program is compiled.
    Baseline,
    /// AVX2, and what every processor with it has.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Instructions {
    #[cfg(not(target_arch = "x86_64"))]
    fn of_this_cpu() -> Self {
        Self::Baseline
    }

    #[cfg(target_arch = "x86_64")]
    fn of_this_cpu() -> Self {
        use std::arch::is_x86_feature_detected as has;
        let has_all = has!("avx2") && has!("fma") && has!("f16c") && has!("bmi2");
        if has_all { Self::Avx2 } else { Self::Baseline }
    }
}

fn run_part<K: Kernel>(instructions: Instructions, place: HostPlace, parameters: K::Parameters<'_>) {
    match instructions {
        Instructions::Baseline => run_part_here::<K>(place, parameters),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the CPU has these instructions.
        Instructions::Avx2 => unsafe { run_part_with_avx2::<K>(place, parameters) },
    }
}

/// As [`run_part_here`], with other instructions. Results are the same: the compiler never contracts `a * b + c`.
///
/// # Safety
///
/// The CPU has these instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi2,f16c,fma")]
unsafe fn run_part_with_avx2<K: Kernel>(place: HostPlace, parameters: K::Parameters<'_>) {
    run_part_here::<K>(place, parameters);
}

/// Runs a part. It is inlined with the kernel and all that this crate does for it, so that they are compiled for the instructions of the
/// caller.
#[inline(always)]
fn run_part_here<K: Kernel>(HostPlace { number, rows, size }: HostPlace, parameters: K::Parameters<'_>) {
    let open = Cell::new(0);
    let loops = OpenLoops(&open);
    let part = HostPart { kernel: K::NAME, number, parts: size.grid.0, rows, loops };
    let place =
        Place { thread: [0; 3], block: [number, 0, 0], size, gate: None, team: None, part: Some(part) };
    call::<K>(&place, parameters);
    part.assert_complete();
}

/// Memory whose addresses are those of the host.
pub(crate) struct HostMemory;

// SAFETY: the address is that of the elements, which the caller of `Arguments::run_on_host` promises to live.
unsafe impl Memory for HostMemory {
    fn place(address: u64, _: usize, _: bool) -> Option<*mut u8> {
        usize::try_from(address).ok().map(ptr::with_exposed_provenance_mut)
    }
}
