//! Foreign structs that are valid, including unusual ones.
#![expect(unsafe_code, reason = "an import is made writable, which is a promise")]

use interop_core::element::MiniFloat;
use interop_core::protocols::dlpack::{
    FLAG_IS_COPIED, FLAG_READ_ONLY, FLAG_SUBBYTE_PADDED, Legacy, Versioned,
};
use interop_core::storage::Mutability;
use interop_core::view::ArrayView;
use interop_core::{
    ArrayInfo, CudaArray, DType, Device, DeviceType, ErrorKind, FromArray, Import, Lease, LeaseMut,
};

use crate::support::arrays::Array;
use crate::support::assert_told;
use crate::support::foreign_tensors::{Claims, Form, look};

type Float4E2m1fnX2 = MiniFloat<{ DType::F4_E2M1FN.code }>;
type Float6E2m3fn = MiniFloat<{ DType::F6_E2M3FN.code }>;

/// The description that an import of these claims has.
fn info<A: Form>(claims: Claims) -> ArrayInfo {
    let (ledger, tensor) = claims.send::<A>();
    let info = Import::from_dlpack(tensor).unwrap().info().clone();
    assert_eq!(ledger.released(), 1);
    info
}

/// The elements of these claims in row-major order.
fn elements<A: Form>(claims: Claims) -> Vec<i16> {
    let (_ledger, tensor) = claims.send::<A>();
    Array::<Lease<i16>>::from_dlpack(tensor).unwrap().to_vec().unwrap()
}

/// An ordinary tensor.
#[test]
fn a_plain_tensor() {
    fn case<A: Form>(mutability: Mutability) {
        let (_ledger, tensor) = Claims { strides: Some(vec![3, 1]), ..Claims::new(&[2, 3]) }.send::<A>();
        let data = look(&tensor).data;
        let info = Import::from_dlpack(tensor).unwrap().info().clone();
        assert_eq!((info.address(), info.byte_range()), (data, data..data + 12));
        assert_eq!((info.shape(), info.strides()), (&[2, 3][..], &[3, 1][..]));
        assert_eq!((info.dtype(), info.device(), info.mutability()), (DType::I16, Device::CPU, mutability));
    }
    case::<Versioned>(Mutability::Writable);
    case::<Legacy>(Mutability::ReadOnly);
}

/// R82, bugs 68, 69: null strides mean contiguous in every version.
#[test]
fn null_strides_are_compact() {
    fn case<A: Form>(version: (u32, u32)) {
        let rows: [(&[i64], &[isize]); 7] = [
            (&[], &[]),
            (&[4], &[1]),
            (&[2, 3], &[3, 1]),
            (&[2, 3, 4], &[12, 4, 1]),
            (&[2, 1, 2, 2], &[4, 4, 2, 1]),
            (&[2, 1, 1, 2, 2], &[4, 4, 4, 2, 1]),
            (&[1, 2, 1, 2, 1, 2, 2], &[16, 8, 8, 4, 4, 2, 1]),
        ];
        for (shape, strides) in rows {
            let claims = Claims { version, strides: None, ..Claims::new(shape) };
            assert_eq!(info::<A>(claims).strides(), strides, "{shape:?} {version:?}");
        }
    }
    for version in [(1, 0), (1, 1), (1, 2), (1, 3)] {
        case::<Versioned>(version);
    }
    case::<Legacy>((0, 0));
}

/// R60: a larger minor version only adds values; each value is checked separately.
#[test]
fn larger_minor_versions_are_read() {
    for minor in [4, 99, u32::MAX] {
        let claims = Claims { version: (1, minor), ..Claims::new(&[3]) };
        assert_eq!(elements::<Versioned>(claims), [0, 1, 2], "1.{minor}");
    }
}

