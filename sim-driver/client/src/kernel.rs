//! Kernels as host functions.

use std::ffi::c_void;

/// The host function behind a kernel: the three extents of the grid, those of the block, the bytes of dynamic shared
/// memory, and a pointer to each parameter. It runs once for a launch and loops over the threads itself. It must not
/// call the driver and must not panic; device addresses become usable by [`crate::Sim::read`] and
/// [`crate::Sim::write`].
pub type KernelFunction =
    extern "C" fn(grid: *const u32, block: *const u32, shared: u32, parameters: *const *const c_void);

/// The parameters of a launch, for the body of a [`KernelFunction`].
///
/// ```
/// use interop_sim_client::{Arguments, sim};
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
    /// The parameters that a [`KernelFunction`] was called with.
    ///
    /// # Safety
    ///
    /// `parameters` is what the driver passed, and the function has not returned.
    pub unsafe fn new(parameters: *const *const c_void) -> Self {
        Self(parameters)
    }

    /// The value of a parameter.
    ///
    /// # Safety
    ///
    /// `index` is below the number of registered parameters, and `T` has the registered size and is valid for the bytes
    /// that the launch passed.
    pub unsafe fn get<T: Copy>(self, index: usize) -> T {
        let value = self.0.wrapping_add(index);
        // SAFETY: there are more than `index` pointers, by the caller's promise.
        let value = unsafe { value.read() };
        // SAFETY: it points to a `T`, by the caller's promise, in words that are aligned for any parameter.
        unsafe { value.cast::<T>().read() }
    }
}
