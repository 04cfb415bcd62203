//! Elements in host memory as runs of bytes: any rank, any strides, any alignment.

use core::marker::PhantomData;

use crate::array::element::Element;
use crate::array::info::ArrayInfo;
use crate::array::layout::Layout;
use crate::array::layout::order::Order;
use crate::error::Result;
use crate::memory::array_view::{check_writable, shared_range};
use crate::memory::borrow_registry::Borrow;
use crate::memory::host::cells::ReadOnlyCell;
use crate::memory::host::checked_read::check_readable;
use crate::memory::host::loops::Visit;
use crate::memory::host::strided::Strided;

/// Elements in host-accessible memory, of any rank, at any alignment.
pub(crate) struct HostElements<T> {
    address: usize,
    layout: Layout,
    _access: Option<Borrow>,
    marker: PhantomData<T>,
}

impl<T: Element> HostElements<T> {
    /// The elements that `info` describe; with access to them, for reading or for writing, until the value is dropped.
    ///
    /// # Safety
    ///
    /// The memory that `info` describe is live and initialized while the value is used.
    pub(crate) unsafe fn of(info: &ArrayInfo, exclusive: bool) -> Result<Self> {
        check_readable(info.device(), info.stream())?;
        let layout = info.layout_of(&T::TYPE)?;
        let access = Borrow::of(shared_range(info), exclusive)?;
        Ok(Self { address: info.address(), layout, _access: access, marker: PhantomData })
    }

    fn strided(&self) -> Strided<'_, T> {
        // SAFETY: live and initialized (contract of `of`), and host memory; a layout was checked when it was made.
        unsafe { Strided::new(self.address, self.layout.shape(), self.layout.strides()) }
    }

    pub(crate) fn count(&self) -> usize {
        self.layout.numel()
    }

    /// The address of element \[0, …, 0\], and the layout from there on.
    #[cfg(any(feature = "cust", feature = "cudarc"))]
    pub(crate) fn place(&self) -> (usize, &Layout) {
        (self.address, &self.layout)
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
    #[inline]
    pub(crate) fn for_each(&self, mut see: impl FnMut(T)) -> Result<()> {
        self.strided().fold(Visit::Index(Order::C), (), |(), element| see(element))
    }

    pub(crate) fn for_each_chunk(&self, see: impl FnMut(&[ReadOnlyCell<T>])) -> Result<()> {
        self.strided().for_each_chunk(see)
    }

    /// Puts all elements together, in memory order.
    #[inline]
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
    /// As there; the memory may be written if `info` say so, and while the value is used no Rust code reads or writes it
    /// that has not to ask for it.
    pub(crate) unsafe fn of(info: &ArrayInfo) -> Result<Self> {
        check_writable(info)?;
        // SAFETY: as the caller promises.
        unsafe { HostElements::of(info, true) }.map(Self)
    }

    /// Replaces every element by `change` of it, in memory order.
    #[inline]
    pub(crate) fn map_inplace(&self, change: impl FnMut(T) -> T) -> Result<()> {
        // SAFETY: as the caller of `of` promises.
        unsafe { self.0.strided().map_inplace(change) }
    }

    #[inline]
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

/// The first byte that is no `bool`. Many are looked at together, before it is decided whether there is one.
#[inline]
pub(crate) fn first_no_bool(bytes: &[u8]) -> Option<u8> {
    let is_bad = |block: &&[u8]| block.iter().fold(0, |all, byte| all | byte) > 1;
    bytes.chunks(1024).find(is_bad)?.iter().copied().find(|byte| *byte > 1)
}
