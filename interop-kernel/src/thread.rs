//! The thread that runs a kernel, and the elements that are its own.
#![expect(unsafe_code, reason = "a barrier is right only if all threads of a block reach it")]

use core::fmt;
use core::marker::PhantomData;

#[cfg(target_arch = "nvptx64")]
use crate::device;
use crate::element::KernelElement;
use crate::fail::{Mistake, fail};
use crate::mapping::{Blocks, Elements, Mapping, Packs, Tiles};
#[cfg(not(target_arch = "nvptx64"))]
use crate::place::Place;
use crate::shared::Shared;

/// The thread that runs a kernel: its number, and which elements it may write.
///
/// It is the first parameter of a kernel. Code cannot make one, keep one or give one to another thread.
pub struct Thread<'t> {
    #[cfg(not(target_arch = "nvptx64"))]
    place: &'t Place<'t>,
    /// It stays in its thread.
    marker: PhantomData<(&'t (), *const ())>,
}

/// A [`Thread`] that works together with the other threads of its block.
///
/// Write it in the place of `Thread` if a kernel has a barrier. On the CPU such a kernel runs with one thread of the
/// system for each thread of a block.
pub struct BlockThread<'t>(Thread<'t>);

impl<'t> core::ops::Deref for BlockThread<'t> {
    type Target = Thread<'t>;

    fn deref(&self) -> &Thread<'t> {
        &self.0
    }
}

/// The type of a kernel's first parameter: [`Thread`], [`BlockThread`] or [`Team`](crate::Team).
#[diagnostic::on_unimplemented(
    message = "the first parameter of a kernel is its thread, not `{Self}`",
    label = "write `thread: Thread<'_>` before this parameter"
)]
pub trait FirstParameter<'t>: sealed::FirstParameter<'t> {
    /// The thread that calls this, for a kernel with these parameters.
    ///
    /// # Safety
    ///
    /// Each thread of a launch calls this once: an entry point does.
    #[cfg(target_arch = "nvptx64")]
    #[doc(hidden)]
    #[inline(always)]
    unsafe fn __at_entry_point<P: crate::layout::Layouts>() -> Self
    where
        Self: Sized,
    {
        const { crate::layout::assert_beside(Self::IS_TEAM, P::HAS_ATOMIC) };
        // SAFETY: as the caller promises.
        let thread = unsafe { Thread::new() };
        // SAFETY: this thread has just begun.
        unsafe { Self::from_thread(thread) }
    }
}

pub(crate) mod sealed {
    use super::Thread;

    pub trait FirstParameter<'t> {
        /// Whether the threads of a block run at the same time on the CPU, too.
        const NEEDS_BLOCK: bool;
        /// Whether a block consists of teams.
        const IS_TEAM: bool = false;
        /// # Safety
        ///
        /// The thread is that of an entry point, of which nobody knows the number: all threads of a team make the same calls.
        unsafe fn from_thread(thread: Thread<'t>) -> Self;
    }
}

impl<'t> FirstParameter<'t> for Thread<'t> {}

impl<'t> sealed::FirstParameter<'t> for Thread<'t> {
    const NEEDS_BLOCK: bool = false;

    #[inline(always)]
    unsafe fn from_thread(thread: Self) -> Self {
        thread
    }
}

impl<'t> FirstParameter<'t> for BlockThread<'t> {}

impl<'t> sealed::FirstParameter<'t> for BlockThread<'t> {
    const NEEDS_BLOCK: bool = true;

    #[inline(always)]
    unsafe fn from_thread(thread: Thread<'t>) -> Self {
        Self(thread)
    }
}

/// Which of the four extents of a launch.
#[derive(Clone, Copy)]
pub(crate) enum Extents {
    Thread,
    Block,
    BlockSize,
    GridSize,
}

impl<'t> Thread<'t> {
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn new(place: &'t Place<'t>) -> Self {
        Self { place, marker: PhantomData }
    }

    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn place(&self) -> &'t Place<'t> {
        self.place
    }

