//! The parallel loops have the same result as the sequential ones.
#![cfg(not(miri))]

use std::sync::atomic::{AtomicUsize, Ordering};

use interop_core::{CudaArray, ErrorKind, HostVec, SharedBuffer};

use crate::support::arrays::Array;
use crate::support::signed;

/// Enough elements for several pieces, in several layouts: extents, strides, offset of the first element, and memory
/// size.
const LAYOUTS: [([usize; 3], [isize; 3], usize, usize); 6] = [
    ([3, 250, 400], [100_000, 400, 1], 0, 300_000),
    ([3, 250, 400], [1, 3, 750], 0, 300_000),
    ([400, 250, 3], [-750, -3, -1], 299_999, 300_000),
    ([250, 400, 3], [3000, 7, 2], 0, 750_000),
    ([100_000, 1, 3], [3, 9, 1], 0, 300_000),
    ([7, 1, 2], [2, 9, 1], 0, 14),
];

fn array(layout: usize, seed: u32) -> (Array<SharedBuffer>, SharedBuffer) {
    let (shape, strides, first, len) = LAYOUTS[layout];
    let elements: HostVec<u32> =
        (0..).map(|at: u32| at.wrapping_mul(2_654_435_761) ^ seed).take(len).collect();
    let memory = SharedBuffer::new(elements);
    let first = memory.byte_offset(4 * signed::<_, isize>(first)).unwrap();
    (Array::strided(first, &shape, &strides), memory)
}

fn all(memory: SharedBuffer, layout: usize) -> Vec<u32> {
    Array::new(memory, &[LAYOUTS[layout].3]).to_vec().unwrap()
}

#[test]
fn many_threads_do_what_one_does() {
    for layout in 0..LAYOUTS.len() {
        let ((mut one, one_memory), (mut many, many_memory)) = (array(layout, 1), array(layout, 1));
        one.map_inplace(|value: u32| value.rotate_left(3)).unwrap();
        many.par_map_inplace(|value: u32| value.rotate_left(3)).unwrap();
        assert_eq!(one.to_vec::<u32>().unwrap(), many.to_vec::<u32>().unwrap());
        let add = |sum: u64, value: u32| sum + u64::from(value);
        let sum = many.par_fold(|| 0, add, |one, other| one + other).unwrap();
        assert_eq!(one.fold(0, add).unwrap(), sum);
        // The pieces are concatenated in order.
        let push = |mut seen: Vec<u32>, value| {
            seen.push(value);
            seen
        };
        let seen = many.par_fold(Vec::new, push, |one, other| [one, other].concat()).unwrap();
        assert_eq!(one.fold(Vec::new(), push).unwrap(), seen);
        assert_eq!(all(one_memory, layout), all(many_memory, layout), "what lies between is left alone");
    }
}

/// Several threads take part, and an error is returned.
#[test]
fn threads_share_the_work_and_the_errors() {
    let array = Array::new(SharedBuffer::new(HostVec::<u32>::zeroed(1 << 20)), &[1 << 20]);
    let calls = AtomicUsize::new(0);
    let count = || calls.fetch_add(1, Ordering::Relaxed);
    array.par_fold(count, |at, _: u32| at, |one, _| one).unwrap();
    assert_eq!(calls.into_inner(), 32, "pieces");
    let reader = array.view::<u32, 1>().unwrap().host_view().unwrap();
    let mut other = Array::new(array.data.clone(), &[3]);
    assert_eq!(other.par_map_inplace(|one: u32| one).unwrap_err().kind(), ErrorKind::AlreadyBorrowed);
    drop(reader);
    let mut empty = Array::new(Vec::<u32>::new(), &[0]);
    assert_eq!(empty.par_fold(|| 5, |_, _: u32| 6, |one, _| one).unwrap(), 5);
    empty.par_map_inplace(|_: u32| unreachable!()).unwrap();
}

/// A byte that is no `bool`, in any piece.
#[test]
#[expect(unsafe_code, reason = "another library writes by address")]
fn bytes_that_are_no_bool() {
    let mut array = Array::new(HostVec::<bool>::zeroed(100_000), &[100_000]);
    let count = |array: &Array<HostVec<bool>>| {
        array.par_fold(|| 0, |sum, value: bool| sum + usize::from(value), |one, other| one + other)
    };
    array.par_map_inplace(|value: bool| !value).unwrap();
    assert_eq!(count(&array).unwrap(), 100_000);
    let place = std::ptr::with_exposed_provenance_mut::<u8>(array.info().unwrap().address() + 70_000);
    // SAFETY: the byte belongs to memory for sharing, to which there are no references.
    unsafe { place.write(2) };
    assert_eq!(count(&array).unwrap_err().kind(), ErrorKind::DType);
    assert_eq!(array.par_map_inplace(|value: bool| value).unwrap_err().kind(), ErrorKind::DType);
}
