//! The threads that own rows together, and what they compute together.
#![cfg_attr(
    target_arch = "nvptx64",
    expect(unsafe_code, reason = "threads of a team leave each other values")
)]

use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;

#[cfg(target_arch = "nvptx64")]
use crate::device;
use crate::fail::{Mistake, fail};
use crate::row::OwnRows;
use crate::row_source::RowArray;
#[cfg(target_arch = "nvptx64")]
use crate::row_source::unrolled;
use crate::thread::{Extents, FirstParameter, Thread, sealed as first};

/// The threads that own rows together: the first parameter of a kernel with [`Rows`](crate::Rows).
///
/// The code of the kernel is that of the team: all threads of a team make the same calls. It has no number of a thread, and closures
/// that run in one thread cannot tell the others. On the CPU one thread runs the team, and adds in the order of the device.
///
/// A team has as many threads as a block has along x: 1, 2, 4, 8, 16 or 32, and then a block has several teams, or a multiple of 32,
/// and nothing else in the block. [`LaunchSize::for_rows`](crate::LaunchSize::for_rows) chooses. Rows belong to the teams in turn, so
/// any grid is right.
///
/// `KEPT` is the number of units that each thread keeps in registers: of 16 bytes, or of 8 elements. The default is the fastest for
/// most kernels. Write less for a kernel that keeps several arrays.
///
/// ```
/// use interop_kernel::{LaunchSize, Rows, Team, View, ViewMut, kernel, math};
///
/// #[kernel(same_shape(x, out))]
/// fn softmax(mut team: Team<'_>, x: View<'_, f32, 2>, mut out: ViewMut<'_, f32, 2, Rows>) {
///     for row in team.rows(&x) {
///         let x = row.keep(&x);
///         let max = row.max(&x, |x| x);
///         let sum = row.sum(&x, |x| math::exp(x - max));
///         row.write(&mut out, &x, |x| math::exp(x - max) / sum);
///     }
/// }
///
/// let (x, mut out) = ([1.0, 1.0, 0.0, 0.0, f32::NEG_INFINITY, 0.0], [0.0; 6]);
/// let size = LaunchSize::for_rows::<f32>(3, 2);
/// softmax::run(size, View::new(&x, [3, 2]), ViewMut::new(&mut out, [3, 2]));
/// assert_eq!(out, [0.5, 0.5, 0.5, 0.5, 0.0, 1.0]);
/// ```
pub struct Team<'t, const KEPT: usize = 4> {
    thread: Thread<'t>,
    /// Which half of the shared words the next result uses.
    #[cfg_attr(not(target_arch = "nvptx64"), allow(dead_code, reason = "for the device"))]
    turn: Cell<u32>,
    #[cfg_attr(not(target_arch = "nvptx64"), allow(dead_code, reason = "for the device"))]
    has_rows: Cell<bool>,
}

impl<'t, const KEPT: usize> FirstParameter<'t> for Team<'t, KEPT> {}

impl<'t, const KEPT: usize> first::FirstParameter<'t> for Team<'t, KEPT> {
    const NEEDS_BLOCK: bool = false;
    const IS_TEAM: bool = true;

    #[inline(always)]
    fn from_thread(thread: Thread<'t>) -> Self {
        const { assert!(KEPT <= 8, "a thread keeps up to 8 units") };
        Self { thread, turn: Cell::new(0), has_rows: Cell::new(false) }
    }
}

/// It does not tell the number of the thread.
impl<const KEPT: usize> fmt::Debug for Team<'_, KEPT> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Team").finish_non_exhaustive()
    }
}

/// A value for each thread that the caller plays: on a device for itself.
#[cfg(target_arch = "nvptx64")]
pub(crate) type OfEach<V> = [V; 1];
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) type OfEach<V> = Vec<V>;

/// Whether a block of this size consists of teams.
#[inline(always)]
pub(crate) fn is_team([width, height, depth]: [u32; 3]) -> bool {
    if width > 32 { width % 32 == 0 && height * depth == 1 } else { width.is_power_of_two() }
}

/// The blocks that have teams, for messages.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) const TEAMS: &str =
    "teams of 1, 2, 4, 8, 16 or 32 threads along x, or one of a multiple of 32, as in `LaunchSize::for_rows`";

