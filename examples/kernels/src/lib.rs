//! The CUDA kernels of the examples, with host versions for machines without a GPU.
//!
//! The sources are the `.cu` files of this package. `cargo xtask ptx` compiles them to the PTX that is included here,
//! so a build needs no CUDA toolkit.
//!
//! The kernels take arrays as arguments by value. Elementwise kernels take [`Arrays`], for any rank and any strides.
//! Others take [`KernelView`](interop_core::KernelView) and [`KernelViewMut`](interop_core::KernelViewMut).
//! [`host::find`] returns the host version of each kernel. Tests compare the kernel with it, and a simulated driver
//! runs it.
//!
//! | kernel | arguments | what it does |
//! | --- | --- | --- |
//! | `vector_add` | `Arrays` of `f32`: out, in, in | adds |
//! | `scale_T` | `Arrays` of `T`: in and out; factor `f64` | multiplies in place, rounds integers towards zero |
//! | `fill_T` | `Arrays` of `T`: out; value `T` | fills |
//! | `sum_T` | `Arrays` of `T`: in; `f64` of 1 axis: out | one partial sum for each block of the grid |
//! | `blur_f32`, `blur_u8` | height × width × channels: in, out | the mean of 3 × 3 pixels, edges repeated |
//! | `spin` | cycles `u64` | keeps the device busy |
//! | `produce` | `u32` of 1 axis: out; value `u32` | element `i` becomes `value + i` |
//! | `consume` | `u32` of 1 axis: in; value `u32`; `u64` of no axis: in and out | counts the elements that are not |
//!
//! `T` is `f32` or `u8`; for `sum_T` it may also be `f64`.

pub mod host;

use interop_core::{KernelArrays, LaunchSize};

/// The maximum number of axes that arrays may have after merging.
pub const AXES: usize = 8;

/// The argument of the elementwise kernels.
pub type Arrays<'a, const K: usize> = KernelArrays<'a, K, AXES>;

/// The PTX of one source file, which is one module of the driver.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    /// The name of the source without `.cu`.
    pub name: &'static str,
    /// The text that the driver compiles (`cuModuleLoadData`).
    pub ptx: &'static str,
}

impl Module {
    /// The names of its kernels, in the order of the PTX.
    ///
    /// ```
    /// use interop_demo_kernels::MODULES;
    /// let order = MODULES.iter().find(|module| module.name == "order").unwrap();
    /// assert_eq!(order.kernels().collect::<Vec<_>>(), ["spin", "produce", "consume"]);
    /// ```
    pub fn kernels(&self) -> impl Iterator<Item = &'static str> {
        let after = self.ptx.split(".entry ").skip(1);
        after.map(|text| text.split('(').next().unwrap_or(text).trim())
    }
}

macro_rules! modules {
    ($($(#[$doc:meta])* $constant:ident = $name:literal;)*) => {
        $(
            $(#[$doc])*
            pub const $constant: &str = include_str!(concat!("../ptx/", $name, ".ptx"));
        )*

        /// All modules.
        pub const MODULES: &[Module] = &[$(Module { name: $name, ptx: $constant }),*];
    };
}

modules! {
    /// `blur_f32` and `blur_u8`.
    BLUR_PTX = "blur";
    /// `fill_f32` and `fill_u8`.
    FILL_PTX = "fill";
    /// `spin`, `produce` and `consume`.
    ORDER_PTX = "order";
    /// `scale_f32` and `scale_u8`.
    SCALE_PTX = "scale";
    /// `sum_f32`, `sum_u8` and `sum_f64`.
    SUM_PTX = "sum";
    /// `vector_add`.
    VECTOR_ADD_PTX = "vector_add";
}

const THREADS: u32 = 256;
/// The maximum grid extents along x and y (CUDA C++ Programming Guide, "Compute Capabilities").
const MOST_X: u64 = 0x7FFF_FFFF;
const MOST_Y: u64 = 65_535;

fn blocks(wanted: u64, most: u64) -> u32 {
    u32::try_from(wanted.clamp(1, most)).unwrap_or(u32::MAX)
}

/// The maximum number of blocks of a `sum`, each of which writes one partial sum.
///
/// It is enough to keep the largest devices busy, and few enough to be added quickly.
pub const MOST_PARTS: u32 = 2048;

/// The launch size of a kernel that takes a view, for `len` elements.
///
/// Any other grid is also correct. For an empty array every thread finds that there is nothing to do.
///
/// ```
/// use interop_demo_kernels::elementwise;
/// assert_eq!(elementwise(1_000_000).grid, (977, 1, 1));
/// assert_eq!(elementwise(0).grid, (1, 1, 1));
/// ```
#[must_use]
pub fn elementwise(len: usize) -> LaunchSize {
    let wanted = (len as u64).div_ceil(4 * u64::from(THREADS));
    LaunchSize { grid: (blocks(wanted, MOST_X), 1, 1), block: (THREADS, 1, 1) }
}

/// The launch size of a blur over an image of `height` × `width` × `channels` elements of `item` bytes.
///
/// A warp walks down a strip; each of its lanes covers 16 bytes of the width, except for the two outermost lanes. With
/// this grid, blurs of 800 MB images on an H200 reached 91 to 92 % (`f32`) and 78 to 88 % (`u8`) of the driver's copy
/// rate.
///
/// ```
/// use interop_demo_kernels::blur;
/// assert_eq!(blur(1080, 1920, 3, 4).grid, (12, 90, 1));
/// ```
#[must_use]
pub fn blur(height: usize, width: usize, channels: usize, item: usize) -> LaunchSize {
    /// Rows per warp. With more rows, fewer rows are read twice where strips meet; with fewer, those rows are still in
    /// the cache. A multiple of the three rows that one unrolled iteration of the kernel's loop processes.
    const ROWS: u64 = 12;
    const WARPS: u32 = 4;
    let strip = 30 * (16 / item.clamp(1, 16) as u64);
    let strips = (width as u64).saturating_mul(channels as u64).div_ceil(strip);
    LaunchSize {
        grid: (
            blocks(strips.div_ceil(WARPS.into()), MOST_X),
            blocks((height as u64).div_ceil(ROWS), MOST_Y),
            1,
        ),
        block: (32 * WARPS, 1, 1),
    }
}
