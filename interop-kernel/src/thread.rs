//! The thread that runs a kernel, and the elements that are its own.
#![expect(unsafe_code, reason = "a barrier is right only if all threads of a block reach it")]

use core::fmt;
use core::marker::PhantomData;

#[cfg(target_arch = "nvptx64")]
use crate::device;
use crate::element::KernelElement;
#[cfg(not(target_arch = "nvptx64"))]
use crate::host_part::HostPart;
use crate::index::Index;
use crate::mapping::{Blocks, Elements, Packs, Tiles};
use crate::own::Own;
#[cfg(not(target_arch = "nvptx64"))]
use crate::place::Place;
use crate::shared::Shared;

/// The thread that runs a kernel: its number, and which elements it may write.
///
/// It is the first parameter of a kernel. Code cannot make one, keep one or give one to another thread.
///
/// # Launches on the CPU
///
/// A launch over arrays in host memory has few threads with many elements each, next to each other. So a kernel goes over all elements of
/// [`elements`](Self::elements), [`packs`](Self::packs) or [`tiles`](Self::tiles); one that leaves some panics at its end. The numbers of a
/// thread and of a block mean nothing there, and their functions panic. The function `run` of a kernel has the threads of a device.
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
    #[inline(always)]
    pub(crate) fn new(place: &'t Place<'t>) -> Self {
        Self { place, marker: PhantomData }
    }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
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

    /// The part that the thread has in a launch on the CPU.
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    pub(crate) fn host_part(&self) -> Option<HostPart<'t>> {
        self.place.part
    }

    /// Panics in a launch on the CPU, whose threads are not those of the launch.
    #[inline(always)]
    #[track_caller]
    #[cfg_attr(
        target_arch = "nvptx64",
        allow(unused_variables, clippy::unused_self, reason = "a device always has them")
    )]
    fn assert_on_device(&self, getter: &str) {
        #[cfg(not(target_arch = "nvptx64"))]
        if let Some(part) = self.place.part {
            part.has_no(getter);
        }
    }

    /// The number of the thread in its block, over x, y and z.
    ///
    /// # Panics
    ///
    /// In a [launch on the CPU](Self#launches-on-the-cpu).
    #[inline(always)]
    #[must_use]
    #[track_caller]
    pub fn number_in_block(&self) -> u32 {
        self.assert_on_device("number_in_block");
        let ([x, y, z], [width, height, _]) =
            (self.extents(Extents::Thread), self.extents(Extents::BlockSize));
        (z * height + y) * width + x
    }

    /// The number of threads of a block.
    ///
    /// # Panics
    ///
    /// In a [launch on the CPU](Self#launches-on-the-cpu).
    #[inline(always)]
    #[must_use]
    #[track_caller]
    pub fn block_size(&self) -> u32 {
        self.assert_on_device("block_size");
        let [x, y, z] = self.extents(Extents::BlockSize);
        x * y * z
    }

    /// The number of the block in the grid, over x, y and z.
    ///
    /// # Panics
    ///
    /// In a [launch on the CPU](Self#launches-on-the-cpu).
    #[inline(always)]
    #[must_use]
    #[track_caller]
    pub fn block(&self) -> u64 {
        self.assert_on_device("block");
        let ([x, y, z], [width, height, _]) = (self.extents(Extents::Block), self.extents(Extents::GridSize));
        (u64::from(z) * u64::from(height) + u64::from(y)) * u64::from(width) + u64::from(x)
    }

    /// The number of blocks of the grid.
    ///
    /// # Panics
    ///
    /// In a [launch on the CPU](Self#launches-on-the-cpu).
    #[inline(always)]
    #[must_use]
    #[track_caller]
    pub fn blocks(&self) -> u64 {
        self.assert_on_device("blocks");
        let [x, y, z] = self.extents(Extents::GridSize);
        u64::from(x) * u64::from(y) * u64::from(z)
    }

    /// The number of the thread in the grid, over x, y and z.
    ///
    /// # Panics
    ///
    /// In a [launch on the CPU](Self#launches-on-the-cpu).
    #[inline(always)]
    #[must_use]
    #[track_caller]
    pub fn number(&self) -> u64 {
        self.assert_on_device("number");
        self.block() * u64::from(self.block_size()) + u64::from(self.number_in_block())
    }

    /// The number of threads of the grid.
    ///
    /// # Panics
    ///
    /// In a [launch on the CPU](Self#launches-on-the-cpu).
    #[inline(always)]
    #[must_use]
    #[track_caller]
    pub fn threads(&self) -> u64 {
        self.assert_on_device("threads");
        self.blocks() * u64::from(self.block_size())
    }

    /// Returns the indices of this thread's elements of arrays of a shape: number `n` of the elements, in row-major
    /// order, belongs to thread `n` modulo [`threads`](Self::threads). So any grid is right. In a launch on the CPU a thread has
    /// neighbours; [`Iterator::for_each`] is the fastest loop over them.
    #[inline(always)]
    #[must_use]
    pub fn elements<const N: usize>(&self, shape: [usize; N]) -> Own<'_, N, Elements> {
        Own::new(self, shape)
    }

    /// Returns the indices of this thread's packs of `W` elements along the last axis.
    #[inline(always)]
    #[must_use]
    pub fn packs<const N: usize, const W: usize>(&self, shape: [usize; N]) -> Own<'_, N, Packs<W>> {
        Own::new(self, shape)
    }

    /// Returns the indices of the first elements of this thread's tiles, each with `R` rows along the first axis.
    /// [`Index::rows`] walks down a tile.
    #[inline(always)]
    #[must_use]
    pub fn tiles<const N: usize, const R: usize>(&self, shape: [usize; N]) -> Own<'_, N, Tiles<R>> {
        Own::new(self, shape)
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
        is_own.then_some(Index::new([at as usize], shape))
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
        #[cfg(not(target_arch = "nvptx64"))]
        if let Some(part) = self.host_part() {
            return fmt::Debug::fmt(&part, f);
        }
        f.debug_struct("Thread").field("number", &self.number()).field("threads", &self.threads()).finish()
    }
}

impl fmt::Debug for BlockThread<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
