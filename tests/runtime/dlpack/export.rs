//! Our structs as a C consumer sees them.
#![expect(unsafe_code, reason = "facts are exported with an owner that has nothing to do with them")]

use std::collections::HashSet;
use std::sync::Arc;

use interop_core::element::{MiniFloat, Opaque};
use interop_core::protocols::dlpack::{
    FLAG_IS_COPIED, FLAG_READ_ONLY, FLAG_SUBBYTE_PADDED, Legacy, ManagedTensor, Ownership, Versioned, export,
};
use interop_core::protocols::{RawDescriptor, Strides};
use interop_core::storage::Mutability;
use interop_core::{
    ArrayInfo, CudaArray, DType, Device, DeviceType, Element, ErrorKind, FromArray, HostVec, Import, Lease,
    LeaseMut, StreamHandle,
};
use proptest::prelude::*;

use crate::support::arrays::{Array, Claimed, Fortran, GPU_ADDRESS, Matrix};
use crate::support::assert_told;
use crate::support::brute_force::{settings, small_layouts};
use crate::support::counted_owners::{Count, Counted};
use crate::support::foreign_tensors::{Form, Seen, flags, look};
use crate::support::signed;

type Float4E2m1fnX2 = MiniFloat<{ DType::F4_E2M1FN.code }>;
type Float6E2m3fn = MiniFloat<{ DType::F6_E2M3FN.code }>;

/// The header fields of the versioned form with these flags.
fn head<A: Form>(flags: u64) -> Option<(u32, u32, u64)> {
    A::IS_VERSIONED.then_some((1, 3, flags))
}

/// R58, R69, R75, R81, R93: a simple array, field by field.
#[test]
fn a_plain_array() {
    fn case<A: Form>() {
        let array = Matrix { data: Claimed::gpu::<f32>(6, 3), rows: 2, columns: 3 };
        let expected = Seen {
            data: GPU_ADDRESS,
            device: Device::cuda(3),
            dtype: DType::F32,
            shape: Some(vec![2, 3]),
            strides: Some(vec![3, 1]),
            byte_offset: 0,
            head: head::<A>(0),
            has_deleter: true,
        };
        assert_eq!(look(&array.into_dlpack_as::<A>(StreamHandle::LegacyDefault).unwrap()), expected);
        let fortran = Fortran { data: Claimed::gpu::<f32>(6, 3), rows: 2, columns: 3 };
        let expected = Seen { strides: Some(vec![1, 2]), ..expected };
        assert_eq!(look(&fortran.into_dlpack_as::<A>(StreamHandle::LegacyDefault).unwrap()), expected);
    }
    case::<Versioned>();
    case::<Legacy>();
}

/// R83, bugs 68, 69, 80: any number of axes. Shape and strides are null exactly if there are no axes.
#[test]
fn any_number_of_axes() {
    fn case<A: Form>() {
        for ndim in [0, 1, 2, 5, 6, 7, 63, 64] {
            let mut shape = vec![1; ndim];
            if let Some(last) = shape.last_mut() {
                *last = 6;
            }
            let seen = look(
                &Array::new(vec![7_i16; 6], &shape).into_dlpack_as::<A>(StreamHandle::LegacyDefault).unwrap(),
            );
            let numbers = |numbers: Vec<usize>| {
                (ndim > 0).then(|| numbers.into_iter().map(signed).collect::<Vec<i64>>())
            };
            let mut strides = vec![6; ndim];
            if let Some(last) = strides.last_mut() {
                *last = 1;
            }
            assert_eq!((seen.shape, seen.strides), (numbers(shape), numbers(strides)), "{ndim} axes");
        }
        let told = (ErrorKind::Rank, "shape", "65 axes", "64");
        assert_told(
            &Array::new(vec![1_u8], &[1; 65])
                .into_dlpack_as::<A>(StreamHandle::LegacyDefault)
                .unwrap_err()
                .error,
            told,
        );
    }
    case::<Versioned>();
    case::<Legacy>();
}

