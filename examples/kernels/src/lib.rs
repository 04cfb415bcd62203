//! The CUDA kernels of the examples.
//!
//! Those in [`kernels`] are in Rust: the same functions run on a GPU and on the CPU. Those in `order.cu` are in C++, and
//! [`host`] has them in Rust once more for a simulated driver. `cargo xtask ptx` compiles both to the PTX that is included
//! here, so a build needs no CUDA toolkit.
//!
//! | kernel | arguments | what it does |
//! | --- | --- | --- |
//! | `vector_add` | `f32`: out, in, in | adds |
//! | `scale_f32` | in and out; factor `f64` | multiplies in place |
//! | `fill_f32` | out; value `f32` | fills |
//! | `sum_f32` | in; `f64` of 1 axis: out | one partial sum for each block of the grid |
//! | `blur_f32`, `blur_u8` | height × width × channels: in, out | the mean of 3 × 3 pixels, edges repeated |
//! | `blur_pixels` | as `blur_f32` | the same, pixel by pixel |
//! | `scale_row`, `scale_packs` | `f32` of 1 axis: in and out; factor `f32` | multiplies, one element or 16 bytes at a time |
//! | `scan_blocks` | `f32` of 1 axis: in, out | sums of the numbers up to each one in its block |
//! | `histogram_f32` | in; first bin `f32`; bins for each unit `f32`; `u32` of 1 axis: in and out | counts the elements of each bin |
//! | `count_elements` | six numbers: in and out; `u32` of 1 axis: out | adds to each type of number by all threads |
//! | `spin` | cycles `u64` | keeps the device busy |
//! | `produce` | `u32` of 1 axis: out; value `u32` | element `i` becomes `value + i` |
//! | `consume` | `u32` of 1 axis: in; value `u32`; `u64` of no axis: in and out | counts the elements that are not |
//!
//! The first four take arrays of any rank and any strides.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx))]

#[cfg(not(target_arch = "nvptx64"))]
pub mod host;
pub mod kernels;

#[cfg(not(target_arch = "nvptx64"))]
pub use modules::*;

#[cfg(not(target_arch = "nvptx64"))]
mod modules {
    use interop_kernel::{KernelArrays, LaunchSize};

    /// The argument of the elementwise kernels, for launches that are written by hand.
    pub type Arrays<'a, const K: usize> = KernelArrays<'a, K, 4>;

    /// The PTX of the kernels in Rust.
    pub const KERNELS_PTX: &str = include_str!("../ptx/kernels.ptx");

    /// The PTX of `spin`, `produce` and `consume`, which are in C++.
    pub const ORDER_PTX: &str = include_str!("../ptx/order.ptx");

    /// The maximum number of blocks of a `sum`, each of which writes one partial sum.
    ///
    /// It is enough to keep the largest devices busy, and few enough to be added quickly.
    pub const MOST_PARTS: u32 = 2048;

    /// The names of the kernels of a PTX text, in its order.
    ///
    /// ```
    /// use interop_demo_kernels::{ORDER_PTX, entries};
    /// assert_eq!(entries(ORDER_PTX).collect::<Vec<_>>(), ["spin", "produce", "consume"]);
    /// ```
    pub fn entries(ptx: &str) -> impl Iterator<Item = &str> {
        ptx.split(".entry ").skip(1).map(|text| text.split('(').next().unwrap_or(text).trim())
    }

    /// The launch size of a blur: a thread for each tile of rows.
    ///
    /// ```
    /// use interop_demo_kernels::blur_size;
    /// assert_eq!(blur_size(1080, 1920, 3).grid, (1530, 1, 1));
    /// ```
    #[must_use]
    pub fn blur_size(height: usize, width: usize, channels: usize) -> LaunchSize {
        let tiles = height.div_ceil(crate::kernels::ROWS).saturating_mul(width).saturating_mul(channels);
        LaunchSize::for_units(tiles)
    }
}
