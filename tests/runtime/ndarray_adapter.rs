//! Arrays and views of `ndarray`: exports, imports, and views of foreign memory.
#![expect(unsafe_code, reason = "views over memory are promises that nobody else writes")]

use std::sync::Arc;

use interop_core::adapters::ndarray::NdArray;
use interop_core::protocols::dlpack::{ManagedTensor, Versioned};
use interop_core::storage::Mutability;
use interop_core::{
    CudaArray, DType, Device, Element, ErrorKind, FromArray, HostVec, Import, Refused, SharedBuffer,
};
use ndarray::{
    ArcArray, Array, Array1, Array2, Array3, ArrayD, ArrayView2, Axis, Dimension, IxDyn, array, s,
};

use crate::support::arrays::Array as Strided;
use crate::support::assert_told;

/// Elements that live as long as the program.
static CONSTANTS: [f32; 4] = [0.5; 4];

fn counted<D: Dimension>(shape: impl ndarray::ShapeBuilder<Dim = D>) -> Array<f32, D> {
    let mut next = 0.0;
    Array::from_shape_simple_fn(shape, || {
        next += 1.0;
        next
    })
}

fn tensor<A: Send + 'static>(array: A) -> ManagedTensor<Versioned>
where
    NdArray<A>: CudaArray,
{
    NdArray(array).into_dlpack().unwrap_or_else(|refused| panic!("{}", refused.error))
}

/// Exports and imports an array: the numbers are the same. The export has the array's own address, extents and
/// strides.
fn there_and_back<T: Element + PartialEq + std::fmt::Debug, D: Dimension + 'static>(array: Array<T, D>) {
    let (expected, first) = (array.clone(), array.as_ptr().addr());
    let (shape, strides) = (array.shape().to_vec(), array.strides().to_vec());
    let import = Import::from_dlpack(tensor(array)).unwrap();
    let info = import.info();
    assert_eq!(info.shape(), shape);
    if info.numel() > 0 {
        assert_eq!((info.address(), info.strides()), (first, &strides[..]));
    }
    // A consumer may write bytes that are no `bool`, and the array is ordinary Rust memory.
    let mutability = if T::TYPE.dtype() == DType::BOOL { Mutability::ReadOnly } else { Mutability::Writable };
    assert_eq!((info.dtype(), info.mutability()), (T::TYPE.dtype(), mutability));
    assert_eq!(info.device(), Device::CPU);
    let NdArray(copy) = NdArray::<Array<T, D>>::from_import(import).unwrap();
    assert!(copy.is_standard_layout());
    assert_eq!(copy, expected);
}

/// Each layout that `ndarray` creates.
#[test]
fn owned_arrays_go_out_as_they_are_and_come_back_as_copies() {
    there_and_back(counted((3, 4)));
    there_and_back(counted(ndarray::ShapeBuilder::f((3, 4))));
    there_and_back(counted((2, 3, 4)).permuted_axes([1, 2, 0]));
    there_and_back(counted((4, 6)).slice_move(s![..;-2, 1..;2]));
    let mut flipped = counted((3, 4));
    flipped.invert_axis(Axis(1));
    there_and_back(flipped);
    there_and_back(ndarray::arr0(7_u16));
    there_and_back(Array2::<f64>::zeros((0, 5)));
    there_and_back(counted(IxDyn(&[1, 2, 1, 2, 1, 2, 1])));
    there_and_back(array![true, false, true]);
    there_and_back(Array1::from(vec![1_i64, -1]).slice_move(s![1..]));
}

/// The axes of elements become trailing axes of the export, and parts of the elements again on import.
#[test]
fn elements_with_axes() {
    let points = array![[1.0_f32, 2.0, 3.0], [4.0, 5.0, 6.0]];
    let import =
        Import::from_dlpack(tensor(points.map_axis(Axis(1), |row| [row[0], row[1], row[2]]))).unwrap();
    assert_eq!((import.info().shape(), import.info().dtype()), (&[2, 3][..], DType::F32));
    let NdArray(copy) = NdArray::<Array1<[f32; 3]>>::from_import(import).unwrap();
    assert_eq!(
        copy,
        array![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]].map_axis(Axis(1), |row| [row[0], row[1], row[2]])
    );
}