/// R78, bugs 40, 79: an array without elements has a null address.
#[test]
fn an_empty_array_has_no_address() {
    fn case<A: Form>() {
        for (data, shape) in
            [(Vec::new(), &[0][..]), (vec![1_u8; 9], &[3, 0, 2]), (Vec::with_capacity(4), &[0, 1])]
        {
            let array = Array::new(data, shape);
            let tensor = array.into_dlpack_as::<A>(StreamHandle::LegacyDefault).unwrap();
            let seen = look(&tensor);
            assert_eq!((seen.data, seen.byte_offset), (0, 0), "{shape:?}");
            let back: Array<Vec<u8>> = Array::from_dlpack(tensor).unwrap();
            assert_eq!((back.shape.as_slice(), back.data.len()), (shape, 0));
        }
    }
    case::<Versioned>();
    case::<Legacy>();
}

/// R72, R74, R75, bugs 84, 85, 86, 91: an offset is part of the address, also when the array is exported again.
#[test]
fn offsets_are_folded_into_the_address() {
    let array = Array::strided(HostVec::from([0_u32, 1, 2, 3, 4, 5]), &[3], &[2]);
    let base = array.info().unwrap().address();
    let import = Import::from_dlpack(array.into_dlpack().unwrap()).unwrap();
    let (info, owner) = import.into_parts();
    let claims = RawDescriptor {
        byte_offset: 20,
        dtype: DType::U32,
        strides: Strides::Elements(&[-2]),
        ..RawDescriptor::new(base, Device::CPU, &[3])
    };
    // SAFETY: the owner keeps six elements alive, of which these are three.
    let flipped = unsafe { Import::from_parts(claims.validate().unwrap(), owner) };
    assert_eq!(info.address(), base);
    let lease: Array<LeaseMut<u32>> = Array::from_import(flipped).unwrap();
    assert_eq!(lease.to_vec::<u32>().unwrap(), [5, 3, 1]);
    let tensor = lease.into_dlpack_as::<Legacy>(StreamHandle::LegacyDefault).unwrap();
    let seen = look(&tensor);
    assert_eq!((seen.data, seen.byte_offset, seen.strides), (base + 20, 0, Some(vec![-2])));
    assert_eq!(Array::<Vec<u32>>::from_dlpack(tensor).unwrap().data, [5, 3, 1]);
}

/// R90, bug 115: the ordinal is exported if it has a meaning.
#[test]
fn ordinals() {
    for (device_type, id) in [(1, 0), (2, 9), (3, 0), (13, 0)] {
        let device = Device { device_type: DeviceType(device_type), device_id: 9 };
        let info = RawDescriptor::new(0x1000, device, &[2]).validate().unwrap();
        // SAFETY: nothing is read at the address.
        let tensor = unsafe { export::<Versioned, ()>(&info, (), Ownership::Shared) }.unwrap();
        assert_eq!((look(&tensor).device.device_type.0, look(&tensor).device.device_id), (device_type, id));
    }
}

/// Bug 112: memory on an unknown device is not exported, because no device could be stated.
#[test]
fn an_unknown_device_is_not_exported() {
    let info =
        RawDescriptor { device: None, ..RawDescriptor::new(0x1000, Device::CPU, &[2]) }.validate().unwrap();
    let dropped = Count::default();
    let owner = Counted(dropped.clone(), ());
    // SAFETY: nothing is read at the address.
    let refused = unsafe { export::<Versioned, _>(&info, owner, Ownership::Owned) }.unwrap_err();
    assert_told(&refused.error, (ErrorKind::Device, "device_type", "unknown (0)", "CPU (1), CUDA (2)"));
    assert_eq!(dropped.get(), 0, "the owner comes back");
}

