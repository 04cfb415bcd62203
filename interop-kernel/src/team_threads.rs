//! The threads of a team, and what they compute together.
#![cfg_attr(
    target_arch = "nvptx64",
    expect(unsafe_code, reason = "threads of a team leave each other values")
)]

#[cfg(not(target_arch = "nvptx64"))]
use core::array;
use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;

#[cfg(target_arch = "nvptx64")]
use crate::device;
#[cfg(not(target_arch = "nvptx64"))]
use crate::place::{Gate, TeamCall};
use crate::row_source::OfEach;
#[cfg(target_arch = "nvptx64")]
use crate::row_source::unrolled;
use crate::thread::{Extents, Thread};

/// The threads that own rows together.
pub(crate) struct TeamThreads<'t> {
    thread: Thread<'t>,
    /// Which half of the shared words the next result uses.
    #[cfg_attr(not(target_arch = "nvptx64"), allow(dead_code, reason = "for the device"))]
    turn: Cell<u32>,
    has_rows: Cell<bool>,
    /// Invariant: a shorter lifetime would let functions of elements borrow variables of the kernel.
    kernel: PhantomData<fn(&'t ()) -> &'t ()>,
}

impl<'t> TeamThreads<'t> {
    #[inline(always)]
    pub(crate) fn new(thread: Thread<'t>) -> Self {
        Self { thread, turn: Cell::new(0), has_rows: Cell::new(false), kernel: PhantomData }
    }

    /// The number of threads.
    #[inline(always)]
    pub(crate) fn size(&self) -> u32 {
        self.thread.extents(Extents::BlockSize)[0]
    }

    /// Whether the thread has a part of a launch on the CPU.
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    pub(crate) fn is_in_part(&self) -> bool {
        self.thread.host_part().is_some()
    }

    #[inline(always)]
    fn lane(&self) -> u32 {
        self.thread.extents(Extents::Thread)[0]
    }

    /// Where the threads of the team meet, if each of them is a thread of the system. Otherwise the first one plays them all.
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn gate(&self) -> Option<&'t Gate<TeamCall>> {
        self.thread.place().team
    }

    /// Whether the caller plays threads of the team, and rows are its: on a device each plays itself.
    #[inline(always)]
    pub(crate) fn plays(&self) -> bool {
        #[cfg(target_arch = "nvptx64")]
        return true;
        #[cfg(not(target_arch = "nvptx64"))]
        return self.gate().is_some() || self.is_first();
    }

    /// The threads of the team that the caller plays: on a device itself, on the CPU itself or all.
    #[inline(always)]
    pub(crate) fn lanes(&self) -> core::ops::Range<u32> {
        #[cfg(not(target_arch = "nvptx64"))]
        if self.gate().is_none() {
            return 0..self.size();
        }
        self.lane()..self.lane() + 1
    }

    /// Makes a call together with the other threads of the team. On a device there is nothing to do: only a test, with a thread of the
    /// system for each, finds out whether they make it.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn call(&self) {
        #[cfg(not(target_arch = "nvptx64"))]
        if let Some(gate) = self.gate() {
            gate.call(self.lane() as usize, [0.0; 3]);
        }
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

    #[inline(always)]
    pub(crate) fn thread(&self) -> &Thread<'t> {
        &self.thread
    }

    /// Waits for the threads of the team if they have had a loop before: an element may have been that of another thread.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn separate_loops(&self) {
        if self.has_rows.replace(true) {
            #[cfg(target_arch = "nvptx64")]
            self.meet();
            #[cfg(not(target_arch = "nvptx64"))]
            self.call();
        }
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

    /// Combines the up to three values that `own` returns for each thread, in the same order for each. `start` changes nothing. With `ORDERED`
    /// the first argument of `combine` is of the thread with the lower number in all threads, which else get the bits of another order.
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    pub(crate) fn combine<const N: usize, const ORDERED: bool>(
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
                        let is_second = ORDERED && number & $distance != 0;
                        values = if is_second { combine(others, values) } else { combine(values, others) };
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
    #[track_caller]
    pub(crate) fn combine<const N: usize, const ORDERED: bool>(
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
        let values = match self.gate() {
            None => self.of_each(own),
            Some(gate) => {
                let (lane, mut values) = (self.lane(), [0.0; 3]);
                values[..N].copy_from_slice(&own(lane));
                let all = gate.call(lane as usize, values);
                all.iter().map(|values| array::from_fn(|word| values[word])).collect()
            }
        };
        warp(&values.chunks(32).map(warp).collect::<Vec<_>>())
    }
}

/// It does not tell the number of the thread.
impl fmt::Debug for TeamThreads<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Team").finish_non_exhaustive()
    }
}
