//! `ndarray` 0.17: exports of its arrays and views, imports into arrays, and views of host memory.
//!
//! An array of `ndarray` has its own shape and strides, so [`NdArray`] replaces a derived struct:
//!
//! ```
//! use interop_core::adapters::ndarray::NdArray;
//! use interop_core::{CudaArray, FromArray};
//! use ndarray::{Array2, array};
//!
//! let columns = array![[1.0_f32, 2.0, 3.0], [4.0, 5.0, 6.0]].reversed_axes();
//! let tensor = NdArray(columns).into_dlpack()?;
//! let NdArray(copy) = NdArray::<Array2<f32>>::from_dlpack(tensor)?;
//! assert_eq!(copy, array![[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]);
//! # Ok::<(), interop_core::Error>(())
//! ```
//!
//! With the feature `python`, `import_as::<NdArray<Array2<f32>>>(object)` imports any Python array, and `export`
//! implements `__dlpack__` for an `Arc<NdArray<_>>`.
//!
//! | type in `NdArray` | exports are writable | an import |
//! | --- | --- | --- |
//! | `Array<T, D>` | if they consume it; shared exports are read-only | copies into C order |
//! | `ArcArray<T, D>`, `ArrayView<'static, T, D>` | never | – |
//! | `ArrayViewMut<'static, T, D>` | if they consume it | – |
//!
//! A view with gaps between its elements cannot be exported, because the gaps may be borrowed elsewhere. Copy it with
//! `to_owned`.
//!
//! Your own struct with an array among its fields can forward to [`NdArray`]:
//!
//! ```
//! use interop_core::adapters::ndarray::NdArray;
//! use interop_core::{CudaArray, ArrayInfo};
//! use ndarray::Array2;
//!
//! struct Exposure { pixels: NdArray<Array2<f32>>, seconds: f64 }
//!
//! // SAFETY: the field guarantees all rules, and replacing it needs `&mut self`.
//! unsafe impl CudaArray for Exposure {
//!     fn info(&self) -> interop_core::Result<ArrayInfo> {
//!         self.pixels.info()
//!     }
//! }
//!
//! let exposure = Exposure { pixels: NdArray(Array2::zeros((2, 3)).reversed_axes()), seconds: 0.5 };
//! let tensor = exposure.into_dlpack()?;
//! assert_eq!((tensor.info()?.shape(), tensor.info()?.is_read_only()), (&[3, 2][..], false));
//! # Ok::<(), interop_core::Error>(())
//! ```
//!
//! To use foreign memory in place, import it into a struct with a [`Lease`](crate::Lease). Its host view converts to a
//! view of `ndarray`: [`HostView::as_ndarray`], [`HostViewMut::into_ndarray`].
#![expect(unsafe_code, reason = "implements `CudaArray` for arrays and makes views of raw memory")]

use core::cell::Cell;
use core::ptr;

use ndarray::{
    Array, ArrayBase, ArrayView, ArrayViewMut, Axis, Dimension, IntoDimension, IxDyn, OwnedArcRepr,
    OwnedRepr, RawData, ShapeBuilder, StrideShape, ViewRepr,
};

use crate::array::device::Device;
use crate::array::dims::Dims;
use crate::array::element::Element;
use crate::array::layout::{Layout, product};
use crate::array::mutability::Mutability;
use crate::derive::cuda_array::CudaArray;
use crate::derive::fields::axes::ShapeField;
use crate::derive::from_array::FromArray;
use crate::error::{Error, ErrorKind, Result, text};
use crate::memory::extraction::{DataField, Extraction, FromImport, Requirements};
use crate::memory::host::cells::{ReadOnlyCell, check_any_bits};
use crate::memory::host::strided::Strided;
use crate::memory::host::view::{HostView, HostViewMut};
use crate::memory::raw_view::RawView;
use crate::memory::storage::{InfoBuilder, MemoryRegion};
use crate::order::array_info::ArrayInfo;
use crate::order::memory_state::StorageState;
use crate::order::placement::Placement;

