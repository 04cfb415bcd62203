//! Views that read and write elements of host-accessible memory one at a time. Only unsafe methods return slices of
//! elements.
#![expect(unsafe_code, reason = "reads and writes array elements on the host")]

pub(crate) mod cells;
pub(crate) mod elements;
pub(crate) mod loops;
#[cfg(feature = "rayon")]
pub(crate) mod parallel;
pub(crate) mod strided;

use core::marker::PhantomData;
use core::ptr;
use std::sync::Arc;

use crate::array::element::Element;
use crate::array::layout::order::Order;
use crate::cuda::handover::ArrayWork;
use crate::error::{Cure, Error, ErrorKind, Result, text};
use crate::memory::array_view::{ArrayView, ArrayViewMut, RawView, printed};
use crate::memory::host::cells::{check_readable, check_run, invalid_bool, read_valid};
#[cfg(feature = "ndarray")]
use crate::memory::host::loops::Visit;
#[cfg(feature = "ndarray")]
use crate::memory::host::strided::Strided;
use crate::process::borrow_registry::{Borrow, Elements};

/// A view whose elements host code can read: the memory is host-accessible and aligned, and no work is pending on it.
///
/// Elements are read by value, because another library that shares the memory may write to it between two reads.
/// References are only returned by the unsafe [`as_slice`](Self::as_slice). Rust code that shares the memory through
/// another struct cannot write to it while the view exists.
#[derive(Clone)]
pub struct HostView<'a, T, const N: usize> {
    pub(crate) raw: RawView<N>,
    access: BorrowGuard<'a>,
    marker: PhantomData<&'a T>,
}

/// A view whose elements host code can read and write. [`as_view`](Self::as_view) returns a [`HostView`] of the same
/// elements, which has more methods for reading.
///
/// A leaked view, for example after `mem::forget`, keeps its memory borrowed: the memory of a
/// [`HostVec`](crate::HostVec) until it is freed, imported memory until the program ends.
///
/// ```
/// use interop_core::{CudaArray, HostVec};
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [rows, 2])]
/// struct Table { #[cuda_array(data)] cells: HostVec<f32>, rows: usize }
///
/// let mut table = Table { cells: HostVec::zeroed(8), rows: 4 };
/// let mut view = table.view_mut::<f32, 2>()?.host_view_mut()?;
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
    /// Returns a view for reading on the host. Waits for pending work on pinned or managed memory.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Device`] for memory that the host cannot access.
    /// - [`ErrorKind::Stream`] if work is pending on a stream although the memory is plain CPU memory.
    /// - [`ErrorKind::Alignment`] if the address is not aligned for `T`.
    /// - [`ErrorKind::AlreadyBorrowed`] while Rust code writes to the memory through another struct.
    /// - Any error of [`cuda::stream_synchronize`](crate::cuda::stream_synchronize).
    pub fn host_view(&self) -> Result<HostView<'a, T, N>> {
        check_host::<T, N>(&self.raw)?;
        Ok(HostView { raw: self.raw, access: BorrowGuard::new(self.raw.shared, false)?, marker: PhantomData })
    }
}

impl<'a, T: Element, const N: usize> ArrayViewMut<'a, T, N> {
    /// Returns a view for reading and writing on the host.
    ///
    /// # Errors
    ///
    /// As [`ArrayView::host_view`]; also [`ErrorKind::AlreadyBorrowed`] while Rust code reads the memory through
    /// another struct.
    pub fn host_view_mut(self) -> Result<HostViewMut<'a, T, N>> {
        check_host::<T, N>(&self.raw)?;
        Ok(HostViewMut {
            raw: self.raw,
            access: BorrowGuard::new(self.raw.shared, true)?,
            marker: PhantomData,
        })
    }
}

/// The recorded access to memory that may be shared. The access ends when the last clone is dropped.
///
/// The type has the lifetime of the view's borrow and implements `Drop`, so the compiler extends the borrow to the
/// drop. A writer that comes earlier is a compile error and not a runtime error.
#[derive(Clone)]
struct BorrowGuard<'a> {
    _record: Option<Arc<Borrow>>,
    marker: PhantomData<&'a ()>,
}

impl BorrowGuard<'_> {
    fn new(shared: Option<Elements>, exclusive: bool) -> Result<Self> {
        Ok(Self { _record: Borrow::from_shared(shared, exclusive)?.map(Arc::new), marker: PhantomData })
    }
}

impl Drop for BorrowGuard<'_> {
    fn drop(&mut self) {}
}

fn check_host<T: Element, const N: usize>(raw: &RawView<N>) -> Result<()> {
    check_readable(ArrayWork::new(raw.pending, raw.address, raw.device))?;
    if raw.address % align_of::<T>() != 0 {
        let found = text!("address {:#x}", raw.address);
        let allowed = text!("a multiple of {}, the alignment of the element", align_of::<T>());
        let error = Error::new(ErrorKind::Alignment, "data", found, allowed);
        return Err(error.with_python_hint(Cure::Copy));
    }
    Ok(())
}

