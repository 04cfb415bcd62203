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
    use crate::LaunchSize;
    use cudarc::driver::{DeviceRepr, LaunchConfig};

    // SAFETY: the view has the layout that `interop.cuh` declares, and only plain numbers.
    unsafe impl<T, const N: usize> DeviceRepr for KernelView<'_, T, N> {}

    // SAFETY: as above.
    unsafe impl<T, const N: usize> DeviceRepr for KernelViewMut<'_, T, N> {}

    // SAFETY: as above.
    unsafe impl<const K: usize, const N: usize> DeviceRepr for KernelArrays<'_, K, N> {}

    // SAFETY: as above.
    unsafe impl<A: Arrays, const N: usize> DeviceRepr for KernelElementwise<'_, A, N> {}

    // SAFETY: the bytes are those of the view.
    unsafe impl<V: DeviceRepr> DeviceRepr for crate::InScope<V> {}

    impl From<LaunchSize> for LaunchConfig {
        /// The grid and the blocks, without dynamic shared memory.
        fn from(LaunchSize { grid, block }: LaunchSize) -> Self {
            Self { grid_dim: grid, block_dim: block, shared_mem_bytes: 0 }
        }
    }
}
