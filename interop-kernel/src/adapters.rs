//! The arguments in launches that are written by hand with `cust` and `cudarc`.
#![expect(unsafe_code, reason = "states what the bytes of the arguments are")]

use crate::arrays::KernelArrays;
use crate::elementwise::{Arrays, KernelElementwise};
use crate::view::{KernelView, KernelViewMut};

#[cfg(feature = "cust")]
mod cust {
    use super::{Arrays, KernelArrays, KernelElementwise, KernelView, KernelViewMut};
    use cust::memory::DeviceCopy;

    // SAFETY: the view has only plain numbers, among them an address for the device.
    unsafe impl<T: Copy, const N: usize> DeviceCopy for KernelView<'_, T, N> {}

    // SAFETY: as above.
    unsafe impl<T: Copy, const N: usize> DeviceCopy for KernelViewMut<'_, T, N> {}

    // SAFETY: as above.
    unsafe impl<const K: usize, const N: usize> DeviceCopy for KernelArrays<'_, K, N> {}

    // SAFETY: as above.
    unsafe impl<A: Arrays, const N: usize> DeviceCopy for KernelElementwise<'_, A, N> {}
}

#[cfg(feature = "cudarc")]
mod cudarc {
    use super::{Arrays, KernelArrays, KernelElementwise, KernelView, KernelViewMut};
    use crate::{InScope, LaunchSize};
    use cudarc::driver::{DeviceRepr, LaunchArgs, LaunchConfig, PushKernelArg};

    // SAFETY: the view has the layout that `interop.cuh` declares, and only plain numbers.
    unsafe impl<T, const N: usize> DeviceRepr for KernelView<'_, T, N> {}

    // SAFETY: as above.
    unsafe impl<T, const N: usize> DeviceRepr for KernelViewMut<'_, T, N> {}

    // SAFETY: as above.
    unsafe impl<const K: usize, const N: usize> DeviceRepr for KernelArrays<'_, K, N> {}

    // SAFETY: as above.
    unsafe impl<A: Arrays, const N: usize> DeviceRepr for KernelElementwise<'_, A, N> {}

    // SAFETY: it pushes the view, whose bytes are those of the argument. The argument itself is no `DeviceRepr`: cudarc copies
    // these to the device and back, and what a kernel writes is passed once.
    unsafe impl<'a, 'b: 'a, V: DeviceRepr> PushKernelArg<&'b InScope<V>> for LaunchArgs<'a> {
        #[inline(always)]
        fn arg(&mut self, argument: &'b InScope<V>) -> &mut Self {
            let view: &V = argument;
            self.arg(view)
        }
    }

    impl From<LaunchSize> for LaunchConfig {
        /// The grid and the blocks, without dynamic shared memory.
        fn from(LaunchSize { grid, block }: LaunchSize) -> Self {
            Self { grid_dim: grid, block_dim: block, shared_mem_bytes: 0 }
        }
    }
}
