//! Arrays that repeat their elements so often that all of them together have more bytes than an address space.

use interop_core::storage::HostBuffer;
use interop_core::{CudaArray, Device, Element, ErrorKind, FromArray, HostVec, Import, Lease, LeaseMut};

use crate::support::arrays::{Array, Claimed, GPU_ADDRESS};

/// Shapes and strides over six elements.
const LAYOUTS: [(&[usize], &[isize]); 6] = [
    (&[1 << 31, 1 << 31], &[0, 0]),
    (&[1 << 31, 1 << 30, 2], &[0, 0, 1]),
    (&[2, 1 << 61], &[1, 0]),
    (&[(1 << 63) - 1], &[0]),
    (&[1 << 20, 3, 1 << 20, 1, 2, 1 << 19], &[0, 2, 0, isize::MAX, 1, 0]),
    (&[1, 3, 1 << 61], &[isize::MIN, 2, 0]),
];

fn arrays<T: Element>() -> impl Iterator<Item = Array<HostVec<T>>> {
    LAYOUTS.into_iter().map(|(shape, strides)| Array::strided(HostVec::zeroed(6), shape, strides))
}

/// Each index leads to its element, and an index outside is an error.
#[test]
fn views_of_them_are_read() {
    let numbers = || (0_u8..6).map(f32::from).collect::<HostVec<f32>>();
    let array = Array::strided(numbers(), &[1 << 31, 1 << 30, 2], &[0, 0, 1]);
    let view = array.view::<f32, 3>().unwrap();
    let view = view.host_view().unwrap();
    assert_eq!(view.read([(1 << 31) - 1, (1 << 30) - 1, 1]), Ok(1.0));
    assert_eq!(view.read([1 << 31, 0, 0]).unwrap_err().kind(), ErrorKind::IndexOutOfBounds);
    assert_eq!(view.iter().take(3).collect::<Vec<_>>(), [0.0, 1.0, 0.0]);
    let array = Array::strided(numbers(), &[2, 1 << 61], &[5, 0]);
    let view = array.view::<f32, 2>().unwrap();
    assert_eq!(view.host_view().unwrap().read([1, 1 << 60]), Ok(5.0));
}

fn descriptions<T: Element>() {
    for array in arrays::<T>() {
        let info = array.info().unwrap();
        let numel: usize = array.shape.iter().product();
        assert_eq!((info.numel(), info.nbytes()), (numel, numel.saturating_mul(size_of::<T>())));
        assert!(info.byte_range().len() <= 6 * size_of::<T>());
        assert!(!info.layout().is_injective());
        let strides = info.byte_strides().unwrap();
        let moving = array.shape.iter().zip(info.strides()).zip(&strides);
        for ((extent, stride), bytes) in moving {
            assert!(*extent == 1 || *bytes == stride * size_of::<T>() as isize);
        }
    }
}

#[test]
fn they_are_described() {
    descriptions::<u8>();
    descriptions::<f32>();
    descriptions::<f64>();
}

fn imported<T: Element>(array: Array<HostVec<T>>) -> Import {
    Import::from_dlpack(array.into_dlpack().unwrap()).unwrap()
}

/// An import for reading is in place, and one for writing is refused when it writes.
#[test]
fn they_are_imported() {
    for array in arrays::<f32>() {
        let (shape, strides) = (array.shape.clone(), array.strides.clone().unwrap());
        let lease = Array::<Lease<f32>>::from_import(imported(array)).unwrap();
        assert_eq!((&lease.shape, lease.info().unwrap().numel()), (&shape, shape.iter().product()));
        let array = Array::strided(HostVec::<f32>::zeroed(6), &shape, &strides);
        let error = match Array::<LeaseMut<f32>>::from_import(imported(array)) {
            Ok(mut array) => array.fill(1.0_f32).unwrap_err(),
            Err(refused) => refused.error,
        };
        assert_eq!(error.kind(), ErrorKind::Strides);
    }
}

fn copies<T: Element + core::fmt::Debug>() {
    let refusal = |refused: interop_core::Refused<Import>| {
        let kind = refused.error.kind();
        assert!(matches!(kind, ErrorKind::OutOfMemory | ErrorKind::Overflow), "{}", refused.error);
        *refused.value
    };
    for array in arrays::<T>() {
        let error = array.to_vec::<T>().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::OutOfMemory | ErrorKind::Overflow), "{error}");
        let import = refusal(Array::<HostVec<T>>::from_import(imported(array)).unwrap_err());
        let import = refusal(Array::<Vec<T>>::from_import(import).unwrap_err());
        drop(refusal(Array::<HostBuffer>::from_import(import).unwrap_err()));
    }
}

/// All elements do not fit into memory, which is an error.
#[test]
fn they_are_not_copied() {
    copies::<u8>();
    copies::<f32>();
    copies::<f64>();
}

/// A kernel gets the strides of 0.
#[test]
fn views_for_kernels() {
    for (shape, strides) in LAYOUTS {
        let array = Array::strided(Claimed::gpu::<f32>(6, 0), shape, strides);
        let info = array.info().unwrap();
        assert_eq!(info.byte_range().start, GPU_ADDRESS);
        assert_eq!(info.device(), Device::cuda(0));
        assert!(array.to_cai().is_ok());
        if let ([_, _], Ok(view)) = (shape, array.view::<f32, 2>()) {
            let view = view.kernel_view().unwrap();
            assert_eq!((view.numel(), view.strides()), (shape.iter().product(), [strides[0] as i64, 0]));
        }
    }
}