/// R31, R74, R87, bugs 84, 85: `byte_offset` is added, and strides may be negative.
#[test]
fn elements_are_where_they_are_said_to_be() {
    fn case<A: Form>() {
        let whole = Claims::new(&[4, 3]);
        let part = |shape: &[i64], strides: &[i64], byte_offset| Claims {
            shape: Some(shape.to_vec()),
            strides: Some(strides.to_vec()),
            byte_offset,
            ..whole.clone()
        };
        assert_eq!(elements::<A>(part(&[11], &[1], 2)), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
        assert_eq!(elements::<A>(part(&[2, 2], &[6, 2], 2)), [1, 3, 7, 9]);
        assert_eq!(elements::<A>(part(&[3, 4], &[1, 3], 0)), [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11]);
        assert_eq!(elements::<A>(part(&[4], &[-3], 22)), [11, 8, 5, 2]);
        assert_eq!(elements::<A>(part(&[2, 3], &[-6, 1], 18)), [9, 10, 11, 3, 4, 5]);
        assert_eq!(elements::<A>(part(&[2, 3], &[0, 5], 0)), [0, 5, 10, 0, 5, 10]);
        assert_eq!(elements::<A>(part(&[], &[], 14)), [7]);
        assert_eq!(elements::<A>(part(&[1, 2], &[-99, 1], 4)), [2, 3]);
    }
    case::<Versioned>();
    case::<Legacy>();
}

/// R83, bug 80: without axes the pointers are null, and there is one element.
#[test]
fn a_scalar_has_null_pointers() {
    fn case<A: Form>() {
        let scalar = Claims { shape: None, strides: None, ..Claims::new(&[]) };
        assert_eq!(elements::<A>(scalar), [0]);
        // Pointers that are not null are not dereferenced: there is nothing behind them.
        let (_ledger, tensor) =
            Claims { ndim: Some(0), shape: Some(vec![]), strides: Some(vec![]), ..Claims::new(&[]) }
                .send::<A>();
        assert_eq!(Import::from_dlpack(tensor).unwrap().info().numel(), 1);
    }
    case::<Versioned>();
    case::<Legacy>();
}

/// R79, bugs 25, 76, 79: an array without elements may have any address and any strides; none of them is used.
#[test]
fn an_empty_tensor_has_any_address() {
    fn case<A: Form>() {
        for address in [0, 1, 0xDEAD_BEEF, usize::MAX] {
            for strides in
                [None, Some(vec![20, 20, 1]), Some(vec![7, -3, 5]), Some(vec![i64::MAX, i64::MIN, 0])]
            {
                let claims = Claims { strides, byte_offset: u64::MAX, ..Claims::at(address, &[100, 0, 20]) };
                assert_eq!(elements::<A>(claims.clone()), [0_i16; 0]);
                let info = info::<A>(claims);
                assert_eq!((info.address(), info.shape()), (0, &[100, 0, 20][..]));
            }
        }
    }
    case::<Versioned>();
    case::<Legacy>();
}

/// R76, bugs 87, 170: misaligned addresses are imported and can be read by value; a view of the elements refuses
/// them.
#[test]
fn alignment_is_checked_when_it_matters() {
    let odd = || Claims { shape: Some(vec![2]), byte_offset: 1, ..Claims::new(&[3]) };
    let (_ledger, tensor) = odd().send::<Versioned>();
    let array: Array<Lease<i16>> = Array::from_dlpack(tensor).unwrap();
    assert_eq!(array.to_vec::<i16>().unwrap(), [0x0100, 0x0200].map(i16::from_le));
    let error = array.view::<i16, 1>().unwrap().host_view().unwrap_err();
    assert_told(&error, (ErrorKind::Alignment, "data", "address 0x", "a multiple of 2"));
    let (_ledger, tensor) = odd().send::<Versioned>();
    let copied: Array<Vec<i16>> = Array::from_dlpack(tensor).unwrap();
    assert_eq!(copied.data, [0x0100, 0x0200].map(i16::from_le));
}

/// R90, R91, bug 127: the ordinal of host, pinned and managed memory is dropped; that of a GPU is kept.
#[test]
fn ordinals_count_on_gpus_only() {
    let on = |device_type, device_id| {
        let device = Device { device_type, device_id };
        info::<Versioned>(Claims { device, ..Claims::at(0x1000, &[2]) }).device()
    };
    for id in [0, 1, 5, -1] {
        assert_eq!(on(DeviceType::CPU, id), Device::CPU);
        assert_eq!(on(DeviceType::CUDA_HOST, id), Device::CUDA_HOST);
        assert_eq!(on(DeviceType::CUDA_MANAGED, id), Device::CUDA_MANAGED);
    }
    assert_eq!((on(DeviceType::CUDA, 0), on(DeviceType::CUDA, 7)), (Device::cuda(0), Device::cuda(7)));
}

/// R71, R127, bugs 131, 132, 135, 139: the flag is respected, and the form without it counts as read-only.
#[test]
fn the_readonly_flag() {
    let mutability = |flags| info::<Versioned>(Claims { flags, ..Claims::new(&[2]) }).mutability();
    assert_eq!((mutability(0), mutability(FLAG_IS_COPIED)), (Mutability::Writable, Mutability::Writable));
    assert_eq!(
        (mutability(FLAG_READ_ONLY), mutability(FLAG_READ_ONLY | FLAG_IS_COPIED)),
        (Mutability::ReadOnly, Mutability::ReadOnly)
    );
    // Unknown flags have no meaning for elements of whole bytes (R69).
    assert_eq!((mutability(1 << 63), mutability(u64::MAX)), (Mutability::Writable, Mutability::ReadOnly));

    let (_ledger, tensor) = Claims::new(&[2]).send::<Legacy>();
    let refused = Array::<LeaseMut<i16>>::from_import(Import::from_dlpack(tensor).unwrap()).unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::ReadOnly);
    // SAFETY: the memory belongs to the test, and nothing else uses it.
    let import = unsafe { refused.value.assume_writable() };
    let mut array: Array<LeaseMut<i16>> = Array::from_import(import).unwrap();
    array.map_inplace(|element: i16| element + 40).unwrap();
    assert_eq!(array.to_vec::<i16>().unwrap(), [40, 41]);
}