/// A wrapper around an array or view of `ndarray`, for exports, and for imports into an array.
///
/// It separates methods of both libraries that have the same name, such as [`view`](CudaArray::view).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NdArray<A>(pub A);

/// The description of an array, which owns the gaps between its elements, or of a view, which must have none.
fn info_of<T: Element>(
    first: *const T,
    shape: &[usize],
    strides: &[isize],
    (mutability, is_view): (Mutability, bool),
) -> Result<ArrayInfo> {
    let address = first.expose_provenance();
    let layout = Layout::strided(shape, strides)?;
    if is_view {
        check_no_gaps(&layout)?;
    }
    let elements = layout.offsets();
    let at = |offset: isize| address.wrapping_add_signed(offset.wrapping_mul(size_of::<T>() as isize));
    let range = at(elements.start)..at(elements.end);
    let memory = MemoryRegion { address, range, element: T::TYPE, device: Device::CPU, mutability };
    let strides = Dims::from(strides);
    let described = InfoBuilder::new(memory, None, true, StorageState::new(Placement::Nothing));
    Dims::from(shape).finish(described.strides(&strides, false))
}

/// Returns an error for gaps between the elements of a view, because an export covers them too.
fn check_no_gaps(layout: &Layout) -> Result<()> {
    if layout.is_empty() || layout.without_repeats().strides().iter().all(|step| *step == 1) {
        return Ok(());
    }
    let found = text!("{:?} for shape {:?}", layout.strides(), layout.shape());
    let allowed = "a view without gaps between its elements, because other code may borrow the gaps; use `to_owned` to copy it";
    Err(Error::new(ErrorKind::Strides, "strides", found, allowed))
}

macro_rules! arrays {
    ($($array:ty => $mutability:expr, $is_view:literal;)*) => {
        $(
            // SAFETY: 1: the elements live as long as the array, and an export needs a `'static` one. The array's own
            // pointer is exposed, with write permission if elements may be written. Borrowed elements have no gaps. 2:
            // the elements are on the heap or borrowed. 3: none is `Mutability::Writable`, and none writes
            // through `&self`. 4: those that are `UniqueOwner` own their elements or borrow them mutably. 5 and 6: it is host
            // memory.
            unsafe impl<T: Element, D: Dimension> CudaArray for NdArray<$array> {
                fn info(&self) -> Result<ArrayInfo> {
                    info_of(self.0.as_ptr(), self.0.shape(), self.0.strides(), ($mutability, $is_view))
                }
            }
        )*
    };
}

arrays! {
    ArrayBase<OwnedRepr<T>, D> => Mutability::UniqueOwner, false;
    ArrayBase<OwnedArcRepr<T>, D> => Mutability::ReadOnly, false;
    ArrayBase<ViewRepr<&T>, D> => Mutability::ReadOnly, true;
    ArrayBase<ViewRepr<&mut T>, D> => Mutability::UniqueOwner, true;
}

impl<T: Element, D: Dimension> FromArray for NdArray<Array<T, D>> {
    const DATA_FIELD: DataField = Vec::<T>::DATA_FIELD;

    unsafe fn assemble(extraction: &mut Extraction<'_>) -> Result<Self> {
        let take_elements = Vec::<T>::open(extraction, Requirements { axes: D::NDIM, order: None });
        let Some(shape) = <Vec<usize> as ShapeField>::take(extraction, "shape") else {
            return extraction.refused();
        };
        check_extents(&shape)?;
        // SAFETY: the storage copies.
        let Some(elements) = (unsafe { take_elements(extraction) }) else { return extraction.refused() };
        let array = Array::from_shape_vec(IxDyn(&shape), elements);
        let array = array.and_then(Array::into_dimensionality);
        Ok(Self(array.unwrap_or_else(|_| unreachable!("extents, rank and number of elements were checked"))))
    }
}

/// Returns an error for extents that `ndarray` cannot represent.
fn check_extents(shape: &[usize]) -> Result<()> {
    if product(shape.iter().copied().filter(|extent| *extent != 0)).is_some() {
        return Ok(());
    }
    let allowed = "extents whose product without zeros fits `isize`, as ndarray requires";
    Err(Error::new(ErrorKind::Overflow, "shape", format_args!("{shape:?}"), allowed))
}

