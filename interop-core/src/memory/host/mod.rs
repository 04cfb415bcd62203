//! Elements of host-accessible memory, read and written one at a time; slices only under a promise.
#![expect(unsafe_code, reason = "this room reads and writes array elements on the host")]

pub(crate) mod cells;
pub(crate) mod checked_read;
pub(crate) mod copy;
pub(crate) mod elements;
pub(crate) mod elementwise;
pub(crate) mod iter;
pub(crate) mod loops;
pub(crate) mod operands;
#[cfg(feature = "rayon")]
pub(crate) mod parallel;
pub(crate) mod strided;
pub(crate) mod subviews;
pub(crate) mod whole;

use core::marker::PhantomData;
use core::ptr;
use std::sync::Arc;

use crate::array::element::Element;
use crate::array::layout::order::Order;
use crate::error::{Error, ErrorKind, Result, text};
use crate::memory::array_view::{ArrayView, ArrayViewMut, RawView, printed};
use crate::memory::borrow_registry::Borrow;
use crate::memory::host::checked_read::{check_readable, check_run, read};
#[cfg(feature = "ndarray")]
use crate::memory::host::loops::Visit;
#[cfg(feature = "ndarray")]
use crate::memory::host::strided::Strided;

/// A view whose elements host code can read: the memory is host-accessible, aligned, and nothing is pending on it.
///
/// Elements are read by value. A library that shares the memory may write to it between two reads, so plain references
/// are only handed out by [`as_slice`](Self::as_slice), under a promise. Rust code that shares it, through another struct,
/// cannot write while the view lives.
#[derive(Clone)]
pub struct HostView<'a, T, const N: usize> {
    pub(crate) raw: RawView<N>,
    access: BorrowGuard<'a>,
    marker: PhantomData<&'a T>,
}

/// A view whose elements host code can read and write; see [`HostView`], which [`as_view`](Self::as_view) gives for all that reads.
///
/// A view that is leaked, as by `mem::forget`, keeps its memory in use: that of a [`HostVec`](crate::HostVec) until it is freed,
/// imported memory until the program ends.
///
/// ```
/// use interop_core::{CudaArray, HostVec};
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [rows, 2])]
/// struct Table { #[cuda_array(data)] cells: HostVec<f32>, rows: usize }
///
/// let mut table = Table { cells: HostVec::zeroed(8), rows: 4 };
/// let mut view = table.view_mut::<f32, 2>()?.into_host_view_mut()?;
/// view.write([0, 1], 5.0)?;
/// assert_eq!(view.read([0, 1])?, 5.0);
///
/// // Two threads, each with half of the rows.
/// let (mut head, mut tail) = view.split_at(2);
/// std::thread::scope(|scope| {
///     scope.spawn(move || head.map_inplace(|value| value + 1.0));
///     scope.spawn(move || tail.map_inplace(|value| value + 2.0));
/// });
/// assert_eq!(table.to_vec::<f32>()?, [1.0, 6.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]);
/// # Ok::<(), interop_core::Error>(())
/// ```
pub struct HostViewMut<'a, T, const N: usize> {
    pub(crate) raw: RawView<N>,
    access: BorrowGuard<'a>,
    marker: PhantomData<&'a mut T>,
}

printed!(raw: HostView HostViewMut);

impl<'a, T: Element, const N: usize> ArrayView<'a, T, N> {
    /// The view for reading on the host. Work that is pending on pinned or managed memory is waited for.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Device`] for memory that the host cannot reach, [`ErrorKind::Stream`] for a stream beside memory that is
    /// the host's alone, [`ErrorKind::Alignment`] when the address is not aligned for `T`, [`ErrorKind::AlreadyBorrowed`] while Rust code
    /// writes to the memory through another struct; as [`cuda::stream_synchronize`](crate::cuda::stream_synchronize).
    pub fn host_view(&self) -> Result<HostView<'a, T, N>> {
        check_host::<T, N>(&self.raw)?;
        Ok(HostView { raw: self.raw, access: BorrowGuard::new(self.raw.shared, false)?, marker: PhantomData })
    }
}

impl<'a, T: Element, const N: usize> ArrayViewMut<'a, T, N> {
    /// The view for reading and writing on the host.
    ///
    /// # Errors
    ///
    /// As [`ArrayView::host_view`]; [`ErrorKind::AlreadyBorrowed`] also while Rust code reads the memory through another struct.
    pub fn into_host_view_mut(self) -> Result<HostViewMut<'a, T, N>> {
        check_host::<T, N>(&self.raw)?;
        Ok(HostViewMut {
            raw: self.raw,
            access: BorrowGuard::new(self.raw.shared, true)?,
            marker: PhantomData,
        })
    }
}

/// Held while memory that others may have is read or written.
///
/// It has the lifetime of the view's borrow and a drop of its own, so the compiler sees that the borrow lasts until the access
/// is given up: a writer that comes before is an error when the program is compiled, and not when it runs.
#[derive(Clone)]
struct BorrowGuard<'a> {
    _record: Option<Arc<Borrow>>,
    marker: PhantomData<&'a ()>,
}

impl BorrowGuard<'_> {
    fn new(shared: Option<(usize, usize)>, exclusive: bool) -> Result<Self> {
        Ok(Self { _record: Borrow::of(shared, exclusive)?.map(Arc::new), marker: PhantomData })
    }
}

impl Drop for BorrowGuard<'_> {
    fn drop(&mut self) {}
}

