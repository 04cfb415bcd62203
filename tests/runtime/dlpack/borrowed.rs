//! Bare tensors, which own nothing: borrowed from another library, and lent to one.
#![expect(unsafe_code, reason = "reads tensors as another library does")]

use core::ptr::{null, null_mut};

use interop_core::lent::{Borrowed, BorrowedMut, BorrowedTensor, LentTensor};
use interop_core::protocols::dlpack::DLTensor;
use interop_core::storage::Mutability;
use interop_core::{CudaArray, DType, Device, Element, ErrorKind, HostVec, StreamHandle};

use crate::support::arrays::Array;
use crate::support::signed;

const NOTHING: StreamHandle = StreamHandle::NothingPending;

/// A tensor of `float32` in C order.
fn tensor(values: *mut f32, shape: &mut [i64]) -> DLTensor {
    DLTensor {
        data: values.cast(),
        device: Device::CPU,
        ndim: signed(shape.len()),
        dtype: DType::F32,
        shape: shape.as_mut_ptr(),
        strides: null_mut(),
        byte_offset: 0,
    }
}

fn borrowed<'a>(tensor: &DLTensor, mutability: Mutability) -> interop_core::Result<BorrowedTensor<'a>> {
    // SAFETY: the tests describe live memory, or what is refused.
    unsafe { BorrowedTensor::new(tensor, mutability) }
}

#[test]
fn borrowed_memory_is_read_and_written_in_place() {
    let mut values = [0.0_f32, 1.0, 2.0, 3.0, 4.0, 5.0];
    let (mut shape, mut strides) = ([2, 2], [-3, 2]);
    let lent = DLTensor {
        strides: strides.as_mut_ptr(),
        byte_offset: 12,
        ..tensor(values.as_mut_ptr(), &mut shape)
    };
    let mut array = borrowed(&lent, Mutability::Writable).unwrap();
    // Only the memory is borrowed.
    (shape, strides) = ([0, 0], [0, 0]);
    assert_eq!((array.to_vec::<f32>().unwrap(), shape, strides), (vec![3.0, 5.0, 0.0, 2.0], [0, 0], [0, 0]));
    array.map_inplace(|value: f32| -value).unwrap();
    assert_eq!(values.map(f32::to_bits), [-0.0, 1.0, -2.0, -3.0, 4.0, -5.0].map(f32::to_bits));

    let mut array = borrowed(&tensor(values.as_mut_ptr(), &mut [6]), Mutability::ReadOnly).unwrap();
    assert_eq!(array.fill(0.0_f32).unwrap_err().kind(), ErrorKind::ReadOnly);
}

#[test]
fn bad_tensors_are_refused() {
    let mut values = [0.0_f32; 6];
    let pointer = values.as_mut_ptr();
    let kind = |tensor: DLTensor| borrowed(&tensor, Mutability::Writable).err().map(|error| error.kind());
    assert_eq!(kind(tensor(pointer, &mut [2, -1])), Some(ErrorKind::Shape));
    assert_eq!(kind(tensor(null_mut(), &mut [2])), Some(ErrorKind::NullPointer));
    assert_eq!(
        kind(DLTensor { shape: null_mut(), ..tensor(pointer, &mut [2]) }),
        Some(ErrorKind::NullPointer)
    );
    assert_eq!(
        kind(DLTensor { dtype: DType::new(2, 0, 1), ..tensor(pointer, &mut [2]) }),
        Some(ErrorKind::DType)
    );
    assert_eq!(kind(DLTensor { ndim: -1, ..tensor(pointer, &mut [2]) }), Some(ErrorKind::Rank));
    let unknown = Device { device_type: interop_core::DeviceType(99), device_id: 0 };
    assert_eq!(kind(DLTensor { device: unknown, ..tensor(pointer, &mut [2]) }), Some(ErrorKind::Device));
    assert_eq!(kind(tensor(null_mut(), &mut [0])), None);
    // SAFETY: a null pointer is refused.
    let none = unsafe { BorrowedTensor::new(null(), Mutability::ReadOnly) };
    assert_eq!(none.unwrap_err().kind(), ErrorKind::NullPointer);
}

#[test]
fn lent_arrays_describe_their_memory() {
    let mut array = Array::strided(HostVec::from([0_i16, 1, 2, 3, 4, 5]), &[3, 2], &[1, 3]);
    let address = array.info().unwrap().address();
    let lent = LentTensor::new_mut(&mut array, NOTHING).unwrap();
    let moved = [lent];
    // SAFETY: the tensor is live.
    let read = unsafe { moved[0].as_ptr().read() };
    assert_eq!((read.data.addr(), read.ndim, read.byte_offset, read.dtype), (address, 2, 0, DType::I16));
    // SAFETY: the tensor lends live memory, which nothing else uses meanwhile.
    let mut back = unsafe { BorrowedTensor::new(moved[0].as_ptr(), Mutability::Writable) }.unwrap();
    back.map_inplace(|value: i16| value * 10).unwrap();
    drop((back, moved));
    assert_eq!(array.to_vec::<i16>().unwrap(), [0, 30, 10, 40, 20, 50]);
}

