//! Elements as cells, rows of cells and iterators, which are sound even if other code writes meanwhile.

use std::cell::Cell;
use std::sync::Arc;

use interop_core::view::ReadOnlyCell;
use interop_core::{CudaArray, ErrorKind, HostVec, Lease, SharedBuffer};
use ndarray::{Array2, Array3, Axis};
use proptest::prelude::*;

use crate::support::arrays::Array;
use crate::support::brute_force::settings;
use crate::support::{assert_told, signed};

fn values(cells: &[ReadOnlyCell<u16>]) -> Vec<u16> {
    cells.iter().map(ReadOnlyCell::get).collect()
}

/// A contiguous view of any storage is one slice of cells.
#[test]
fn contiguous_views_are_cells() {
    let list = Array::new(vec![1_u16, 2, 3, 4, 5, 6], &[2, 3]);
    let view = list.view::<u16, 2>().unwrap().host_view().unwrap();
    assert_eq!(values(view.as_cells().unwrap()), [1, 2, 3, 4, 5, 6]);
    assert_eq!(format!("{:?}", view.as_cells().unwrap()[1]), "ReadOnlyCell(2)");
    let told = (ErrorKind::Strides, "strides[0]", "1 (strides [1, 3])", "C-contiguous");
    let turned = Array::strided(list.data.clone(), &[3, 2], &[1, 3]);
    assert_told(&turned.view::<u16, 2>().unwrap().host_view().unwrap().as_cells().unwrap_err(), told);

    let mut host = Array::new(HostVec::from([1_u16, 2, 3]), &[3]);
    let mut view = host.view_mut::<u16, 1>().unwrap().host_view_mut().unwrap();
    let cells = view.as_cells().unwrap();
    cells[0].set(cells[1].get() + cells[2].get());
    assert_eq!(view.read([0]).unwrap(), 5);
    drop(view);
    assert_eq!(host.to_vec::<u16>().unwrap(), [5, 2, 3]);

    let scalar = Array::new(vec![7_u16], &[]);
    assert_eq!(values(scalar.view::<u16, 0>().unwrap().host_view().unwrap().as_cells().unwrap()), [7]);
    let empty = Array::strided(Vec::<u16>::new(), &[3, 0], &[9, 7]);
    assert!(empty.view::<u16, 2>().unwrap().host_view().unwrap().as_cells().unwrap().is_empty());
}

fn case<S>(data: S)
where
    Array<S>: CudaArray,
{
    let array = Array::new(data, &[3]);
    let view = array.view::<u16, 1>().unwrap().host_view().unwrap();
    assert_eq!(values(view.as_cells().unwrap()), [1, 2, 3]);
    assert_eq!(view.rows().unwrap().map(values).collect::<Vec<_>>(), [[1, 2, 3]]);
}

/// For each storage, also one with read-only memory.
#[test]
fn every_storage_has_cells() {
    case(vec![1_u16, 2, 3]);
    case(vec![1_u16, 2, 3].into_boxed_slice());
    case(Arc::<[u16]>::from([1, 2, 3]));
    case(Arc::new(vec![1_u16, 2, 3]));
    case(HostVec::from([1_u16, 2, 3]));
}

/// Under Stacked Borrows there can be no cells over a slice that is borrowed for reading, not even read-only cells.
#[test]
#[cfg_attr(miri, ignore = "`cargo xtask sanitize miri` runs it under Tree Borrows")]
fn borrowed_slices_have_cells() {
    case(Lease::from_owner(vec![1_u16, 2, 3]));
    case(&[1_u16, 2, 3][..]);
}

/// Writes by other code are visible at the next read.
#[test]
#[expect(unsafe_code, reason = "another library writes by address")]
fn cells_show_what_others_write() {
    let list = Array::new(HostVec::from([1_u16, 2, 3]), &[3]);
    let view = list.view::<u16, 1>().unwrap().host_view().unwrap();
    let cells = view.as_cells().unwrap();
    let before = cells[1].get();
    let place = std::ptr::with_exposed_provenance_mut::<u16>(list.info().unwrap().address() + 2);
    // SAFETY: the element belongs to memory for sharing, to which there are only cells.
    unsafe { place.write(20) };
    assert_eq!((before, cells[1].get()), (2, 20));
}

