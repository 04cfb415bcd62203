//! Launches over arrays in host memory: the kernel runs on the CPU.
#![cfg_attr(
    feature = "host-launch",
    expect(unsafe_code, reason = "runs a kernel over arrays that a scope borrows")
)]

#[cfg(feature = "host-launch")]
use interop_kernel::{Arguments, Kernel, LaunchSize};

use crate::array::device::Device;
#[cfg(feature = "host-launch")]
use crate::driver::functions::run_blocking;
#[cfg(feature = "host-launch")]
use crate::error::text;
use crate::error::{Cure, Error, ErrorKind, Result};
#[cfg(all(feature = "host-launch", feature = "rayon"))]
use crate::memory::host::parallel::{spread, workers};
use crate::order::array_info::ArrayInfo;

/// Whether launches over arrays of this device run on the CPU. Pinned and managed memory is that of a GPU.
pub(crate) fn is_on_host(device: Device) -> bool {
    cfg!(feature = "host-launch") && device == Device::CPU
}

/// Runs a kernel on the CPU, and returns when it is done.
///
/// # Errors
///
/// [`ErrorKind::Shape`] for a launch that no device takes.
///
/// # Safety
///
/// The arrays of the arguments are in memory of the host, in which no work is pending. During the call they live, nobody else writes their
/// elements, and nobody else uses those that the kernel writes.
#[cfg(feature = "host-launch")]
pub(crate) unsafe fn run<K: Kernel>(size: LaunchSize, arguments: &Arguments<'_, K>) -> Result<()> {
    // SAFETY: the arrays are as the caller promises. `spread` runs each part once, and returns after the last one.
    let run = |workers| unsafe { arguments.run_on_host(size, workers, spread) };
    let mut done = Ok(());
    if is_short(size) {
        done = run(1);
    } else {
        run_blocking(|| done = run(workers()));
    }
    done.map_err(|error| Error::from(error).with_origin(text!("kernel `{}`", K::NAME)))
}

/// Whether a launch takes less time than a few switches of the threads of Python: its threads have about 64 KiB of elements together.
#[cfg(feature = "host-launch")]
fn is_short(LaunchSize { grid: (x, y, z), block: (width, height, depth) }: LaunchSize) -> bool {
    const THREADS: u128 = 2048;
    [x, y, z, width, height, depth].into_iter().map(u128::from).product::<u128>() <= THREADS
}

#[cfg(all(feature = "host-launch", not(feature = "rayon")))]
fn workers() -> u32 {
    1
}

#[cfg(all(feature = "host-launch", not(feature = "rayon")))]
fn spread(parts: u32, run: &(dyn Fn(u32) + Sync)) {
    (0..parts).for_each(run);
}

/// Returns an error for an array that cannot be in a scope of which the first array is on the host, or for one of the host in another scope.
/// `first` is where the first array is.
pub(crate) fn check_place(info: &ArrayInfo, first: Option<Device>, is_on_stream: bool) -> Result<()> {
    let device = info.device();
    let is_beside_host = first.is_some_and(is_on_host);
    if !is_on_host(device) && !is_beside_host {
        return Ok(());
    }
    let allowed = match first {
        Some(first) if first == device => return Ok(()),
        Some(first) => format!("{first}, where the first array of the scope is"),
        None if is_on_stream => "memory that a GPU reaches, because the scope is on a stream".to_owned(),
        None => return Ok(()),
    };
    let error = Error::new(ErrorKind::Device, "device", device, allowed).with_python_hint(Cure::ToDevice);
    Err(error.with_rust_hint("`LaunchScope::new()` with all arrays on the CPU launches there"))
}

/// The error of a launch that only a GPU can do.
#[cold]
pub(crate) fn not_on_host() -> Error {
    let allowed = "arrays that a GPU reaches: over arrays of the CPU a scope launches kernels in Rust only, by `launch`";
    Error::new(ErrorKind::Device, "device", Device::CPU, allowed).with_python_hint(Cure::ToDevice)
}