/// The parts of a view of `ndarray`: shape and non-negative strides, the lowest element, and the axes to invert
/// afterwards.
type Parts<T, D> = (StrideShape<D>, *mut T, Vec<Axis>);

/// # Safety
///
/// The elements are live and initialized.
unsafe fn parts<T: Element, const N: usize, D: Dimension>(view: &RawView<N>) -> Result<Parts<T, D>>
where
    [usize; N]: IntoDimension<Dim = D>,
{
    check_extents(&view.shape)?;
    // SAFETY: forwarded to the caller.
    let lowest = unsafe { lowest(view)? };
    let extents = view.shape.into_dimension();
    if view.shape.contains(&0) {
        return Ok((extents.into(), lowest, Vec::new()));
    }
    let inverted = (0..N).filter(|axis| view.strides[*axis] < 0).map(Axis).collect();
    let strides = view.strides.map(isize::unsigned_abs).into_dimension();
    Ok((extents.strides(strides), lowest, inverted))
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
unsafe fn lowest<T: Element, const N: usize>(view: &RawView<N>) -> Result<*mut T> {
    let layout = view.layout();
    if layout.is_empty() {
        return Ok(ptr::dangling_mut());
    }
    let lowest = ptr::with_exposed_provenance_mut::<T>(view.address).wrapping_offset(layout.offsets().start);
    if !T::TYPE.any_bits {
        let once = layout.without_repeats();
        // SAFETY: the elements are live and initialized, as the caller promises, and in host memory, because
        // `check_host` succeeded. `without_repeats` has only memory locations of these elements.
        unsafe { Strided::<T>::new(lowest.addr(), once.shape(), once.strides()) }.fold((), |(), _| ())?;
    }
    Ok(lowest)
}

fn with_inverted<S: RawData, D: Dimension>(mut view: ArrayBase<S, D>, axes: Vec<Axis>) -> ArrayBase<S, D> {
    for axis in axes {
        view.invert_axis(axis);
    }
    view
}

impl<'a, T: Element, const N: usize> HostView<'a, T, N> {
    /// Returns a view of `ndarray`, with any strides, for up to six axes.
    ///
    /// ```
    /// use interop_core::CudaArray;
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(shape = [rows, 2])]
    /// struct Table { #[cuda_array(data)] cells: Vec<f32>, rows: usize }
    ///
    /// let table = Table { cells: vec![1.0, 2.0, 3.0, 4.0], rows: 2 };
    /// let view = table.view::<f32, 2>()?.host_view()?;
    /// // SAFETY: the table is borrowed, and nothing else has its memory.
    /// let view = unsafe { view.as_ndarray()? };
    /// assert_eq!(view.sum_axis(ndarray::Axis(0)), ndarray::array![4.0, 6.0]);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DType`] for bytes that are not a valid `bool`; [`ErrorKind::Overflow`] for an array without
    /// elements whose other extents have too large a product.
    ///
    /// # Safety
    ///
    /// As for [`as_slice`](Self::as_slice): nobody writes to the elements for `'a`.
    pub unsafe fn as_ndarray<D: Dimension>(&self) -> Result<ArrayView<'a, T, D>>
    where
        [usize; N]: IntoDimension<Dim = D>,
    {
        // SAFETY: the view's memory is live and initialized (contract of `from_info`).
        let (shape, lowest, inverted) = unsafe { parts::<T, N, D>(&self.raw)? };
        // SAFETY: the elements are live, initialized, aligned and in one allocation (contract of the view). Nobody
        // writes to them for `'a` (contract of this function). The layout is checked and starts at its lowest element.
        Ok(with_inverted(unsafe { ArrayView::from_shape_ptr(shape, lowest.cast_const()) }, inverted))
    }
}

