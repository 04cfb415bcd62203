//! Elements in host memory as runs of bytes: any rank, any strides, any alignment.

use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr;

use super::check_readable;
use crate::borrow::Borrow;
use crate::element::Element;
use crate::error::{Error, ErrorKind, Result, text};
use crate::facts::Facts;
use crate::layout::{Layout, Order};
use crate::view::shared;

/// Elements in host-accessible memory, of any rank, at any alignment.
pub(crate) struct HostElements<T> {
    address: usize,
    layout: Layout,
    _access: Option<Borrow>,
    marker: PhantomData<T>,
}

impl<T: Element> HostElements<T> {
    /// The elements of this layout, to which the caller has access already.
    ///
    /// # Safety
    ///
    /// They are live and initialized host memory while the value is used.
    pub(super) unsafe fn at(address: usize, layout: Layout) -> Self {
        Self { address, layout, _access: None, marker: PhantomData }
    }

    /// The elements that `facts` describe; with access to them, for reading or for writing, until the value is dropped.
    ///
    /// # Safety
    ///
    /// The memory that `facts` describe is live and initialized while the value is used.
    pub(crate) unsafe fn of(facts: &Facts, writes: bool) -> Result<Self> {
        check_readable(facts.device(), facts.stream())?;
        let layout = facts.layout_of(&T::TYPE)?;
        let access = Borrow::of(shared(facts), writes)?;
        Ok(Self { address: facts.address(), layout, _access: access, marker: PhantomData })
    }

    pub(crate) fn count(&self) -> usize {
        self.layout.numel()
    }

    pub(crate) fn to_vec(&self, order: Order) -> Result<Vec<T>> {
        let (count, mut elements) = (self.count(), Vec::<T>::new());
        elements
            .try_reserve_exact(count)
            .map_err(|_| Error::no_memory(count.saturating_mul(size_of::<T>())))?;
        // SAFETY: the vector is new, and has room for `count` elements.
        unsafe { self.copy_to(order, elements.as_mut_ptr())? };
        // SAFETY: they have been written, and are values of `T`.
        unsafe { elements.set_len(count) };
        Ok(elements)
    }

    /// Copies the elements into compact order. Unless there is an error, what was written are values of `T`.
    ///
    /// # Safety
    ///
    /// `target` has room for [`count`](Self::count) elements, and nobody else uses it.
    pub(crate) unsafe fn copy_to(&self, order: Order, target: *mut T) -> Result<()> {
        // SAFETY: live and initialized (contract of `of`), and host memory; the target as the caller promises.
        unsafe { copy_compact(self.address, &self.layout, order, size_of::<T>(), target.cast()) };
        // SAFETY: the bytes of so many elements have been written.
        unsafe { check_run(target.cast_const(), self.count()) }
    }

    pub(crate) fn for_each(&self, mut see: impl FnMut(T)) -> Result<()> {
        let first = ptr::with_exposed_provenance::<T>(self.address);
        for offset in self.layout.walk(Order::C) {
            // SAFETY: an element of the layout, live and initialized (contract of `of`).
            see(unsafe { read(first.wrapping_offset(offset))? });
        }
        Ok(())
    }

    /// Replaces every element by `change` of it, in row-major order.
    ///
    /// # Safety
    ///
    /// The memory may be written, and no other Rust code reads or writes it meanwhile.
    pub(crate) unsafe fn apply(&self, mut change: impl FnMut(T) -> T) -> Result<()> {
        let first = ptr::with_exposed_provenance_mut::<T>(self.address);
        for offset in self.layout.walk(Order::C) {
            let element = first.wrapping_offset(offset);
            // SAFETY: an element of the layout, live and initialized (contract of `of`).
            let value = unsafe { read(element)? };
            // SAFETY: the same element, writable as the caller promises.
            unsafe { element.write_unaligned(change(value)) };
        }
        Ok(())
    }
}

/// Copies elements of `item` bytes into compact order.
///
/// # Safety
///
/// The elements of `layout`, from `address` on, are live, initialized host memory; `target` has room for as many bytes,
/// and none of them is among the elements.
pub(crate) unsafe fn copy_compact(
    address: usize,
    layout: &Layout,
    order: Order,
    item: usize,
    target: *mut u8,
) {
    let first = ptr::with_exposed_provenance::<u8>(address);
    if layout.is_empty() {
        return;
    }
    if layout.is_contiguous(order) {
        // SAFETY: without gaps, so the elements are one run of bytes; otherwise as the caller promises.
        unsafe { ptr::copy_nonoverlapping(first, target, layout.numel() * item) };
        return;
    }
    for (at, offset) in layout.walk(order).enumerate() {
        let source = first.wrapping_offset(offset * item as isize);
        // SAFETY: an element of the layout, and its place in the target.
        unsafe { ptr::copy_nonoverlapping(source, target.wrapping_add(at * item), item) };
    }
}

/// Reads one element.
///
/// # Safety
///
/// `element` points to `size_of::<T>()` live, initialized bytes; any alignment will do.
pub(super) unsafe fn read<T: Element>(element: *const T) -> Result<T> {
    // Copied first and looked at afterwards: another library may write to the element meanwhile.
    let mut copy = MaybeUninit::<T>::uninit();
    // SAFETY: live, initialized bytes, as the caller promises, and a place for as many.
    unsafe { ptr::copy_nonoverlapping(element.cast::<u8>(), copy.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
    // SAFETY: the bytes of one element have been written.
    unsafe { check_run(copy.as_ptr(), 1)? };
    // SAFETY: and they are a `T`, either because all are or because they were checked.
    Ok(unsafe { copy.assume_init() })
}

/// Refuses `bool` elements that are none.
///
/// # Safety
///
/// `first` points to `count` live, initialized elements.
pub(crate) unsafe fn check_run<T: Element>(first: *const T, count: usize) -> Result<()> {
    if T::TYPE.any_bits {
        return Ok(());
    }
    // SAFETY: as the caller promises, in bytes.
    unsafe { check_bools(first.cast(), count * size_of::<T>()) }
}

/// Refuses bytes that are no `bool`, the one element with invalid bit patterns.
///
/// # Safety
///
/// `bytes` points to `count` live, initialized bytes.
unsafe fn check_bools(bytes: *const u8, count: usize) -> Result<()> {
    for at in 0..count {
        // SAFETY: `at` is below `count`, for which the caller vouches.
        let byte = unsafe { bytes.wrapping_add(at).read() };
        if byte > 1 {
            let found = text!("the byte {byte} in a bool");
            let error = Error::new(ErrorKind::DType, "data", found, "0 and 1");
            return Err(error.with_advice("view the array as `u8`").with_remedy("view the array as uint8"));
        }
    }
    Ok(())
}
