//! Imports that copy: strided memory is gathered in the memory order of the struct.

use std::sync::Arc;

use interop_core::protocols::dlpack::{ManagedTensor, Versioned};
use interop_core::storage::{FromImport, copy_import};
use interop_core::{
    CudaArray, DType, Device, Element, ErrorKind, FromArray, HostVec, Import, Lease, Order, SharedBuffer,
    StreamHandle,
};
use proptest::prelude::*;

use crate::support::arrays::{Array, Fortran, Matrix};
use crate::support::assert_told;
use crate::support::brute_force::{offsets, offsets_in_f_order, settings, small_layouts};
use crate::support::foreign_tensors::Claims;
use crate::support::signed;

/// An array with these strides over the numbers 0, 1, 2, …, and its elements in row-major and in column-major order.
fn numbers(shape: &[usize], strides: &[isize]) -> (Array<SharedBuffer>, Vec<i16>, Vec<i16>) {
    let visited = offsets(shape, strides);
    let low = visited.iter().min().copied().unwrap_or(0);
    let len = usize::try_from(visited.iter().max().map_or(0, |highest| highest - low + 1)).unwrap();
    let all: Vec<i16> = (0..i16::try_from(len).unwrap()).collect();
    let values =
        |offsets: Vec<i128>| offsets.iter().map(|offset| i16::try_from(offset - low).unwrap()).collect();
    let first =
        SharedBuffer::new(HostVec::from(all)).byte_offset(isize::try_from(-low).unwrap() * 2).unwrap();
    let array = Array::strided(first, shape, strides);
    (array, values(visited), values(offsets_in_f_order(shape, strides)))
}

proptest! {
    #![proptest_config(settings())]

    /// Bugs 63, 71, 93, 94, 95: a copy holds the elements at the indices and is contiguous.
    #[test]
    fn copies_hold_what_the_indices_name((shape, strides) in small_layouts()) {
        let (array, c, _) = numbers(&shape, &strides);
        let export = |array: Array<SharedBuffer>| array.into_dlpack().unwrap();
        prop_assert_eq!(&array.to_vec::<i16>().unwrap(), &c);
        let copy: Array<Vec<i16>> = Array::from_dlpack(export(array)).unwrap();
        prop_assert_eq!((&copy.data, &copy.shape), (&c, &shape));
        let info = copy.info().unwrap();
        prop_assert!(info.layout().is_contiguous(Order::C), "bug 94: the strides are those of the copy");
    }

    /// The same for a struct in column-major order, and for each storage that copies.
    #[test]
    fn every_copy_has_the_order_of_its_struct(
        rows in 0_usize..5, columns in 0_usize..5, down in -7_isize..8, across in -7_isize..8,
    ) {
        let (array, c, f) = numbers(&[rows, columns], &[down, across]);
        let array = Arc::new(array);
        let send = || -> ManagedTensor<Versioned> { array.share_dlpack().unwrap() };
        let fortran: Fortran<Vec<i16>> = Fortran::from_dlpack(send()).unwrap();
        prop_assert_eq!(&fortran.data, &f);
        prop_assert_eq!(fortran.to_vec::<i16>().unwrap(), c.clone());
        let boxed: Fortran<Box<[i16]>> = Fortran::from_dlpack(send()).unwrap();
        prop_assert_eq!(boxed.data.to_vec(), f.clone());
        let counted: Matrix<Arc<[i16]>> = Matrix::from_dlpack(send()).unwrap();
        prop_assert_eq!(counted.data.to_vec(), c);
        let mut host: Fortran<HostVec<i16>> = Fortran::from_dlpack(send()).unwrap();
        prop_assert_eq!(host.data.as_mut_slice().unwrap(), &f[..]);
        prop_assert_eq!((host.rows, host.columns), (rows, columns));
    }

    /// Elements that are arrays or structs are gathered as a whole.
    #[test]
    fn elements_of_parts_are_gathered_whole(
        len in 0_usize..6,
        step in prop_oneof![-3_isize..0, 1_isize..4],
    ) {
        let all: Vec<[u8; 3]> = (0..40).map(|at| [at, at + 100, at ^ 0xFF]).collect();
        let start: isize = if step < 0 { signed::<_, isize>(len) * -step } else { 0 };
        let first = SharedBuffer::new(all.clone()).byte_offset(3 * start).unwrap();
        let array = Array::strided(first, &[len], &[step]);
        let copy: Array<Vec<[u8; 3]>> = Array::from_dlpack(array.into_dlpack().unwrap()).unwrap();
        let element = |at: isize| all[signed::<isize, usize>(start + at * step)];
        let expected: Vec<[u8; 3]> = (0..signed(len)).map(element).collect();
        prop_assert_eq!(copy.data, expected);
    }
}

fn refused<S: FromImport + std::fmt::Debug>() {
    let claims = Claims { device: Device::cuda(0), ..Claims::at(0x1000, &[3]) };
    let (ledger, tensor) = claims.send::<Versioned>();
    let import = Import::from_dlpack(tensor).unwrap();
    let mut refused = Array::<S>::from_import(import).unwrap_err();
    let told = (ErrorKind::Device, "device", "CUDA (2), ordinal 0", "");
    assert_told(&refused.error, told);
    // The storage itself refuses too and leaves the import whole.
    let error = S::from_import(&mut refused.value, Order::C).unwrap_err();
    assert_eq!((error.kind(), ledger.released()), (ErrorKind::Device, 0));
}