/// Only the sole owner of the elements may write. An export owns them and returns them once.
#[test]
fn shared_arrays_are_read_only() {
    let mutability = |array: &dyn Fn() -> ManagedTensor<Versioned>| {
        Import::from_dlpack(array()).unwrap().info().mutability()
    };
    let shared = Arc::new(NdArray(counted((2, 2))));
    assert_eq!(mutability(&|| shared.share_dlpack().unwrap()), Mutability::ReadOnly);
    assert_eq!(Arc::strong_count(&shared), 1);
    let handle = ArcArray::from(counted((2, 2)));
    assert_eq!(mutability(&|| tensor(handle.clone())), Mutability::ReadOnly);
    let borrowed = ArrayView2::from_shape((2, 2), &CONSTANTS).unwrap();
    assert_eq!(mutability(&|| tensor(borrowed)), Mutability::ReadOnly);
    let lent = Box::into_raw(Box::new(counted((2, 2))));
    // SAFETY: nothing else uses the array.
    let import = Import::from_dlpack(tensor(unsafe { &mut *lent }.view_mut())).unwrap();
    assert_eq!(import.info().mutability(), Mutability::Writable);
    drop(import);
    // SAFETY: the import has returned the elements.
    let view = Arc::new(NdArray(unsafe { &mut *lent }.view_mut()));
    assert_eq!(mutability(&|| view.share_dlpack().unwrap()), Mutability::ReadOnly);
    drop(view);
    // SAFETY: the pointer comes from the box above, and nothing borrows it any more.
    drop(unsafe { Box::from_raw(lent) });
    // An export lives as long as its import.
    let import = Import::from_dlpack(shared.share_dlpack().unwrap()).unwrap();
    assert_eq!(Arc::strong_count(&shared), 2);
    drop(import);
    assert_eq!(Arc::strong_count(&shared), 1);
}

/// An import that does not match is returned unchanged.
#[test]
fn other_ranks_and_elements_are_refused() {
    let import = Import::from_dlpack(tensor(counted((2, 3)))).unwrap();
    let Refused { value: import, error } = NdArray::<Array3<f32>>::from_import(import).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rank);
    let Refused { value: import, error } = NdArray::<Array2<f64>>::from_import(*import).unwrap_err();
    assert_told(&error, (ErrorKind::DType, "dtype", "float32", "float64"));
    assert_eq!(NdArray::<ArrayD<f32>>::from_import(*import).unwrap(), NdArray(counted((2, 3)).into_dyn()));
}

/// Views over any strides read the right elements and write to them.
#[test]
fn views_lie_over_memory_with_any_strides() {
    let turned = Strided::strided(
        SharedBuffer::new(HostVec::from([1_u32, 2, 3, 4, 5, 6])).byte_offset(20).unwrap(),
        &[2, 3],
        &[-3, -1],
    );
    let host = turned.view::<u32, 2>().unwrap().host_view().unwrap();
    // SAFETY: nothing writes meanwhile.
    let view: ArrayView2<'_, u32> = unsafe { host.as_ndarray() }.unwrap();
    assert_eq!(view, array![[6, 5, 4], [3, 2, 1]]);
    assert_eq!((view.as_ptr().addr(), view.strides()), (turned.info().unwrap().address(), &[-3, -1][..]));

    let repeated = Strided::strided(vec![7_u8, 8], &[3, 2], &[0, 1]);
    let host = repeated.view::<u8, 2>().unwrap().host_view().unwrap();
    // SAFETY: nothing writes meanwhile.
    assert_eq!(unsafe { host.as_ndarray() }.unwrap(), array![[7, 8], [7, 8], [7, 8]]);

    let mut columns = Strided::strided(HostVec::from([0_i16; 6]), &[2, 3], &[1, 2]);
    let host = columns.view_mut::<i16, 2>().unwrap().host_view_mut().unwrap();
    // SAFETY: nothing else reads or writes meanwhile.
    unsafe { host.into_ndarray() }.unwrap().assign(&array![[1, 2, 3], [4, 5, 6]]);
    assert_eq!(columns.data.as_mut_slice().unwrap(), [1, 4, 2, 5, 3, 6]);

    let elements = SharedBuffer::new(HostVec::from([0_i16; 6]));
    let mut turned = Strided::strided(elements.byte_offset(4).unwrap(), &[2, 3], &[3, -1]);
    let host = turned.view_mut::<i16, 2>().unwrap().host_view_mut().unwrap();
    // SAFETY: nothing else reads or writes meanwhile.
    unsafe { host.into_ndarray() }.unwrap().assign(&array![[1, 2, 3], [4, 5, 6]]);
    let all = Strided::new(elements, &[6]);
    assert_eq!(all.to_vec::<i16>().unwrap(), [3, 2, 1, 6, 5, 4]);
}

/// The lifetime of a view is that of the struct's borrow, not that of the view that it was made from.
#[test]
fn views_live_as_long_as_the_struct_is_borrowed() {
    let mut row = Strided::new(HostVec::from([1_u8, 2]), &[2]);
    // SAFETY: nothing writes meanwhile.
    let view = unsafe { row.view::<u8, 1>().unwrap().host_view().unwrap().as_ndarray() }.unwrap();
    assert_eq!(view, array![1, 2]);
    let host = row.view_mut::<u8, 1>().unwrap().host_view_mut().unwrap();
    // SAFETY: nothing else reads or writes meanwhile.
    let mut view = unsafe { host.into_ndarray() }.unwrap();
    view += 1;
    assert_eq!(row.data.as_mut_slice().unwrap(), [2, 3]);
}