    /// The thread that calls this.
    ///
    /// # Safety
    ///
    /// Each thread of a launch calls this once.
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self { marker: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn extents(&self, extents: Extents) -> [u32; 3] {
        #[cfg(not(target_arch = "nvptx64"))]
        let Place { thread, block, size: crate::LaunchSize { grid, block: block_size }, .. } = *self.place;
        match extents {
            #[cfg(target_arch = "nvptx64")]
            Extents::Thread => device::thread(),
            #[cfg(target_arch = "nvptx64")]
            Extents::Block => device::block(),
            #[cfg(target_arch = "nvptx64")]
            Extents::BlockSize => device::block_size(),
            #[cfg(target_arch = "nvptx64")]
            Extents::GridSize => device::grid_size(),
            #[cfg(not(target_arch = "nvptx64"))]
            Extents::Thread => thread,
            #[cfg(not(target_arch = "nvptx64"))]
            Extents::Block => block,
            #[cfg(not(target_arch = "nvptx64"))]
            Extents::BlockSize => block_size.into(),
            #[cfg(not(target_arch = "nvptx64"))]
            Extents::GridSize => grid.into(),
        }
    }

    /// The number of the thread in its block, over x, y and z.
    #[inline(always)]
    #[must_use]
    pub fn number_in_block(&self) -> u32 {
        let ([x, y, z], [width, height, _]) =
            (self.extents(Extents::Thread), self.extents(Extents::BlockSize));
        (z * height + y) * width + x
    }

    /// The number of threads of a block.
    #[inline(always)]
    #[must_use]
    pub fn block_size(&self) -> u32 {
        let [x, y, z] = self.extents(Extents::BlockSize);
        x * y * z
    }

    /// The number of the block in the grid, over x, y and z.
    #[inline(always)]
    #[must_use]
    pub fn block(&self) -> u64 {
        let ([x, y, z], [width, height, _]) = (self.extents(Extents::Block), self.extents(Extents::GridSize));
        (u64::from(z) * u64::from(height) + u64::from(y)) * u64::from(width) + u64::from(x)
    }

    /// The number of blocks of the grid.
    #[inline(always)]
    #[must_use]
    pub fn blocks(&self) -> u64 {
        let [x, y, z] = self.extents(Extents::GridSize);
        u64::from(x) * u64::from(y) * u64::from(z)
    }

    /// The number of the thread in the grid, over x, y and z.
    #[inline(always)]
    #[must_use]
    pub fn number(&self) -> u64 {
        self.block() * u64::from(self.block_size()) + u64::from(self.number_in_block())
    }

    /// The number of threads of the grid.
    #[inline(always)]
    #[must_use]
    pub fn threads(&self) -> u64 {
        self.blocks() * u64::from(self.block_size())
    }

    #[inline(always)]
    fn own<const N: usize, M: Mapping<N>>(&self, shape: [usize; N]) -> Own<'_, N, M> {
        let units = M::units(shape);
        // If one extent is 0, the product of the others may be any number.
        let count = units.iter().fold(1_u64, |count, extent| count.wrapping_mul(*extent as u64));
        let is_empty = units.contains(&0);
        Own {
            next: self.number(),
            step: self.threads(),
            count: if is_empty { 0 } else { count },
            units,
            shape,
            marker: PhantomData,
        }
    }

