//! Invalid foreign structs: each is an error, the tensor is returned unchanged, and it is released once.

use interop_core::protocols::dlpack::{Legacy, ManagedTensor, Versioned};
use interop_core::{
    DType, Device, DeviceType, Error, ErrorKind, FromArray, Import, Lease, LeaseMut, Refused,
};

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
        (ndim(i32::MIN), told("-2147483648")),
        (ndim(65), told("65")),
        (ndim(i32::MAX), told("2147483647")),
        (
            Claims { ndim: Some(2), shape: None, ..Claims::at(ADDRESS, &[]) },
            (ErrorKind::NullPointer, "shape", "a null pointer for 2 axes", "one extent for each axis"),
        ),
        (Claims::at(ADDRESS, &[2, -3]), (ErrorKind::Shape, "shape[1]", "-3", "0 or greater")),
        (
            Claims::at(ADDRESS, &[0, i64::MIN]),
            (ErrorKind::Shape, "shape[1]", "-9223372036854775808", "0 or greater"),
        ),
        (
            Claims::at(ADDRESS, &[1 << 32, 1 << 32, 16]),
            (ErrorKind::Overflow, "shape", "[4294967296, 4294967296, 16]", "address space"),
        ),
    ]);
}

/// R77, R80, bugs 85, 90, 170: addresses and offsets.
#[test]
fn addresses() {
    let at = |address, byte_offset| Claims { byte_offset, ..Claims::at(address, &[2]) };
    let offset = (ErrorKind::Overflow, "byte_offset", "on top of address", "the address space");
    let far = |strides: &[i64]| Claims { strides: Some(strides.to_vec()), ..Claims::at(ADDRESS, &[2]) };
    let reach = (ErrorKind::Overflow, "strides", "", "the address space");
    in_both_forms(vec![
        (at(0, 0), (ErrorKind::NullPointer, "data", "a null pointer", "the array has elements")),
        (at(0, 64), (ErrorKind::NullPointer, "data", "a null pointer", "the array has elements")),
        (at(ADDRESS, u64::MAX), offset),
        // A negative offset converted to an unsigned number.
        (at(ADDRESS, u64::MAX - 15), offset),
        (at(usize::MAX, 1), offset),
        (at(usize::MAX - 2, 0), (ErrorKind::Overflow, "shape", "at 0xfffffffffffffffd", "the address space")),
        (far(&[i64::MAX]), reach),
        (far(&[i64::MIN]), reach),
        (far(&[i64::MAX / 4]), reach),
        (far(&[-(ADDRESS as i64)]), reach),
    ]);
}

/// R56, R57, R63, R64, R65: unknown types and devices.
#[test]
fn types_and_devices() {
    let typed =
        |code, bits, lanes| Claims { dtype: DType::new(code, bits, lanes), ..Claims::at(ADDRESS, &[2]) };
    let dtype = |found, allowed| (ErrorKind::DType, "dtype", found, allowed);
    let on = |device_type, device_id| {
        let device = Device { device_type: DeviceType(device_type), device_id };
        Claims { device, ..Claims::at(ADDRESS, &[2]) }
    };
    let device = |found| (ErrorKind::Device, "device_type", found, "CPU (1), CUDA (2)");
    in_both_forms(vec![
        (typed(2, 32, 0), dtype("lanes 0", "1 lane or more")),
        (typed(1, 1, 1), dtype("code 1, 1 bits", "a bool is code 6 with 8 bits")),
        (typed(15, 8, 1), dtype("code 15, 8 bits", "6 bits")),
        (typed(17, 8, 1), dtype("code 17, 8 bits", "4 bits")),
        (typed(255, 255, 1), dtype("code 255, 255 bits", "whole bytes")),
        (on(10, 0), device("ROCM (10)")),
        (on(0, 0), device("unknown (0)")),
        (on(21, 0), device("(21)")),
        (on(-1, 0), device("unknown (-1)")),
        (on(2, -1), (ErrorKind::Device, "device_id", "-1", "0 or greater")),
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