fn check_host<T: Element, const N: usize>(raw: &RawView<N>) -> Result<()> {
    check_readable(raw.device, raw.stream.stream(raw.device))?;
    if raw.address % align_of::<T>() != 0 {
        let found = text!("address {:#x}", raw.address);
        let allowed = text!("a multiple of {}, the alignment of the element", align_of::<T>());
        return Err(Error::new(ErrorKind::Alignment, "data", found, allowed));
    }
    Ok(())
}

impl<const N: usize> RawView<N> {
    /// The pointer to the element at `index`.
    #[inline]
    fn element<T>(&self, index: [usize; N]) -> Result<*mut T> {
        let (mut offset, mut is_inside) = (0_isize, true);
        for (at, (extent, stride)) in index.iter().zip(self.shape.iter().zip(&self.strides)) {
            is_inside &= at < extent;
            // May be out of reach where the index is refused.
            offset = offset.wrapping_add((*at as isize).wrapping_mul(*stride));
        }
        if !is_inside {
            return Err(self.outside(index));
        }
        Ok(ptr::with_exposed_provenance_mut::<T>(self.address).wrapping_offset(offset))
    }

    #[cold]
    fn outside(&self, index: [usize; N]) -> Error {
        let axis = (0..N).find(|axis| index[*axis] >= self.shape[*axis]).unwrap_or(0);
        let allowed = text!("less than the extent {}", self.shape[axis]);
        Error::new(ErrorKind::IndexOutOfBounds, format_args!("index[{axis}]"), index[axis], allowed)
    }

    /// The first element and the number of elements, when they lie without gaps in this order.
    fn run<T>(&self, order: Order) -> Result<(*mut T, usize)> {
        let layout = self.layout();
        layout.check_contiguous(order)?;
        let first = if layout.is_empty() {
            ptr::dangling_mut()
        } else {
            ptr::with_exposed_provenance_mut(self.address)
        };
        Ok((first, layout.numel()))
    }

    /// The element with the lowest address.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DType`] for bytes that are no `bool`.
    ///
    /// # Safety
    ///
    /// The elements are live and initialized.
    #[cfg(feature = "ndarray")]
    pub(crate) unsafe fn lowest<T: Element>(&self) -> Result<*mut T> {
        let layout = self.layout();
        if layout.is_empty() {
            return Ok(ptr::dangling_mut());
        }
        let lowest =
            ptr::with_exposed_provenance_mut::<T>(self.address).wrapping_offset(layout.offsets().start);
        if !T::TYPE.any_bits {
            let places = layout.places();
            // SAFETY: as the caller promises; host memory, as `check_host` saw. The places are those of the elements.
            unsafe { Strided::<T>::new(lowest.addr(), places.shape(), places.strides()) }.fold(
                Visit::Memory,
                (),
                |(), _| (),
            )?;
        }
        Ok(lowest)
    }
}

impl<'a, T: Element, const N: usize> HostView<'a, T, N> {
    /// The view of some of the elements, or of all under other indices.
    fn over<const M: usize>(&self, raw: RawView<M>) -> HostView<'a, T, M> {
        HostView { raw, access: self.access.clone(), marker: PhantomData }
    }

    /// The extents.
    #[must_use]
    pub fn shape(&self) -> [usize; N] {
        self.raw.shape
    }

    /// The element at `index`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::IndexOutOfBounds`] outside the array; [`ErrorKind::DType`] for a byte that is no `bool`.
    #[inline]
    pub fn read(&self, index: [usize; N]) -> Result<T> {
        let element = self.raw.element::<T>(index)?;
        // SAFETY: the view's memory is live and initialized (contract of `from_info`), `element` lies within it, and
        // `check_host` saw that it is host memory, aligned for `T`: strides count whole elements.
        unsafe { read(element) }
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
        // SAFETY: as in `read`, for `count` elements without gaps.
        unsafe { check_run(first, count)? };
        // SAFETY: live, initialized, aligned, within one object; unwritten for `'a` as the caller promises.
        Ok(unsafe { core::slice::from_raw_parts(first, count) })
    }
}

impl<'a, T: Element, const N: usize> HostViewMut<'a, T, N> {
    /// As [`HostView::over`], where the view is used no more, but for elements that are not in `raw`.
    fn over<const M: usize>(&self, raw: RawView<M>) -> HostViewMut<'a, T, M> {
        HostViewMut { raw, access: self.access.clone(), marker: PhantomData }
    }

    /// The same view, borrowed: for methods that take a view by value.
    #[must_use]
    pub fn as_view_mut(&mut self) -> HostViewMut<'_, T, N> {
        HostViewMut { raw: self.raw, access: self.access.clone(), marker: PhantomData }
    }

    /// The same view for reading.
    #[must_use]
    pub fn as_view(&self) -> HostView<'_, T, N> {
        HostView { raw: self.raw, access: self.access.clone(), marker: PhantomData }
    }

    /// The extents.
    #[must_use]
    pub fn shape(&self) -> [usize; N] {
        self.raw.shape
    }

    /// The element at `index`.
    ///
    /// # Errors
    ///
    /// As [`HostView::read`].
    #[inline]
    pub fn read(&self, index: [usize; N]) -> Result<T> {
        let element = self.raw.element::<T>(index)?;
        // SAFETY: as in `HostView::read`.
        unsafe { read(element) }
    }

    /// Writes the element at `index`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::IndexOutOfBounds`] outside the array.
    #[inline]
    pub fn write(&mut self, index: [usize; N], value: T) -> Result<()> {
        let element = self.raw.element::<T>(index)?;
        // SAFETY: the view's memory is live, writable and unshared among Rust code (contract of `from_info`); `element`
        // lies within it and is aligned, as in `HostView::read`.
        unsafe { element.write(value) };
        Ok(())
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