impl<T: Element, const N: usize> HostView<'_, T, N> {
    /// Returns a view of `ndarray` whose elements are cells. It is safe even if others write to the elements.
    ///
    /// ```
    /// use interop_core::CudaArray;
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(shape = [rows, 2])]
    /// struct Table { #[cuda_array(data)] cells: Vec<f32>, rows: usize }
    ///
    /// let table = Table { cells: vec![1.0, 2.0, 3.0, 4.0], rows: 2 };
    /// let view = table.view::<f32, 2>()?.host_view()?;
    /// let cells = view.as_ndarray_cells()?;
    /// assert_eq!(cells.column(1).map(|cell| cell.get()), ndarray::array![2.0, 4.0]);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`as_ndarray`](Self::as_ndarray); [`ErrorKind::DType`] for `bool`, as [`as_cells`](Self::as_cells).
    pub fn as_ndarray_cells<D: Dimension>(&self) -> Result<ArrayView<'_, ReadOnlyCell<T>, D>>
    where
        [usize; N]: IntoDimension<Dim = D>,
    {
        // SAFETY: the elements are live and initialized while the view is borrowed; a cell is transparent over its
        // element.
        unsafe { cells::<T, _, N, D>(&self.raw) }
    }
}

impl<T: Element, const N: usize> HostViewMut<'_, T, N> {
    /// As [`HostView::as_ndarray_cells`], for reading and writing.
    ///
    /// # Errors
    ///
    /// As [`HostView::as_ndarray_cells`].
    pub fn as_ndarray_cells<D: Dimension>(&mut self) -> Result<ArrayView<'_, Cell<T>, D>>
    where
        [usize; N]: IntoDimension<Dim = D>,
    {
        // SAFETY: as for `HostView`; no other Rust code accesses the writable elements while the view is borrowed.
        unsafe { cells::<T, _, N, D>(&self.raw) }
    }
}

/// # Safety
///
/// The elements are live and initialized for `'c`, and `C` is a cell of `T`.
unsafe fn cells<'c, T: Element, C, const N: usize, D: Dimension>(
    view: &RawView<N>,
) -> Result<ArrayView<'c, C, D>>
where
    [usize; N]: IntoDimension<Dim = D>,
{
    check_any_bits::<T>()?;
    // SAFETY: forwarded to the caller.
    let (shape, lowest, inverted) = unsafe { parts::<T, N, D>(view)? };
    // SAFETY: as in `HostView::as_ndarray`, except that others may write to the elements, which cells permit.
    let view = unsafe { ArrayView::from_shape_ptr(shape, lowest.cast_const().cast::<C>()) };
    Ok(with_inverted(view, inverted))
}

impl<'a, T: Element, const N: usize> HostViewMut<'a, T, N> {
    /// As [`HostView::as_ndarray`], for reading and writing.
    ///
    /// ```
    /// use interop_core::{CudaArray, HostVec};
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(shape = [rows, 2])]
    /// struct Table { #[cuda_array(data)] cells: HostVec<f32>, rows: usize }
    ///
    /// let mut table = Table { cells: HostVec::zeroed(4), rows: 2 };
    /// let view = table.view_mut::<f32, 2>()?.host_view_mut()?;
    /// // SAFETY: the table is borrowed, and was not exported.
    /// let mut view = unsafe { view.into_ndarray()? };
    /// view.row_mut(1).fill(0.5);
    /// assert_eq!(table.to_vec::<f32>()?, [0.0, 0.0, 0.5, 0.5]);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`HostView::as_ndarray`].
    ///
    /// # Safety
    ///
    /// As for [`into_slice`](Self::into_slice): nobody else reads or writes the elements for `'a`.
    pub unsafe fn into_ndarray<D: Dimension>(self) -> Result<ArrayViewMut<'a, T, D>>
    where
        [usize; N]: IntoDimension<Dim = D>,
    {
        // SAFETY: as in `HostView::as_ndarray`.
        let (shape, lowest, inverted) = unsafe { parts::<T, N, D>(&self.raw)? };
        // SAFETY: as in `HostView::as_ndarray`. The elements are writable, no two indices share one (contract of the
        // view), and nobody else accesses them for `'a` (contract of this function).
        Ok(with_inverted(unsafe { ArrayViewMut::from_shape_ptr(shape, lowest) }, inverted))
    }
}
