//! The kernels of this project. They run on a GPU, and in the tests below on the CPU.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx))]

use interop_kernel::{Thread, View, ViewMut, kernel};

/// Doubles every element in place.
#[kernel]
pub fn double_elements(thread: Thread<'_>, mut row: ViewMut<'_, f32, 1>) {
    for at in thread.elements(row.shape()) {
        row.set(at, 2.0 * row.get(at));
    }
}

/// Writes every element of a row, doubled, to another row.
#[kernel(same_shape(from, to))]
pub fn doubled_elements(thread: Thread<'_>, from: View<'_, f32, 1>, mut to: ViewMut<'_, f32, 1>) {
    for at in thread.elements(to.shape()) {
        to.set(at, 2.0 * from.get(at));
    }
}

/// Adds the elements of another row to those of a row.
#[kernel(same_shape(row, other))]
pub fn add_elements(thread: Thread<'_>, mut row: ViewMut<'_, f32, 1>, other: View<'_, f32, 1>) {
    for at in thread.elements(row.shape()) {
        row.set(at, row.get(at) + other.get(at));
    }
}

/// The kernels for a GPU, as the README says how to compile them.
#[cfg(not(target_arch = "nvptx64"))]
pub const PTX: &str = include_str!("../kernels.ptx");

#[cfg(test)]
mod tests {
    use interop_kernel::LaunchSize;

    use super::*;

    /// More elements than threads.
    const FEW: LaunchSize = LaunchSize { grid: (2, 1, 1), block: (2, 1, 1) };

    #[test]
    fn rows_are_doubled() {
        let (mut row, mut doubled) = ([1.0, 2.0, 3.0, 4.0, 5.0], [0.0; 5]);
        double_elements::run(FEW, ViewMut::new(&mut row, [5]));
        assert_eq!(row, [2.0, 4.0, 6.0, 8.0, 10.0]);
        doubled_elements::run(FEW, View::new(&row, [5]), ViewMut::new(&mut doubled, [5]));
        assert_eq!(doubled, [4.0, 8.0, 12.0, 16.0, 20.0]);
    }

    /// Every second element of another row, from the last one on.
    #[test]
    fn rows_of_any_stride_are_added() {
        let mut row = [1.0, 2.0, 3.0];
        let other = View::strided(&[10.0, 0.0, 20.0, 0.0, 30.0], 4, [3], [-2]);
        add_elements::run(FEW, ViewMut::new(&mut row, [3]), other);
        assert_eq!(row, [31.0, 22.0, 13.0]);
    }
}