/// R70, R73, bug 136: the flags state whether a consumer may write and whether a copy was made, and nothing else.
#[test]
fn flags_say_how_it_is_held() {
    let rows = [
        (Mutability::Writable, Ownership::Owned, 0),
        (Mutability::Writable, Ownership::Shared, 0),
        (Mutability::Writable, Ownership::Copied, FLAG_IS_COPIED),
        (Mutability::UniqueOwner, Ownership::Owned, 0),
        (Mutability::UniqueOwner, Ownership::Shared, FLAG_READ_ONLY),
        (Mutability::UniqueOwner, Ownership::Copied, FLAG_IS_COPIED),
        (Mutability::ReadOnly, Ownership::Owned, FLAG_READ_ONLY),
        (Mutability::ReadOnly, Ownership::Shared, FLAG_READ_ONLY),
        (Mutability::ReadOnly, Ownership::Copied, FLAG_READ_ONLY | FLAG_IS_COPIED),
    ];
    for (mutability, access, expected) in rows {
        let info =
            RawDescriptor { mutability, ..RawDescriptor::new(0x1000, Device::CPU, &[2]) }.validate().unwrap();
        // SAFETY: nothing is read at the address.
        let tensor = unsafe { export::<Versioned, ()>(&info, (), access) }.unwrap();
        assert_eq!(flags(&tensor), Some(expected), "{mutability:?} {access:?}");
        // SAFETY: as above.
        let legacy = unsafe { export::<Legacy, ()>(&info, (), access) };
        assert_eq!(legacy.is_ok(), expected & FLAG_READ_ONLY == 0, "{mutability:?} {access:?}");
    }
}

/// R66, R67: small floats keep their packing; the legacy form cannot state that they are padded.
#[test]
fn small_floats() {
    let padded = Array::new(vec![MiniFloat::<15>(1); 4], &[4]);
    let refused = padded.into_dlpack_as::<Legacy>(StreamHandle::LegacyDefault).unwrap_err();
    let told = (ErrorKind::Unsupported, "dtype", "float6_e2m3fn", "a versioned tensor");
    assert_told(&refused.error, told);
    let tensor = refused.value.into_dlpack().unwrap();
    assert_eq!((flags(&tensor), look(&tensor).dtype), (Some(FLAG_SUBBYTE_PADDED), DType::F6_E2M3FN));
    let back: Array<Vec<Float6E2m3fn>> = Array::from_dlpack(tensor).unwrap();
    assert_eq!(back.data, [MiniFloat(1); 4]);

    let torch = Array::new(vec![MiniFloat::<17>(0x21); 4], &[4])
        .into_dlpack_as::<Legacy>(StreamHandle::LegacyDefault)
        .unwrap();
    let seen = look(&torch);
    assert_eq!((seen.dtype, seen.shape), (DType { lanes: 2, ..DType::F4_E2M1FN }, Some(vec![4])));
    assert_eq!(Array::<Vec<Float4E2m1fnX2>>::from_dlpack(torch).unwrap().data, [MiniFloat(0x21); 4]);
}

#[derive(Clone, Copy, Debug, PartialEq, Element)]
#[repr(C)]
struct Vertex {
    position: [f32; 3],
    uv: [Uv; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Element)]
#[repr(C)]
struct Uv {
    u: f32,
    v: f32,
}

#[derive(Clone, Copy, Debug, Element)]
#[repr(C)]
struct Mixed {
    a: f32,
    b: i32,
}

/// A struct of equal fields becomes a trailing axis and is imported as the struct again. Others are refused; the
/// error names the alternative.
#[test]
fn structs_of_equal_fields_are_flattened() {
    let vertex = |n: u8| {
        let n = f32::from(n);
        Vertex {
            position: [n, n + 0.25, n + 0.5],
            uv: [Uv { u: -n, v: n * 2.0 }, Uv { u: n + 0.75, v: -1.0 }],
        }
    };
    let vertices: Vec<Vertex> = (0..6).map(vertex).collect();
    let tensor = Array::strided(vertices.clone(), &[3], &[2]).into_dlpack().unwrap();
    let seen = look(&tensor);
    assert_eq!((seen.dtype, seen.shape, seen.strides), (DType::F32, Some(vec![3, 7]), Some(vec![14, 1])));
    let back: Array<Lease<Vertex>> = Array::from_dlpack(tensor).unwrap();
    assert_eq!((back.shape.as_slice(), back.strides.as_deref()), (&[3][..], Some(&[2][..])));
    assert_eq!(back.to_vec::<Vertex>().unwrap(), [vertices[0], vertices[2], vertices[4]]);

    let dropped = Count::default();
    let info = Array::new(vec![Mixed { a: 0.0, b: 0 }], &[1]).info().unwrap();
    // SAFETY: nothing is exported.
    let refused =
        unsafe { export::<Versioned, _>(&info, Counted(dropped.clone(), ()), Ownership::Owned) }.unwrap_err();
    let told = (ErrorKind::DType, "dtype", "struct {a: float32 @0, b: int32 @4}", "all of one scalar type");
    assert_told(&refused.error, told);
    assert_eq!(dropped.get(), 0, "the owner comes back");

    // The trailing axis would be the 65th axis.
    let refused = Array::new(vertices, &[1; 64]).into_dlpack().unwrap_err();
    assert_told(&refused.error, (ErrorKind::Rank, "shape", "65 axes", "64"));
    assert_eq!(refused.value.data.len(), 6);
}

