//! Host memory for sharing.

use std::ops::Range;

use interop_core::storage::{HostBuffer, MemoryRegion};
use interop_core::{CudaArray, DType, ErrorKind, FromArray, HostVec, LeaseMut, Storage, live_allocations};

use crate::support::arrays::Array;
use crate::support::{assert_told, run_alone};

/// Bug 88: the memory is aligned to 128 bytes for any element type and count.
#[test]
fn memory_is_aligned() {
    fn case<T: interop_core::Element>() {
        let kept: Vec<HostVec<T>> = (0..40).map(HostVec::<T>::zeroed).collect();
        for (len, vector) in kept.iter().enumerate() {
            let memory = vector.memory().unwrap();
            assert_eq!((memory.address % 128, vector.len()), (0, len));
            assert_eq!(memory.range, memory.address..memory.address + len * size_of::<T>());
        }
    }
    case::<u8>();
    case::<f64>();
    case::<[u8; 3]>();
    for len in 0..40 {
        let buffer = HostBuffer::zeroed(DType::opaque(7), len).unwrap();
        let MemoryRegion { address, range, .. } = buffer.memory().unwrap();
        assert_eq!((address % 128, range.len()), (0, 7 * len));
    }
}

/// Elements are stored and returned; unwritten elements are zero.
#[test]
fn elements_are_kept() {
    let mut vector = HostVec::from(vec![1_u32, 2, 3]);
    vector.as_mut_slice().unwrap()[1] = 20;
    assert_eq!(vector.as_mut_slice().unwrap(), [1, 20, 3]);
    assert_eq!((vector.len(), vector.is_empty()), (3, false));
    assert_eq!(HostVec::<u16>::zeroed(3).as_mut_slice().unwrap(), [0; 3]);
    assert_eq!(HostVec::<u16>::zeroed(0).as_mut_slice().unwrap(), [0; 0]);
    assert_eq!(HostVec::from([[1_u8, 2], [3, 4]]).as_mut_slice().unwrap(), [[1, 2], [3, 4]]);
    assert_eq!(HostVec::from([7_i8, 8]).as_mut_slice().unwrap(), [7, 8]);
    assert_eq!((3..6_u64).collect::<HostVec<_>>().as_mut_slice().unwrap(), [3, 4, 5]);
    assert!(HostVec::<f32>::default().is_empty());
    let buffer = Array::new(HostBuffer::zeroed(DType::I16, 3).unwrap(), &[3]);
    assert_eq!(buffer.to_vec::<i16>().unwrap(), [0; 3]);
}

/// An iterator that overstates its length.
struct Fewer(Range<u32>);

impl Iterator for Fewer {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.len() + 10, None)
    }
}

/// Any number of elements, with any size hint.
#[test]
fn elements_are_collected() {
    let most = if cfg!(miri) { 300 } else { 3_000_000 };
    for len in [0, 1, 3, 4, 5, 100, most] {
        let expected: Vec<u32> = (0..len).collect();
        let known = (0..len).collect::<HostVec<_>>();
        let unknown = (0..2 * len).filter(|at| at % 2 == 0).map(|at| at / 2).collect::<HostVec<_>>();
        let half = (0..len / 2).chain((len / 2..len).filter(|_| true)).collect::<HostVec<_>>();
        let fewer = Fewer(0..len).collect::<HostVec<_>>();
        for mut vector in [known, unknown, half, fewer] {
            assert_eq!((vector.memory().unwrap().address % 128, vector.len()), (0, expected.len()));
            assert_eq!(vector.memory().unwrap().range.len(), 4 * expected.len());
            assert_eq!(vector.as_mut_slice().unwrap(), expected);
        }
    }
}

