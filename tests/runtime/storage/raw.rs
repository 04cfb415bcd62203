//! `data(unsafe_raw)`: memory that a struct holds by address, with the owner of an import.
#![expect(unsafe_code, reason = "the structs hold raw pointers")]

use std::ffi::c_void;
use std::ptr::NonNull;

use interop_core::protocols::dlpack::{FLAG_READ_ONLY, Versioned};
use interop_core::storage::{Mutability, Owner};
use interop_core::{CudaArray, DType, Device, ErrorKind, FromArray, Import, StreamHandle};

use crate::support::arrays::Array;
use crate::support::assert_told;
use crate::support::counted_owners::{Count, Counted};
use crate::support::foreign_tensors::{Claims, look};

macro_rules! by_address {
    ($name:ident, $pointer:ty $(, $($word:tt)*)?) => {
        #[derive(Debug, CudaArray)]
        #[cuda_array(shape = [rows, 3])]
        struct $name {
            // SAFETY: the owner keeps the memory alive, or nothing is read at the address.
            #[cuda_array(data(unsafe_raw $($($word)*)?))]
            pointer: $pointer,
            rows: i32,
            #[cuda_array(device)]
            device: Device,
            #[cuda_array(stream)]
            stream: Option<StreamHandle>,
            #[cuda_array(owner)]
            owner: Option<Owner>,
        }
    };
}

by_address!(Mutable, *mut i16);
by_address!(Constant, *const i16);
by_address!(NotNull, NonNull<i16>);
by_address!(Address, u64, , element = i16);
by_address!(Word, usize, , element = i16);
by_address!(Void, *mut c_void, , element = i16);
by_address!(ConstantVoid, *const c_void, , element = i16);

/// Imports into each struct and compares the description with that of the tensor.
macro_rules! check {
    ($($name:ident => $mutability:expr),*) => {
        $(
            let claims = Claims { device: Device::cuda(1), ..Claims::at(0x1000, &[2, 3]) };
            let (ledger, tensor) = claims.send::<Versioned>();
            let array = $name::from_dlpack(tensor).unwrap();
            let info = array.info().unwrap();
            assert_eq!((info.address(), info.shape()), (0x1000, &[2, 3][..]), stringify!($name));
            assert_eq!((info.device(), info.mutability(), info.dtype()), (Device::cuda(1), $mutability, DType::I16));
            let ready = Some(StreamHandle::LegacyDefault);
            assert_eq!((array.rows, array.stream, ledger.released()), (2, ready, 0));
            drop(array.owner);
            assert_eq!(ledger.released(), 1, "the owner is what holds the memory");
        )*
    };
}

/// Each pointer type is filled, and its type determines the mutability.
#[test]
fn pointers_are_filled() {
    check!(
        Mutable => Mutability::Writable,
        Constant => Mutability::ReadOnly,
        NotNull => Mutability::Writable,
        Address => Mutability::Writable,
        Word => Mutability::Writable,
        Void => Mutability::Writable,
        ConstantVoid => Mutability::ReadOnly
    );
}

