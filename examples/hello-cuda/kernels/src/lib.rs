//! The kernels of this project. They run on a GPU, and in the tests below on the CPU.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx))]

use interop_kernel::half::bf16;
use interop_kernel::{Real, Rows, Team, Thread, View, ViewMut, kernel, math};

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

/// Divides each row by the root of the mean of its squares, and multiplies it by a weight. A team of threads owns a row.
#[kernel(T = [f32, bf16], same_shape(x, out), same_columns(x, weight))]
pub fn normalized_rows<T: Real>(
    mut team: Team<'_>,
    x: View<'_, T, 2>,
    weight: View<'_, T, 1>,
    mut out: ViewMut<'_, T, 2, Rows>,
    eps: f32,
) {
    for row in team.rows(&x) {
        let x = row.keep(&x);
        let scale = math::rsqrt(row.sum(&x, |x| x * x) / row.columns() + eps);
        row.write(&mut out, (&x, &weight), move |(x, weight)| x * scale * weight);
    }
}

/// The kernels for a GPU, which `cargo ptx` writes.
#[cfg(not(target_arch = "nvptx64"))]
pub const PTX: &str = include_str!("../kernels.ptx");

#[cfg(test)]
mod tests {
    use interop_kernel::LaunchSize;

    use super::*;

    /// More elements than threads.
    const FEW: LaunchSize = LaunchSize { grid: (2, 1, 1), block: (2, 1, 1) };

    #[test]
    fn ptx_is_compiled_from_these_sources() {
        interop_kernel::ptx::assert_current(env!("CARGO_MANIFEST_DIR"), "kernels.ptx");
    }

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

    #[test]
    fn rows_are_normalized() {
        let (x, weight, mut out) =
            ([3.0, 4.0, 0.0, 0.0, -1.0, 1.0, 1.0, 1.0], [1.0, 2.0, 1.0, 1.0], [0.0; 8]);
        let size = LaunchSize::for_rows::<f32>(2, 4);
        let rows = ViewMut::new(&mut out, [2, 4]);
        normalized_rows::<f32>::run(size, View::new(&x, [2, 4]), View::new(&weight, [4]), rows, 0.0);
        assert_eq!(out, [1.2, 3.2, 0.0, 0.0, -1.0, 2.0, 1.0, 1.0]);

        let (x, weight) = (x.map(bf16::from_f32), weight.map(bf16::from_f32));
        let mut rounded = [bf16::ZERO; 8];
        let rows = ViewMut::new(&mut rounded, [2, 4]);
        normalized_rows::<bf16>::run(size, View::new(&x, [2, 4]), View::new(&weight, [4]), rows, 0.0);
        assert_eq!(rounded, out.map(bf16::from_f32));
    }
}