impl<const N: usize> RawView<N> {
    /// Returns a pointer to the element at `index`.
    #[inline]
    fn element<T>(&self, index: [usize; N]) -> Result<*mut T> {
        let (mut offset, mut is_inside) = (0_isize, true);
        for (at, (extent, stride)) in index.iter().zip(self.shape.iter().zip(&self.strides)) {
            is_inside &= at < extent;
            // The offset is not used if the index is out of bounds.
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

    /// Returns a pointer to the first element. It dangles without elements.
    fn pointer<T>(&self) -> *mut T {
        if self.shape.contains(&0) {
            ptr::dangling_mut()
        } else {
            ptr::with_exposed_provenance_mut(self.address)
        }
    }

    /// Returns a pointer to the first element, and the number of elements, if the array is contiguous in this order.
    fn run<T>(&self, order: Order) -> Result<(*mut T, usize)> {
        let layout = self.layout();
        let hinted =
            |error: Error| error.with_rust_hint("`iter`, `fold` and `for_each_chunk` take any strides");
        layout.check_contiguous(order).map_err(hinted)?;
        Ok((self.pointer(), layout.numel()))
    }

    /// Returns a pointer to the element with the lowest address.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DType`] if a byte is not a valid `bool`.
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
            // SAFETY: the elements are live and initialized, as the caller promises, and in host memory, because
            // `check_host` succeeded. `places` visits only memory locations of these elements.
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
    /// Returns a pointer to element \[0, …, 0\], for a library that takes a pointer, extents and [`strides`](Self::strides):
    /// BLAS, `faer`, C code. It may be used for reading all elements as long as the view exists. Without elements it must
    /// not be read.
    ///
    /// ```
    /// use interop_core::{CudaArray, HostVec};
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(shape = [rows, columns], order = "F")]
    /// struct Matrix { #[cuda_array(data)] cells: HostVec<f64>, rows: usize, columns: usize }
    ///
    /// let matrix = Matrix { cells: HostVec::from_slice(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), rows: 2, columns: 3 };
    /// let view = matrix.view::<f64, 2>()?.host_view()?;
    /// let ([_, columns], [_, step]) = (view.shape(), view.strides());
    /// // SAFETY: the elements of the last row lie within the array, and nobody writes to it meanwhile.
    /// let last = (0..columns).map(|at| unsafe { view.as_ptr().offset(1 + at as isize * step).read() });
    /// assert_eq!(last.collect::<Vec<f64>>(), [2.0, 4.0, 6.0]);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    #[must_use]
    pub fn as_ptr(&self) -> *const T {
        self.raw.pointer()
    }

    /// Returns the elements as a slice.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Strides`] unless the array is C-contiguous; [`ErrorKind::DType`] if a byte is not a valid `bool`.
    ///
    /// # Safety
    ///
    /// Nothing writes to the elements during `'a`: no other library that shares them, none of its threads, no kernel.
    pub unsafe fn as_slice(&self) -> Result<&'a [T]> {
        let (first, count) = self.raw.run::<T>(Order::C)?;
        // SAFETY: as in `read`, for `count` contiguous elements.
        unsafe { check_run(first, count)? };
        // SAFETY: the elements are live, initialized, aligned and within one object. Nothing writes to them during
        // `'a`, as the caller promises.
        Ok(unsafe { core::slice::from_raw_parts(first, count) })
    }
}

impl<'a, T: Element, const N: usize> HostViewMut<'a, T, N> {
    /// Reborrows the view, for methods that take a view by value.
    #[must_use]
    pub fn as_view_mut(&mut self) -> HostViewMut<'_, T, N> {
        self.over(self.raw)
    }

    /// Returns a read-only view of the same elements.
    #[must_use]
    pub fn as_view(&self) -> HostView<'_, T, N> {
        HostView { raw: self.raw, access: self.access.clone(), marker: PhantomData }
    }

    /// As [`HostView::as_ptr`], for reading and writing. Bytes of `bool` elements must stay 0 or 1.
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.raw.pointer()
    }

    /// Writes the element at `index`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::IndexOutOfBounds`] outside the array.
    #[inline]
    pub fn write(&mut self, index: [usize; N], value: T) -> Result<()> {
        let element = self.raw.element::<T>(index)?;
        // SAFETY: the memory of the view is live, writable and not shared with other Rust code (contract of
        // `from_info`). `element` lies within it and is aligned, as in `HostView::read`.
        unsafe { element.write(value) };
        Ok(())
    }

    /// Returns the elements as a mutable slice.
    ///
    /// # Errors
    ///
    /// As [`HostView::as_slice`].
    ///
    /// # Safety
    ///
    /// Nothing else reads or writes the elements during `'a`: no other library that shares them, none of its threads,
    /// no kernel.
    pub unsafe fn into_slice(self) -> Result<&'a mut [T]> {
        let (first, count) = self.raw.run::<T>(Order::C)?;
        // SAFETY: as in `HostView::as_slice`.
        unsafe { check_run(first, count)? };
        // SAFETY: the elements are live, initialized, aligned and writable. Nothing else uses them during `'a`, as the
        // caller promises.
        Ok(unsafe { core::slice::from_raw_parts_mut(first, count) })
    }
}