/// R66, R67: packed and padded small floats, and the form that PyTorch sends.
#[test]
fn small_floats() {
    let padded = |dtype, flags| info::<Versioned>(Claims { dtype, flags, ..Claims::at(0x1000, &[5]) });
    let (f4, f6) = (DType::F4_E2M1FN, DType::F6_E2M3FN);
    assert_eq!((padded(f4, 0).nbytes(), padded(f4, FLAG_SUBBYTE_PADDED).nbytes()), (3, 5));
    assert_eq!((padded(f6, 0).nbytes(), padded(f6, FLAG_SUBBYTE_PADDED).nbytes()), (4, 5));
    assert!(!padded(DType::I16, FLAG_SUBBYTE_PADDED).is_padded(), "whole bytes need no padding");
    let torch = padded(DType { lanes: 2, ..f4 }, 0);
    // SAFETY: nothing is read at the address.
    assert!(unsafe { ArrayView::<Float4E2m1fnX2, 1>::from_info(&torch) }.is_ok());
    // SAFETY: as above.
    assert!(unsafe { ArrayView::<Float6E2m3fn, 1>::from_info(&padded(f6, FLAG_SUBBYTE_PADDED)) }.is_ok());
    // SAFETY: as above.
    let packed = unsafe { ArrayView::<Float6E2m3fn, 1>::from_info(&padded(f6, 0)) };
    assert_eq!(packed.unwrap_err().kind(), ErrorKind::DType, "a byte each is not how they lie");
}

/// R64, bug 110: lanes are parts of an element, not an axis.
#[test]
fn vector_types_are_array_elements() {
    let dtype = DType { lanes: 3, ..DType::I16 };
    let (_ledger, tensor) =
        Claims { dtype, shape: Some(vec![2, 2]), strides: None, ..Claims::new(&[12]) }.send::<Versioned>();
    let array: Array<Lease<[i16; 3]>> = Array::from_dlpack(tensor).unwrap();
    assert_eq!(array.shape, [2, 2]);
    assert_eq!(array.to_vec::<[i16; 3]>().unwrap(), [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]);
    for other in [array.view::<i16, 2>().map(|_| ()), array.view::<[i16; 2], 2>().map(|_| ())] {
        // The struct has the elements of its storage, with three parts each.
        assert!(other.is_err());
    }
}

/// Packed lanes share bytes, so they are not parts of an element with a byte each.
#[test]
fn packed_lanes_are_not_padded_parts() {
    let dtype = DType { lanes: 4, ..DType::F6_E2M3FN };
    let lanes = |flags| info::<Versioned>(Claims { dtype, flags, ..Claims::at(0x1000, &[5]) });
    assert_eq!((lanes(0).nbytes(), lanes(FLAG_SUBBYTE_PADDED).nbytes()), (15, 20));
    // SAFETY: nothing is read at the address.
    let packed = unsafe { ArrayView::<[Float6E2m3fn; 4], 1>::from_info(&lanes(0)) };
    assert_eq!(packed.map(|view| view.shape()).unwrap_err().kind(), ErrorKind::DType);
    // SAFETY: as above.
    let padded = unsafe { ArrayView::<[Float6E2m3fn; 4], 1>::from_info(&lanes(FLAG_SUBBYTE_PADDED)) };
    assert_eq!(padded.unwrap().shape(), [5]);
}

/// Bug 70: the producer's shape and strides are read and not changed.
#[test]
fn the_struct_is_not_written() {
    fn case<A: Form>() {
        let claims = Claims { strides: Some(vec![-7, 3, 1]), byte_offset: 4, ..Claims::new(&[1, 2, 3]) };
        let (_ledger, tensor) = Claims { shape: Some(vec![1, 1, 3]), ..claims }.send::<A>();
        let before = look(&tensor);
        let info = tensor.info().unwrap();
        assert_eq!(info.strides(), [3, 3, 1], "an idle axis runs forward in the facts");
        assert_eq!(look(&tensor), before);
    }
    case::<Versioned>();
    case::<Legacy>();
}