/// Other code may change a `bool` after it was checked, so there are no cells of `bool`.
#[test]
fn bools_are_no_cells() {
    let mut flags = Array::new(HostVec::from([[true, false], [true, true]]), &[2]);
    let told = |found| (ErrorKind::DType, "dtype", found, "without invalid bit patterns");
    let view = flags.view::<bool, 2>().unwrap().host_view().unwrap();
    assert_told(&view.as_cells().unwrap_err(), told("bool"));
    assert_told(&view.rows().unwrap_err(), told("bool"));
    assert_eq!(view.iter().collect::<Vec<_>>(), [true, false, true, true]);
    assert_told(&view.as_ndarray_cells::<ndarray::Ix2>().unwrap_err(), told("bool"));
    drop(view);
    let mut view = flags.view_mut::<[bool; 2], 1>().unwrap().host_view_mut().unwrap();
    assert_told(&view.as_cells().unwrap_err(), told("bool with trailing axes [2]"));
    assert_told(&view.rows().unwrap_err(), told("bool with trailing axes [2]"));
    assert_told(&view.as_ndarray_cells::<ndarray::Ix1>().unwrap_err(), told("bool with trailing axes [2]"));
}

/// For a `bool` byte other than 0 and 1 an iterator cannot return an error. It yields `true`, as C does.
#[test]
#[expect(unsafe_code, reason = "another library writes by address")]
fn bytes_that_are_no_bool_are_true() {
    let list = Array::new(HostVec::from([[true, false], [false, true]]), &[2]);
    let place = std::ptr::with_exposed_provenance_mut::<u8>(list.info().unwrap().address() + 1);
    // SAFETY: the byte belongs to memory for sharing, to which there are no references.
    unsafe { place.write(2) };
    let view = list.view::<[bool; 2], 1>().unwrap().host_view().unwrap();
    assert_eq!(view.iter().collect::<Vec<_>>(), [[true, true], [false, true]]);
    let mut count = 0;
    for [_, flag] in &view {
        count += u8::from(flag);
    }
    assert_eq!((count, view.read([0]).unwrap_err().kind()), (2, ErrorKind::DType));
}

/// Rows with gaps between them, in reverse, and of an array with three axes.
#[test]
fn rows_are_slices() {
    let memory = SharedBuffer::new((0_u16..12).collect::<HostVec<_>>());
    let padded = Array::strided(memory.byte_offset(8).unwrap(), &[2, 3], &[-4, 1]);
    let view = padded.view::<u16, 2>().unwrap().host_view().unwrap();
    let rows = view.rows().unwrap();
    assert_eq!(rows.len(), 2);
    assert_eq!(rows.map(values).collect::<Vec<_>>(), [[4, 5, 6], [0, 1, 2]]);
    let told = (ErrorKind::Strides, "strides", "-4 along axis 1", "1, for contiguous elements in a row");
    let turned = Array::strided(memory.byte_offset(8).unwrap(), &[3, 2], &[1, -4]);
    assert_told(&turned.view::<u16, 2>().unwrap().host_view().unwrap().rows().unwrap_err(), told);
    drop(view);

    let mut cube = Array::strided(memory.clone(), &[2, 3, 2], &[6, 2, 1]);
    let mut view = cube.view_mut::<u16, 3>().unwrap().host_view_mut().unwrap();
    let last = |row: &[Cell<u16>]| row[1].get();
    assert_eq!(view.rows().unwrap().map(last).collect::<Vec<_>>(), [1, 3, 5, 7, 9, 11]);
    for row in view.rows().unwrap() {
        row[0].swap(&row[1]);
    }
    drop(view);
    assert_eq!(Array::new(memory, &[12]).to_vec::<u16>().unwrap(), [1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10]);
    // Rows of one element, whose stride has no meaning; rows without elements; no rows; no axes.
    let column = Array::strided(vec![1_u16, 2, 3], &[2, 1], &[2, 9]);
    let view = column.view::<u16, 2>().unwrap().host_view().unwrap();
    assert_eq!(view.rows().unwrap().map(values).collect::<Vec<_>>(), [[1], [3]]);
    let empty = Array::strided(Vec::<u16>::new(), &[3, 0], &[9, 7]);
    let view = empty.view::<u16, 2>().unwrap().host_view().unwrap();
    assert_eq!(view.rows().unwrap().map(<[_]>::len).collect::<Vec<_>>(), [0, 0, 0]);
    let none = Array::strided(Vec::<u16>::new(), &[0, 3], &[7, 9]);
    assert_eq!(none.view::<u16, 2>().unwrap().host_view().unwrap().rows().unwrap().len(), 0);
    let scalar = Array::new(vec![7_u16], &[]);
    let told = (ErrorKind::Rank, "shape", "0 axes", "1 axis or more");
    assert_told(&scalar.view::<u16, 0>().unwrap().host_view().unwrap().rows().unwrap_err(), told);
}

