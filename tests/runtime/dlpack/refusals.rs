//! Invalid foreign structs: each is an error, the tensor is returned unchanged, and it is released once. The corpus has more of
//! them, and `descriptor/refusals.rs` the messages.

use interop_core::protocols::dlpack::{Legacy, ManagedTensor, Versioned};
use interop_core::{DType, Device, Error, ErrorKind, FromArray, Import, Lease, LeaseMut, Refused};

use crate::support::arrays::{Array, Fortran, Matrix};
use crate::support::foreign_tensors::{Claims, Form, look};
use crate::support::{Told, assert_told};

const ADDRESS: usize = 0x1_0000;

/// Checks that both constructors refuse the claims, and follows the tensor.
#[track_caller]
fn refused<A: Form>(claims: &Claims, told: Told) {
    let (ledger, tensor) = claims.clone().send::<A>();
    assert_told(&tensor.info().unwrap_err(), told);
    let Refused { value, error } = Import::from_dlpack(tensor).unwrap_err();
    assert_told(&error, told);
    assert_eq!(ledger.released(), 0, "{claims:?}");
    assert!(format!("{value:?}").starts_with("ManagedTensor(Error("), "a refused tensor can be shown");
    drop(value);
    assert_eq!(ledger.released(), 1, "{claims:?}");

    let (ledger, tensor) = claims.clone().send::<A>();
    assert_told(&Array::<Lease<i16>>::from_dlpack(tensor).unwrap_err(), told);
    assert_eq!(ledger.released(), 1, "{claims:?}");
}

fn in_both_forms(rows: Vec<(Claims, Told)>) {
    for (claims, told) in rows {
        refused::<Versioned>(&claims, told);
        refused::<Legacy>(&claims, told);
    }
}

/// R84, bugs 169, 172: `ndim`, null pointers, extents.
#[test]
fn shapes() {
    let ndim = |ndim| Claims { ndim: Some(ndim), ..Claims::at(ADDRESS, &[2]) };
    let told = |found| (ErrorKind::Rank, "ndim", found, "0 to 64");
    in_both_forms(vec![
        (ndim(-1), told("-1")),
        (ndim(65), told("65")),
        (
            Claims { ndim: Some(2), shape: None, ..Claims::at(ADDRESS, &[]) },
            (ErrorKind::NullPointer, "shape", "a null pointer for 2 axes", "one extent for each axis"),
        ),
        (Claims::at(ADDRESS, &[2, -3]), (ErrorKind::Shape, "shape[1]", "-3", "0 or greater")),
    ]);
}

/// R59, bug 69: in a struct of another major version only the version and the deleter are read.
#[test]
fn other_major_versions() {
    for (version, found) in
        [((0, 8), "DLPack 0.8"), ((2, 0), "DLPack 2.0"), ((u32::MAX, 3), "DLPack 4294967295.3")]
    {
        // Reading further would dereference invalid pointers.
        let claims = Claims { version, ndim: Some(3), flags: u64::MAX, ..Claims::at(8, &[]) };
        let claims = Claims { shape: Some(vec![]), strides: Some(vec![]), ..claims };
        refused::<Versioned>(&claims, (ErrorKind::Version, "version", found, "major version 1"));
    }
}

/// Flags of a later minor version may state the packing of small elements: such elements are refused, others are not.
#[test]
fn unknown_flags() {
    let small = |flags| Claims { flags, dtype: DType::F4_E2M1FN, ..Claims::at(ADDRESS, &[2]) };
    for (flags, found) in [(8, "0x8"), (1 << 63 | 4, "0x8000000000000004")] {
        refused::<Versioned>(&small(flags), (ErrorKind::Version, "flags", found, "flags 1, 2 and 4"));
    }
    let (_ledger, tensor) = small(7).send::<Versioned>();
    assert!(tensor.info().is_ok());
}

/// A refusal of a struct returns the import: it is not released until it is dropped, and another struct can use it.
#[test]
fn what_a_struct_does_not_want_comes_back() {
    fn case<T: FromArray + std::fmt::Debug>(claims: Claims, told: Told) {
        let (ledger, tensor) = claims.send::<Versioned>();
        let seen = look(&tensor);
        let import = Import::from_dlpack(tensor).unwrap();
        let info = import.info().clone();
        let Refused { value, error } = T::from_import(import).unwrap_err();
        assert_told(&error, told);
        assert_eq!((ledger.released(), value.info()), (0, &info));
        assert_eq!(value.info().shape().len(), seen.shape.map_or(0, |shape| shape.len()));
        let taken = Array::<Lease<i16>>::from_import(*value).map_err(Error::from);
        assert_eq!(ledger.released(), 0);
        drop(taken);
        assert_eq!(ledger.released(), 1);
    }
    let readonly = || Claims { flags: 1, ..Claims::new(&[2, 3]) };
    let flipped = || Claims { strides: Some(vec![1, 2]), ..Claims::new(&[2, 3]) };
    let gpu = || Claims { device: Device::cuda(0), ..Claims::at(ADDRESS, &[2, 3]) };
    let word = (ErrorKind::DType, "dtype", "int16", "float32");
    case::<Array<Lease<f32>>>(Claims::new(&[2, 3]), word);
    case::<Array<Vec<f32>>>(Claims::new(&[2, 3]), word);
    case::<Matrix<Lease<i16>>>(Claims::new(&[6]), (ErrorKind::Rank, "shape", "1 axis, shape [6]", "2 axes"));
    case::<Matrix<Lease<i16>>>(
        flipped(),
        (ErrorKind::Strides, "strides[0]", "1 (strides [1, 2])", "3, which makes"),
    );
    case::<Fortran<Lease<i16>>>(
        Claims::new(&[2, 3]),
        (ErrorKind::Strides, "strides[0]", "3 (strides [3, 1])", "1,"),
    );
    case::<Array<LeaseMut<i16>>>(
        readonly(),
        (ErrorKind::ReadOnly, "readonly", "a read-only array", "`Lease<T>`"),
    );
    case::<Array<Vec<i16>>>(
        gpu(),
        (ErrorKind::Device, "device", "CUDA (2), ordinal 0", "the host can reach"),
    );
    case::<Array<Lease<[i16; 2]>>>(
        Claims::new(&[2, 3]),
        (ErrorKind::Shape, "shape", "[3] as the last axes", "[2]"),
    );
    case::<Array<Lease<[i16; 3]>>>(flipped(), (ErrorKind::Strides, "strides", "", "contiguous axes [3]"));
}

/// A tensor passed on as a pointer belongs to the holder of the pointer.
#[test]
#[expect(unsafe_code, reason = "a raw pointer is taken back")]
fn raw_pointers_own_nothing() {
    let (ledger, tensor) = Claims::new(&[2]).send::<Versioned>();
    let pointer = tensor.into_raw();
    assert_eq!(ledger.released(), 0);
    // SAFETY: the pointer was given away one line above.
    let tensor = unsafe { ManagedTensor::from_raw(pointer) };
    assert_eq!((tensor.as_ptr(), ledger.released()), (pointer.cast_const(), 0));
    drop(tensor);
    assert_eq!(ledger.released(), 1);
}
