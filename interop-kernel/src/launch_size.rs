//! How many threads a launch has.

use crate::element::KernelElement;

/// The grid and block size of a launch, in the form that `cust` and `cudarc` use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchSize {
    /// The number of blocks along x, y and z.
    pub grid: (u32, u32, u32),
    /// The number of threads of a block along x, y and z.
    pub block: (u32, u32, u32),
}

/// The bytes of a row for which there is a thread, at most: a little more than a [`Team`](crate::Team) keeps by itself.
const BYTES: usize = 80;

/// The number of threads of a block.
const THREADS: u32 = 256;

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
        const MOST: usize = 8192;
        Self::for_blocks(units.div_ceil(THREADS as usize).min(MOST))
    }

    /// Returns a launch of as many blocks of 256 threads along x, at least one: for a kernel that writes one element for each
    /// block, with [`Thread::of_block`](crate::Thread::of_block).
    ///
    /// ```
    /// use interop_kernel::LaunchSize;
    ///
    /// assert_eq!(LaunchSize::for_blocks(1000).grid, (1000, 1, 1));
    /// assert_eq!(LaunchSize::for_blocks(0).grid, (1, 1, 1));
    /// ```
    ///
    /// # Panics
    ///
    /// If there are more than 2^31 - 1 blocks, which no device takes.
    #[must_use]
    #[track_caller]
    pub fn for_blocks(blocks: usize) -> Self {
        let most = i32::MAX.unsigned_abs();
        let grid = u32::try_from(blocks.max(1)).ok().filter(|blocks| *blocks <= most);
        let x = grid.unwrap_or_else(|| panic!("a grid has less than 2^31 blocks along x: found {blocks}"));
        Self { grid: (x, 1, 1), block: (THREADS, 1, 1) }
    }

    /// Returns a launch for a kernel of rows, with a [`Team`](crate::Team): as many threads for a row as its bytes keep busy, and
    /// several rows for a block if they are short. `T` is the type of most elements.
    ///
    /// ```
    /// use interop_kernel::LaunchSize;
    ///
    /// assert_eq!(LaunchSize::for_rows::<f32>(1000, 4096).block, (256, 1, 1));
    /// ```
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "at most 512")]
    pub fn for_rows<T: KernelElement>(rows: usize, columns: usize) -> Self {
        let threads = columns.saturating_mul(size_of::<T>()).div_ceil(BYTES).min(512);
        Self::for_teams(rows, threads.next_power_of_two() as u32)
    }

    /// Returns a launch for a kernel of rows with so many threads for a row: 1, 2, 4, 8, 16 or 32, or a multiple of 32.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "below 2^31")]
    pub fn for_teams(rows: usize, threads: u32) -> Self {
        let teams = if threads > 32 { 1 } else { 128 / threads.max(1) };
        let blocks = rows.div_ceil(teams as usize).clamp(1, i32::MAX as usize);
        Self { grid: (blocks as u32, 1, 1), block: (threads, teams, 1) }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl LaunchSize {
    /// Whether every device takes a launch of this size.
    pub(crate) fn is_launchable(self) -> bool {
        let ((x, y, z), (width, height, depth)) = (self.grid, self.block);
        let threads = u128::from(width) * u128::from(height) * u128::from(depth);
        (1..=1024).contains(&threads) && x > 0 && y > 0 && z > 0
    }

    /// The number of threads, of a launch that every device takes.
    pub(crate) fn threads(self) -> u128 {
        let ((x, y, z), (width, height, depth)) = (self.grid, self.block);
        [x, y, z, width, height, depth].into_iter().map(u128::from).product()
    }
}

/// The launches that every device takes, for messages.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) const LAUNCHABLE: &str = "a launch has at least one block, and 1 to 1024 threads in a block";

/// Whether a block of this size consists of teams.
#[inline(always)]
pub(crate) fn is_team([width, height, depth]: [u32; 3]) -> bool {
    if width > 32 { width % 32 == 0 && height * depth == 1 } else { width.is_power_of_two() }
}

/// The blocks that have teams, for messages.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) const TEAMS: &str =
    "teams of 1, 2, 4, 8, 16 or 32 threads along x, or one of a multiple of 32, as in `LaunchSize::for_rows`";
