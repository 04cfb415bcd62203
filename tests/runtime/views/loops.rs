//! Loops over all elements, compared with an element-by-element walk: each method, many layouts, elements of several
//! sizes.
#![expect(unsafe_code, reason = "a storage implements `Storage`")]

use std::fmt::Debug;

use interop_core::storage::MemoryRegion;
use interop_core::view::ReadOnlyCell;
use interop_core::{CudaArray, Element, ErrorKind, FromArray, HostVec, SharedBuffer, Storage};
use proptest::prelude::*;

use crate::support::arrays::{Array, Fortran};
use crate::support::brute_force::{offsets, offsets_in_f_order, settings};
use crate::support::{assert_told, signed};

/// A struct with padding between its fields, which is never written.
#[derive(Clone, Copy, Debug, Element)]
#[repr(C)]
struct Padded {
    tag: u8,
    value: u32,
}

impl PartialEq for Padded {
    fn eq(&self, other: &Self) -> bool {
        (self.tag, self.value) == (other.tag, other.value)
    }
}

/// The layout of some elements in memory.
#[derive(Clone, Debug)]
struct Place {
    shape: Vec<usize>,
    strides: Vec<isize>,
    /// The distance in bytes from an aligned address.
    shift: usize,
}

impl Place {
    /// The places of the elements in row-major order, relative to the lowest, and the number of places.
    fn places(&self) -> (Vec<usize>, usize) {
        let all = offsets(&self.shape, &self.strides);
        let low = all.iter().min().copied().unwrap_or(0);
        let places: Vec<usize> = all.iter().map(|offset| usize::try_from(offset - low).unwrap()).collect();
        let count = places.iter().max().map_or(0, |most| most + 1);
        (places, count)
    }

    /// An array with this layout over `elements`, one for each place; and the same memory as a one-dimensional array.
    fn array<T: Element>(&self, elements: &[T]) -> (Array<SharedBuffer>, Array<SharedBuffer>) {
        let whole = SharedBuffer::new(elements.iter().chain(&elements[..1]).copied().collect::<HostVec<T>>());
        // Parts of structs must begin at an element.
        let whole = whole.byte_offset(signed(self.shift % size_of::<T>())).unwrap_or(whole);
        let mut list = Array::new(whole.clone(), &[elements.len()]);
        list.copy_from_slice(elements).unwrap();
        let low = offsets(&self.shape, &self.strides).into_iter().min().unwrap_or(0);
        let first = signed::<i128, isize>(-low) * signed::<usize, isize>(size_of::<T>());
        (Array::strided(whole.byte_offset(first).unwrap(), &self.shape, &self.strides), list)
    }
}

/// Strides of an array whose indices do not share elements: axes in any order, forwards or backwards, with gaps
/// between them.
fn apart(shape: &[usize], order: &[usize], gaps: &[usize], backwards: &[bool]) -> Vec<isize> {
    let mut axes: Vec<usize> = (0..shape.len()).collect();
    axes.sort_by_key(|axis| order[*axis]);
    let (mut strides, mut room) = (vec![0; shape.len()], 1);
    for axis in axes {
        let stride = room * gaps[axis];
        strides[axis] = if backwards[axis] { -signed::<usize, isize>(stride) } else { signed(stride) };
        room = stride * shape[axis].max(1);
    }
    strides
}

/// A layout to write to, and one of the same shape to read from, whose elements may repeat.
fn places() -> impl Strategy<Value = [Place; 2]> {
    let small =
        prop::collection::vec(0..if cfg!(miri) { 3_usize } else { 4 }, 0..if cfg!(miri) { 4 } else { 5 });
    // Long enough for tiles, chunks and vector instructions.
    let wide = prop::collection::vec(1..if cfg!(miri) { 5_usize } else { 40 }, 2..3);
    prop_oneof![small, wide].prop_flat_map(|shape| {
        let ndim = shape.len();
        let lists = (
            prop::collection::vec(0_usize..100, ndim),
            prop::collection::vec(prop_oneof![3 => Just(1_usize), 1 => 2_usize..4], ndim),
            prop::collection::vec(any::<bool>(), ndim),
        );
        let read = prop::collection::vec(-12_isize..13, ndim);
        (Just(shape), lists, read, [0_usize..3, 0..16]).prop_map(
            |(shape, (order, gaps, backwards), read, shifts)| {
                let strides = [apart(&shape, &order, &gaps, &backwards), read];
                let mut places = strides.into_iter().zip(shifts);
                [(); 2].map(|()| {
                    let (strides, shift) = places.next().unwrap();
                    Place { shape: shape.clone(), strides, shift }
                })
            },
        )
    })
}