/// Read-only memory is only accepted by `*const`, typed or not. An import that does not match is returned.
#[test]
fn pointers_refuse_what_does_not_fit() {
    let import = |claims: Claims| {
        let (ledger, tensor) = claims.send::<Versioned>();
        (ledger, Import::from_dlpack(tensor).unwrap())
    };
    let readonly = || Claims { flags: FLAG_READ_ONLY, ..Claims::at(0x1000, &[2, 3]) };
    let (ledger, given) = import(readonly());
    let told = (ErrorKind::ReadOnly, "readonly", "a read-only array", "a writable array");
    let given = Mutable::from_import(given).map(drop).unwrap_err();
    assert_told(&given.error, told);
    let given = NotNull::from_import(*given.value).map(drop).unwrap_err();
    assert_told(&given.error, told);
    let given = Address::from_import(*given.value).map(drop).unwrap_err();
    assert_told(&given.error, told);
    let given = Void::from_import(*given.value).map(drop).unwrap_err();
    assert_told(&given.error, told);
    assert!(Constant::from_import(*given.value).is_ok());
    assert_eq!(ledger.released(), 1);
    let (ledger, given) = import(readonly());
    assert!(ConstantVoid::from_import(given).is_ok());
    assert_eq!(ledger.released(), 1);

    let refused = |claims, told| {
        let (ledger, given) = import(claims);
        let refused = Constant::from_import(given).map(drop).unwrap_err();
        assert_told(&refused.error, told);
        assert_eq!(ledger.released(), 0);
    };
    refused(Claims::at(0x1000, &[2, 4]), (ErrorKind::Shape, "shape[1]", "4", "3"));
    refused(Claims::at(0x1000, &[6]), (ErrorKind::Rank, "shape", "1 axis", "2 axes"));
    refused(
        Claims { dtype: DType::U16, ..Claims::at(0x1000, &[2, 3]) },
        (ErrorKind::DType, "dtype", "uint16", "int16"),
    );
    let turned = Claims { strides: Some(vec![1, 2]), ..Claims::at(0x1000, &[2, 3]) };
    refused(turned, (ErrorKind::Strides, "strides[0]", "1", "3, which makes the array C-contiguous"));
    refused(Claims::at(0x1000, &[1 << 31, 3]), (ErrorKind::Overflow, "rows", "2147483648", "`i32`"));
}

/// A null pointer is valid without elements and refused with elements.
#[test]
fn null_pointers() {
    let at = |address: usize, rows| Mutable {
        pointer: std::ptr::without_provenance_mut(address),
        rows,
        device: Device::cuda(0),
        stream: Some(StreamHandle::LegacyDefault),
        owner: None,
    };
    assert_eq!(at(0, 0).info().unwrap().address(), 0);
    assert_told(
        &at(0, 1).info().unwrap_err(),
        (ErrorKind::NullPointer, "data", "a null pointer", "the array has elements"),
    );
    assert_told(&at(0x1000, -1).info().unwrap_err(), (ErrorKind::Shape, "shape[0]", "-1", "0 or greater"));
    assert_eq!(at(0x1000, 1).info().unwrap().stream(), Some(StreamHandle::LegacyDefault));
    // For an empty import a pointer type that cannot be null gets another value.
    let (_ledger, tensor) = Claims::at(0, &[0, 3]).send::<Versioned>();
    let empty = NotNull::from_dlpack(tensor).unwrap();
    assert_eq!((empty.info().unwrap().numel(), empty.rows), (0, 0));
}

/// Rust memory held by address is exported and imported; its owner is dropped once.
#[test]
fn memory_by_address_makes_the_round_trip() {
    let dropped = Count::default();
    let mut elements = vec![0_i16, 1, 2, 3, 4, 5];
    let pointer = elements.as_mut_ptr();
    pointer.expose_provenance();
    let owner = Some(Owner::new((elements, Counted(dropped.clone(), ()))));
    let array = Sendable(Mutable { pointer, rows: 2, device: Device::CPU, stream: None, owner });
    assert_eq!(array.to_vec::<i16>().unwrap(), [0, 1, 2, 3, 4, 5]);
    let tensor = array.into_dlpack().unwrap();
    assert_eq!(look(&tensor).data, pointer.addr());
    let mut back = Mutable::from_dlpack(tensor).unwrap();
    back.map_inplace(|element: i16| element + 100).unwrap();
    assert_eq!((back.pointer.addr(), dropped.get()), (pointer.addr(), 0));
    let copy: Array<Vec<i16>> = Array::from_dlpack(Sendable(back).into_dlpack().unwrap()).unwrap();
    assert_eq!((copy.data, dropped.get()), (vec![100, 101, 102, 103, 104, 105], 1));
}

/// A struct with a raw pointer to its owner's memory that may be sent to any thread.
struct Sendable(Mutable);

// SAFETY: the memory belongs to the owner, which may move to any thread.
unsafe impl Send for Sendable {}

// SAFETY: forwards to the inner struct.
unsafe impl CudaArray for Sendable {
    fn info(&self) -> interop_core::Result<interop_core::ArrayInfo> {
        self.0.info()
    }
}