/// Compares parts of a view with those of `ndarray`.
fn compare(view: &interop_core::HostView<'_, u16, 3>, model: &ndarray::ArrayView3<'_, u16>) {
    let elements: Vec<u16> = model.iter().copied().collect();
    assert_eq!(view.shape(), [0, 1, 2].map(|axis| model.shape()[axis]));
    let iter = view.iter();
    assert_eq!(iter.len(), elements.len());
    assert_eq!(iter.fold(Vec::new(), |seen, value| [seen, vec![value]].concat()), elements, "all at once");
    let mut iter = view.iter();
    let some: Vec<u16> = iter.by_ref().take(elements.len() / 2).collect();
    assert_eq!(iter.len(), elements.len() - some.len());
    assert_eq!([some, iter.collect()].concat(), elements, "one by one");
    for (index, value) in model.indexed_iter() {
        assert_eq!(view.read(index.into()).unwrap(), *value);
    }
    let cells = view.as_ndarray_cells::<ndarray::Ix3>().unwrap();
    assert_eq!(cells.map(ReadOnlyCell::get), model);
    if let Ok(rows) = view.rows() {
        let expected: Vec<Vec<u16>> = model.lanes(Axis(2)).into_iter().map(|lane| lane.to_vec()).collect();
        assert_eq!(rows.map(values).collect::<Vec<_>>(), expected);
    } else {
        assert!(model.len_of(Axis(2)) > 1 && model.stride_of(Axis(2)) != 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: settings().cases / 4 + 1, ..settings() })]

    #[test]
    fn views_are_those_of_ndarray(
        shape in prop::array::uniform3(0_usize..5),
        cut in 0_usize..5,
    ) {
        let count = signed(shape.iter().product::<usize>());
        let model = Array3::from_shape_vec(shape, (0_u16..count).collect()).unwrap();
        let memory = SharedBuffer::new((0_u16..count).collect::<HostVec<_>>());
        let mut parts = vec![model.view(), model.t()];
        let (head, tail) = model.view().split_at(Axis(0), cut.min(shape[0]));
        parts.extend([head, tail]);
        for part in parts {
            let first = if part.is_empty() { 0 } else { signed(2 * usize::from(*part.first().unwrap())) };
            let first = memory.byte_offset(first).unwrap();
            let array = Array::strided(first, part.shape(), part.strides());
            compare(&array.view::<u16, 3>().unwrap().host_view().unwrap(), &part);
        }
    }
}

/// All ways to write to a view reach its elements, and it keeps the memory borrowed.
#[test]
fn cells_are_written() {
    let memory = SharedBuffer::new(HostVec::<u16>::zeroed(12));
    let mut array = Array::new(memory.clone(), &[3, 4]);
    let mut view = array.view_mut::<u16, 2>().unwrap().host_view_mut().unwrap();
    view.as_cells().unwrap().iter().for_each(|cell| cell.set(9));
    view.write([0, 3], 4).unwrap();
    view.rows().unwrap().for_each(|row| row[1].set(7));
    let cells = view.as_ndarray_cells::<ndarray::Ix2>().unwrap();
    cells.column(0).iter().for_each(|cell| cell.set(2));
    let expected: Array2<u16> = ndarray::array![[2, 7, 9, 4], [2, 7, 9, 9], [2, 7, 9, 9]];
    assert_eq!(cells.map(Cell::get), expected);
    let other = Array::new(memory, &[12]);
    assert_eq!(other.to_vec::<u16>().unwrap_err().kind(), ErrorKind::AlreadyBorrowed);
    drop(view);
    assert_eq!(other.to_vec::<u16>().unwrap(), expected.into_raw_vec_and_offset().0);
}
