//! Loops that read elements and write elements, compiled for each closure: the inner one runs over pointers, which the
//! compiler vectorises where the elements are next to one another.
#![expect(
    clippy::inline_always,
    reason = "loops are vectorised together with the closure that they are compiled for"
)]

use crate::array::element::Element;
use crate::error::Result;
use crate::memory::host::checked_read::no_bool;
use crate::memory::host::loops::{Axis, Loops, Plane, Steps};
use crate::memory::host::operands::{Operands, Scratch};

/// What the loops of a plane go on with when its elements are values: places, steps, number.
#[derive(Clone, Copy)]
struct Values<S> {
    from: S,
    steps: Steps,
    count: usize,
}

/// Calls `run` for each row of a plane, in parts where the elements have to be checked. `run` gets the elements and where they
/// begin: at which step of the rows, and of the row.
///
/// # Safety
///
/// The elements of the plane are live, counted from `from`.
#[inline(always)]
unsafe fn rows<S: Operands>(
    from: S,
    plane: (Axis, Axis),
    scratch: &mut Scratch,
    mut run: impl FnMut(usize, usize, Values<S>),
) -> Result<()> {
    let (rows, axis) = plane;
    for row in 0..rows.extent {
        let from = from.moved(rows.to(row));
        if S::ANY_BITS {
            run(row, 0, Values { from, steps: axis.steps, count: axis.extent });
            continue;
        }
        for at in (0..axis.extent).step_by(S::CHUNK) {
            let count = S::CHUNK.min(axis.extent - at);
            // SAFETY: elements of the plane, as the caller promises.
            let checked = unsafe { from.moved(axis.to(at)).checked(axis.steps, count, scratch) };
            let (from, steps, good, byte) = checked;
            run(row, at, Values { from, steps, count: good });
            if good < count {
                return Err(no_bool(byte));
            }
        }
    }
    Ok(())
}

/// The steps of the arrays that are read, where the first is written only.
#[inline(always)]
fn behind_first(steps: Steps) -> Steps {
    [steps[1], steps[2], 0]
}

fn axis_behind_first(axis: Axis) -> Axis {
    Axis { steps: behind_first(axis.steps), ..axis }
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
#[inline]
pub(crate) unsafe fn map<T: Element, S: Operands>(
    loops: &Loops,
    to: *mut T,
    from: S,
    mut change: impl FnMut(S::Item) -> T,
) -> Result<()> {
    let mut scratch = Scratch::default();
    loops.planes(|Plane { first, rows: outer, run: axis }| {
        let (to, from) = (to.wrapping_offset(first[0]), from.moved(first));
        let step = axis.steps[0];
        let run = |row: usize, at: usize, values| {
            let to = to.wrapping_offset(outer.to(row)[0].wrapping_add(axis.to(at)[0]));
            // SAFETY: elements of the plane, which are values; the caller promises the rest.
            unsafe { map_run(to, step, values, &mut change) };
        };
        // SAFETY: as the caller promises.
        unsafe { rows(from, (outer, axis), &mut scratch, run) }
    })
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
#[inline]
pub(crate) unsafe fn assign<T, S: Operands>(
    loops: &Loops,
    to: *mut T,
    from: S,
    mut make: impl FnMut(S::Item) -> T,
) -> Result<()> {
    let mut scratch = Scratch::default();
    loops.planes(|Plane { first, rows: outer, run: axis }| {
        let (to, from) = (to.wrapping_offset(first[0]), from.moved(behind_first(first)));
        let step = axis.steps[0];
        let run = |row: usize, at: usize, values| {
            let to = to.wrapping_offset(outer.to(row)[0].wrapping_add(axis.to(at)[0]));
            // SAFETY: as in `map`.
            unsafe { map_run(to, step, values, &mut make) };
        };
        // SAFETY: as the caller promises.
        unsafe { rows(from, (axis_behind_first(outer), axis_behind_first(axis)), &mut scratch, run) }
    })
}

/// # Safety
///
/// There are so many elements, which are values; those from `to` on may be written.
#[inline(always)]
unsafe fn map_run<T, S: Operands>(
    to: *mut T,
    step: isize,
    values: Values<S>,
    change: &mut impl FnMut(S::Item) -> T,
) {
    let Values { from, steps, count } = values;
    if step == 1 && S::is_dense(steps) {
        for at in 0..count {
            // SAFETY: one of the elements.
            let item = unsafe { from.moved([at as isize; 3]).read() };
            // SAFETY: the place of its own that it has.
            unsafe { to.wrapping_add(at).write_unaligned(change(item)) };
        }
        return;
    }
    let (mut to, mut from) = (to, from);
    for _ in 0..count {
        // SAFETY: as above.
        let item = unsafe { from.read() };
        // SAFETY: as above.
        unsafe { to.write_unaligned(change(item)) };
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
#[inline]
pub(crate) unsafe fn fold<S: Operands, A>(
    loops: &Loops,
    from: S,
    start: A,
    mut add: impl FnMut(A, S::Item) -> A,
) -> Result<A> {
    let mut scratch = Scratch::default();
    let mut folded = Some(start);
    loops.planes(|Plane { first, rows: outer, run: axis }| {
        let run = |_, _, values| {
            // SAFETY: elements of the plane, which are values.
            folded = folded.take().map(|folded| unsafe { fold_run(values, folded, &mut add) });
        };
        // SAFETY: as the caller promises.
        unsafe { rows(from.moved(first), (outer, axis), &mut scratch, run) }
    })?;
    Ok(folded.unwrap_or_else(|| unreachable!("each run puts back what it took")))
}

/// # Safety
///
/// There are so many elements, which are values.
#[inline(always)]
unsafe fn fold_run<S: Operands, A>(
    values: Values<S>,
    mut folded: A,
    add: &mut impl FnMut(A, S::Item) -> A,
) -> A {
    let Values { from, steps, count } = values;
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
    let filled = loops.planes(|Plane { first, rows: outer, run: axis }| {
        for row in 0..outer.extent {
            let mut to = to.wrapping_offset(first[0].wrapping_add(outer.to(row)[0]));
            if axis.steps[0] == 1 {
                for at in 0..axis.extent {
                    // SAFETY: an element of the loops.
                    unsafe { to.wrapping_add(at).write_unaligned(value) };
                }
                continue;
            }
            for _ in 0..axis.extent {
                // SAFETY: as above.
                unsafe { to.write_unaligned(value) };
                to = to.wrapping_offset(axis.steps[0]);
            }
        }
        Ok::<(), core::convert::Infallible>(())
    });
    match filled {
        Ok(()) => {}
        Err(never) => match never {},
    }
}
