//! Views for writing: only of writable memory, element by element.

use interop_core::protocols::dlpack::{Legacy, Versioned};
use interop_core::{CudaArray, ErrorKind, FromArray, HostVec, Lease, LeaseMut, SharedBuffer};
use proptest::prelude::*;

use crate::support::arrays::{Array, Claimed};
use crate::support::assert_told;
use crate::support::brute_force::{offsets, settings, small_layouts};
use crate::support::foreign_tensors::Claims;
use crate::support::streams::stream as stream_of;

/// Writes one element and all elements, and nothing else.
#[test]
fn elements_are_written() {
    let mut array = Array::strided(vec![0_i32; 8], &[2, 2], &[4, 2]);
    let mut view = array.view_mut::<i32, 2>().unwrap().host_view_mut().unwrap();
    view.write([0, 1], 5).unwrap();
    view.write([1, 0], -7).unwrap();
    assert_eq!(
        (view.read([1, 0]).unwrap(), view.as_view().read([0, 1]).unwrap(), view.shape()),
        (-7, 5, [2, 2])
    );
    assert_eq!(view.read([2, 0]).unwrap_err().kind(), ErrorKind::IndexOutOfBounds);
    drop(view);
    assert_eq!(array.data, [0, 0, 5, 0, -7, 0, 0, 0], "what lies between is left alone");
    array.map_inplace(|element: i32| element * 10).unwrap();
    assert_eq!(array.data, [0, 0, 50, 0, -70, 0, 0, 0]);
}

/// Elements that are arrays are written as a whole.
#[test]
fn parts_are_written_whole() {
    let mut array = Array::new(HostVec::<u8>::zeroed(12), &[2, 2, 3]);
    let mut view = array.view_mut::<[u8; 3], 2>().unwrap().host_view_mut().unwrap();
    view.write([1, 0], [1, 2, 3]).unwrap();
    drop(view);
    assert_eq!(array.data.as_mut_slice().unwrap(), [0, 0, 0, 0, 0, 0, 1, 2, 3, 0, 0, 0]);
}

/// Elements are changed in address order, whatever their indices are.
#[test]
fn elements_are_changed_in_memory_order() {
    let mut array = Array::strided(vec![0_u8; 6], &[2, 3], &[1, 2]);
    let mut count = 0;
    array
        .map_inplace(|_: u8| {
            count += 1;
            count
        })
        .unwrap();
    assert_eq!((array.to_vec::<u8>().unwrap(), array.data), (vec![1, 3, 5, 2, 4, 6], vec![1, 2, 3, 4, 5, 6]));
}

/// R37, R71, bugs 131, 133, 134, 140: read-only memory.
#[test]
fn readonly_memory_is_not_written() {
    fn refused<S>(mut array: Array<S>)
    where
        Array<S>: CudaArray,
    {
        let told = (
            ErrorKind::ReadOnly,
            "readonly",
            "a struct that only reads",
            "`LeaseMut<T>` in place of `Lease<T>`",
        );
        assert_told(&array.view_mut::<i16, 1>().unwrap_err(), told);
        assert_told(&array.map_inplace(|element: i16| element).unwrap_err(), told);
        assert!(array.view::<i16, 1>().is_ok());
    }
    refused(Array::new(std::sync::Arc::<[i16]>::from([1, 2]), &[2]));
    refused(Array::new(&[1_i16, 2][..], &[2]));
    refused(Array::new(SharedBuffer::new(vec![1_i16, 2]), &[2]));
    let (_ledger, tensor) = Claims { flags: 1, ..Claims::new(&[2]) }.send::<Versioned>();
    refused::<Lease<i16>>(Array::from_dlpack(tensor).unwrap());
    let (_ledger, tensor) = Claims::new(&[2]).send::<Legacy>();
    refused::<SharedBuffer>(Array::from_dlpack(tensor).unwrap());
}

/// R88, bug 91: if two indices share an element, a write through one changes the other.
#[test]
fn elements_that_meet_are_not_written() {
    let rows: [(&[usize], &[isize]); 5] =
        [(&[3], &[0]), (&[2, 3], &[0, 1]), (&[3, 3], &[1, 1]), (&[2, 3], &[2, 1]), (&[4, 2], &[-1, 3])];
    for (shape, strides) in rows {
        let first = SharedBuffer::new(HostVec::<i16>::zeroed(20)).byte_offset(20).unwrap();
        let mut array = Array::strided(first, shape, strides);
        let error = array.map_inplace(|element: i16| element).unwrap_err();
        let found = format!("{strides:?} for shape {shape:?}");
        assert_told(&error, (ErrorKind::Strides, "strides", &found, "no two indices share an element"));
        assert!(array.view_mut::<i16, 1>().is_err() && array.view_mut::<i16, 2>().is_err());
        assert!(array.to_vec::<i16>().is_ok(), "reading is fine");
    }
    // A stride of 0 on an axis of extent 1 does not matter.
    assert!(Array::strided(vec![1_u8; 3], &[1, 3], &[0, 1]).view_mut::<u8, 2>().is_ok());
}

