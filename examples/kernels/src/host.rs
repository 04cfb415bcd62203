//! The kernels as functions of the host, for a simulated driver: those in Rust are the kernels themselves.
#![expect(unsafe_code, reason = "states what an address of pinned memory is")]

use core::ffi::c_void;
use core::ptr;
use std::thread::sleep;
use std::time::Duration;

use interop_kernel::host::{Memory, simulate, sizes};

use crate::kernels;

/// A kernel as a host function.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Does the work of the whole grid, as [`simulate`] says.
    pub run:
        unsafe extern "C" fn(grid: *const u32, block: *const u32, shared: u32, params: *const *const c_void),
    /// The size of each argument in bytes.
    pub sizes: &'static [usize],
}

/// Memory of the host itself, such as pinned memory, whose host and device addresses are equal.
#[derive(Clone, Copy, Debug)]
pub struct Host;

// SAFETY: the address of such memory is the pointer.
unsafe impl Memory for Host {
    fn place(address: u64, _bytes: usize, _writes: bool) -> Option<*mut u8> {
        // Arguments name memory by its address as an integer, so the pointer is made from that.
        usize::try_from(address).ok().map(ptr::with_exposed_provenance_mut)
    }
}

macro_rules! table {
    ($($kernel:ident: $($path:ident)::*;)*) => {
        /// The kernels once more, with their code for the CPU in this crate, which is optimized in tests, too. That of `#[kernel]` is
        /// in the crate that runs it.
        #[expect(non_camel_case_types, reason = "the names of kernels")]
        mod compiled {
            use interop_kernel::Kernel;

            $(
                #[derive(Debug)]
                pub(super) enum $kernel {}

                // SAFETY: the same kernel.
                unsafe impl Kernel for $kernel {
                    const NAME: &'static str = <super::$($path)::* as Kernel>::NAME;
                    const PARAMETERS: &'static [&'static str] = <super::$($path)::* as Kernel>::PARAMETERS;
                    const SAME_SHAPE: &'static [&'static [usize]] = <super::$($path)::* as Kernel>::SAME_SHAPE;
                    const NEEDS_BLOCK: bool = <super::$($path)::* as Kernel>::NEEDS_BLOCK;
                    const IS_TEAM: bool = <super::$($path)::* as Kernel>::IS_TEAM;
                    const CODE: &'static str = <super::$($path)::* as Kernel>::CODE;
                    type Parameters<'a> = <super::$($path)::* as Kernel>::Parameters<'a>;
                    type First<'t> = <super::$($path)::* as Kernel>::First<'t>;

                    fn call<'t, 'a: 't>(first: Self::First<'t>, parameters: Self::Parameters<'a>) {
                        <super::$($path)::* as Kernel>::call(first, parameters);
                    }
                }
            )*
        }

        /// Returns the kernel with this name, or `None` if no PTX has it.
        ///
        /// ```
        /// use interop_demo_kernels::host::{Host, find};
        /// assert_eq!(find::<Host>("scale_f32").unwrap().sizes, [160, 8]);
        /// assert!(find::<Host>("scale_u16").is_none());
        /// ```
        #[must_use]
        pub fn find<M: Memory>(name: &str) -> Option<Kernel> {
            match name {
                $(stringify!($kernel) => Some(Kernel { run: simulate::<compiled::$kernel, M>, sizes: sizes::<compiled::$kernel>() }),)*
                _ => None,
            }
        }
    };
}

table! {
    blur_f32: kernels::blur_f32;
    blur_pixels: kernels::blur_pixels;
    blur_u8: kernels::blur_u8;
    count_elements: kernels::count_elements;
    fill_f32: kernels::fill_f32;
    histogram_f32: kernels::histogram_f32;
    scale_f32: kernels::scale_f32;
    scale_packs: kernels::scale_packs;
    scale_row: kernels::scale_row;
    scan_blocks: kernels::scan_blocks;
    sum_f32: kernels::sum_f32;
    vector_add: kernels::vector_add;
    consume: order::consume;
    produce: order::produce;
    spin: order::spin;
}

/// The kernels of `order.cu` once more, because those are in C++.
mod order {
    use interop_kernel::{Thread, View, ViewMut, kernel};

    use super::{Duration, sleep};

    /// A cycle takes one nanosecond here.
    #[kernel]
    pub(super) fn spin(thread: Thread<'_>, cycles: u64) {
        if thread.number() == 0 {
            sleep(Duration::from_nanos(cycles));
        }
    }

    /// The value of element `i` that `produce` writes.
    #[expect(clippy::cast_possible_truncation, reason = "values wrap around")]
    fn produced(value: u32, at: usize) -> u32 {
        value.wrapping_add(at as u32)
    }

    #[kernel]
    pub(super) fn produce(thread: Thread<'_>, mut to: ViewMut<'_, u32, 1>, value: u32) {
        for at in thread.elements(to.shape()) {
            to.set(at, produced(value, at.at()[0]));
        }
    }

    /// One thread counts for all.
    #[kernel]
    pub(super) fn consume(
        thread: Thread<'_>,
        from: View<'_, u32, 1>,
        value: u32,
        mut mismatches: ViewMut<'_, u64, 0>,
    ) {
        for at in thread.elements([]) {
            let is_wrong = |number: &usize| from.get([*number]) != produced(value, *number);
            let wrong = (0..from.shape()[0]).filter(is_wrong).count();
            mismatches.set(at, mismatches.get(at) + wrong as u64);
        }
    }
}
