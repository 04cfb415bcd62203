//! Elements in host memory as runs of bytes: any rank, any strides, any alignment.

use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr;

use super::check_readable;
use super::loops::Visit;
use super::strided::Strided;
use crate::borrow::Borrow;
use crate::element::Element;
use crate::error::{Error, ErrorKind, Result, text};
use crate::facts::Facts;
use crate::layout::{Layout, Order};
use crate::view::{check_writable, shared};

/// Elements in host-accessible memory, of any rank, at any alignment.
pub(crate) struct HostElements<T> {
    address: usize,
    layout: Layout,
    _access: Option<Borrow>,
    marker: PhantomData<T>,
}

impl<T: Element> HostElements<T> {
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

    fn strided(&self) -> Strided<'_, T> {
        // SAFETY: live and initialized (contract of `of`), and host memory; a layout was checked when it was made.
        unsafe { Strided::new(self.address, self.layout.shape(), self.layout.strides()) }
    }

    pub(crate) fn count(&self) -> usize {
        self.layout.numel()
    }

    pub(crate) fn to_vec(&self, order: Order) -> Result<Vec<T>> {
        self.strided().to_vec(order)
    }

    /// Copies the elements into compact order. Unless there is an error, what was written are values of `T`.
    ///
    /// # Safety
    ///
    /// `target` has room for [`count`](Self::count) elements, and nobody else uses it.
    pub(crate) unsafe fn copy_to(&self, order: Order, target: *mut T) -> Result<()> {
        // SAFETY: as the caller promises.
        unsafe { self.strided().copy_to(order, target) }
    }

    pub(crate) fn copy_to_slice(&self, slice: &mut [T]) -> Result<()> {
        self.strided().copy_to_slice(slice)
    }

    /// Calls `see` with every element, in row-major order.
    pub(crate) fn for_each(&self, mut see: impl FnMut(T)) -> Result<()> {
        self.strided().fold(Visit::Index(Order::C), (), |(), element| see(element))
    }

    pub(crate) fn for_each_chunk(&self, see: impl FnMut(&[T])) -> Result<()> {
        self.strided().for_each_chunk(see)
    }

    /// Puts all elements together, in memory order.
    pub(crate) fn fold<A>(&self, start: A, add: impl FnMut(A, T) -> A) -> Result<A> {
        self.strided().fold(Visit::Memory, start, add)
    }
}

/// Elements that may be written; access to them was asked for.
pub(crate) struct HostElementsMut<T>(HostElements<T>);

impl<T: Element> HostElementsMut<T> {
    /// As [`HostElements::of`], for writing; refuses read-only arrays, and those in which two indices may meet.
    ///
    /// # Safety
    ///
    /// As there; the memory may be written if `facts` say so, and while the value is used no Rust code reads or writes it
    /// that has not to ask for it.
    pub(crate) unsafe fn of(facts: &Facts) -> Result<Self> {
        check_writable(facts)?;
        // SAFETY: as the caller promises.
        unsafe { HostElements::of(facts, true) }.map(Self)
    }

    /// Replaces every element by `change` of it, in memory order.
    pub(crate) fn map_inplace(&self, change: impl FnMut(T) -> T) -> Result<()> {
        // SAFETY: as the caller of `of` promises.
        unsafe { self.0.strided().map_inplace(change) }
    }

    pub(crate) fn zip_map_inplace<U: Element>(
        &self,
        other: &HostElements<U>,
        change: impl FnMut(T, U) -> T,
    ) -> Result<()> {
        // SAFETY: as above.
        unsafe { self.0.strided().zip_map_inplace(&other.strided(), change) }
    }

    pub(crate) fn fill(&self, value: T) {
        // SAFETY: as above.
        unsafe { self.0.strided().fill(value) };
    }

    pub(crate) fn copy_from_slice(&self, slice: &[T]) -> Result<()> {
        // SAFETY: as above.
        unsafe { self.0.strided().copy_from_slice(slice) }
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
    // SAFETY: `at` is below `count`, for which the caller vouches.
    let byte = |at: usize| unsafe { bytes.wrapping_add(at).read() };
    for first in (0..count).step_by(BLOCK) {
        let block = first..count.min(first + BLOCK);
        if block.clone().fold(0, |all, at| all | byte(at)) > 1 {
            // It may be another by now, as another library may write to the elements.
            return Err(no_bool(block.map(byte).find(|byte| *byte > 1).unwrap_or(2)));
        }
    }
    Ok(())
}

/// The bytes that are looked at before it is decided whether one of them is no `bool`.
const BLOCK: usize = 1024;

/// The error for a byte that is no `bool`.
#[cold]
pub(super) fn no_bool(byte: u8) -> Error {
    let found = text!("the byte {byte} in a bool");
    let error = Error::new(ErrorKind::DType, "data", found, "0 and 1");
    error.with_advice("view the array as `u8`").with_remedy("view the array as uint8")
}
