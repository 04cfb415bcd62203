//! Loops over all elements on the threads of rayon. Each thread works on its own part of the elements. In a forked
//! process they run on the calling thread.

use crate::array::element::Element;
use crate::error::Result;
use crate::memory::host::loops::{Loops, Visit, fold, map};
use crate::memory::host::strided::Strided;
use crate::memory::host::{HostView, HostViewMut};
use crate::process::fork::{forked_by, is_forked, this_thread};

/// The maximum number of elements of one task. Larger loops are halved.
const PIECE: usize = 1 << 15;

/// Splits the loops into parts that share no element, runs `work` on each, and combines the results.
fn pieces<R: Send>(
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

fn nothing((): (), (): ()) {}

impl<T: Element, const N: usize> HostView<'_, T, N> {
    /// Folds all elements on the threads of rayon, as [`fold`](Self::fold). Each part is folded from `identity` on, and
    /// `reduce` combines the results. The parts are combined in memory order; their number is not specified.
    ///
    /// # Errors
    ///
    /// As [`fold`](Self::fold).
    ///
    /// ```
    /// use interop_core::CudaArray;
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(shape = [len])]
    /// struct Samples { #[cuda_array(data)] values: Vec<u32>, len: usize }
    ///
    /// let samples = Samples { values: (0..100_000).collect(), len: 100_000 };
    /// let view = samples.view::<u32, 1>()?.host_view()?;
    /// let sum = view.par_fold(|| 0_u64, |sum, value| sum + u64::from(value), |one, other| one + other)?;
    /// assert_eq!(sum, 4_999_950_000);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    pub fn par_fold<A: Send>(
        &self,
        identity: impl Fn() -> A + Sync,
        add: impl Fn(A, T) -> A + Sync,
        reduce: impl Fn(A, A) -> A + Sync,
    ) -> Result<A> {
        let all = self.strided();
        let Some(loops) = all.loops(Visit::Memory) else { return Ok(identity()) };
        // SAFETY: the elements of the view are live and initialized.
        let work = |loops: &Loops| unsafe { fold(loops, (all.as_ptr(),), identity(), &add) };
        pieces(loops, &work, &reduce)
    }
}

impl<T: Element, const N: usize> HostViewMut<'_, T, N> {
    /// As [`map_inplace`](Self::map_inplace), on the threads of rayon.
    ///
    /// # Errors
    ///
    /// As [`map_inplace`](Self::map_inplace). Any other elements may have been changed.
    ///
    /// ```
    /// use interop_core::{CudaArray, HostVec};
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(shape = [len])]
    /// struct Samples { #[cuda_array(data)] values: HostVec<f32>, len: usize }
    ///
    /// let mut samples = Samples { values: HostVec::zeroed(100_000), len: 100_000 };
    /// samples.view_mut::<f32, 1>()?.host_view_mut()?.par_map_inplace(|value| value + 1.0)?;
    /// assert_eq!(samples.to_vec::<f32>()?, vec![1.0; 100_000]);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    pub fn par_map_inplace(&mut self, change: impl Fn(T) -> T + Sync) -> Result<()> {
        let all = self.strided();
        let (to, from) = (&all, all.as_strided());
        let Some(loops) = from.loops(Visit::Memory) else { return Ok(()) };
        // SAFETY: the elements of the view are live, writable and not used by other Rust code (contract of
        // `from_info`). No two indices share an element, so no two parts do.
        let work = |loops: &Loops| unsafe { map(loops, to.as_mut_ptr(), (from.as_ptr(),), &change) };
        pieces(loops, &work, &nothing)
    }

    /// As [`zip_map_inplace`](Self::zip_map_inplace), on the threads of rayon.
    ///
    /// # Errors
    ///
    /// As [`zip_map_inplace`](Self::zip_map_inplace). Any other elements may have been changed.
    pub fn par_zip_map_inplace<U: Element>(
        &mut self,
        other: &HostView<'_, U, N>,
        change: impl Fn(T, U) -> T + Sync,
    ) -> Result<()> {
        let (all, other) = (self.strided(), other.strided());
        let Some(loops) = all.as_strided().loops_with(&other)? else { return Ok(()) };
        let change = |(one, other)| change(one, other);
        let from = || (all.as_strided().as_ptr(), other.as_ptr());
        // SAFETY: as in `par_map_inplace`.
        let work = |loops: &Loops| unsafe { map(loops, all.as_mut_ptr(), from(), change) };
        pieces(loops, &work, &nothing)
    }
}

/// The threads share references to these values.
const _: fn() = || {
    fn shared<S: Sync>() {}
    shared::<Strided<'_, f32>>();
};

#[cfg(all(test, unix, not(miri)))]
mod tests {
    use rayon::ThreadPoolBuilder;

    use super::*;
    use crate::process::fork::child::in_a_child;

    /// The number of elements that the parts have together, and the number of parts.
    fn counted() -> (usize, usize) {
        let loops = Loops::new(&[4 * PIECE], &[&[1]], Visit::Memory).unwrap();
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
        };
        assert!(in_a_child(in_the_child));
    }
}