impl<const N: usize> RawView<N> {
    /// Returns a view of the same memory with other axes. Its first element is `offset` elements after that of `self`.
    fn with<T, const M: usize>(&self, shape: [usize; M], strides: [isize; M], offset: isize) -> RawView<M> {
        let Self { address, device, pending, uses, shared, .. } = *self;
        let address = if shape.contains(&0) {
            address
        } else {
            address.wrapping_add_signed(offset.wrapping_mul(size_of::<T>() as isize))
        };
        RawView { address, shape, strides, device, pending, uses, shared }
    }

    fn check_axis(axis: usize) -> Result<()> {
        if axis < N {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Rank, "axis", axis, text!("less than {N}, the number of axes")))
    }

    /// Removes an axis and selects one of its indices.
    fn indexed<T, const M: usize>(&self, axis: usize, index: usize) -> Result<RawView<M>> {
        const { assert!(M + 1 == N, "the view of one index has one axis less than the view") };
        Self::check_axis(axis)?;
        if index >= self.shape[axis] {
            let allowed = text!("less than the extent {}", self.shape[axis]);
            return Err(Error::new(
                ErrorKind::IndexOutOfBounds,
                format_args!("index[{axis}]"),
                index,
                allowed,
            ));
        }
        let other = |at: usize| at + usize::from(at >= axis);
        let shape = core::array::from_fn(|at| self.shape[other(at)]);
        let strides = core::array::from_fn(|at| self.strides[other(at)]);
        Ok(self.with::<T, M>(shape, strides, self.strides[axis].wrapping_mul(index as isize)))
    }

    /// Splits the view into the first `at` indices of the first axis and the others.
    pub(crate) fn split<T>(&self, at: usize) -> (Self, Self) {
        assert!(at <= self.shape[0], "{at} is beyond the first axis");
        let (mut head, mut tail) = (self.shape, self.shape);
        head[0] = at;
        tail[0] -= at;
        let offset = self.strides[0].wrapping_mul(at as isize);
        (self.with::<T, N>(head, self.strides, 0), self.with::<T, N>(tail, self.strides, offset))
    }
}

/// The methods of both views. Those that return a part of the view take `$Receiver`.
macro_rules! views {
    ($View:ident, $self:ident: $Receiver:ty) => {
        impl<'a, T: Element, const N: usize> $View<'a, T, N> {
            /// Returns a view of some of the elements, or of all elements under other indices. After the call, the
            /// caller uses a view for writing only for elements that are not in `raw`, or not at all.
            fn over<const M: usize>(&self, raw: RawView<M>) -> $View<'a, T, M> {
                $View { raw, access: self.access.clone(), marker: PhantomData }
            }

            /// The extents.
            #[must_use]
            pub fn shape(&self) -> [usize; N] {
                self.raw.shape
            }

            /// The strides, in elements.
            #[must_use]
            pub fn strides(&self) -> [isize; N] {
                self.raw.strides
            }

            /// Reads the element at `index`.
            ///
            /// # Errors
            ///
            /// [`ErrorKind::IndexOutOfBounds`] outside the array; [`ErrorKind::DType`] for a byte that is not a valid
            /// `bool`.
            #[inline]
            pub fn read(&self, index: [usize; N]) -> Result<T> {
                let element = self.raw.element::<T>(index)?;
                // SAFETY: the memory of the view is live and initialized (contract of `from_info`). `element` lies
                // within it. `check_host` ensured that it is host memory and that the address is aligned for `T`;
                // strides count whole elements.
                unsafe { read_valid(element) }.map_err(invalid_bool)
            }

            /// Returns the view with its axes in reverse order, as NumPy's `.T`.
            #[must_use]
            pub fn t($self: $Receiver) -> Self {
                let mut raw = $self.raw;
                raw.shape.reverse();
                raw.strides.reverse();
                $self.over(raw)
            }

            /// Selects one index of an axis. The result has `M` axes, one less than this view.
            ///
            /// # Errors
            ///
            /// [`ErrorKind::IndexOutOfBounds`] outside the axis; [`ErrorKind::Rank`] if the axis does not exist. Any
            /// other `M` is a compile error.
            pub fn index_axis<const M: usize>(
                $self: $Receiver,
                axis: usize,
                index: usize,
            ) -> Result<$View<'a, T, M>> {
                let raw = $self.raw.indexed::<T, M>(axis, index)?;
                Ok($self.over(raw))
            }

            /// Splits the view in two along the first axis. The parts share no element, so two threads may use them.
            ///
            /// # Panics
            ///
            /// Panics if there is no first axis or if `at` is beyond its extent.
            #[must_use]
            pub fn split_at($self: $Receiver, at: usize) -> (Self, Self) {
                let (head, tail) = $self.raw.split::<T>(at);
                ($self.over(head), $self.over(tail))
            }
        }
    };
}

views!(HostView, self: &Self);

views!(HostViewMut, self: Self);
