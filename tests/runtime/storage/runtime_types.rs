//! Memory whose element type is known at run time only: bytes in place, and copies of imports.

use std::sync::Arc;

use interop_core::storage::{FromImport, HostBuffer, Mutability};
use interop_core::{CudaArray, DType, Element, ErrorKind, FromArray, HostVec, Lease, SharedBuffer, Storage};

use crate::support::arrays::{Array, Fortran, Matrix};
use crate::support::assert_told;

/// 16 bytes, aligned to 8.
fn bytes() -> SharedBuffer {
    SharedBuffer::new(Lease::<u64>::from_owner(vec![0x0101_0001_0000_0002_u64.to_le(), 7]))
}

#[test]
fn bytes_are_elements_of_any_type() {
    let bytes = bytes();
    let start = bytes.memory().unwrap().address;
    let numbers = bytes.reinterpret(DType::U16, 2..8).unwrap();
    assert_eq!(numbers.memory().unwrap().address, start + 2);
    assert_eq!(Array::new(numbers, &[3]).to_vec::<u16>().unwrap(), [0, 1, 0x101]);
    let number = bytes.reinterpret(DType::U64, 8..16).unwrap();
    assert_eq!(Array::new(number.clone(), &[]).to_vec::<u64>().unwrap(), [7]);
    assert_eq!(Array::new(number, &[2]).info().unwrap_err().kind(), ErrorKind::OutOfBounds);
    assert_eq!(Array::new(bytes.reinterpret(DType::F32, 16..16).unwrap(), &[0]).info().unwrap().numel(), 0);
    let halves = bytes.reinterpret(DType::BF16, 0..4).unwrap();
    assert_eq!(Array::new(halves, &[2]).info().unwrap().dtype(), DType::BF16);
    // The offset counts from the first element of the handle.
    let rest = bytes.byte_offset(8).unwrap().reinterpret(DType::U8, 0..2).unwrap();
    assert_eq!(Array::new(rest, &[2]).to_vec::<u8>().unwrap(), [7, 0]);
}

#[test]
fn parts_keep_the_owner_and_its_rule_for_writes() {
    let owner = Arc::new(HostVec::from([0_u8; 8]));
    let part = SharedBuffer::new(owner.clone()).reinterpret(DType::F32, 0..8).unwrap();
    assert_eq!((part.memory().unwrap().mutability, Arc::strong_count(&owner)), (Mutability::Writable, 2));
    let read_only = part.clone().read_only().reinterpret(DType::U8, 0..1).unwrap();
    assert_eq!(read_only.memory().unwrap().mutability, Mutability::ReadOnly);
    drop((part, read_only));
    assert_eq!(Arc::strong_count(&owner), 1);
}

#[test]
fn bytes_that_are_no_elements_are_refused() {
    #[derive(Clone, Copy, Element)]
    #[repr(C)]
    struct Hit {
        detector: u8,
        energy: u64,
    }

    let bytes = bytes();
    let refused = |dtype, range| bytes.reinterpret(dtype, range).unwrap_err();
    let most = (ErrorKind::OutOfBounds, "bytes", "8..17", "a range in the 16 bytes of memory");
    assert_told(&refused(DType::U8, 8..17), most);
    #[expect(clippy::reversed_empty_ranges, reason = "such a range is refused")]
    let reversed = refused(DType::U8, 3..2);
    assert_eq!(reversed.kind(), ErrorKind::OutOfBounds);
    let rest = (ErrorKind::OutOfBounds, "bytes", "6", "a multiple of 4, the size of float32");
    assert_told(&refused(DType::F32, 0..6), rest);
    assert_eq!(refused(DType::F32, 2..6).kind(), ErrorKind::Alignment);
    assert!(bytes.reinterpret(DType::COMPLEX64, 4..12).is_ok(), "a complex number is aligned as its parts");
    assert_eq!(refused(DType::F4_E2M1FN, 0..1).kind(), ErrorKind::DType);
    let flag = (ErrorKind::DType, "data", "the byte 2 in a bool", "view the array as `u8`");
    assert_told(&refused(DType::BOOL, 0..4), flag);
    assert!(bytes.reinterpret(DType::BOOL, 4..8).is_ok());
    let hits = SharedBuffer::new(vec![Hit { detector: 1, energy: 2 }]);
    let padding = (ErrorKind::DType, "dtype", "struct", "memory of numbers or bytes");
    assert_told(&hits.reinterpret(DType::U8, 0..16).unwrap_err(), padding);
}

/// A copy in memory of a run-time type, for any layout.
#[test]
fn imports_become_buffers_of_their_type() {
    fn copy<T: Element + PartialEq + std::fmt::Debug>(elements: [T; 6], dtype: DType) {
        let rows_first = [0, 2, 4, 1, 3, 5].map(|at: usize| elements[at]);
        let source = || Array::strided(HostVec::from(elements), &[2, 3], &[1, 2]).into_dlpack().unwrap();
        let rows: Matrix<HostBuffer> = Matrix::from_dlpack(source()).unwrap();
        let info = rows.info().unwrap();
        assert_eq!((info.dtype(), info.strides(), rows.rows), (dtype, &[3, 1][..], 2));
        assert_eq!(rows.to_vec::<T>().unwrap(), rows_first);
        let columns: Fortran<Arc<HostBuffer>> = Fortran::from_dlpack(source()).unwrap();
        assert_eq!(columns.info().unwrap().strides(), [1, 2]);
        assert_eq!(columns.to_vec::<T>().unwrap(), rows_first);
    }
    copy([1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], DType::F32);
    copy([1_u8, 2, 3, 4, 5, 6], DType::U8);
    copy([true, false, true, true, false, true], DType::BOOL);
    copy([1_i64, 2, 3, 4, 5, 6], DType::I64);
}

#[test]
fn structs_and_packed_elements_need_their_type() {
    #[derive(Clone, Copy, Element)]
    #[repr(C)]
    struct Pair {
        one: u16,
        two: u32,
    }
    let tensor = SharedBuffer::new(vec![Pair { one: 1, two: 2 }]);
    let import =
        interop_core::Import::from_dlpack(Array::new(HostVec::from([1_u8]), &[1]).into_dlpack().unwrap());
    assert!(HostBuffer::check(import.unwrap().info()).is_ok());
    let info = Array::new(tensor, &[1]).info().unwrap();
    let told = (ErrorKind::DType, "dtype", "struct", "numbers, `bool` or bytes");
    assert_told(&HostBuffer::check(&info).unwrap_err(), told);
}

/// An `Arc` is filled as what it holds, so clones of a struct share one import.
#[test]
fn imports_fill_handles() {
    let tensor = || Array::new(HostVec::from([1_u16, 2]), &[2]).into_dlpack().unwrap();
    let shared: Array<Arc<Lease<u16>>> = Array::from_dlpack(tensor()).unwrap();
    assert_eq!(shared.data.memory().unwrap().address, shared.info().unwrap().address());
    let copy: Array<Arc<Vec<u16>>> = Array::from_dlpack(tensor()).unwrap();
    assert_eq!((copy.data.as_slice(), Arc::strong_count(&copy.data)), (&[1, 2][..], 1));
    const { assert!(<Arc<Vec<u16>>>::COPIES && !<Arc<SharedBuffer>>::COPIES) };
}
