//! The parameter of a kernel whose threads own rows together.
#![expect(unsafe_code, reason = "a team is made once, of a thread that nobody has numbered")]

use core::fmt;
use core::marker::PhantomData;

use crate::fail::{Mistake, fail};
use crate::launch_size::is_team;
use crate::row::OwnRows;
use crate::row_source::ArrayOfRows;
use crate::team_threads::TeamThreads;
use crate::thread::{Extents, FirstParameter, Thread, sealed as first};

/// The threads that own rows together: the first parameter of a kernel with [`Rows`](crate::Rows).
///
/// The code of the kernel is that of the team: all threads of a team make the same calls. It has no number of a thread, and closures
/// that run in one thread cannot tell the others: they are [`ElementFunction`](crate::ElementFunction)s. On the CPU one thread plays the
/// team, and adds in the order of the device; with `run_in_threads` each is a thread of the system, and panics if they make different
/// calls, as a `static` that they change can bring about.
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
///         let sum = row.sum(&x, move |x| math::exp(x - max));
///         row.write(&mut out, &x, move |x| math::exp(x - max) / sum);
///     }
/// }
///
/// let (x, mut out) = ([1.0, 1.0, 0.0, 0.0, f32::NEG_INFINITY, 0.0], [0.0; 6]);
/// let size = LaunchSize::for_rows::<f32>(3, 2);
/// softmax::run(size, View::new(&x, [3, 2]), ViewMut::new(&mut out, [3, 2]));
/// assert_eq!(out, [0.5, 0.5, 0.5, 0.5, 0.0, 1.0]);
/// ```
pub struct Team<'t, const KEPT: usize = 4> {
    threads: TeamThreads<'t>,
}

impl<'t, const KEPT: usize> FirstParameter<'t> for Team<'t, KEPT> {}

impl<'t, const KEPT: usize> first::FirstParameter<'t> for Team<'t, KEPT> {
    const NEEDS_BLOCK: bool = false;
    const IS_TEAM: bool = true;

    #[inline(always)]
    unsafe fn from_thread(thread: Thread<'t>) -> Self {
        const { assert!(KEPT <= 8, "a thread keeps up to 8 units") };
        Self { threads: TeamThreads::new(thread) }
    }
}

impl<'t, const KEPT: usize> Team<'t, KEPT> {
    /// Returns the rows of this team, one after the other. The array decides how many elements a thread moves at once: name
    /// one that is read or written in each row, of the type with the most elements.
    ///
    /// # Panics
    ///
    /// If a block does not consist of teams, or if there are 2^31 columns or more. On a device this is a trap; a launch in a scope returns
    /// an error first.
    #[inline(always)]
    #[track_caller]
    pub fn rows<A: ArrayOfRows>(&mut self, array: A) -> OwnRows<'_, 't, A::Element, KEPT> {
        let (fields, team) = (array.fields(), &self.threads);
        let thread = team.thread();
        let [rows, columns] = fields.extents();
        let ([_, y, z], block) = (thread.extents(Extents::Thread), thread.extents(Extents::BlockSize));
        if !is_team(block) {
            fail(Mistake::NoTeam(block));
        }
        if columns >= 1 << 31 {
            fail(Mistake::OtherRows([rows, columns], [rows, (1 << 31) - 1]));
        }
        // In an earlier loop an element may have been that of another thread.
        team.separate_loops();
        #[cfg(not(target_arch = "nvptx64"))]
        if let Some(part) = thread.host_part() {
            return OwnRows::of_part(team, fields, part);
        }
        let (number, teams) = (z * block[1] + y, u64::from(block[1] * block[2]));
        let first = thread.block() * teams + u64::from(number);
        let rows = first..if team.plays() { rows as u64 } else { 0 };
        OwnRows {
            team,
            fields,
            rows,
            step: thread.blocks() * teams,
            #[cfg(not(target_arch = "nvptx64"))]
            neighbours: None,
            element: PhantomData,
        }
    }
}

/// It does not tell the number of the thread.
impl<const KEPT: usize> fmt::Debug for Team<'_, KEPT> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Team").finish_non_exhaustive()
    }
}