impl<const KEPT: usize> Team<'_, KEPT> {
    /// The number of threads.
    #[inline(always)]
    pub(crate) fn size(&self) -> u32 {
        self.thread.extents(Extents::BlockSize)[0]
    }

    #[inline(always)]
    fn lane(&self) -> u32 {
        self.thread.extents(Extents::Thread)[0]
    }

    /// The threads of the team that the caller plays: on a device itself, on the CPU all.
    #[inline(always)]
    pub(crate) fn lanes(&self) -> core::ops::Range<u32> {
        #[cfg(target_arch = "nvptx64")]
        return self.lane()..self.lane() + 1;
        #[cfg(not(target_arch = "nvptx64"))]
        return 0..self.size();
    }

    /// Returns a value for each thread that the caller plays.
    #[inline(always)]
    pub(crate) fn of_each<V>(&self, value: impl Fn(u32) -> V) -> OfEach<V> {
        #[cfg(target_arch = "nvptx64")]
        return [value(self.lane())];
        #[cfg(not(target_arch = "nvptx64"))]
        self.lanes().map(value).collect()
    }

    /// Whether the caller is, or plays, the first thread.
    #[inline(always)]
    pub(crate) fn is_first(&self) -> bool {
        self.lane() == 0
    }

    /// Returns the rows of this team, one after the other. The array decides how many elements a thread moves at once: name
    /// one that is read or written in each row, of the type with the most elements.
    ///
    /// # Panics
    ///
    /// If a block does not consist of teams, or if there are 2^31 columns or more. On a device this is a trap; a launch in a scope returns
    /// an error first.
    #[inline(always)]
    #[track_caller]
    pub fn rows<A: RowArray>(&mut self, array: A) -> OwnRows<'_, A::Element, KEPT> {
        let fields = array.fields();
        let [rows, columns] = fields.extents();
        let ([_, y, z], block) =
            (self.thread.extents(Extents::Thread), self.thread.extents(Extents::BlockSize));
        if !is_team(block) {
            fail(Mistake::NoTeam(block));
        }
        if columns >= 1 << 31 {
            fail(Mistake::OtherRows([rows, columns], [rows, (1 << 31) - 1]));
        }
        // In an earlier loop an element may have been that of another thread.
        #[cfg(target_arch = "nvptx64")]
        if self.has_rows.replace(true) {
            self.meet();
        }
        let (team, teams) = (z * block[1] + y, u64::from(block[1] * block[2]));
        // On the CPU the others have nothing to do.
        let is_idle = cfg!(not(target_arch = "nvptx64")) && !self.is_first();
        let first = self.thread.block() * teams + u64::from(team);
        let rows = first..if is_idle { 0 } else { rows as u64 };
        OwnRows { team: self, fields, rows, step: self.thread.blocks() * teams, element: PhantomData }
    }

    /// Waits for the threads of the team.
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn meet(&self) {
        if self.size() > 32 { device::meet() } else { device::meet_in_warp(self.mask()) }
    }

    /// The threads of the team in its warp.
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn mask(&self) -> u32 {
        let size = self.size();
        if size >= 32 {
            u32::MAX
        } else {
            ((1 << size) - 1) << (self.thread.number_in_block() % 32 & !(size - 1))
        }
    }

    /// Combines the up to three values that `own` returns for each thread, in the same order for each. `start` changes nothing.
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    pub(crate) fn combine<const N: usize>(
        &self,
        start: [f32; N],
        own: impl Fn(u32) -> [f32; N],
        combine: impl Fn([f32; N], [f32; N]) -> [f32; N],
    ) -> [f32; N] {
        let (size, mask, number) = (self.size(), self.mask(), self.thread.number_in_block());
        let warp = |mut values: [f32; N], size: u32| {
            macro_rules! step {
                ($($distance:literal)*) => {
                    $(if size > $distance {
                        let mut others = start;
                        unrolled!(word in 0..N => {
                            // SAFETY: all threads of the team, which are those of the mask, make this call.
                            others[word] = f32::from_bits(unsafe { device::word_across(mask, values[word].to_bits(), $distance) });
                        });
                        values = combine(values, others);
                    })*
                };
            }
            step!(16 8 4 2 1);
            values
        };
        let mut values = warp(own(self.lane()), size);
        if size > 32 {
            // In turns, so that one barrier is between the reads of a half and the next writes to it.
            let turn = self.turn.get();
            self.turn.set(turn ^ 1);
            let place = |warp: u32| {
                device::shared_words().cast::<f32>().wrapping_add(((turn * 32 + warp) * 3) as usize)
            };
            let (lane, warps) = (number % 32, size / 32);
            if lane == 0 {
                unrolled!(word in 0..N => {
                    // SAFETY: a block has at most 32 warps, each with three words in each half.
                    unsafe { place(number / 32).wrapping_add(word).write_volatile(values[word]) };
                });
            }
            self.meet();
            // Each part of a warp with so many lanes gets all of them.
            let lanes = if warps > 16 { 32 } else { warps.next_power_of_two() };
            let own = lane & (lanes - 1);
            values = start;
            if own < warps {
                unrolled!(word in 0..N => {
                    // SAFETY: as above; its warp wrote it before the barrier.
                    values[word] = unsafe { place(own).wrapping_add(word).read_volatile() };
                });
            }
            values = warp(values, lanes);
        }
        values
    }

    /// Combines as the device does: the lanes of each warp, then the warps.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn combine<const N: usize>(
        &self,
        start: [f32; N],
        own: impl Fn(u32) -> [f32; N],
        combine: impl Fn([f32; N], [f32; N]) -> [f32; N],
    ) -> [f32; N] {
        let warp = |values: &[[f32; N]]| {
            let mut values = values.to_vec();
            values.resize(values.len().next_power_of_two(), start);
            while values.len() > 1 {
                let half = values.len() / 2;
                values = (0..half).map(|lane| combine(values[lane], values[lane + half])).collect();
            }
            values[0]
        };
        warp(&self.of_each(own).chunks(32).map(warp).collect::<Vec<_>>())
    }
}
