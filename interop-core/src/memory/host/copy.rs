//! Copies between host arrays of any layout. Runs that are contiguous on both sides are copied whole; transposed arrays
//! are copied in tiles.

use core::mem::MaybeUninit;
use core::ptr;

use crate::array::element::{Element, ElementType};
use crate::array::layout::Layout;
use crate::array::layout::order::{Order, contiguous_strides};
use crate::error::Result;
use crate::memory::host::cells::{check_run, first_invalid_bool, invalid_bool};
use crate::memory::host::loops::{Axis, Loops, Plane};

/// Runs of at most this many bytes are copied by loads and stores, because a call of `memcpy` would take longer.
const SHORT: usize = 32;

/// One side of a copy: the pointer to the first element, and the strides in elements.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a, P> {
    pub(crate) first: P,
    pub(crate) strides: &'a [isize],
}

/// Copies the runs of a plane into contiguous memory. Without an error, all copied elements are valid values of `T`.
///
/// # Errors
///
/// [`ErrorKind::DType`](crate::error::ErrorKind::DType) for a byte that is not a valid `bool`.
///
/// # Safety
///
/// The elements are live and initialized. `to` has room for as many, and nothing else uses it.
#[inline]
pub(crate) unsafe fn copy_runs<T: Element>(from: *const T, rows: Axis, run: Axis, to: *mut T) -> Result<()> {
    let rows = Axis { steps: [run.extent as isize, rows.steps[0]], ..rows };
    let run = Axis { steps: [1, run.steps[0]], ..run };
    let (source, target) = (from.cast::<MaybeUninit<T>>(), to.cast::<MaybeUninit<T>>());
    if run.steps[1] == 1 && run.extent * size_of::<T>() > SHORT {
        // SAFETY: as the caller promises.
        unsafe { copy_dense(source, target, rows, run) };
    } else {
        // SAFETY: as the caller promises.
        unsafe { copy_steps::<_, 1, 0>(source, target, rows, run) };
    }
    // SAFETY: the elements have been written.
    unsafe { check_run(to.cast_const(), rows.extent * run.extent) }
}

/// Elements in host memory.
#[derive(Clone, Copy)]
pub(crate) struct HostArray<'a> {
    pub(crate) address: usize,
    pub(crate) layout: &'a Layout,
    pub(crate) element: &'a ElementType,
}

/// Copies elements into contiguous memory. Without an error, all copied elements are valid.
///
/// # Errors
///
/// [`ErrorKind::DType`](crate::error::ErrorKind::DType) for a byte that is not a valid `bool`, if the element type tells.
///
/// # Safety
///
/// The elements are live and initialized. `target` has room for as many bytes, none of which belongs to the elements.
pub(crate) unsafe fn copy_contiguous(array: HostArray<'_>, order: Order, target: *mut u8) -> Result<()> {
    let HostArray { address, layout, element } = array;
    let first = ptr::with_exposed_provenance::<u8>(address);
    let strides = contiguous_strides(layout.shape(), order);
    let (from, to) = (Side { first, strides: layout.strides() }, Side { first: target, strides: &strides });
    // SAFETY: as the caller promises; the target is contiguous.
    unsafe { copy(layout.shape(), element.size, from, to) };
    // SAFETY: the whole target has been written.
    unsafe { check_copied(element, target, layout.numel() * element.size) }
}

/// Returns an error if the elements consist of `bool`s and one of their bytes is not a valid one, after making all bytes valid.
///
/// # Safety
///
/// The bytes have been written, and nothing else uses them.
pub(crate) unsafe fn check_copied(element: &ElementType, first: *mut u8, count: usize) -> Result<()> {
    if element.any_bits {
        return Ok(());
    }
    // SAFETY: as the caller promises.
    let bytes = unsafe { core::slice::from_raw_parts_mut(first, count) };
    match first_invalid_bool(bytes) {
        None => Ok(()),
        Some(byte) => {
            for byte in bytes {
                *byte &= 1;
            }
            Err(invalid_bool(byte))
        }
    }
}

