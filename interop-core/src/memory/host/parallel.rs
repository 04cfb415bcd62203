//! Loops over all elements, and parts of kernels, on the threads of rayon. Each thread works on its own part of the elements. In a forked
//! process they run on the calling thread.

#[cfg(feature = "host-launch")]
use core::ops::Range;

use crate::error::Result;
use crate::memory::host::loops::Loops;
use crate::process::fork::{forked_by, is_forked, this_thread};

/// The number of threads that share the parts of a kernel.
#[cfg(feature = "host-launch")]
pub(crate) fn workers() -> u32 {
    if has_threads() { u32::try_from(rayon::current_num_threads()).unwrap_or(u32::MAX) } else { 1 }
}

/// Calls `run` once for each number below `parts`, and returns after the last call.
#[cfg(feature = "host-launch")]
pub(crate) fn spread(parts: u32, run: &(dyn Fn(u32) + Sync)) {
    spread_range(0..parts, run);
}

#[cfg(feature = "host-launch")]
fn spread_range(parts: Range<u32>, run: &(dyn Fn(u32) + Sync)) {
    if parts.len() < 2 {
        return parts.for_each(run);
    }
    let middle = parts.start.midpoint(parts.end);
    rayon::join(|| spread_range(parts.start..middle, run), || spread_range(middle..parts.end, run));
}

/// The maximum number of elements of one task. Larger loops are halved.
const PIECE: usize = 1 << 15;

/// Splits the loops into parts that share no element, runs `work` on each, and combines the results.
pub(crate) fn pieces<R: Send>(
    loops: Loops,
    work: &(impl Fn(&Loops) -> Result<R> + Sync),
    reduce: &(impl Fn(R, R) -> R + Sync),
) -> Result<R> {
    if has_threads() { halves(loops, work, reduce) } else { work(&loops) }
}

/// Returns whether the pool in which this thread runs tasks has threads. A forked process has a copy of the parent's
/// global pool but none of its threads, so a task there would never run. A pool that the process made itself has some.
fn has_threads() -> bool {
    // The thread that forked may be a worker of the parent's.
    !is_forked() || (rayon::current_thread_index().is_some() && this_thread() != forked_by())
}

fn halves<R: Send>(
    loops: Loops,
    work: &(impl Fn(&Loops) -> Result<R> + Sync),
    reduce: &(impl Fn(R, R) -> R + Sync),
) -> Result<R> {
    if loops.count() <= PIECE {
        return work(&loops);
    }
    let (one, other) = loops.halves();
    let (one, other) = rayon::join(|| halves(one, work, reduce), || halves(other, work, reduce));
    Ok(reduce(one?, other?))
}

#[cfg(all(test, unix, not(miri)))]
mod tests {
    use rayon::ThreadPoolBuilder;

    use super::*;
    use crate::process::fork::child::in_a_child;

    /// The number of elements that the parts have together, and the number of parts.
    fn counted() -> (usize, usize) {
        let loops = Loops::new(&[4 * PIECE], &[&[1]]).unwrap();
        let add = |one: (usize, usize), other: (usize, usize)| (one.0 + other.0, one.1 + other.1);
        pieces(loops, &|loops| Ok((loops.count(), 1)), &add).unwrap()
    }

    #[test]
    fn a_forked_process_does_not_wait_for_threads_of_its_parent() {
        assert_eq!(counted(), (4 * PIECE, 4));
        let in_the_child = || {
            assert_eq!(counted(), (4 * PIECE, 1));
            let own = ThreadPoolBuilder::new().num_threads(2).build().unwrap();
            assert_eq!(own.install(counted), (4 * PIECE, 4));
            #[cfg(feature = "host-launch")]
            assert_eq!(
                (workers(), own.install(workers)),
                (1, 2),
                "the threads that run the parts of a kernel"
            );
        };
        assert!(in_a_child(in_the_child));
    }
}