#[test]
fn what_a_bare_tensor_cannot_say_is_refused() {
    #[derive(Clone, Copy, Element)]
    #[repr(C)]
    struct Point {
        x: f32,
        y: f32,
    }

    let kind = |lent: interop_core::Result<LentTensor<'_>>| lent.err().map(|error| error.kind());
    let mut read_only = Array::new(std::sync::Arc::new(HostVec::from([1_u8])), &[1]);
    assert_eq!(kind(LentTensor::new_mut(&mut read_only, NOTHING)), None, "a shared `HostVec` is writable");
    let mut read_only = Array::new(&[1_u8][..], &[1]);
    assert_eq!(kind(LentTensor::new_mut(&mut read_only, NOTHING)), Some(ErrorKind::ReadOnly));
    assert_eq!(kind(LentTensor::new(&read_only, NOTHING)), None);
    let mut broadcast = Array::strided(HostVec::from([1_u8]), &[4], &[0]);
    assert_eq!(kind(LentTensor::new_mut(&mut broadcast, NOTHING)), Some(ErrorKind::Strides));
    let padded = Array::new(
        HostVec::from([interop_core::element::MiniFloat::<{ DType::F6_E2M3FN.code }>::default()]),
        &[1],
    );
    assert_eq!(kind(LentTensor::new(&padded, NOTHING)), Some(ErrorKind::Unsupported));
    let points = Array::new(vec![Point { x: 1.0, y: 2.0 }; 3], &[3]);
    let lent = LentTensor::new(&points, NOTHING).unwrap();
    // SAFETY: the tensor lends live memory.
    let back = unsafe { BorrowedTensor::new(lent.as_ptr(), Mutability::ReadOnly) }.unwrap();
    assert_eq!(back.info().unwrap().shape(), [3, 2]);
    assert_eq!(back.to_vec::<f32>().unwrap(), [1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
}

#[derive(Debug, CudaArray)]
#[cuda_array(shape = [len])]
struct Row<S> {
    #[cuda_array(data)]
    values: S,
    len: usize,
}

#[test]
fn structs_borrow_the_memory() {
    let mut values = [1.0_f32, 2.0, 3.0];
    let mut shape = [3];
    let lent = tensor(values.as_mut_ptr(), &mut shape);
    let row: Row<Borrowed<'_, f32>> = borrowed(&lent, Mutability::ReadOnly).unwrap().into_array().unwrap();
    assert_eq!((row.len, row.to_vec::<f32>().unwrap()), (3, vec![1.0, 2.0, 3.0]));
    let copy: Row<Vec<f32>> = borrowed(&lent, Mutability::ReadOnly).unwrap().into_array().unwrap();
    let mut row: Row<BorrowedMut<'_, f32>> =
        borrowed(&lent, Mutability::Writable).unwrap().into_array().unwrap();
    row.map_inplace(|value: f32| value * 2.0).unwrap();
    assert_eq!((values, copy.values), ([2.0, 4.0, 6.0], vec![1.0, 2.0, 3.0]));
}

/// What does not fit is returned, and can become another struct.
#[test]
fn tensors_that_do_not_fit_are_returned() {
    let mut values = [1.0_f32, 2.0, 3.0];
    let mut shape = [3];
    let lent = tensor(values.as_mut_ptr(), &mut shape);
    let read_only = borrowed(&lent, Mutability::ReadOnly).unwrap();
    let refused = read_only.into_array::<Row<BorrowedMut<'_, f32>>>().unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::ReadOnly);
    let refused = refused.value.into_array::<Row<Borrowed<'_, i32>>>().unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::DType);
    let row: Row<Borrowed<'_, f32>> = refused.value.into_array().unwrap();
    assert_eq!(row.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0]);
}

/// Two structs of one memory are two arrays.
#[test]
fn borrowed_memory_has_one_writer_at_a_time() {
    let mut values = [1.0_f32, 2.0, 3.0];
    let mut shape = [3];
    let lent = tensor(values.as_mut_ptr(), &mut shape);
    let new = || borrowed(&lent, Mutability::Writable).unwrap();
    let mut to: Row<BorrowedMut<'_, f32>> = new().into_array().unwrap();
    let from: Row<Borrowed<'_, f32>> = new().into_array().unwrap();
    let error = to.zip_map_inplace(&from, |_: f32, value: f32| value).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyBorrowed);
}