/// Blobs are exported as `OpaqueHandle` with a lane for each byte.
#[test]
fn blobs() {
    let blobs = vec![Opaque(*b"abc"), Opaque(*b"def")];
    let tensor =
        Array::new(blobs.clone(), &[2]).into_dlpack_as::<Legacy>(StreamHandle::LegacyDefault).unwrap();
    assert_eq!(look(&tensor).dtype, DType::new(3, 8, 3));
    assert_eq!(Array::<Vec<Opaque<3>>>::from_dlpack(tensor).unwrap().data, blobs);
}

/// R99, bugs 20, 21, 31: exports are repeatable; each is a separate struct over the same memory.
#[test]
fn exports_are_repeatable() {
    const EXPORTS: usize = if cfg!(miri) { 10 } else { 1000 };
    let array = Arc::new(Array::new(HostVec::from([1_i64, 2, 3, 4]), &[2, 2]));
    let address = array.info().unwrap().address();
    let exports: Vec<ManagedTensor<Versioned>> =
        (0..EXPORTS).map(|_| array.share_dlpack().unwrap()).collect();
    assert_eq!(Arc::strong_count(&array), EXPORTS + 1);
    assert_eq!(exports.iter().map(ManagedTensor::as_ptr).collect::<HashSet<_>>().len(), EXPORTS);
    assert!(exports.iter().all(|tensor| look(tensor).data == address));
    let first = look(&exports[0]);
    drop(array);
    for (at, tensor) in exports.into_iter().enumerate() {
        assert_eq!(look(&tensor), first, "export {at}: the numbers stay as long as it does");
    }
}

fn same(a: &ArrayInfo, b: &ArrayInfo) -> bool {
    (a.address(), a.byte_range(), a.dtype(), a.device())
        == (b.address(), b.byte_range(), b.dtype(), b.device())
        && (a.layout(), a.mutability(), a.is_padded()) == (b.layout(), b.mutability(), b.is_padded())
}

proptest! {
    #![proptest_config(settings())]

    /// Export and import: each layout of each type is preserved (R72).
    #[test]
    fn what_goes_out_comes_back(
        (shape, strides) in small_layouts(),
        dtype in prop::sample::select(vec![
            DType::BOOL, DType::U8, DType::F16, DType::BF16, DType::F32, DType::COMPLEX128, DType::F8_E5M2,
            DType::F4_E2M1FN, DType { lanes: 2, ..DType::F4_E2M1FN }, DType { lanes: 4, ..DType::F32 }, DType::opaque(12),
            DType::new(200, 32, 1),
        ]),
        device in prop::sample::select(vec![Device::CPU, Device::cuda(0), Device::cuda(5), Device::CUDA_MANAGED]),
        writable in any::<bool>(),
        padded in any::<bool>(),
    ) {
        let shape: Vec<i64> = shape.iter().copied().map(signed).collect();
        let strides: Vec<i64> = strides.iter().map(|stride| *stride as i64).collect();
        let mutability = if writable { Mutability::Writable } else { Mutability::ReadOnly };
        let strides = Strides::Elements(&strides);
        let claims = RawDescriptor { dtype, padded, strides, mutability, ..RawDescriptor::new(0x1_0000, device, &shape) };
        let info = claims.validate().unwrap();
        // SAFETY: nothing is read at the address.
        let tensor = unsafe { export::<Versioned, ()>(&info, (), Ownership::Shared) }.unwrap();
        let back = Import::from_dlpack(tensor).unwrap();
        prop_assert!(same(back.info(), &info), "{:?} {:?}", back.info(), info);
    }
}