fn check_iter<T: Element + PartialEq + Debug, const N: usize>(array: &impl CudaArray, values: &[T]) {
    // An array that is not aligned has no host view.
    if let Ok(view) = array.view::<T, N>().unwrap().host_view() {
        assert!(view.iter().eq(values.iter().copied()), "row-major order");
    }
}

/// Compares each method with the walk. `make` creates elements, and `mix` combines two of them.
fn compare<T: Element + PartialEq + Debug>(
    [to, from]: &[Place; 2],
    make: impl Fn(usize) -> T,
    mix: impl Fn(T, T) -> T,
) {
    let ((to_at, to_len), (from_at, from_len)) = (to.places(), from.places());
    let elements = |seed: usize, len: usize| -> Vec<T> { (0..len).map(|at| make(seed + at)).collect() };
    let (old, source) = (elements(7, to_len.max(1)), elements(100, from_len.max(1)));
    let ((mut target, list), (other, _)) = (to.array(&old), from.array(&source));
    let written = |expected: &[T]| assert_eq!(list.to_vec::<T>().unwrap(), expected, "{to:?} {from:?}");

    let values: Vec<T> = from_at.iter().map(|at| source[*at]).collect();
    assert_eq!(other.to_vec::<T>().unwrap(), values);
    match other.info().unwrap().shape().len() - T::TYPE.axes().len() {
        0 => check_iter::<T, 0>(&other, &values),
        1 => check_iter::<T, 1>(&other, &values),
        2 => check_iter::<T, 2>(&other, &values),
        _ => {}
    }
    // In address order: no element of the target repeats, so the order is defined.
    let mut sorted = to_at.clone();
    sorted.sort_unstable();
    let by_address: Vec<T> = sorted.iter().map(|at| old[*at]).collect();
    let push = |mut seen: Vec<T>, value| {
        seen.push(value);
        seen
    };
    assert_eq!(target.fold(Vec::new(), push).unwrap(), by_address);
    let mut seen = Vec::new();
    target
        .for_each_chunk(|chunk: &[ReadOnlyCell<T>]| seen.extend(chunk.iter().map(ReadOnlyCell::get)))
        .unwrap();
    assert_eq!(seen, by_address);

    let mut expected = old.clone();
    target.map_inplace(|value: T| mix(value, make(1))).unwrap();
    for at in &to_at {
        expected[*at] = mix(expected[*at], make(1));
    }
    written(&expected);
    target.zip_map_inplace(&other, &mix).unwrap();
    to_at.iter().zip(&values).for_each(|(at, value)| expected[*at] = mix(expected[*at], *value));
    written(&expected);
    target.copy_from_slice(&values).unwrap();
    to_at.iter().zip(&values).for_each(|(at, value)| expected[*at] = *value);
    written(&expected);
    target.fill(make(5)).unwrap();
    for at in &to_at {
        expected[*at] = make(5);
    }
    written(&expected);
}

#[expect(clippy::cast_possible_truncation, reason = "elements wrap around")]
fn byte(at: usize) -> u8 {
    at as u8
}