/// Copies elements of `item` bytes.
///
/// # Safety
///
/// Both sides have live elements of this shape. Those of the target may be written, and no two indices share one. No
/// element is on both sides.
pub(crate) unsafe fn copy(shape: &[usize], item: usize, from: Side<'_, *const u8>, to: Side<'_, *mut u8>) {
    let Some(loops) = Loops::tiled(shape, &[to.strides, from.strides], item) else { return };
    // Padding bytes of a struct may be uninitialized. `MaybeUninit` copies them as they are.
    let copy: unsafe fn(&Loops, (*const u8, *mut u8), usize) = match item {
        1 => copy_units::<MaybeUninit<u8>>,
        2 => copy_units::<MaybeUninit<u16>>,
        3 => copy_units::<[MaybeUninit<u8>; 3]>,
        4 => copy_units::<MaybeUninit<u32>>,
        6 => copy_units::<[MaybeUninit<u16>; 3]>,
        8 => copy_units::<MaybeUninit<u64>>,
        12 => copy_units::<[MaybeUninit<u32>; 3]>,
        16 => copy_units::<[MaybeUninit<u64>; 2]>,
        24 => copy_units::<[MaybeUninit<u64>; 3]>,
        32 => copy_units::<[MaybeUninit<u64>; 4]>,
        _ => copy_items,
    };
    // SAFETY: as the caller promises; each unit has the size of an item.
    unsafe { copy(&loops, (from.first, to.first), item) };
}

/// Copies the elements of a plane. The arguments are the source, the target, the outer axis and the inner axis.
type CopyPlane<U> = unsafe fn(*const U, *mut U, Axis, Axis);

/// Copies elements that have the size of `U`.
///
/// # Safety
///
/// As for [`copy`].
unsafe fn copy_units<U: Copy>(loops: &Loops, (from, to): (*const u8, *mut u8), _: usize) {
    let (from, to) = (from.cast::<U>(), to.cast::<U>());
    for Plane { first, rows, run } in loops.planes() {
        // Frequent steps are compile-time constants, so that the compiler can combine loads.
        let copy: CopyPlane<U> = match (run.steps[0], run.steps[1]) {
            (1, 1) if run.extent * size_of::<U>() > SHORT => copy_dense,
            (1, 1) => copy_steps::<U, 1, 1>,
            (1, -1) => copy_steps::<U, 1, -1>,
            (1, 2) => copy_steps::<U, 1, 2>,
            (1, _) => copy_steps::<U, 1, 0>,
            _ => copy_steps::<U, 0, 0>,
        };
        // SAFETY: the elements of a plane on both sides, as the caller promises.
        unsafe { copy(from.wrapping_offset(first[1]), to.wrapping_offset(first[0]), rows, run) };
    }
}

/// # Safety
///
/// As for [`copy`]. The runs are contiguous on both sides.
unsafe fn copy_dense<U: Copy>(from: *const U, to: *mut U, rows: Axis, run: Axis) {
    let bytes = run.extent * size_of::<U>();
    for row in 0..rows.extent {
        let [target, source] = rows.to(row);
        let (from, to) = (from.wrapping_offset(source).cast::<u8>(), to.wrapping_offset(target).cast::<u8>());
        // SAFETY: as the caller promises. Bytes have any alignment.
        unsafe { ptr::copy_nonoverlapping(from, to, bytes) };
    }
}

/// Copies runs with the given constant steps. 0 stands for any step.
///
/// # Safety
///
/// As for [`copy`].
unsafe fn copy_steps<U: Copy, const TARGET: isize, const SOURCE: isize>(
    from: *const U,
    to: *mut U,
    rows: Axis,
    run: Axis,
) {
    let target = if TARGET == 0 { run.steps[0] } else { TARGET };
    let source = if SOURCE == 0 { run.steps[1] } else { SOURCE };
    for row in 0..rows.extent {
        let [to_row, from_row] = rows.to(row);
        let (mut from, mut to) = (from.wrapping_offset(from_row), to.wrapping_offset(to_row));
        for _ in 0..run.extent {
            // SAFETY: an element of the run; any alignment is allowed.
            let unit = unsafe { from.read_unaligned() };
            // SAFETY: the element of the target at the same index.
            unsafe { to.write_unaligned(unit) };
            (from, to) = (from.wrapping_offset(source), to.wrapping_offset(target));
        }
    }
}

/// Copies elements of any size. Elements that are not contiguous on both sides are copied one by one.
///
/// # Safety
///
/// As for [`copy`].
unsafe fn copy_items(loops: &Loops, (from, to): (*const u8, *mut u8), item: usize) {
    let bytes = |step: isize| step.wrapping_mul(item as isize);
    for Plane { first, rows, run } in loops.planes() {
        let is_dense = run.steps[0] == 1 && run.steps[1] == 1;
        let (count, size) = if is_dense { (1, run.extent * item) } else { (run.extent, item) };
        for row in 0..rows.extent {
            for at in 0..count {
                let [target, source] = core::array::from_fn(|side| {
                    bytes(first[side].wrapping_add(rows.to(row)[side]).wrapping_add(run.to(at)[side]))
                });
                // SAFETY: an element on both sides, or a contiguous run of elements on both sides.
                unsafe {
                    ptr::copy_nonoverlapping(from.wrapping_offset(source), to.wrapping_offset(target), size);
                };
            }
        }
    }
}
