//! Loops that read elements and write elements, compiled for each closure: the inner one runs over pointers, which the
//! compiler vectorises where the elements are next to one another.
//!
//! They become part of the function that has the closure, so that what the closure changes is in registers meanwhile.
#![expect(clippy::inline_always, reason = "loops are compiled together with the closure that they are for")]

use crate::array::element::Element;
use crate::error::Result;
use crate::memory::host::checked_read::no_bool;
use crate::memory::host::loops::{Axis, Loops, Plane, Steps};
use crate::memory::host::operands::{Operands, Scratch};

/// Elements of one run, which are values.
#[derive(Clone, Copy)]
struct Values<S> {
    from: S,
    steps: Steps,
    count: usize,
}

/// The next elements of a run of which so many have been had: all others, or as many as are checked together. With the byte
/// that is no `bool` behind them, if there is one.
///
/// # Safety
///
/// The elements of the run are live, counted from `from`.
#[inline(always)]
unsafe fn next_values<S: Operands>(
    from: S,
    run: Axis,
    had: usize,
    scratch: &mut Scratch,
) -> (Values<S>, Option<u8>) {
    if S::ANY_BITS {
        return (Values { from, steps: run.steps, count: run.extent }, None);
    }
    let count = S::CHUNK.min(run.extent - had);
    // SAFETY: elements of the run, as the caller promises.
    let (from, steps, good, byte) = unsafe { from.moved(run.to(had)).checked(run.steps, count, scratch) };
    (Values { from, steps, count: good }, (good < count).then_some(byte))
}

/// Replaces every element of the first array of `loops` by `change` of itself and those of the others.
///
/// # Errors
///
/// [`ErrorKind::DType`](crate::error::ErrorKind::DType) for a byte that is no `bool`; what came before it has been changed.
///
/// # Safety
///
/// The elements of `loops`, counted from `from` in each array, are live. `to` is the first of these; its elements may be
/// written, and no other Rust code reads or writes them meanwhile.
#[inline(always)]
pub(crate) unsafe fn map<T: Element, S: Operands>(
    loops: &Loops,
    to: *mut T,
    from: S,
    change: impl FnMut(S::Item) -> T,
) -> Result<()> {
    // SAFETY: as the caller promises.
    unsafe { write::<T, S>(loops, to, from, |steps| steps, change) }
}

/// Writes to every element of the first array of `loops` what `make` makes of those of the others.
///
/// # Errors
///
/// As [`map`].
///
/// # Safety
///
/// As for [`map`]; `from` are the arrays behind the first, and the elements of the first need not be initialized.
#[inline(always)]
pub(crate) unsafe fn assign<T, S: Operands>(
    loops: &Loops,
    to: *mut T,
    from: S,
    make: impl FnMut(S::Item) -> T,
) -> Result<()> {
    // SAFETY: as the caller promises.
    unsafe { write::<T, S>(loops, to, from, |[_, second, third]| [second, third, 0], make) }
}

/// As [`map`]; `read` are the steps of the arrays that are read, among those of all.
///
/// # Safety
///
/// As for [`map`].
#[inline(always)]
unsafe fn write<T, S: Operands>(
    loops: &Loops,
    to: *mut T,
    from: S,
    read: impl Fn(Steps) -> Steps,
    mut make: impl FnMut(S::Item) -> T,
) -> Result<()> {
    let mut scratch = Scratch::default();
    for Plane { first, rows, run } in loops.planes() {
        let read_run = Axis { steps: read(run.steps), ..run };
        for row in 0..rows.extent {
            let begin = rows.to(row);
            let to = to.wrapping_offset(first[0].wrapping_add(begin[0]));
            let from = from.moved(read(first)).moved(read(begin));
            let mut at = 0;
            while at < run.extent {
                // SAFETY: elements of the loops, as the caller promises.
                let (values, bad) = unsafe { next_values(from, read_run, at, &mut scratch) };
                // SAFETY: as many elements, which may be written.
                unsafe { write_run(to.wrapping_offset(run.to(at)[0]), run.steps[0], values, &mut make) };
                if let Some(byte) = bad {
                    return Err(no_bool(byte));
                }
                at += values.count;
            }
        }
    }
    Ok(())
}

/// # Safety
///
/// There are so many elements; those from `to` on may be written.
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
            // SAFETY: one of the elements.
            let item = unsafe { from.moved([at as isize; 3]).read() };
            // SAFETY: the place of its own that it has.
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

/// Puts all elements together, one after another in the order of the loops.
///
/// # Errors
///
/// [`ErrorKind::DType`](crate::error::ErrorKind::DType) for a byte that is no `bool`; what came before it has been seen.
///
/// # Safety
///
/// The elements of `loops`, counted from `from` in each array, are live.
#[inline(always)]
pub(crate) unsafe fn fold<S: Operands, A>(
    loops: &Loops,
    from: S,
    start: A,
    mut add: impl FnMut(A, S::Item) -> A,
) -> Result<A> {
    let (mut scratch, mut folded) = (Scratch::default(), start);
    for Plane { first, rows, run } in loops.planes() {
        for row in 0..rows.extent {
            let from = from.moved(first).moved(rows.to(row));
            let mut at = 0;
            while at < run.extent {
                // SAFETY: elements of the loops, as the caller promises.
                let (values, bad) = unsafe { next_values(from, run, at, &mut scratch) };
                // SAFETY: so many elements.
                folded = unsafe { fold_run(values, folded, &mut add) };
                if let Some(byte) = bad {
                    return Err(no_bool(byte));
                }
                at += values.count;
            }
        }
    }
    Ok(folded)
}

/// # Safety
///
/// There are so many elements, which are values.
#[inline(always)]
unsafe fn fold_run<S: Operands, A>(values: Values<S>, start: A, add: &mut impl FnMut(A, S::Item) -> A) -> A {
    let Values { from, steps, count } = values;
    let mut folded = start;
    if S::is_dense(steps) {
        for at in 0..count {
            // SAFETY: one of the elements.
            folded = add(folded, unsafe { from.moved([at as isize; 3]).read() });
        }
        return folded;
    }
    let mut from = from;
    for _ in 0..count {
        // SAFETY: one of the elements.
        folded = add(folded, unsafe { from.read() });
        from = from.moved(steps);
    }
    folded
}

/// Writes the same value to every element of the one array of `loops`.
///
/// # Safety
///
/// As for [`map`]; the elements need not be initialized.
pub(crate) unsafe fn fill<T: Copy>(loops: &Loops, to: *mut T, value: T) {
    for Plane { first, rows, run } in loops.planes() {
        for row in 0..rows.extent {
            let mut to = to.wrapping_offset(first[0].wrapping_add(rows.to(row)[0]));
            if run.steps[0] == 1 {
                for at in 0..run.extent {
                    // SAFETY: an element of the loops.
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