proptest! {
    #![proptest_config(ProptestConfig { cases: settings().cases / 4 + 1, ..settings() })]

    #[test]
    fn integers(places in places()) {
        compare(&places, byte, |one, two| one.wrapping_mul(3).wrapping_add(two));
        compare(&places, |at| i64::from(byte(at)) - 50, |one, two| one.wrapping_mul(3).wrapping_add(two));
    }

    #[test]
    fn floats(places in places()) {
        compare(&places, |at| f32::from(byte(at)), |one, two| one * 0.5 + two);
    }

    #[test]
    fn bools(places in places()) {
        compare(&places, |at| at % 3 == 0, |one, two| one ^ two);
    }

    #[test]
    fn lists_and_structs(places in places()) {
        compare(&places, |at| [byte(at), 2, 3], |one, two| [one[1], two[0], one[2] ^ two[2]]);
        let padded = |at| Padded { tag: byte(at), value: u32::from(byte(at)) << 9 };
        compare(&places, padded, |one, two| Padded { tag: two.tag, value: one.value ^ two.value });
    }

    /// Each type costs a second of the compiler, so these are in the release build only.
    #[cfg(not(debug_assertions))]
    #[test]
    fn elements_of_other_sizes(places in places()) {
        compare(&places, |at| u16::from(byte(at)) * 7, |one, two| one.wrapping_mul(3).wrapping_add(two));
        compare(&places, |at| [at % 3 == 0, at % 5 == 0, true], |one, two| [one[1], two[0], one[2]]);
        compare(&places, |at| [u32::from(byte(at)), 2, 3], |one, two| [one[1], two[0], one[2] ^ two[2]]);
        compare(&places, |at| [u64::from(byte(at)), 9], |one, two| [one[1], two[0]]);
        compare(&places, |at| [byte(at); 5], |one, two| [one[1], two[0], one[2] ^ two[2], 4, 5]);
    }

    /// Copies into the other memory order, which go tile by tile.
    #[test]
    fn copies_into_f_order(rows in 0..if cfg!(miri) { 5_usize } else { 700 }, columns in 0_usize..40) {
        let all: Vec<u16> = (0..).take(rows * columns).collect();
        let array = Array::new(HostVec::from(&all[..]), &[rows, columns]);
        let turned = Array::strided(&all[..], &[columns, rows], &[1, signed(columns)]);
        let expected: Vec<u16> = offsets_in_f_order(&[rows, columns], &[signed(columns), 1])
            .into_iter().map(|at| all[usize::try_from(at).unwrap()]).collect();
        prop_assert_eq!(&turned.to_vec::<u16>().unwrap(), &expected);
        let copy: Fortran<Vec<u16>> = Fortran::from_dlpack(array.into_dlpack().unwrap()).unwrap();
        prop_assert_eq!(&copy.data, &expected);
    }
}

/// More than one tile along each axis: one element more than a tile, powers of two, a few long rows, many short ones.
#[test]
fn tiles_have_all_elements() {
    fn case<T: Element + PartialEq + Debug>([rows, columns]: [usize; 2], make: impl Fn(usize) -> T) {
        let all: Vec<T> = (0..rows * columns).map(make).collect();
        let array = Array::strided(all.clone(), &[columns, rows], &[1, signed(columns)]);
        let turned = (0..columns).flat_map(|column| all.iter().skip(column).step_by(columns).copied());
        let turned: Vec<T> = turned.collect();
        assert_eq!(array.to_vec::<T>().unwrap(), turned, "{rows} x {columns}");
        let mut target = Array::new(HostVec::from(&turned[..]), &[columns, rows]);
        target.fill(turned[0]).unwrap();
        target.zip_map_inplace(&array, |_: T, other: T| other).unwrap();
        assert_eq!(target.data.as_mut_slice().unwrap(), turned, "{rows} x {columns}");
    }
    let shapes = [[129, 257], [513, 17], [17, 1025], [128, 130], [256, 256], [1030, 3], [3, 5000], [9, 2]];
    for shape in if cfg!(miri) { &shapes[7..] } else { &shapes[..] } {
        case(*shape, byte);
        case(*shape, |at| u32::try_from(at).unwrap());
        case(*shape, |at| [byte(at), 1, 2]);
    }
}

/// Contiguous rows are borrowed in place, and other rows are gathered; both come in address order.
#[test]
fn chunks_are_long() {
    let all: Vec<u32> = (0..12_000).collect();
    for (shape, strides, chunks) in [
        ([2, 6000], [6000, 1], vec![12_000]),
        ([2, 5990], [6000, 1], vec![5990, 5990]),
        ([4, 1000], [3000, 1], vec![2000, 2000]),
    ] {
        let array = Array::strided(all.clone(), &shape, &strides);
        let (mut lengths, mut seen) = (Vec::new(), Vec::new());
        array
            .for_each_chunk(|chunk: &[ReadOnlyCell<u32>]| {
                lengths.push(chunk.len());
                seen.extend(chunk.iter().map(ReadOnlyCell::get));
            })
            .unwrap();
        assert_eq!((lengths, seen), (chunks, array.to_vec().unwrap()));
    }
}

