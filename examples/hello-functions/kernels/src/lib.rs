//! The kernels of this project. They run on a GPU, and in the tests below on the CPU.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx))]

use interop_kernel::{Elementwise, In, Out, Thread, kernel};

/// Multiplies every element in place.
#[kernel]
pub fn scale_elements(thread: Thread<'_>, arrays: Elementwise<'_, (Out<f32>,)>, factor: f32) {
    arrays.map_inplace(&thread, |value| value * factor);
}

/// Writes every element of an array, multiplied, to another array.
#[kernel]
pub fn scaled_elements(thread: Thread<'_>, arrays: Elementwise<'_, (Out<f32>, In<f32>)>, factor: f32) {
    arrays.map(&thread, |value| value * factor);
}

/// The kernels for a GPU, which `cargo ptx` writes.
#[cfg(not(target_arch = "nvptx64"))]
pub const PTX: &str = include_str!("../kernels.ptx");

#[cfg(test)]
mod tests {
    use interop_kernel::{LaunchSize, View, ViewMut};

    use super::*;

    /// More elements than threads.
    const FEW: LaunchSize = LaunchSize { grid: (2, 1, 1), block: (2, 1, 1) };

    #[test]
    fn ptx_is_compiled_from_these_sources() {
        interop_kernel::ptx::assert_current(env!("CARGO_MANIFEST_DIR"), "kernels.ptx");
    }

    #[test]
    fn elements_are_multiplied() {
        let mut array = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let arrays = Elementwise::new((ViewMut::<_, 2>::new(&mut array, [2, 3]),)).unwrap();
        scale_elements::run(FEW, arrays, 2.0);
        assert_eq!(array, [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
    }

    /// From columns to rows.
    #[test]
    fn elements_are_written_to_an_array_of_another_layout() {
        let (from, mut to) = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [0.0; 6]);
        let from = View::strided(&from, 0, [2, 3], [1, 2]);
        let arrays = Elementwise::new((ViewMut::<_, 2>::new(&mut to, [2, 3]), from)).unwrap();
        scaled_elements::run(FEW, arrays, 10.0);
        assert_eq!(to, [10.0, 30.0, 50.0, 20.0, 40.0, 60.0]);
    }
}
