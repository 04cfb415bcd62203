//! The allocator of the test binary: the system's, which can count the allocations of a thread or make them fail.
#![expect(unsafe_code, reason = "a global allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::RefCell;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

/// What a thread allocated and freed while it was watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// The number of allocations.
    pub(crate) made: usize,
    /// The number of these allocations that were freed.
    pub(crate) freed: usize,
    /// The number of blocks that were freed with another size or alignment than they were allocated with.
    pub(crate) mismatched: usize,
}

/// The largest number of blocks that may be live while a thread is watched.
const MOST: usize = 64;

/// The allocations of a thread that fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The allocation after this number of others.
    After(usize),
    /// All allocations of more than this number of bytes.
    Above(usize),
    #[allow(dead_code, reason = "only some test programs fork")]
    /// None: the allocation after this number of others waits until [`stopped_at`] lets it continue.
    Stop(usize),
}

/// The state of the thread whose allocation waits: 0 for none, else one of these.
static STOPPED: AtomicU8 = AtomicU8::new(0);
const WAITS: u8 = 1;
#[allow(dead_code, reason = "likewise")]
const GOES_ON: u8 = 2;

struct Watch {
    on: bool,
    fault: Option<Fault>,
    tally: Tally,
    /// Address, size and alignment of the live blocks. Address 0 is an unused entry.
    blocks: [(usize, usize, usize); MOST],
}

impl Watch {
    const OFF: Self = Self {
        on: false,
        fault: None,
        tally: Tally { made: 0, freed: 0, mismatched: 0 },
        blocks: [(0, 0, 0); MOST],
    };

    fn made(&mut self, block: (usize, usize, usize)) {
        self.tally.made += 1;
        if let Some(place) = self.blocks.iter_mut().find(|place| place.0 == 0) {
            *place = block;
        } else {
            self.tally.mismatched += 1;
        }
    }

    fn freed(&mut self, block: (usize, usize, usize)) {
        // A block from before the watch is unknown.
        if let Some(place) = self.blocks.iter_mut().find(|place| place.0 == block.0) {
            self.tally.freed += 1;
            self.tally.mismatched += usize::from(*place != block);
            *place = (0, 0, 0);
        }
    }

    /// Returns whether an allocation of this size fails.
    fn fails(&mut self, bytes: usize) -> bool {
        match self.fault {
            Some(Fault::After(0)) => {
                self.fault = None;
                return true;
            }
            Some(Fault::After(more)) => self.fault = Some(Fault::After(more - 1)),
            Some(Fault::Stop(0)) => {
                self.fault = None;
                STOPPED.store(WAITS, Ordering::SeqCst);
                while STOPPED.load(Ordering::SeqCst) == WAITS {
                    thread::yield_now();
                }
            }
            Some(Fault::Stop(more)) => self.fault = Some(Fault::Stop(more - 1)),
            Some(Fault::Above(most)) => return bytes > most,
            None => {}
        }
        false
    }
}

thread_local! {
    static WATCH: RefCell<Watch> = const { RefCell::new(Watch::OFF) };
}

/// Runs `work` on this thread and counts its allocations.
pub(crate) fn watch<R>(work: impl FnOnce() -> R) -> (R, Tally) {
    WATCH.with_borrow_mut(|watch| *watch = Watch { on: true, ..Watch::OFF });
    let result = work();
    let tally = WATCH.with_borrow_mut(|watch| std::mem::replace(watch, Watch::OFF).tally);
    (result, tally)
}

/// Runs `work` on this thread with failing allocations. The returned fault tells whether it occurred.
pub(crate) fn failing<R>(fault: Fault, work: impl FnOnce() -> R) -> (R, Option<Fault>) {
    WATCH.with_borrow_mut(|watch| watch.fault = Some(fault));
    let result = work();
    (result, WATCH.with_borrow_mut(|watch| watch.fault.take()))
}

/// Runs `work` on a thread that stops in the allocation after `others` others, with any lock that it holds there.
/// Runs `meanwhile` on this thread during the stop. Returns `None` if `work` ends without that allocation. Only one
/// test of a process may use it.
#[allow(dead_code, reason = "likewise")]
pub(crate) fn stopped_at<R>(
    before: usize,
    work: impl FnOnce() + Send,
    meanwhile: impl FnOnce() -> R,
) -> Option<R> {
    STOPPED.store(0, Ordering::SeqCst);
    thread::scope(|scope| {
        let thread = scope.spawn(|| failing(Fault::Stop(before), work));
        while STOPPED.load(Ordering::SeqCst) != WAITS {
            if thread.is_finished() {
                return None;
            }
            thread::yield_now();
        }
        let result = meanwhile();
        STOPPED.store(GOES_ON, Ordering::SeqCst);
        Some(result)
    })
}

struct Watching;

#[global_allocator]
static ALLOCATOR: Watching = Watching;

/// Returns whether this allocation must fail.
fn refused(layout: Layout) -> bool {
    let asked =
        |watch: &RefCell<Watch>| watch.try_borrow_mut().is_ok_and(|mut watch| watch.fails(layout.size()));
    WATCH.try_with(asked).unwrap_or(false)
}

fn tell(address: usize, layout: Layout, event: fn(&mut Watch, (usize, usize, usize))) {
    let told = |watch: &RefCell<Watch>| {
        if let Ok(mut watch) = watch.try_borrow_mut() {
            if watch.on {
                event(&mut watch, (address, layout.size(), layout.align()));
            }
        }
    };
    // A thread that ends frees memory after its thread-local variables are destroyed.
    let _ = WATCH.try_with(told);
}

// SAFETY: forwards each call to the system allocator.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if refused(layout) {
            return std::ptr::null_mut();
        }
        // SAFETY: as the caller promises.
        let block = unsafe { System.alloc(layout) };
        tell(block.addr(), layout, Watch::made);
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if refused(layout) {
            return std::ptr::null_mut();
        }
        // SAFETY: as the caller promises.
        let block = unsafe { System.alloc_zeroed(layout) };
        tell(block.addr(), layout, Watch::made);
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        tell(block.addr(), layout, Watch::freed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // The new size counts as one allocation.
        if Layout::from_size_align(size, layout.align()).is_ok_and(refused) {
            return std::ptr::null_mut();
        }
        tell(block.addr(), layout, Watch::freed);
        // SAFETY: as the caller promises.
        let moved = unsafe { System.realloc(block, layout, size) };
        if let Ok(layout) = Layout::from_size_align(size, layout.align()) {
            tell(moved.addr(), layout, Watch::made);
        }
        moved
    }
}

/// The tally has the right sizes, alignments, reallocations, and live blocks.
#[test]
fn the_tally_is_right() {
    let (kept, tally) = watch(|| {
        let mut grown = Vec::<u8>::with_capacity(1);
        grown.extend([1, 2, 3, 4, 5, 6, 7, 8, 9]);
        drop(grown);
        Box::new(7_u64)
    });
    assert_eq!((*kept, tally), (7, Tally { made: 3, freed: 2, mismatched: 0 }));

    let mut watch = Watch::OFF;
    watch.made((64, 8, 8));
    watch.freed((64, 8, 4));
    assert_eq!(watch.tally, Tally { made: 1, freed: 1, mismatched: 1 });
}
