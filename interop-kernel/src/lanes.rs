//! The numbers that the threads of a team have, in a launch on the CPU: one thread plays them all, several at a time.
#![expect(unsafe_code, reason = "lanes that are set are read without a check")]

use core::array;
use core::mem::MaybeUninit;

/// The maximum number of threads of a team.
const MOST: usize = 1024;

/// Up to three numbers for each thread of a team. Those of one kind are next to each other, so that the CPU computes several at once.
///
/// Lanes stay where they are: a move would copy all of them, also those that a small team does not have.
pub(crate) struct Lanes<const N: usize> {
    numbers: [[MaybeUninit<f32>; MOST]; N],
    pub(crate) count: usize,
}

impl<const N: usize> Lanes<N> {
    /// The lanes of no team.
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self { numbers: [[MaybeUninit::uninit(); MOST]; N], count: 0 }
    }

    /// Begins with these numbers for each thread.
    #[inline(always)]
    pub(crate) fn begin(&mut self, start: [f32; N], count: usize) {
        assert!(count <= MOST, "a block has up to {MOST} threads");
        self.count = count;
        (0..count).for_each(|lane| self.set(lane, start));
    }

    #[inline(always)]
    pub(crate) fn get(&self, lane: usize) -> [f32; N] {
        debug_assert!(lane < MOST);
        array::from_fn(|kind| {
            // SAFETY: callers ask for lanes below `count`, or below the next power of two once these are set: at most `MOST`.
            let number = unsafe { self.numbers[kind].get_unchecked(lane) };
            // SAFETY: as above, and `begin` or `merge` has set it.
            unsafe { number.assume_init() }
        })
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, lane: usize, numbers: [f32; N]) {
        debug_assert!(lane < MOST);
        for (kind, number) in numbers.into_iter().enumerate() {
            // SAFETY: as in `get`.
            *unsafe { self.numbers[kind].get_unchecked_mut(lane) } = MaybeUninit::new(number);
        }
    }

    /// Merges as a device does: the lanes of each warp, then the warps.
    #[inline(always)]
    pub(crate) fn merge(
        &mut self,
        start: [f32; N],
        merge: impl Fn([f32; N], [f32; N]) -> [f32; N],
    ) -> [f32; N] {
        const WARP: usize = 32;
        let (warps, width) = (self.count.div_ceil(WARP), self.count.min(WARP));
        for warp in 0..warps {
            self.merge_neighbours(warp * WARP, width, &merge);
            let numbers = self.get(warp * WARP);
            self.set(warp, numbers);
        }
        for warp in warps..warps.next_power_of_two() {
            self.set(warp, start);
        }
        self.merge_neighbours(0, warps.next_power_of_two(), &merge);
        self.get(0)
    }

    /// Merges a power of two of lanes, up to 32, into the first one, by halves. These are constants, so that a half has no loop.
    #[inline(always)]
    fn merge_neighbours(
        &mut self,
        first: usize,
        count: usize,
        merge: &impl Fn([f32; N], [f32; N]) -> [f32; N],
    ) {
        if count > 16 {
            self.merge_halves::<16>(first, merge);
        }
        if count > 8 {
            self.merge_halves::<8>(first, merge);
        }
        if count > 4 {
            self.merge_halves::<4>(first, merge);
        }
        if count > 2 {
            self.merge_halves::<2>(first, merge);
        }
        if count > 1 {
            self.merge_halves::<1>(first, merge);
        }
    }

    #[inline(always)]
    fn merge_halves<const HALF: usize>(
        &mut self,
        first: usize,
        merge: &impl Fn([f32; N], [f32; N]) -> [f32; N],
    ) {
        let merged: [_; HALF] =
            array::from_fn(|lane| merge(self.get(first + lane), self.get(first + lane + HALF)));
        merged.into_iter().enumerate().for_each(|(lane, numbers)| self.set(first + lane, numbers));
    }
}