    /// Returns the indices of this thread's elements of arrays of a shape: number `n` of the elements, in row-major
    /// order, belongs to thread `n` modulo [`threads`](Self::threads). So any grid is right.
    #[inline(always)]
    #[must_use]
    pub fn elements<const N: usize>(&self, shape: [usize; N]) -> Own<'_, N, Elements> {
        self.own(shape)
    }

    /// Returns the indices of this thread's packs of `W` elements along the last axis.
    #[inline(always)]
    #[must_use]
    pub fn packs<const N: usize, const W: usize>(&self, shape: [usize; N]) -> Own<'_, N, Packs<W>> {
        self.own(shape)
    }

    /// Returns the indices of the first elements of this thread's tiles, each with `R` rows along the first axis.
    /// [`Index::rows`] walks down a tile.
    #[inline(always)]
    #[must_use]
    pub fn tiles<const N: usize, const R: usize>(&self, shape: [usize; N]) -> Own<'_, N, Tiles<R>> {
        self.own(shape)
    }

    /// Returns the index of the element with the number of this block, for one thread of the block: its first. `None` for the
    /// other threads, and where the array has no such element.
    ///
    /// There must be a block for each element: use [`LaunchSize::for_blocks`](crate::LaunchSize::for_blocks). Launches of a scope
    /// refuse others.
    ///
    /// # Panics
    ///
    /// On the CPU, if there are more elements than blocks.
    #[inline(always)]
    #[must_use]
    #[track_caller]
    pub fn of_block(&self, shape: [usize; 1]) -> Option<Index<'_, 1, Blocks>> {
        #[cfg(not(target_arch = "nvptx64"))]
        assert!(
            shape[0] as u64 <= self.blocks(),
            "an array by blocks has {} elements, and the grid {} blocks: use `LaunchSize::for_blocks`",
            shape[0],
            self.blocks()
        );
        let at = self.block();
        let is_own = self.number_in_block() == 0 && at < shape[0] as u64;
        #[expect(clippy::cast_possible_truncation, reason = "below an extent")]
        is_own.then_some(Index { at: [at as usize], shape, marker: PhantomData })
    }
}

impl BlockThread<'_> {
    /// Waits until all threads of the block are here. What they have written before, each of them can read afterwards.
    ///
    /// # Safety
    ///
    /// All threads of the block make this call, the same number of times. On the CPU a thread that does not panics.
    #[inline(always)]
    pub unsafe fn barrier(&self) {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: as the caller promises.
        unsafe {
            device::barrier();
        }
        #[cfg(not(target_arch = "nvptx64"))]
        self.place.barrier();
    }

    /// Leaves a value in shared memory, and returns the values of all threads of the block.
    ///
    /// The value has at most 16 bytes; the build of a kernel with a larger one fails. A block that shares values of 4 bytes takes 4 KiB of shared
    /// memory of the device: one place for each of the 1024 threads that a block may have.
    ///
    /// ```
    /// use interop_kernel::{BlockThread, LaunchSize, View, ViewMut, kernel};
    ///
    /// /// Turns the numbers of each block around.
    /// #[kernel]
    /// fn turn(mut thread: BlockThread<'_>, numbers: View<'_, u8, 1>, mut turned: ViewMut<'_, u8, 1>) {
    ///     let own = thread.number_in_block();
    ///     let number = thread.elements(numbers.shape()).next().map_or(0, |at| numbers.get(at));
    ///     // SAFETY: all threads of the block get here, once.
    ///     let shared = unsafe { thread.share(number) };
    ///     let other = shared.get(shared.len() - 1 - own);
    ///     if let Some(at) = thread.elements(turned.shape()).next() {
    ///         turned.set(at, other);
    ///     }
    /// }
    ///
    /// let mut turned = [0; 8];
    /// let size = LaunchSize { grid: (2, 1, 1), block: (4, 1, 1) };
    /// turn::run(size, View::new(&[1, 2, 3, 4, 5, 6, 7, 8], [8]), ViewMut::new(&mut turned, [8]));
    /// assert_eq!(turned, [4, 3, 2, 1, 8, 7, 6, 5]);
    /// ```
    ///
    /// # Safety
    ///
    /// As [`barrier`](Self::barrier), and all threads share a value of the same type. On the CPU another type panics.
    #[inline(always)]
    #[must_use]
    #[track_caller]
    pub unsafe fn share<T: KernelElement>(&mut self, value: T) -> Shared<'_, T> {
        const { assert!(size_of::<T>() <= 16, "threads share values of up to 16 bytes") };
        let (number, len) = (self.number_in_block(), self.block_size());
        #[cfg(not(target_arch = "nvptx64"))]
        return Shared::new(self.place, number, len, value);
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: as the caller promises. Earlier values borrow the thread, so nobody has them any more.
        unsafe {
            Shared::new(number, len, value)
        }
    }

    /// Returns the sum of the values of all threads of the block in its first thread, and any number in the others. The order
    /// of the additions is always the same.
    ///
    /// # Safety
    ///
    /// As [`barrier`](Self::barrier), and the number of threads is a multiple of 32. On the CPU another number panics.
    #[inline(always)]
    #[must_use]
    pub unsafe fn sum_of_block(&self, value: f64) -> f64 {
        #[cfg(not(target_arch = "nvptx64"))]
        return self.place.sum(value);
        #[cfg(target_arch = "nvptx64")]
        {
            const WARP: u32 = 32;
            let (number, words) = (self.number_in_block(), device::shared_words());
            // SAFETY: all threads of the warp are here, as the caller promises.
            let value = unsafe { sum_of_warp(value) };
            // The words may still be read for an earlier sum.
            // SAFETY: as the caller promises.
            unsafe { device::barrier() };
            if number % WARP == 0 {
                // SAFETY: a block has at most 1024 threads, so at most 32 warps.
                unsafe { words.add((number / WARP) as usize).write_volatile(value.to_bits()) };
            }
            // SAFETY: as the caller promises.
            unsafe { device::barrier() };
            let mut part = 0.0;
            if number < self.block_size() / WARP {
                // SAFETY: as above; the warp of this number wrote it before the barrier.
                part = f64::from_bits(unsafe { words.add(number as usize).read_volatile() });
            }
            // SAFETY: all threads are here.
            unsafe { sum_of_warp(part) }
        }
    }
}