/// Bug 99: a consumer may write any byte into a `bool`.
#[test]
fn bytes_that_are_no_bool() {
    let array = Array::new(HostVec::from([true, false, true]), &[3]);
    let shared = std::sync::Arc::new(array);
    let tensor = shared.share_dlpack().unwrap();
    let address = shared.info().unwrap().address();
    write_byte(address + 1, 2);
    drop(tensor);
    let mut array = std::sync::Arc::try_unwrap(shared).expect("the export is gone");
    let told = (ErrorKind::DType, "data", "the byte 2 in a bool", "0 and 1");
    assert_told(&array.data.as_mut_slice().unwrap_err(), told);
    assert_told(&array.data.as_mut_slice().unwrap_err(), told);
    assert_told(&array.to_vec::<bool>().unwrap_err(), told);
    assert_told(&array.map_inplace(|element: bool| !element).unwrap_err(), told);
    write_byte(address + 1, 1);
    // The first element had been changed before the invalid one was found.
    assert_eq!(array.data.as_mut_slice().unwrap(), [false, true, true]);
}

/// Writes like a consumer of an export.
#[expect(unsafe_code, reason = "a consumer writes by address")]
fn write_byte(address: usize, byte: u8) {
    let place = std::ptr::with_exposed_provenance_mut::<u8>(address);
    // SAFETY: the byte belongs to exported memory, to which there is no Rust reference.
    unsafe { place.write(byte) };
}

/// Bugs 165, 168: sizes that overflow are errors, and so is memory that is not available.
#[test]
fn sizes_that_do_not_fit() {
    let told = |found| (ErrorKind::Overflow, "shape", found, "fits the address space");
    let error = HostVec::<u64>::try_zeroed(usize::MAX).unwrap_err();
    assert_told(&error, told("18446744073709551615 elements of 8 bytes"));
    assert_told(&HostVec::<u64>::try_zeroed(1 << 61).unwrap_err(), told("2305843009213693952 elements"));
    assert_told(&HostVec::<u8>::try_zeroed((1 << 63) - 1).unwrap_err(), told("elements of 1 bytes"));
    assert_told(&HostBuffer::zeroed(DType::COMPLEX128, 1 << 60).unwrap_err(), told("elements of 16 bytes"));
    assert!(std::panic::catch_unwind(|| HostVec::<u64>::zeroed(usize::MAX)).is_err());
}

/// More memory than any machine has is an error and does not abort.
#[test]
#[cfg_attr(miri, ignore = "Miri stops where memory ends")]
fn memory_that_is_not_there() {
    run_alone("storage::host_vec::memory_that_is_not_there", || {
        let error = HostVec::<u8>::try_zeroed(1 << 60).unwrap_err();
        assert_told(&error, (ErrorKind::OutOfMemory, "memory", "1152921504606846976 bytes", ""));
    });
}

/// Types that a buffer cannot hold.
#[test]
fn types_without_bytes() {
    let told = |found, allowed| (ErrorKind::DType, "dtype", found, allowed);
    let refused = |dtype| HostBuffer::zeroed(dtype, 4).unwrap_err();
    assert_told(&refused(DType::F4_E2M1FN), told("float4_e2m1fn", "elements of whole bytes"));
    assert_told(&refused(DType::F6_E3M2FN), told("float6_e3m2fn", "elements of whole bytes"));
    assert_told(&refused(DType::new(2, 32, 0)), told("lanes 0", "1 lane or more"));
    assert_told(&refused(DType::new(1, 1, 1)), told("1 bits", "a bool is code 6"));
    let torch = HostBuffer::zeroed(DType { lanes: 2, ..DType::F4_E2M1FN }, 4).unwrap();
    assert_eq!(Array::new(torch, &[4]).info().unwrap().nbytes(), 4);
}

/// Allocations are counted and freed with the last export.
#[test]
fn allocations_are_counted() {
    run_alone("storage::host_vec::allocations_are_counted", || {
        assert_eq!(live_allocations(), 0);
        let array = Array::new(HostVec::<f32>::zeroed(4), &[4]);
        let empty = HostBuffer::zeroed(DType::F32, 0).unwrap();
        assert_eq!(live_allocations(), 2);
        let lease: Array<LeaseMut<f32>> = Array::from_dlpack(array.into_dlpack().unwrap()).unwrap();
        drop(empty);
        assert_eq!(live_allocations(), 1);
        drop(lease);
        assert_eq!(live_allocations(), 0);
        assert!(HostVec::<u64>::try_zeroed(usize::MAX).is_err());
        assert_eq!(live_allocations(), 0);
    });
}
