//! Elements of host-accessible memory, read and written one at a time; slices only under a promise.
#![expect(unsafe_code, reason = "this room reads and writes array elements on the host")]

use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr;
use std::sync::Arc;

use crate::borrow::Borrow;
use crate::cuda::wait_for_host;
use crate::device::{Device, DeviceType};
use crate::element::Element;
use crate::error::{Error, ErrorKind, Result};
use crate::facts::Facts;
use crate::layout::{Layout, Order};
use crate::stream::StreamHandle;
use crate::view::{ArrayView, ArrayViewMut, RawView, shared};

/// A view whose elements host code can read: the memory is host-accessible, aligned, and nothing is pending on it.
///
/// Elements are read by value. A library that shares the memory may write to it between two reads, so plain references
/// are only handed out by [`as_slice`](Self::as_slice), under a promise. Rust code that shares it, through another struct,
/// cannot write while the view lives.
#[derive(Clone, Debug)]
pub struct HostView<'a, T, const N: usize> {
    raw: RawView<N>,
    _access: Access,
    marker: PhantomData<&'a T>,
}

/// A view whose elements host code can read and write; see [`HostView`].
#[derive(Debug)]
pub struct HostViewMut<'a, T, const N: usize> {
    raw: RawView<N>,
    access: Access,
    marker: PhantomData<&'a mut T>,
}

impl<'a, T: Element, const N: usize> ArrayView<'a, T, N> {
    /// The view for reading on the host.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Device`] for memory that the host cannot reach, [`ErrorKind::Stream`] when work on the data is still
    /// pending, [`ErrorKind::Alignment`] when the address is not aligned for `T`, [`ErrorKind::Busy`] while Rust code writes
    /// to the memory through another struct.
    pub fn host(&self) -> Result<HostView<'a, T, N>> {
        check_host::<T, N>(&self.raw)?;
        Ok(HostView { raw: self.raw, _access: access(self.raw.shared, false)?, marker: PhantomData })
    }
}

impl<'a, T: Element, const N: usize> ArrayViewMut<'a, T, N> {
    /// The view for reading and writing on the host.
    ///
    /// # Errors
    ///
    /// As [`ArrayView::host`]; [`ErrorKind::Busy`] also while Rust code reads the memory through another struct.
    pub fn host_mut(self) -> Result<HostViewMut<'a, T, N>> {
        check_host::<T, N>(&self.raw)?;
        Ok(HostViewMut { raw: self.raw, access: access(self.raw.shared, true)?, marker: PhantomData })
    }
}

/// Held while memory that others may have is read or written.
type Access = Option<Arc<Borrow>>;

fn access(shared: Option<(usize, usize)>, writes: bool) -> Result<Access> {
    shared.map(|(start, end)| Ok(Arc::new(Borrow::new(start..end, writes)?))).transpose()
}

fn check_host<T: Element, const N: usize>(raw: &RawView<N>) -> Result<()> {
    check_readable(raw.device, raw.stream)?;
    if raw.address % T::TYPE.align() != 0 {
        let found = format_args!("address {:#x}", raw.address);
        let allowed = format_args!("a multiple of {}, the alignment of the element", T::TYPE.align());
        return Err(Error::new(ErrorKind::Alignment, "data", found, allowed));
    }
    Ok(())
}

/// Refuses memory that the host cannot reach, and waits for the work that is pending on pinned and managed memory.
pub(crate) fn check_readable(device: Device, stream: StreamHandle) -> Result<()> {
    if !device.device_type.is_host_accessible() {
        let allowed = "memory that the host can reach: CPU, CUDAHost or CUDAManaged";
        return Err(Error::new(ErrorKind::Device, "device", device, allowed));
    }
    if stream == StreamHandle::NothingPending {
        return Ok(());
    }
    if device.device_type == DeviceType::CPU {
        let found = format_args!("work pending on the {stream}");
        let allowed = "nothing pending: no stream works on memory that is the host's alone";
        return Err(Error::new(ErrorKind::Stream, "stream", found, allowed));
    }
    wait_for_host(stream, device)
}

/// Elements in host-accessible memory, of any rank, at any alignment.
pub(crate) struct HostElements<T> {
    address: usize,
    layout: Layout,
    _access: Option<Borrow>,
    marker: PhantomData<T>,
}

