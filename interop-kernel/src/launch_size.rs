//! How many threads a launch has.

/// The grid and block size of a launch, in the form that `cust` and `cudarc` use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchSize {
    /// The number of blocks along x, y and z.
    pub grid: (u32, u32, u32),
    /// The number of threads of a block along x, y and z.
    pub block: (u32, u32, u32),
}

impl LaunchSize {
    /// Returns a launch of blocks of 256 threads along x, with one thread for each unit of work, such as an element.
    ///
    /// Kernels that go over their own elements are right in every grid. This one has enough threads for any device and not
    /// more than it needs: for many units there are at most 8192 blocks, whose threads do several.
    ///
    /// ```
    /// use interop_kernel::LaunchSize;
    ///
    /// assert_eq!(LaunchSize::for_units(1000).grid, (4, 1, 1));
    /// assert_eq!(LaunchSize::for_units(0).grid, (1, 1, 1));
    /// ```
    #[must_use]
    pub fn for_units(units: usize) -> Self {
        const THREADS: u32 = 256;
        const MOST: u32 = 8192;
        let wanted = units.div_ceil(THREADS as usize);
        let blocks = u32::try_from(wanted).map_or(MOST, |wanted| wanted.clamp(1, MOST));
        Self { grid: (blocks, 1, 1), block: (THREADS, 1, 1) }
    }
}