/// # Safety
///
/// All threads of the warp make this call.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
unsafe fn sum_of_warp(mut value: f64) -> f64 {
    let mut distance = device::opaque(16);
    while distance > 0 {
        // SAFETY: as the caller promises; the compiler does not know the number, but it is the same in all threads.
        value += f64::from_bits(unsafe { device::value_of_lane(value.to_bits(), distance) });
        distance /= 2;
    }
    value
}

impl fmt::Debug for Thread<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread").field("number", &self.number()).field("threads", &self.threads()).finish()
    }
}

impl fmt::Debug for BlockThread<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Invariant in the lifetime, and of one thread.
type OfThread<'t, M> = (fn(&'t M) -> &'t M, *const ());

/// The index of an element that belongs to the thread that runs: the key to [`ViewMut`](crate::ViewMut).
///
/// It holds the shape for which it was made. An array of another shape does not take it. It cannot be made, and cannot
/// leave the thread.
#[derive(Clone, Copy)]
pub struct Index<'t, const N: usize, M = Elements> {
    pub(crate) at: [usize; N],
    pub(crate) shape: [usize; N],
    marker: PhantomData<OfThread<'t, M>>,
}

impl<const N: usize, M> Index<'_, N, M> {
    /// The index along each axis.
    #[inline(always)]
    #[must_use]
    pub fn at(&self) -> [usize; N] {
        self.at
    }
}

impl<'t, const N: usize, const R: usize> Index<'t, N, Tiles<R>> {
    /// Returns the elements of the tile below each other, from this one on.
    #[inline(always)]
    #[must_use]
    pub fn rows(self) -> TileRows<'t, N, R> {
        let end = (self.at[0] / R * R + R).min(self.shape[0]);
        TileRows { next: self, end }
    }
}

impl<const N: usize, M> fmt::Debug for Index<'_, N, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("at", &self.at).field("shape", &self.shape).finish()
    }
}

/// The elements of a tile, from the top down. [`Index::rows`] makes it.
#[derive(Clone, Debug)]
pub struct TileRows<'t, const N: usize, const R: usize> {
    next: Index<'t, N, Tiles<R>>,
    end: usize,
}