impl<T: Element> HostElements<T> {
    /// # Safety
    ///
    /// The memory that `facts` describe is live and initialized while the value is used.
    pub(crate) unsafe fn of(facts: &Facts, writes: bool) -> Result<Self> {
        check_readable(facts.device(), facts.stream())?;
        let layout = facts.layout_of(&T::TYPE)?;
        let access = shared(facts).map(|(start, end)| Borrow::new(start..end, writes)).transpose()?;
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

impl<const N: usize> RawView<N> {
    /// The pointer to the element at `index`.
    fn element<T>(&self, index: [usize; N]) -> Result<*mut T> {
        let mut offset = 0;
        for (axis, (at, (extent, stride))) in
            index.iter().zip(self.shape.iter().zip(&self.strides)).enumerate()
        {
            if at >= extent {
                let allowed = format_args!("less than the extent {extent}");
                return Err(Error::new(ErrorKind::Bounds, format_args!("index[{axis}]"), at, allowed));
            }
            offset += *at as isize * stride;
        }
        Ok(ptr::with_exposed_provenance_mut::<T>(self.address).wrapping_offset(offset))
    }

    /// The first element and the number of elements, when they lie without gaps in this order.
    fn run<T>(&self, order: Order) -> Result<(*mut T, usize)> {
        let layout = self.layout();
        Facts::check_contiguous(&layout, order)?;
        let first = if layout.is_empty() {
            ptr::dangling_mut()
        } else {
            ptr::with_exposed_provenance_mut(self.address)
        };
        Ok((first, layout.numel()))
    }
}

/// Reads one element.
///
/// # Safety
///
/// `element` points to `size_of::<T>()` live, initialized bytes; any alignment will do.
unsafe fn read<T: Element>(element: *const T) -> Result<T> {
    // Copied first and looked at afterwards: another library may write to the element meanwhile.
    let mut copy = MaybeUninit::<T>::uninit();
    // SAFETY: live, initialized bytes, as the caller promises, and a place for as many.
    unsafe { ptr::copy_nonoverlapping(element.cast::<u8>(), copy.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
    // SAFETY: the bytes of one element have been written.
    unsafe { check_run(copy.as_ptr(), 1)? };
    // SAFETY: and they are a `T`, either because all are or because they were checked.
    Ok(unsafe { copy.assume_init() })
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
            let found = format_args!("the byte {byte} in a bool");
            return Err(Error::new(ErrorKind::DType, "data", found, "0 and 1; view the array as u8"));
        }
    }
    Ok(())
}

impl<'a, T: Element, const N: usize> HostView<'a, T, N> {
    /// The extents.
    #[must_use]
    pub fn shape(&self) -> [usize; N] {
        self.raw.shape
    }

    /// The element at `index`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Bounds`] outside the array; [`ErrorKind::DType`] for a byte that is no `bool`.
    pub fn get(&self, index: [usize; N]) -> Result<T> {
        let element = self.raw.element::<T>(index)?;
        // SAFETY: the view's memory is live and initialized (contract of `from_facts`), `element` lies within it, and
        // `check_host` saw that it is host memory, aligned for `T`: strides count whole elements.
        unsafe { read(element) }
    }

    /// All elements in row-major order of their indices, whatever the strides are.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DType`] for a byte that is no `bool`; [`ErrorKind::Memory`] when there is no room for the copy.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        // The view's memory is live and initialized (contract of `from_facts`), and `check_host` saw that it is host memory.
        let (address, layout) = (self.raw.address, self.raw.layout());
        HostElements { address, layout, _access: None, marker: PhantomData }.to_vec(Order::C)
    }

    /// The elements as a slice.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Strides`] unless the array is C-contiguous; [`ErrorKind::DType`] for bytes that are no `bool`.
    ///
    /// # Safety
    ///
    /// Nobody writes the elements for `'a`: no library that shares them, no thread of it, no kernel.
    pub unsafe fn as_slice(&self) -> Result<&'a [T]> {
        let (first, count) = self.raw.run::<T>(Order::C)?;
        // SAFETY: as in `get`, for `count` elements without gaps.
        unsafe { check_run(first, count)? };
        // SAFETY: live, initialized, aligned, within one object; unwritten for `'a` as the caller promises.
        Ok(unsafe { core::slice::from_raw_parts(first, count) })
    }
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

impl<'a, T: Element, const N: usize> HostViewMut<'a, T, N> {
    /// The same view for reading.
    #[must_use]
    pub fn as_view(&self) -> HostView<'_, T, N> {
        HostView { raw: self.raw, _access: self.access.clone(), marker: PhantomData }
    }

    /// Writes the element at `index`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Bounds`] outside the array.
    pub fn set(&mut self, index: [usize; N], value: T) -> Result<()> {
        let element = self.raw.element::<T>(index)?;
        // SAFETY: the view's memory is live, writable and unshared among Rust code (contract of `from_facts`); `element`
        // lies within it and is aligned, as in `HostView::get`.
        unsafe { element.write(value) };
        Ok(())
    }

    /// Replaces every element by `change` of it, in row-major order of the indices.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DType`] for a byte that is no `bool`; what came before it has been changed.
    pub fn apply(&mut self, change: impl FnMut(T) -> T) -> Result<()> {
        let layout = self.raw.layout();
        let elements = HostElements { address: self.raw.address, layout, _access: None, marker: PhantomData };
        // SAFETY: the view's memory is live and initialized, writable, and unshared among Rust code (contract of
        // `from_facts`).
        unsafe { elements.apply(change) }
    }

    /// Cuts the view in two along the first axis; the parts share no element, so two threads may write to them.
    ///
    /// # Panics
    ///
    /// When there is no first axis or `at` is beyond its extent.
    #[must_use]
    pub fn split_at(self, at: usize) -> (Self, Self) {
        let (mut head, mut tail) = (self.raw, self.raw);
        assert!(at <= self.raw.shape[0], "{at} is beyond the first axis");
        head.shape[0] = at;
        tail.shape[0] -= at;
        if tail.layout().numel() > 0 {
            tail.address = tail.address.wrapping_add_signed(tail.strides[0] * (at * size_of::<T>()) as isize);
        }
        let part = |raw| Self { raw, access: self.access.clone(), marker: PhantomData };
        (part(head), part(tail))
    }

    /// The elements as a slice.
    ///
    /// # Errors
    ///
    /// As [`HostView::as_slice`].
    ///
    /// # Safety
    ///
    /// Nobody else reads or writes the elements for `'a`: no library that shares them, no thread of it, no kernel.
    pub unsafe fn into_slice(self) -> Result<&'a mut [T]> {
        let (first, count) = self.raw.run::<T>(Order::C)?;
        // SAFETY: as in `HostView::as_slice`.
        unsafe { check_run(first, count)? };
        // SAFETY: live, initialized, aligned, writable; unshared for `'a` as the caller promises.
        Ok(unsafe { core::slice::from_raw_parts_mut(first, count) })
    }
}