/// Copies are made in host memory: the memory of a GPU is refused; pinned and managed memory is accepted (bugs 117,
/// 118).
#[test]
fn copies_come_from_memory_that_the_host_reaches() {
    for device in [Device::CPU, Device::CUDA_HOST, Device::CUDA_MANAGED] {
        let (_ledger, tensor) = Claims { device, ..Claims::new(&[3]) }.send::<Versioned>();
        assert_eq!(Array::<Vec<i16>>::from_dlpack(tensor).unwrap().data, [0, 1, 2], "{device}");
    }
    refused::<Vec<i16>>();
    refused::<Box<[i16]>>();
    refused::<Arc<[i16]>>();
    refused::<HostVec<i16>>();
}

/// No stream works on memory that only the host can access. A description with such a stream is refused and not
/// copied.
#[test]
#[expect(unsafe_code, reason = "facts with a pending stream are put together by hand")]
fn copies_do_not_overtake_pending_work() {
    let array = Array { stream: StreamHandle::LegacyDefault, ..Array::new(HostVec::from([1_i16, 2]), &[2]) };
    let told = (
        ErrorKind::Stream,
        "stream",
        "work pending on the legacy default stream (1)",
        "CPU memory has no pending work",
    );
    assert_told(&array.to_vec::<i16>().unwrap_err(), told);
    assert_told(&array.fold((), |(), _: i16| ()).unwrap_err(), told);
    let info = array.info().unwrap();
    // SAFETY: the array owns its memory.
    let import = unsafe { Import::from_parts(info, interop_core::storage::Owner::new(array)) };
    let refused = Array::<Vec<i16>>::from_import(import).unwrap_err();
    assert_told(&refused.error, told);
    let lease: Array<Lease<i16>> = Array::from_import(*refused.value).unwrap();
    assert_eq!(lease.stream, StreamHandle::LegacyDefault, "whoever uses it in place is told");
}

/// Bug 99: bytes other than 0 and 1 are refused before they become a `bool`; as `u8` they are valid.
#[test]
fn bytes_that_are_no_bool() {
    let bytes = |last: i16| {
        let claims = Claims { dtype: DType::BOOL, shape: Some(vec![4]), ..Claims::new(&[2]) };
        let memory = Some(vec![i16::from_ne_bytes([1, 0]), last]);
        let (_ledger, tensor) = Claims { memory, ..claims }.send::<Versioned>();
        Import::from_dlpack(tensor).unwrap()
    };
    let good = i16::from_ne_bytes([1, 1]);
    let array: Array<Vec<bool>> = Array::from_import(bytes(good)).unwrap();
    assert_eq!(array.data, [true, false, true, true]);

    let bad = bytes(i16::from_ne_bytes([1, 2]));
    let told = (ErrorKind::DType, "data", "the byte 2 in a bool", "view the array as `u8`");
    let refused = Array::<Vec<bool>>::from_import(bad).unwrap_err();
    assert_told(&refused.error, told);
    let refused = Array::<HostVec<bool>>::from_import(*refused.value).unwrap_err();
    assert_told(&refused.error, told);
    let refused = Array::<Vec<u8>>::from_import(*refused.value).unwrap_err();
    assert_told(&refused.error, (ErrorKind::DType, "dtype", "bool", "uint8"));
    let lease: Array<Lease<bool>> = Array::from_import(*refused.value).unwrap();
    let view = lease.view::<bool, 1>().unwrap().host_view().unwrap();
    assert!(view.read([0]).unwrap(), "a good byte among bad ones is read");
    assert_told(&view.read([3]).unwrap_err(), told);
    drop(view);
    assert_told(&lease.to_vec::<bool>().unwrap_err(), told);
}

/// Types are never confused, even if their bytes are alike (bugs 99, 100, 101, 107).
#[test]
fn types_are_compared() {
    fn refused<T: Element + std::fmt::Debug>(dtype: DType) {
        let (_ledger, tensor) = Claims { dtype, ..Claims::new(&[2]) }.send::<Versioned>();
        let error = Array::<Vec<T>>::from_dlpack(tensor).unwrap_err();
        assert_told(&error, (ErrorKind::DType, "dtype", &dtype.to_string(), &T::TYPE.dtype().to_string()));
    }
    refused::<u16>(DType::I16);
    refused::<i16>(DType::U16);
    refused::<i16>(DType::F16);
    refused::<i16>(DType::BF16);
    refused::<bool>(DType::U8);
    refused::<u8>(DType::BOOL);
    refused::<u8>(DType::F8_E4M3);
    refused::<i8>(DType::U8);
    refused::<i16>(DType::opaque(2));
    refused::<i16>(DType { lanes: 2, ..DType::I8 });
}

/// A storage of another allocator copies host memory where there is no driver.
#[test]
#[expect(unsafe_code, reason = "the target is memory of the test")]
fn host_memory_is_copied_without_a_driver() {
    let (array, c, f) = numbers(&[3, 4], &[1, -3]);
    let mut import = Import::from_dlpack(array.into_dlpack().unwrap()).unwrap();
    for (order, expected) in [(Order::C, c), (Order::F, f)] {
        let mut target = vec![-1_i16; 12];
        // SAFETY: the vector has room for the elements, and nobody else uses it.
        unsafe { copy_import(&mut import, order, target.as_mut_ptr()) }.unwrap();
        assert_eq!(target, expected);
    }
    // SAFETY: nothing is written.
    let error = unsafe { copy_import::<f32>(&mut import, Order::C, core::ptr::null_mut()) }.unwrap_err();
    assert_told(&error, (ErrorKind::DType, "dtype", "int16", "float32"));
}
