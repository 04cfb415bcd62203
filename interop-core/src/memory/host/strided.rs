//! Elements in host memory with any rank, strides and alignment, the operations on all of them, and copies. Runs that are
//! contiguous on both sides are copied whole; transposed arrays are copied in tiles.

use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr;

use crate::array::element::{Element, ElementType};
use crate::array::info::ArrayInfo;
use crate::array::layout::axes::Axis;
use crate::array::layout::order::{Order, contiguous_strides, is_contiguous};
use crate::array::layout::{Layout, product};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::array_view::{check_writable, shared_elements};
use crate::memory::host::cells::{ReadOnlyCell, check_readable, check_run, first_invalid_bool, invalid_bool};
use crate::memory::host::loops::{Loops, Plane, Visit, fill, fold, map};
use crate::process::borrow_registry::Borrow;

/// The size of a chunk of copied elements, in bytes. Contiguous runs of at least this size are passed in place.
const CHUNK: usize = 8192;

/// Calls `work` with the elements of an array of any rank in host memory. Meanwhile the access is recorded, as one for
/// reading or for writing.
///
/// # Safety
///
/// The memory that `info` describes is live and initialized during the call.
#[inline]
pub(crate) unsafe fn with_elements<T: Element, R>(
    info: &ArrayInfo,
    exclusive: bool,
    work: impl FnOnce(Strided<'_, T>) -> Result<R>,
) -> Result<R> {
    check_readable(info.work())?;
    let layout = info.layout_of(&T::TYPE)?;
    let _access = Borrow::from_shared(shared_elements(info), exclusive)?;
    // SAFETY: the memory is live and initialized, as the caller promises, and host memory. A layout was checked when it
    // was made.
    work(unsafe { Strided::new(info.unwatched_address, layout.shape(), layout.strides()) })
}

/// As [`with_elements`], for writing. Returns an error for read-only arrays and for arrays in which two indices may share
/// an element.
///
/// # Safety
///
/// As for [`with_elements`]. The memory may be written if `info` says so. During the call, no Rust code reads or writes the
/// memory without recording an access.
#[inline]
pub(crate) unsafe fn with_elements_mut<T: Element, R>(
    info: &ArrayInfo,
    work: impl FnOnce(StridedMut<'_, T>) -> Result<R>,
) -> Result<R> {
    check_writable(info)?;
    // SAFETY: `check_writable` accepted the array, and the recorded access excludes other Rust code.
    let work = |elements: Strided<'_, T>| work(unsafe { StridedMut::new(elements) });
    // SAFETY: as the caller promises.
    unsafe { with_elements(info, true, work) }
}

/// The elements of an array in host memory.
#[derive(Clone, Copy)]
pub(crate) struct Strided<'a, T> {
    first: *mut T,
    shape: &'a [usize],
    strides: &'a [isize],
    marker: PhantomData<&'a [T]>,
}

// SAFETY: the type is a pointer and a layout. The caller of `new` permits reads, and no method writes the elements. `T` is
// `Send` and `Sync`.
unsafe impl<T: Element> Send for Strided<'_, T> {}

// SAFETY: as above.
unsafe impl<T: Element> Sync for Strided<'_, T> {}

impl<'a, T: Element> Strided<'a, T> {
    /// Creates the value from an address and a layout whose arithmetic was checked.
    ///
    /// # Safety
    ///
    /// The elements are live, initialized host memory while the value is used.
    pub(crate) unsafe fn new(address: usize, shape: &'a [usize], strides: &'a [isize]) -> Self {
        Self { first: ptr::with_exposed_provenance_mut(address), shape, strides, marker: PhantomData }
    }

    pub(crate) fn count(&self) -> usize {
        product(self.shape.iter().copied()).unwrap_or_else(|| unreachable!("a layout that was checked"))
    }

    /// A pointer to the first element.
    pub(crate) fn as_ptr(&self) -> *const T {
        self.first
    }

    pub(crate) fn loops(&self, visit: Visit) -> Option<Loops> {
        Loops::new(self.shape, &[self.strides], visit)
    }

    /// Returns the loops over both arrays, in the memory order of this one or in tiles. Returns an error if the shapes differ.
    pub(crate) fn loops_with<U: Element>(&self, other: &Strided<'_, U>) -> Result<Option<Loops>> {
        if self.shape != other.shape {
            return Err(other_shape(other.shape, self.shape));
        }
        Ok(Loops::tiled(self.shape, &[self.strides, other.strides], size_of::<T>()))
    }

    /// Returns an error if the length differs from the number of elements.
    fn check_len(&self, len: usize) -> Result<()> {
        let count = self.count();
        if count == len { Ok(()) } else { Err(other_length(len, count)) }
    }

    pub(crate) fn to_vec(self, order: Order) -> Result<Vec<T>> {
        // SAFETY: the vector is new, and has capacity for the elements.
        let fill = |target| unsafe { self.copy_to(order, target) };
        // SAFETY: `copy_to` writes all elements, which are valid values of `T`.
        unsafe { filled_vec(self.count(), fill) }
    }

    /// Copies the elements into contiguous memory. Without an error, all copied elements are valid values of `T`.
    ///
    /// # Safety
    ///
    /// `target` has room for [`count`](Self::count) elements, and nothing else uses it.
    pub(crate) unsafe fn copy_to(&self, order: Order, target: *mut T) -> Result<()> {
        let strides = contiguous_strides(self.shape, order);
        let from = Side { first: self.first.cast_const().cast::<u8>(), strides: self.strides };
        let (to, bytes) = (target.cast::<u8>(), self.count() * size_of::<T>());
        if *strides == *self.strides {
            // A copy of 16 elements takes 36 ns instead of 66. What is checked is still in the cache then.
            let most = if T::TYPE.any_bits { bytes } else { CHUNK };
            for at in (0..bytes).step_by(most.max(1)) {
                let (to, piece) = (to.wrapping_add(at), most.min(bytes - at));
                // SAFETY: both sides are contiguous in the same order. The elements are live and initialized (contract
                // of `new`). The target is as the caller promises.
                unsafe { ptr::copy_nonoverlapping(from.first.wrapping_add(at), to, piece) };
                // SAFETY: these bytes have been written.
                unsafe { check_copied(&T::TYPE, to, piece) }?;
            }
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { copy(self.shape, size_of::<T>(), from, Side { first: to, strides: &strides }) };
        // SAFETY: the whole target has been written.
        unsafe { check_copied(&T::TYPE, to, bytes) }
    }

    pub(crate) fn copy_to_slice(&self, slice: &mut [T]) -> Result<()> {
        self.check_len(slice.len())?;
        // SAFETY: the slice has as many elements, and nothing else borrows it. The written elements are valid even if
        // an error is returned.
        unsafe { self.copy_to(Order::C, slice.as_mut_ptr()) }
    }

    #[inline]
    pub(crate) fn fold<A>(&self, visit: Visit, start: A, add: impl FnMut(A, T) -> A) -> Result<A> {
        let Some(loops) = self.loops(visit) else { return Ok(start) };
        // SAFETY: the elements are live and initialized (contract of `new`).
        unsafe { fold(&loops, (self.as_ptr(),), start, add) }
    }

    /// Calls `see` with chunks of elements in memory order. Long contiguous runs are passed in place, others are
    /// copied.
    pub(crate) fn for_each_chunk(&self, mut see: impl FnMut(&[ReadOnlyCell<T>])) -> Result<()> {
        let in_place = T::TYPE.any_bits && self.first.is_aligned();
        if in_place && self.count() > 0 && is_contiguous(self.shape, self.strides, Order::C) {
            // Without loops, the sum of 16 elements of a Python array takes 350 ns instead of 420.
            // SAFETY: the elements are contiguous, live and initialized (contract of `new`), and aligned.
            see(unsafe { ReadOnlyCell::slice(self.first, self.count()) });
            return Ok(());
        }
        let Some(loops) = self.loops(Visit::Memory) else { return Ok(()) };
        let most = (CHUNK / size_of::<T>()).max(1).min(self.count());
        let mut chunk = Vec::<T>::new();
        for Plane { first, rows, run } in loops.planes() {
            let begin = self.first.wrapping_offset(first[0]);
            let place = |row: usize, at: usize| {
                begin.wrapping_offset(rows.to(row)[0].wrapping_add(run.to(at)[0])).cast_const()
            };
            let (mut row, mut at) = (0, 0);
            while row < rows.extent {
                if in_place && run.steps[0] == 1 && run.extent >= most {
                    // SAFETY: the elements are contiguous, live and initialized (contract of `new`), and aligned.
                    see(unsafe { ReadOnlyCell::slice(place(row, 0), run.extent) });
                    row += 1;
                    continue;
                }
                let room = most - chunk.len();
                chunk.try_reserve_exact(room).map_err(|_| Error::no_memory(room * size_of::<T>()))?;
                // Several whole rows, or a part of one that is longer than the free capacity.
                let (height, length) = match room / run.extent {
                    whole if at == 0 && whole > 0 => (whole.min(rows.extent - row), run.extent),
                    _ => (1, room.min(run.extent - at)),
                };
                let (part, line) = (Axis { extent: height, ..rows }, Axis { extent: length, ..run });
                let target = chunk.as_mut_ptr().wrapping_add(chunk.len());
                // SAFETY: elements of the loops, which are live and initialized (contract of `new`). The chunk has
                // capacity for as many.
                unsafe { copy_runs(place(row, at), part, line, target) }?;
                // SAFETY: they have been written, and are valid values of `T`.
                unsafe { chunk.set_len(chunk.len() + height * length) };
                at += length;
                if at == run.extent {
                    (row, at) = (row + height, 0);
                }
                if chunk.len() == most {
                    ReadOnlyCell::lend(&mut chunk, &mut see);
                }
            }
        }
        ReadOnlyCell::lend(&mut chunk, &mut see);
        Ok(())
    }

    /// Calls `see` with each element, in row-major order.
    #[inline]
    pub(crate) fn for_each(&self, mut see: impl FnMut(T)) -> Result<()> {
        self.fold(Visit::Index, (), |(), element| see(element))
    }
}

/// The elements of a writable array in host memory.
pub(crate) struct StridedMut<'a, T>(Strided<'a, T>);

impl<'a, T: Element> StridedMut<'a, T> {
    /// # Safety
    ///
    /// The elements may be written. No two indices share an element. No other Rust code reads or writes the elements
    /// while the value is used.
    pub(crate) unsafe fn new(elements: Strided<'a, T>) -> Self {
        Self(elements)
    }

    /// The elements for reading.
    #[cfg(feature = "rayon")]
    pub(crate) fn as_strided(&self) -> &Strided<'a, T> {
        &self.0
    }

    /// A mutable pointer to the first element.
    pub(crate) fn as_mut_ptr(&self) -> *mut T {
        self.0.first
    }

    pub(crate) fn fill(&mut self, value: T) {
        if let Some(loops) = self.0.loops(Visit::Memory) {
            // SAFETY: the elements are writable (contract of `new`).
            unsafe { fill(&loops, self.as_mut_ptr(), value) };
        }
    }

    pub(crate) fn copy_from_slice(&mut self, slice: &[T]) -> Result<()> {
        self.0.check_len(slice.len())?;
        let strides = contiguous_strides(self.0.shape, Order::C);
        let from = Side { first: slice.as_ptr().cast(), strides: &strides };
        let to = Side { first: self.as_mut_ptr().cast(), strides: self.0.strides };
        // SAFETY: the elements are writable, and no two indices share one (contract of `new`). The slice has as many, and
        // none of them, because no other Rust code uses those of `self`.
        unsafe { copy(self.0.shape, size_of::<T>(), from, to) };
        Ok(())
    }

    /// Replaces each element by `change` of it, in memory order.
    #[inline]
    pub(crate) fn map_inplace(&mut self, change: impl FnMut(T) -> T) -> Result<()> {
        let Some(loops) = self.0.loops(Visit::Memory) else { return Ok(()) };
        // SAFETY: the elements are live and initialized (contract of `Strided::new`), and writable (contract of `new`).
        unsafe { map(&loops, self.as_mut_ptr(), (self.0.as_ptr(),), change) }
    }

    #[inline]
    pub(crate) fn zip_map_inplace<U: Element>(
        &mut self,
        other: &Strided<'_, U>,
        mut change: impl FnMut(T, U) -> T,
    ) -> Result<()> {
        let Some(loops) = self.0.loops_with(other)? else { return Ok(()) };
        let from = (self.0.as_ptr(), other.as_ptr());
        // SAFETY: as in `map_inplace`.
        unsafe { map(&loops, self.as_mut_ptr(), from, |(one, other)| change(one, other)) }
    }
}

/// Makes a vector of elements that `fill` writes.
///
/// # Errors
///
/// That of `fill`; [`ErrorKind::OutOfMemory`] if the vector cannot be allocated.
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

#[cold]
fn other_shape(found: &[usize], wanted: &[usize]) -> Error {
    let allowed = format!("{wanted:?}, the shape of the other array");
    Error::new(ErrorKind::Shape, "shape", format_args!("{found:?}"), allowed)
}

#[cold]
fn other_length(found: usize, wanted: usize) -> Error {
    let allowed = format!("a slice of {wanted}, as the array has");
    Error::new(ErrorKind::Shape, "slice", format_args!("{found} elements"), allowed)
}

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
