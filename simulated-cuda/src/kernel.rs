//! Kernels, simulated by host functions.

use std::ffi::c_void;

use interop_kernel::Kernel;
use interop_kernel::host::{self, Memory};

use crate::{Sim, find};

/// The host function that simulates a kernel.
///
/// It receives the three extents of the grid, the three of the block, the bytes of dynamic shared memory, and a pointer
/// to each parameter. It runs once per launch and loops over the threads itself. It must not call the driver and must
/// not panic. [`crate::Sim::read`] and [`crate::Sim::write`] turn device addresses into usable pointers.
pub type KernelFunction =
    unsafe extern "C" fn(grid: *const u32, block: *const u32, shared: u32, parameters: *const *const c_void);

/// The parameters of a launch, for use in a [`KernelFunction`].
///
/// ```
/// use simulated_cuda::{Arguments, sim};
/// use std::ffi::c_void;
///
/// /// `fill(float *out, size_t count, float value)`
/// extern "C" fn fill(_: *const u32, _: *const u32, _: u32, parameters: *const *const c_void) {
///     // SAFETY: the driver hands over as many parameters as were registered, of these types.
///     let arguments = unsafe { Arguments::new(parameters) };
///     let (out, count, value): (u64, usize, f32) =
///         unsafe { (arguments.get(0), arguments.get(1), arguments.get(2)) };
///     let Some(out) = sim().write::<f32>(out, count) else { return };
///     for index in 0..count {
///         // SAFETY: `count` elements may be written there while the kernel runs.
///         unsafe { out.add(index).write(value) };
///     }
/// }
///
/// # fn register() {
/// sim().register_kernel("fill", &[8, 8, 4], fill);
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Arguments(*const *const c_void);

impl Arguments {
    /// Wraps the parameters that a [`KernelFunction`] received.
    ///
    /// # Safety
    ///
    /// `parameters` is the pointer that the driver passed, and the function has not returned yet.
    pub unsafe fn new(parameters: *const *const c_void) -> Self {
        Self(parameters)
    }

    /// Returns the value of a parameter.
    ///
    /// # Safety
    ///
    /// `index` is below the number of registered parameters. `T` has the registered size, and the bytes that the launch
    /// passed are a valid `T`.
    pub unsafe fn get<T: Copy>(self, index: usize) -> T {
        let value = self.0.wrapping_add(index);
        // SAFETY: the caller promises that there are more than `index` pointers.
        let value = unsafe { value.read() };
        // SAFETY: the caller promises that it points to a `T`. The driver stores it in words that are aligned for any
        // parameter.
        unsafe { value.cast::<T>().read() }
    }
}

/// The memory of the simulated devices, for kernels in Rust.
#[derive(Clone, Copy, Debug)]
pub struct DeviceMemory;

// SAFETY: the driver looks the address up in its live allocations.
unsafe impl Memory for DeviceMemory {
    fn place(address: u64, bytes: usize, writes: bool) -> Option<*mut u8> {
        let sim = find().ok()?;
        if writes { sim.write(address, bytes) } else { sim.read(address, bytes).map(<*const u8>::cast_mut) }
    }
}

impl Sim {
    /// Registers a kernel in Rust: the driver runs the function itself.
    pub fn register<K: Kernel>(&self) {
        self.register_kernel(K::NAME, host::sizes::<K>(), host::simulate::<K, DeviceMemory>);
    }
}
