//! Foreign structs that are valid: their elements, and what a struct makes of them. The corpus has the descriptions.
#![expect(unsafe_code, reason = "an import is made writable, which is a promise")]

use interop_core::element::MiniFloat;
use interop_core::protocols::dlpack::{FLAG_SUBBYTE_PADDED, Legacy, Versioned};
use interop_core::view::ArrayView;
use interop_core::{ArrayInfo, CudaArray, DType, ErrorKind, FromArray, Import, Lease, LeaseMut};

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

/// R127: the form without a flag counts as read-only, unless the caller says otherwise.
#[test]
fn a_legacy_tensor_is_made_writable() {
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
