//! Copies on the host. Runs that are contiguous on both sides are copied whole; transposed arrays are copied in tiles.

use core::mem::MaybeUninit;
use core::ptr;

use interop_kernel::copy_plan::CopyPlan;

use crate::array::element::ElementType;
use crate::array::layout::axes::Axis;
use crate::array::layout::order::Order;
use crate::array::layout::{Layout, contiguous_strides};
use crate::error::{Error, Result};
use crate::memory::host::cells::check_bytes;
use crate::memory::host::loops::{Loops, Plane};

/// Copied bytes are checked in pieces of this size, which are still in the cache.
const CHECKED: usize = 8192;

/// Runs of at most this many bytes are copied by loads and stores, because a call of `memcpy` would take longer.
const SHORT: usize = 32;

/// Makes a vector of elements that `fill` writes.
///
/// # Errors
///
/// That of `fill`; [`ErrorKind::OutOfMemory`](crate::error::ErrorKind::OutOfMemory) if the vector cannot be allocated.
///
/// # Safety
///
/// Unless it returns an error, `fill` writes `count` valid values.
pub(crate) unsafe fn filled_vec<T>(count: usize, fill: impl FnOnce(*mut T) -> Result<()>) -> Result<Vec<T>> {
    let mut elements = Vec::<T>::new();
    let reserved = elements.try_reserve_exact(count);
    reserved.map_err(|_| Error::no_memory(count.saturating_mul(size_of::<T>())))?;
    fill(elements.as_mut_ptr())?;
    // SAFETY: the vector has capacity for the elements, which have been written.
    unsafe { elements.set_len(count) };
    Ok(elements)
}

/// Elements in host memory.
#[derive(Clone, Copy)]
pub(crate) struct HostArray<'a> {
    pub(crate) address: usize,
    pub(crate) shape: &'a [usize],
    pub(crate) strides: &'a [isize],
    pub(crate) element: &'a ElementType,
}

impl<'a> HostArray<'a> {
    pub(crate) fn new(address: usize, layout: &'a Layout, element: &'a ElementType) -> Self {
        Self { address, shape: layout.shape(), strides: layout.strides(), element }
    }

    /// Copies the elements into contiguous memory. Without an error, all copied elements are valid.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DType`](crate::error::ErrorKind::DType) for a byte that is not a valid `bool`, if the element type tells.
    ///
    /// # Safety
    ///
    /// The elements are live and initialized. `target` has room for `bytes` bytes, as many as the elements have, and none
    /// of them belongs to the elements.
    #[inline]
    pub(crate) unsafe fn copy_to(self, order: Order, target: *mut u8, bytes: usize) -> Result<()> {
        let Self { address, shape, strides, element } = self;
        let (to, first) = (contiguous_strides(shape, order), ptr::with_exposed_provenance::<u8>(address));
        if *to == *strides {
            // A copy of 16 elements takes 36 ns instead of 66. What is checked is still in the cache then.
            let most = if element.any_bits { bytes } else { CHECKED };
            for at in (0..bytes).step_by(most.max(1)) {
                let (to, piece) = (target.wrapping_add(at), most.min(bytes - at));
                // SAFETY: both sides are contiguous in the same order, and as the caller promises.
                unsafe { ptr::copy_nonoverlapping(first.wrapping_add(at), to, piece) };
                // SAFETY: these bytes have been written.
                unsafe { check_bytes(element, to, piece) }?;
            }
            return Ok(());
        }
        // SAFETY: as the caller promises; the target is contiguous.
        unsafe { copy_strided(shape, element.size, (first, strides), (target, &to)) };
        // SAFETY: the whole target has been written.
        unsafe { check_bytes(element, target, bytes) }
    }
}

/// Copies elements of `item` bytes from and to these pointers to the first elements, with these strides in elements.
///
/// # Safety
///
/// Both sides have live elements of this shape. Those of the target may be written, and no two indices share one. No
/// element is on both sides.
pub(crate) unsafe fn copy_strided(
    shape: &[usize],
    item: usize,
    (from, from_strides): (*const u8, &[isize]),
    (to, to_strides): (*mut u8, &[isize]),
) {
    if let Some(loops) = Loops::tiled(shape, &[to_strides, from_strides], item) {
        // SAFETY: as the caller promises.
        unsafe { copy(&loops, item, from, to) };
    }
}

/// Returns the axes of a plan in elements of `item` bytes.
pub(crate) fn axes_in_elements(plan: &CopyPlan, item: usize) -> Vec<Axis> {
    let run = Axis { extent: plan.run / item, steps: [1; 2] };
    let in_elements = |axis: &Axis| Axis { steps: axis.steps.map(|step| step / item as isize), ..*axis };
    let others = plan.axes.iter().map(in_elements);
    (run.extent > 1).then_some(run).into_iter().chain(others).collect()
}

/// Copies elements along axes in elements, those of a plan or of a part of it. Without an error, all copied elements are
/// valid.
///
/// # Errors
///
/// As [`HostArray::copy_to`].
///
/// # Safety
///
/// The elements along the axes are live and initialized, from the address `from` on. `to` has room for them, and nothing
/// else uses it.
pub(crate) unsafe fn copy_axes(
    axes: &[Axis],
    element: &ElementType,
    from: *const u8,
    to: *mut u8,
) -> Result<()> {
    let count: usize = axes.iter().map(|axis| axis.extent).product();
    // SAFETY: as the caller promises.
    unsafe { copy(&Loops::from_axes(axes, element.size), element.size, from, to) };
    // SAFETY: the whole target has been written.
    unsafe { check_bytes(element, to, count * element.size) }
}

/// Copies the elements of loops, which have `item` bytes. The first array is the target.
///
/// # Safety
///
/// The elements of the loops are live on both sides, at offsets from the pointers. Those of the target may be written, and
/// no two indices share one. No element is on both sides.
unsafe fn copy(loops: &Loops, item: usize, from: *const u8, to: *mut u8) {
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
    unsafe { copy(loops, (from, to), item) };
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
            (1, 1) if run.extent * size_of::<U>() > SHORT => copy_whole_runs,
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
unsafe fn copy_whole_runs<U: Copy>(from: *const U, to: *mut U, rows: Axis, run: Axis) {
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
        let is_contiguous = run.steps[0] == 1 && run.steps[1] == 1;
        let (count, size) = if is_contiguous { (1, run.extent * item) } else { (run.extent, item) };
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