/// Bug 118: memory that the host cannot access, or on which a GPU still works, is not written.
#[test]
fn device_memory_is_not_written() {
    let mut gpu = Array::new(Claimed::gpu::<f32>(4, 0), &[4]);
    let told = (ErrorKind::Device, "device", "CUDA (2), ordinal 0", "memory that the host can reach");
    assert_ne!(gpu.view_mut::<f32, 1>().unwrap().address(), 0, "a view hands out the address");
    assert_told(&gpu.view_mut::<f32, 1>().unwrap().host_view_mut().unwrap_err(), told);
    assert_told(&gpu.map_inplace(|element: f32| element).unwrap_err(), told);
    let mut busy = Array { stream: stream_of(9), ..Array::new(vec![1_u8; 4], &[4]) };
    let told =
        (ErrorKind::Stream, "stream", "work pending on the stream 0x9", "CPU memory has no pending work");
    assert_told(&busy.view_mut::<u8, 1>().unwrap().host_view_mut().unwrap_err(), told);
    assert_told(&busy.map_inplace(|element: u8| element).unwrap_err(), told);
}

/// A misaligned address can be accessed by value, but not by reference.
#[test]
fn odd_addresses() {
    let bytes = SharedBuffer::new(HostVec::from([1_u16, 2, 3]));
    let mut odd = Array::new(bytes.byte_offset(1).unwrap(), &[2]);
    let error = odd.view_mut::<u16, 1>().unwrap().host_view_mut().unwrap_err();
    assert_told(&error, (ErrorKind::Alignment, "data", "address 0x", "a multiple of 2"));
    odd.map_inplace(|element: u16| !element).unwrap();
    let all = Array::new(bytes, &[3]).to_vec::<u16>().unwrap();
    let flipped = [1_u16, 2, 3].map(u16::to_le_bytes).concat();
    let expected: Vec<u8> = flipped
        .iter()
        .enumerate()
        .map(|(at, byte)| if (1..5).contains(&at) { !byte } else { *byte })
        .collect();
    assert_eq!(all.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>(), expected);
}

/// A write out of range is an error that names the axis and changes nothing.
#[test]
fn indices_are_checked() {
    let mut array = Array::new(vec![0_u8; 6], &[2, 3]);
    let mut view = array.view_mut::<u8, 2>().unwrap().host_view_mut().unwrap();
    assert_told(
        &view.write([0, 3], 1).unwrap_err(),
        (ErrorKind::IndexOutOfBounds, "index[1]", "3", "less than the extent 3"),
    );
    assert_told(
        &view.write([2, 0], 1).unwrap_err(),
        (ErrorKind::IndexOutOfBounds, "index[0]", "2", "less than the extent 2"),
    );
    drop(view);
    assert_eq!(array.data, [0; 6]);
}

proptest! {
    #![proptest_config(settings())]

    /// A write changes the element at its index and nothing else, or is refused because two indices share an element.
    #[test]
    fn writes_go_where_the_indices_say((shape, strides) in small_layouts()) {
        let visited = offsets(&shape, &strides);
        let low = visited.iter().min().copied().unwrap_or(0);
        let len = usize::try_from(visited.iter().max().copied().unwrap_or(0) - low + 1).unwrap();
        let memory = SharedBuffer::new(HostVec::<u32>::zeroed(len));
        let first = memory.byte_offset(isize::try_from(-low).unwrap() * 4).unwrap();
        let mut array = Array::strided(first, &shape, &strides);
        let mut next = 0_u32;
        let written = array.map_inplace(|element: u32| {
            next += 1;
            element + next
        });
        prop_assert_eq!(written.is_ok(), array.info().unwrap().layout().is_injective());
        let mut expected = vec![0; len];
        if written.is_ok() {
            let mut places = visited;
            places.sort_unstable();
            for (place, value) in places.into_iter().zip(1..) {
                expected[usize::try_from(place - low).unwrap()] = value;
            }
        }
        prop_assert_eq!(Array::new(memory, &[len]).to_vec::<u32>().unwrap(), expected);
    }
}

/// A lease writes to the producer's memory.
#[test]
fn leases_are_written_in_place() {
    let (_ledger, tensor) = Claims::new(&[3, 2]).send::<Versioned>();
    let mut lease: Array<LeaseMut<i16>> = Array::from_dlpack(tensor).unwrap();
    lease.view_mut::<[i16; 2], 1>().unwrap().host_view_mut().unwrap().write([1], [-2, -3]).unwrap();
    let again = lease.into_dlpack().unwrap();
    assert_eq!(Array::<Vec<i16>>::from_dlpack(again).unwrap().data, [0, 1, -2, -3, 4, 5]);
}