impl<'t, const N: usize, const R: usize> Iterator for TileRows<'t, N, R> {
    type Item = Index<'t, N, Tiles<R>>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let row = self.next;
        if row.at[0] >= self.end {
            return None;
        }
        self.next.at[0] += 1;
        Some(row)
    }
}

/// The indices that belong to a thread. [`Thread::elements`] and its siblings make it.
#[derive(Clone, Debug)]
pub struct Own<'t, const N: usize, M> {
    next: u64,
    step: u64,
    count: u64,
    /// The numbers of units along each axis.
    units: [usize; N],
    shape: [usize; N],
    marker: PhantomData<OfThread<'t, M>>,
}

impl<'t, const N: usize, M: Mapping<N>> Iterator for Own<'t, N, M> {
    type Item = Index<'t, N, M>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.count {
            return None;
        }
        let unit = indices_of(self.next, self.units);
        // Threads and elements have fewer than 2^64 numbers together, but not by much.
        self.next = self.next.saturating_add(self.step);
        Some(Index { at: M::first(unit), shape: self.shape, marker: PhantomData })
    }
}

/// Returns the indices of a number in row-major order. Few numbers have more than 32 bits, and a device divides numbers
/// of 32 bits many times faster.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "compared before, or below an extent")]
fn indices_of<const N: usize>(mut number: u64, shape: [usize; N]) -> [usize; N] {
    let mut at = [0; N];
    let mut axis = N;
    while axis > 1 {
        axis -= 1;
        let extent = shape[axis] as u64;
        let rest = if (number | extent) >> 32 == 0 {
            u64::from((number as u32).checked_div(extent as u32).unwrap_or(0))
        } else {
            number.checked_div(extent).unwrap_or(0)
        };
        at[axis] = (number - rest * extent) as usize;
        number = rest;
    }
    if N > 0 {
        at[0] = number as usize;
    }
    at
}

/// The position of an element: the index along each axis, which is compared with the extents, or an [`Index`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a position in an array of {N} axes",
    note = "write an index for each axis, as `usize` in brackets: `[i]`, `[y, x]`; or pass one of `thread.elements(shape)`"
)]
pub trait Position<const N: usize>: position::Inside<N> {}

pub(crate) mod position {
    pub trait Inside<const N: usize> {
        /// Returns the indices, which are inside of the shape.
        fn inside(self, shape: [usize; N]) -> [usize; N];
    }
}

/// An [`Index`] of the rule `M`, which [`ViewMut`](crate::ViewMut) takes: the index of an element that belongs to the thread.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no index of an own element of this thread, by the rule `{M}` in {N} axes",
    label = "not an index of this rule",
    note = "a thread uses its own elements of a `ViewMut` only: `for at in thread.elements(view.shape())`, with the function of \
            the rule: `elements`, `packs`, `tiles`, `of_block`",
    note = "to use every element, read a `View`, or add to a `ViewMut` with the rule `Atomic`"
)]
pub trait OwnIndex<const N: usize, M>: position::Inside<N> {}

impl<const N: usize, M> OwnIndex<N, M> for Index<'_, N, M> {}

impl<const N: usize> Position<N> for [usize; N] {}

impl<const N: usize> position::Inside<N> for [usize; N] {
    #[inline(always)]
    #[track_caller]
    fn inside(self, shape: [usize; N]) -> [usize; N] {
        for (at, extent) in self.iter().zip(&shape) {
            if at >= extent {
                fail(Mistake::Outside(&self, &shape));
            }
        }
        self
    }
}

impl<const N: usize, M> Position<N> for Index<'_, N, M> {}

impl<const N: usize, M> position::Inside<N> for Index<'_, N, M> {
    #[inline(always)]
    #[track_caller]
    fn inside(self, shape: [usize; N]) -> [usize; N] {
        for (made, own) in self.shape.iter().zip(&shape) {
            if made != own {
                fail(Mistake::OtherShape(&self.shape, &shape));
            }
        }
        self.at
    }
}