/// An array without elements has an empty view, whatever its address is.
#[test]
fn views_without_elements() {
    let mut empty = Strided::strided(Vec::<u64>::new(), &[3, 0], &[isize::MIN, isize::MAX]);
    let host = empty.view::<u64, 2>().unwrap().host_view().unwrap();
    // SAFETY: there are no elements to write.
    let view = unsafe { host.as_ndarray() }.unwrap();
    assert_eq!((view.shape(), view.strides()), (&[3, 0][..], &[0, 0][..]));
    drop(host);
    let host = empty.view_mut::<u64, 2>().unwrap().host_view_mut().unwrap();
    // SAFETY: as above.
    assert_eq!(unsafe { host.into_ndarray() }.unwrap().len(), 0);
}

/// A byte other than 0 and 1 never becomes a `bool`, as in each typed view.
#[test]
fn bytes_that_are_no_bools_are_refused() {
    let mut bytes = HostVec::from([true, true, false, true]);
    let first: *mut bool = bytes.as_mut_slice().unwrap().as_mut_ptr();
    // SAFETY: the byte belongs to the vector, and nothing reads it as a `bool` before it is checked.
    unsafe { first.cast::<u8>().wrapping_add(2).write(2) };
    let array = Strided::strided(bytes, &[2], &[2]);
    let host = array.view::<bool, 1>().unwrap().host_view().unwrap();
    // SAFETY: nothing writes meanwhile.
    let error = unsafe { host.as_ndarray() }.unwrap_err();
    assert_told(&error, (ErrorKind::DType, "data", "the byte 2 in a bool", "0 and 1"));
}

/// Only two bytes are checked for two million million indices.
#[test]
fn a_bool_that_is_repeated_is_looked_at_once() {
    const TIMES: usize = 1 << 40;
    let last = SharedBuffer::new(vec![true, false]).byte_offset(1).unwrap();
    let array = Strided::strided(last, &[TIMES, 2], &[0, -1]);
    let host = array.view::<bool, 2>().unwrap().host_view().unwrap();
    // SAFETY: nothing writes meanwhile.
    let view = unsafe { host.as_ndarray() }.unwrap();
    assert_eq!((view.dim(), view[[TIMES - 1, 0]], view[[TIMES - 1, 1]]), ((TIMES, 2), false, true));
}

/// An empty array whose extents overflow `ndarray`'s product is refused and returned unchanged.
#[test]
fn extents_that_are_too_large_together_are_refused() {
    let huge = [0, 1 << 62, 4];
    let told = (ErrorKind::Overflow, "shape", "[0, 4611686018427387904, 4]", "fits `isize`");
    let array = Strided::new(Vec::<f32>::new(), &huge);
    let host = array.view::<f32, 3>().unwrap().host_view().unwrap();
    // SAFETY: there are no elements to write.
    assert_told(&unsafe { host.as_ndarray() }.unwrap_err(), told);
    drop(host);
    let import = Import::from_dlpack(array.into_dlpack().unwrap()).unwrap();
    let Refused { value: import, error } = NdArray::<Array3<f32>>::from_import(import).unwrap_err();
    assert_told(&error, told);
    assert_eq!(import.info().shape(), huge);
}

/// Other code may borrow the memory between the elements of a view, and an importer could access it.
#[test]
fn views_with_gaps_are_refused() {
    let all = Box::into_raw(Box::new(counted((4, 4))));
    // SAFETY: nothing else uses the array.
    let (left, right) = unsafe { &mut *all }.view_mut().split_at(Axis(1), 2);
    let Refused { value, error } = NdArray(left).into_dlpack().unwrap_err();
    let NdArray(left) = *value;
    assert_told(&error, (ErrorKind::Strides, "strides", "[4, 1] for shape [4, 2]", "`to_owned`"));
    for gaps in [right.view(), right.slice(s![.., 0..1]), left.t(), left.slice(s![..;2, ..])] {
        assert_eq!(NdArray(gaps).info().unwrap_err().kind(), ErrorKind::Strides, "{gaps:?}");
    }
    // One element, one row, no row.
    for none in [right.slice(s![1..2, 1..2]), left.slice(s![3.., ..]), right.slice(s![2..2, ..])] {
        assert_eq!(NdArray(none).info().unwrap().shape(), none.shape());
    }
    // SAFETY: the pointer comes from the box above, and nothing borrows it any more.
    let whole = unsafe { Box::from_raw(all) };
    // Every second element, of all rows and of none.
    assert_eq!(NdArray(whole.slice(s![.., ..;2])).info().unwrap_err().kind(), ErrorKind::Strides);
    assert_eq!(NdArray(whole.slice(s![2..2, ..;2])).info().unwrap().shape(), [0, 2]);
    let turned = whole.slice(s![..;-1, ..]);
    for view in [whole.view(), whole.t(), turned, whole.slice(s![1..3, ..])] {
        assert_eq!(NdArray(view).to_vec::<f32>().unwrap(), view.iter().copied().collect::<Vec<_>>());
    }
    let repeated = whole.row(1);
    let repeated = repeated.broadcast((3, 4)).unwrap();
    assert_eq!(NdArray(repeated).info().unwrap().strides(), [0, 1]);
}
