//! Elements in host memory, with any rank, strides and alignment.

use core::marker::PhantomData;

use crate::array::element::Element;
use crate::array::info::ArrayInfo;
use crate::array::layout::Layout;
use crate::array::layout::order::Order;
use crate::error::Result;
use crate::memory::array_view::{check_writable, shared_range};
use crate::memory::borrow_registry::Borrow;
use crate::memory::host::cells::ReadOnlyCell;
use crate::memory::host::cells::check_readable;
use crate::memory::host::loops::Visit;
use crate::memory::host::strided::Strided;

/// The elements of an array in host-accessible memory, with any rank and alignment.
pub(crate) struct HostElements<T> {
    address: usize,
    layout: Layout,
    _access: Option<Borrow>,
    marker: PhantomData<T>,
}

impl<T: Element> HostElements<T> {
    /// Creates the value from the description of an array, and records an access for reading or writing until the value
    /// is dropped.
    ///
    /// # Safety
    ///
    /// The memory that `info` describes is live and initialized while the value is used.
    pub(crate) unsafe fn of(info: &ArrayInfo, exclusive: bool) -> Result<Self> {
        check_readable(info.pending, info.address, info.device())?;
        let layout = info.layout_of(&T::TYPE)?;
        let access = Borrow::of(shared_range(info), exclusive)?;
        Ok(Self { address: info.address, layout, _access: access, marker: PhantomData })
    }

    fn strided(&self) -> Strided<'_, T> {
        // SAFETY: the memory is live and initialized (contract of `of`), and host memory. A layout was checked when it
        // was made.
        unsafe { Strided::new(self.address, self.layout.shape(), self.layout.strides()) }
    }

    pub(crate) fn count(&self) -> usize {
        self.layout.numel()
    }

    /// Returns the address of element \[0, …, 0\] and the layout.
    pub(crate) fn address_and_layout(&self) -> (usize, &Layout) {
        (self.address, &self.layout)
    }

    pub(crate) fn to_vec(&self, order: Order) -> Result<Vec<T>> {
        self.strided().to_vec(order)
    }

    /// Copies the elements into contiguous memory. Without an error, all copied elements are valid values of `T`.
    ///
    /// # Safety
    ///
    /// `target` has room for [`count`](Self::count) elements, and nothing else uses it.
    pub(crate) unsafe fn copy_to(&self, order: Order, target: *mut T) -> Result<()> {
        // SAFETY: as the caller promises.
        unsafe { self.strided().copy_to(order, target) }
    }

    pub(crate) fn copy_to_slice(&self, slice: &mut [T]) -> Result<()> {
        self.strided().copy_to_slice(slice)
    }

    /// Calls `see` with each element, in row-major order.
    #[inline]
    pub(crate) fn for_each(&self, mut see: impl FnMut(T)) -> Result<()> {
        self.strided().fold(Visit::Index(Order::C), (), |(), element| see(element))
    }

    pub(crate) fn for_each_chunk(&self, see: impl FnMut(&[ReadOnlyCell<T>])) -> Result<()> {
        self.strided().for_each_chunk(see)
    }

    /// Folds all elements in memory order.
    #[inline]
    pub(crate) fn fold<A>(&self, start: A, add: impl FnMut(A, T) -> A) -> Result<A> {
        self.strided().fold(Visit::Memory, start, add)
    }
}

/// The elements of a writable array, with a recorded access for writing.
pub(crate) struct HostElementsMut<T>(HostElements<T>);

impl<T: Element> HostElementsMut<T> {
    /// As [`HostElements::of`], for writing. Returns an error for read-only arrays and for arrays in which two indices
    /// may share an element.
    ///
    /// # Safety
    ///
    /// As for [`HostElements::of`]. The memory may be written if `info` says so. While the value is used, no Rust code
    /// reads or writes the memory without recording an access.
    pub(crate) unsafe fn of(info: &ArrayInfo) -> Result<Self> {
        check_writable(info)?;
        // SAFETY: as the caller promises.
        unsafe { HostElements::of(info, true) }.map(Self)
    }

    /// Replaces each element by `change` of it, in memory order.
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
