//! Slices: only of contiguous memory, in `unsafe` functions.
#![expect(unsafe_code, reason = "slices are promises that nobody else writes")]

use interop_core::{CudaArray, ErrorKind, HostVec, SharedBuffer};

use crate::support::arrays::{Array, Claimed};
use crate::support::assert_told;

/// Bugs 71, 118: contiguous memory that the host can access.
#[test]
fn slices_are_compact() {
    let mut array = Array::new(HostVec::from([1_u32, 2, 3, 4]), &[2, 2]);
    let view = array.view::<u32, 2>().unwrap().host_view().unwrap();
    // SAFETY: nothing writes meanwhile.
    let slice = unsafe { view.as_slice() }.unwrap();
    assert_eq!((slice, slice.as_ptr().addr()), (&[1, 2, 3, 4][..], array.info().unwrap().address()));
    drop(view);
    let view = array.view_mut::<[u32; 2], 1>().unwrap().host_view_mut().unwrap();
    // SAFETY: nothing else reads or writes meanwhile.
    let slice = unsafe { view.into_slice() }.unwrap();
    slice[1] = [30, 40];
    assert_eq!(array.data.as_mut_slice().unwrap(), [1, 2, 30, 40]);
}

/// Other memory is refused with the axis and the stride (bug 97); axes of extent 1 do not matter.
#[test]
fn gaps_are_refused() {
    let refused = |strides: &[isize; 2], place, found| {
        let mut array = Array::strided(vec![0_u8; 12], &[2, 3], strides);
        let told = (ErrorKind::Strides, place, found, "C-contiguous");
        let view = array.view::<u8, 2>().unwrap().host_view().unwrap();
        // SAFETY: nothing writes meanwhile.
        assert_told(&unsafe { view.as_slice() }.unwrap_err(), told);
        drop(view);
        let view = array.view_mut::<u8, 2>().unwrap().host_view_mut().unwrap();
        // SAFETY: nothing else reads or writes meanwhile.
        assert_told(&unsafe { view.into_slice() }.unwrap_err(), told);
    };
    refused(&[1, 2], "strides[0]", "1 (strides [1, 2])");
    refused(&[4, 1], "strides[0]", "4 (strides [4, 1])");
    refused(&[6, 2], "strides[0]", "6 (strides [6, 2])");
    let idle = Array::strided(vec![1_u8, 2, 3], &[1, 3], &[99, 1]);
    let view = idle.view::<u8, 2>().unwrap().host_view().unwrap();
    // SAFETY: nothing writes meanwhile.
    assert_eq!(unsafe { view.as_slice() }.unwrap(), [1, 2, 3]);
    let reversed = Array::strided(SharedBuffer::new(vec![1_u8, 2, 3]).byte_offset(2).unwrap(), &[3], &[-1]);
    let view = reversed.view::<u8, 1>().unwrap().host_view().unwrap();
    // SAFETY: nothing writes meanwhile.
    assert_told(
        &unsafe { view.as_slice() }.unwrap_err(),
        (ErrorKind::Strides, "strides[0]", "-1", "1, which"),
    );
}

/// An array without elements has an empty slice, even without memory.
#[test]
fn empty_slices() {
    let mut array = Array::strided(Vec::<u64>::new(), &[3, 0], &[-7, 5]);
    let view = array.view::<u64, 2>().unwrap().host_view().unwrap();
    // SAFETY: nothing writes meanwhile.
    assert_eq!(unsafe { view.as_slice() }.unwrap(), [0_u64; 0]);
    drop(view);
    let view = array.view_mut::<u64, 2>().unwrap().host_view_mut().unwrap();
    // SAFETY: nothing else reads or writes meanwhile.
    assert_eq!(unsafe { view.into_slice() }.unwrap(), [0_u64; 0]);
    let array = Array::new(Claimed::gpu::<u64>(0, 0), &[0]);
    assert_eq!(array.view::<u64, 1>().unwrap().host_view().unwrap_err().kind(), ErrorKind::Device);
}

/// Bug 99: a slice of `bool` contains only the bytes 0 and 1.
#[test]
fn slices_of_bool() {
    let mut array = Array::new(HostVec::from([true, false]), &[2]);
    let view = array.view::<bool, 1>().unwrap().host_view().unwrap();
    // SAFETY: nothing writes meanwhile.
    assert_eq!(unsafe { view.as_slice() }.unwrap(), [true, false]);
    drop(view);
    let address = array.info().unwrap().address();
    // SAFETY: the second byte of the vector, to which there is no reference.
    unsafe { std::ptr::with_exposed_provenance_mut::<u8>(address + 1).write(255) };
    let told = (ErrorKind::DType, "data", "the byte 255 in a bool", "view the array as `u8`");
    let pair = array.view::<[bool; 2], 0>().unwrap().host_view().unwrap();
    assert_told(&pair.read([]).unwrap_err(), told);
    drop(pair);
    let view = array.view::<bool, 1>().unwrap().host_view().unwrap();
    // SAFETY: nothing writes meanwhile.
    assert_told(&unsafe { view.as_slice() }.unwrap_err(), told);
    drop(view);
    let view = array.view_mut::<bool, 1>().unwrap().host_view_mut().unwrap();
    // SAFETY: nothing else reads or writes meanwhile.
    assert_told(&unsafe { view.into_slice() }.unwrap_err(), told);
}