/// Arrays of other shapes and slices of other lengths are refused, and nothing is written.
#[test]
fn other_shapes_are_refused() {
    let mut array = Array::new(vec![0_u8; 6], &[2, 3]);
    let other = Array::new(vec![1_u8; 6], &[3, 2]);
    let told = (ErrorKind::Shape, "shape", "[3, 2]", "[2, 3], the shape of the other array");
    assert_told(&array.zip_map_inplace(&other, |_: u8, other: u8| other).unwrap_err(), told);
    let told = (ErrorKind::Shape, "slice", "5 elements", "a slice of 6");
    assert_told(&array.copy_from_slice(&[1_u8; 5]).unwrap_err(), told);
    assert_eq!(array.data, [0; 6]);
}

/// A target that shares memory with its source is refused.
#[test]
fn overlapping_targets_are_refused() {
    let memory = SharedBuffer::new(HostVec::<u16>::zeroed(10));
    let from = Array::new(memory.clone(), &[8]);
    let mut to = Array::new(memory.byte_offset(4).unwrap(), &[8]);
    assert_eq!(
        to.zip_map_inplace(&from, |_: u16, other: u16| other).unwrap_err().kind(),
        ErrorKind::AlreadyBorrowed
    );
    let _from = from.view::<u16, 1>().unwrap().host_view().unwrap();
    assert_eq!(
        to.view_mut::<u16, 1>().unwrap().host_view_mut().unwrap_err().kind(),
        ErrorKind::AlreadyBorrowed
    );
}

/// A byte that is no `bool` is found at any position. The elements before it were visited, and those after it were
/// not.
#[test]
fn bytes_that_are_no_bool() {
    for (len, bad) in [(1, 0), (100, 63), (5000, 0), (5000, 4095), (5000, 4096), (9000, 8999)] {
        if cfg!(miri) && len > 100 {
            continue;
        }
        let mut bytes = vec![1_u8; 2 * len];
        bytes[2 * bad] = 7;
        for step in [1_isize, 2] {
            let bytes = if step == 1 { bytes.iter().copied().step_by(2).collect() } else { bytes.clone() };
            let (mut array, list) = flags(bytes.into_iter().collect(), len, step);
            let told = (ErrorKind::DType, "data", "the byte 7 in a bool", "0 and 1");
            let mut seen = 0;
            assert_told(&array.fold((), |(), _: bool| seen += 1).unwrap_err(), told);
            assert_eq!(seen, bad);
            assert_told(&array.to_vec::<bool>().unwrap_err(), told);
            assert_told(&array.for_each_chunk(|_: &[ReadOnlyCell<bool>]| ()).unwrap_err(), told);
            let other = Array::new(vec![true; len], &[len]);
            assert_told(&array.zip_map_inplace(&other, |one: bool, two: bool| one ^ two).unwrap_err(), told);
            let left = list.to_vec::<u8>().unwrap().into_iter().step_by(step.unsigned_abs());
            assert_eq!(left.take_while(|byte| *byte == 0).count(), bad);
        }
    }
}

/// A list that contains a byte that is no `bool` is the first that is not visited.
#[test]
fn lists_that_are_no_bools() {
    let mut bytes = vec![1_u8; 4 * 50];
    bytes[4 * 30 + 2] = 9;
    let bytes = SharedBuffer::new(HostVec::from(bytes));
    let lists = Array::new(Flags(bytes), &[50, 4]);
    let mut seen = 0;
    let error = lists.fold((), |(), _: [bool; 4]| seen += 1).unwrap_err();
    assert_told(&error, (ErrorKind::DType, "data", "the byte 9 in a bool", "0 and 1"));
    assert_eq!(seen, 30);
}

/// The same bytes as an array of `bool` and as bytes.
fn flags(bytes: HostVec<u8>, len: usize, step: isize) -> (Array<Flags>, Array<SharedBuffer>) {
    let bytes = SharedBuffer::new(bytes);
    let count = bytes.memory().unwrap().range.len();
    (Array::strided(Flags(bytes.clone()), &[len], &[step]), Array::new(bytes, &[count]))
}

/// Bytes that are described as `bool`.
#[derive(Debug)]
struct Flags(SharedBuffer);

// SAFETY: forwards to the inner storage. The rules allow any byte for a foreign `bool`.
unsafe impl Storage for Flags {
    fn memory(&self) -> interop_core::Result<MemoryRegion> {
        Ok(MemoryRegion { element: bool::TYPE, ..self.0.memory()? })
    }
}
