//! Elementwise loops over one to three arrays. Each is compiled together with its closure.
//!
//! The inner loop runs over pointers, so the compiler vectorizes it if the elements are contiguous. The functions are
//! inlined so that the variables that the closure changes stay in registers.
#![expect(clippy::inline_always, reason = "loops are compiled together with the closure that they are for")]

use crate::array::element::Element;
use crate::error::Result;
use crate::memory::host::cells::invalid_bool;
use crate::memory::host::loops::{Axis, CHECKED, Loops, MOST, Operands, Plane, Steps};

/// Elements of one run whose bytes were checked.
#[derive(Clone, Copy)]
struct Values<S> {
    from: S,
    steps: Steps,
    count: usize,
}

/// Returns the next elements of a run after the first `had`. If all bit patterns are valid, these are all remaining
/// elements. Otherwise they are at most [`CHECKED`], and the first byte that is not a valid `bool` may follow them.
///
/// # Safety
///
/// The elements of the run are live. `from` points to the first of them in each array.
#[inline(always)]
unsafe fn next_values<S: Operands>(from: S, run: Axis, had: usize) -> (Values<S>, Option<u8>) {
    let (from, steps, left) = (from.moved(run.to(had)), run.steps, run.extent - had);
    if S::ANY_BITS {
        return (Values { from, steps, count: left }, None);
    }
    let wanted = left.min(CHECKED);
    // SAFETY: these are elements of the run, as the caller promises.
    let (count, byte) = unsafe { from.count_valid(steps, wanted) };
    (Values { from, steps, count }, (count < wanted).then_some(byte))
}

/// Calls `see` with each run of elements, or with the checked part of one: a state, the elements, and the offset of the
/// first of them in the first array. Returns the last state.
///
/// # Errors
///
/// [`ErrorKind::DType`](crate::error::ErrorKind::DType) for a byte that is not a valid `bool`, after the elements before
/// it.
///
/// # Safety
///
/// The elements of `loops` are live, at offsets from the pointers in `from`.
#[inline(always)]
unsafe fn fold_runs<S: Operands, A>(
    loops: &Loops,
    from: S,
    start: A,
    mut see: impl FnMut(A, Values<S>, isize, isize) -> A,
) -> Result<A> {
    let mut state = start;
    for Plane { first, rows, run } in loops.planes() {
        for row in 0..rows.extent {
            let begin = rows.to(row);
            let (from, offset) = (from.moved(first).moved(begin), first[0].wrapping_add(begin[0]));
            let mut at = 0;
            while at < run.extent {
                // SAFETY: these are elements of the loops, as the caller promises.
                let (values, bad) = unsafe { next_values(from, run, at) };
                state = see(state, values, offset.wrapping_add(run.to(at)[0]), run.steps[0]);
                if let Some(byte) = bad {
                    return Err(invalid_bool(byte));
                }
                at += values.count;
            }
        }
    }
    Ok(state)
}

/// Replaces each element of the first array of `loops` by `change` of the elements of all arrays at the same index.
///
/// # Errors
///
/// As [`fold_runs`]. The elements before it have been changed.
///
/// # Safety
///
/// As for [`fold_runs`]. `to` is the pointer of the first array. Its elements may be written, and no other Rust code
/// reads or writes them during the call.
#[inline(always)]
pub(crate) unsafe fn map<T: Element, S: Operands>(
    loops: &Loops,
    to: *mut T,
    from: S,
    mut change: impl FnMut(S::Item) -> T,
) -> Result<()> {
    let write = |(), values, offset, step| {
        // SAFETY: the elements of the first array at this offset, which are as many as the values.
        unsafe { write_run(to.wrapping_offset(offset), step, values, &mut change) };
    };
    // SAFETY: as the caller promises.
    unsafe { fold_runs(loops, from, (), write) }
}

/// # Safety
///
/// `values` has `count` live elements. As many elements from `to` on may be written.
#[inline(always)]
unsafe fn write_run<T, S: Operands>(
    to: *mut T,
    step: isize,
    values: Values<S>,
    make: &mut impl FnMut(S::Item) -> T,
) {
    let Values { from, steps, count } = values;
    if step == 1 && S::is_dense(steps) {
        for at in 0..count {
            // SAFETY: `at < count`, so this is one of the elements.
            let item = unsafe { from.moved([at as isize; MOST]).read() };
            // SAFETY: `to` has an element at each `at < count`, which may be written.
            unsafe { to.wrapping_add(at).write_unaligned(make(item)) };
        }
        return;
    }
    let (mut to, mut from) = (to, from);
    for _ in 0..count {
        // SAFETY: as above.
        let item = unsafe { from.read() };
        // SAFETY: as above.
        unsafe { to.write_unaligned(make(item)) };
        (to, from) = (to.wrapping_offset(step), from.moved(steps));
    }
}

/// Folds all elements in the order of the loops.
///
/// # Errors
///
/// As [`fold_runs`]. The elements before it have been passed to `add`.
///
/// # Safety
///
/// As for [`fold_runs`].
#[inline(always)]
pub(crate) unsafe fn fold<S: Operands, A>(
    loops: &Loops,
    from: S,
    start: A,
    mut add: impl FnMut(A, S::Item) -> A,
) -> Result<A> {
    // SAFETY: `fold_runs` passes live, checked elements.
    let add_run = |folded, values, _, _| unsafe { fold_run(values, folded, &mut add) };
    // SAFETY: as the caller promises.
    unsafe { fold_runs(loops, from, start, add_run) }
}

/// # Safety
///
/// `values` has `count` live elements, whose bytes are valid values.
#[inline(always)]
unsafe fn fold_run<S: Operands, A>(values: Values<S>, start: A, add: &mut impl FnMut(A, S::Item) -> A) -> A {
    let Values { from, steps, count } = values;
    let mut folded = start;
    if S::is_dense(steps) {
        for at in 0..count {
            // SAFETY: `at < count`, so this is one of the elements.
            folded = add(folded, unsafe { from.moved([at as isize; MOST]).read() });
        }
        return folded;
    }
    let mut from = from;
    for _ in 0..count {
        // SAFETY: this is one of the elements.
        folded = add(folded, unsafe { from.read() });
        from = from.moved(steps);
    }
    folded
}

/// Writes `value` to each element of the only array of `loops`.
///
/// # Safety
///
/// As for [`map`]. The elements may be uninitialized.
pub(crate) unsafe fn fill<T: Copy>(loops: &Loops, to: *mut T, value: T) {
    for Plane { first, rows, run } in loops.planes() {
        for row in 0..rows.extent {
            let mut to = to.wrapping_offset(first[0].wrapping_add(rows.to(row)[0]));
            if run.steps[0] == 1 {
                for at in 0..run.extent {
                    // SAFETY: this is an element of the loops.
                    unsafe { to.wrapping_add(at).write_unaligned(value) };
                }
                continue;
            }
            for _ in 0..run.extent {
                // SAFETY: as above.
                unsafe { to.write_unaligned(value) };
                to = to.wrapping_offset(run.steps[0]);
            }
        }
    }
}
