//! `data`: the storage states who owns the memory, where it is, and who may write to it.

use std::sync::Arc;

use interop_core::storage::Mutability;
use interop_core::{CudaArray, Device, FromArray, HostVec, Lease, LeaseMut, SharedBuffer, Storage};

use crate::support::{Foreign, count};

#[derive(CudaArray)]
struct Samples<S> {
    #[cuda_array(data)]
    values: S,
    #[cuda_array(shape)]
    shape: Vec<usize>,
}

#[test]
fn facts_are_those_of_the_fields() {
    let samples = Samples { values: count(6), shape: vec![2, 3] };
    let info = samples.info().unwrap();
    assert_eq!(info.shape(), [2, 3]);
    assert_eq!(info.strides(), [3, 1]);
    assert_eq!(info.address(), samples.values.as_ptr().addr());
    assert_eq!(info.byte_range().len(), 24);
    assert_eq!(info.dtype(), interop_core::DType::F32);
    assert_eq!(info.device(), Device::CPU);
    assert_eq!(info.stream(), Some(interop_core::StreamHandle::NothingPending));
}

/// Borrowed memory is read in place. A struct that borrows cannot be exported.
#[test]
fn a_slice_of_somebody_else_is_viewed() {
    #[derive(CudaArray)]
    #[cuda_array(shape = [rows, 2], export)]
    struct Rows<'a, T> {
        #[cuda_array(data)]
        values: &'a [T],
        rows: usize,
    }

    let values = count(6);
    let rows = Rows { values: &values[2..], rows: 2 };
    assert_eq!(rows.info().unwrap().address(), values[2..].as_ptr().addr());
    assert_eq!(rows.view::<f32, 2>().unwrap().strides(), [2, 1]);
    assert_eq!(rows.to_vec::<[f32; 2]>().unwrap(), [[2.0, 3.0], [4.0, 5.0]]);
    assert_eq!(rows.info().unwrap().mutability(), Mutability::ReadOnly);
}

#[test]
fn a_shape_beyond_the_storage_is_refused() {
    let error = Samples { values: count(5), shape: vec![2, 3] }.info().unwrap_err();
    assert_eq!(error.kind(), interop_core::ErrorKind::OutOfBounds);
}

#[test]
fn who_may_write_depends_on_the_storage() {
    let vec = Samples { values: count(2), shape: vec![2] };
    assert_eq!(vec.info().unwrap().mutability(), Mutability::UniqueOwner);
    let host = Samples { values: HostVec::from(count(2)), shape: vec![2] };
    assert_eq!(host.info().unwrap().mutability(), Mutability::Writable);
    let shared: Samples<Arc<[f32]>> = Samples { values: count(2).into(), shape: vec![2] };
    assert_eq!(shared.info().unwrap().mutability(), Mutability::ReadOnly);
    let fixed = Samples { values: &[1.0_f32, 2.0][..], shape: vec![2] };
    assert_eq!(fixed.info().unwrap().mutability(), Mutability::ReadOnly);
}

#[test]
fn an_owned_storage_copies_an_import_and_releases_it() {
    let (import, receipt) = Foreign::new(&count(6), &[2, 3]).send();
    let samples = Samples::<Vec<f32>>::from_import(import).unwrap();
    assert_eq!(receipt.releases(), 1, "the copy needs the memory no more");
    assert_eq!(samples.values, count(6));
    assert_eq!(samples.shape, [2, 3]);
    assert_ne!(samples.info().unwrap().address(), receipt.address);
    drop(samples);
    assert_eq!(receipt.releases(), 1);
}

#[test]
fn a_lease_keeps_an_import_in_place_until_it_is_dropped() {
    let (import, receipt) = Foreign::new(&count(6), &[6]).send();
    let samples = Samples::<Lease<f32>>::from_import(import).unwrap();
    assert_eq!(samples.info().unwrap().address(), receipt.address);
    assert!(samples.info().unwrap().is_read_only());
    assert_eq!(receipt.releases(), 0);
    drop(samples);
    assert_eq!(receipt.releases(), 1);
}

#[test]
fn a_refused_import_comes_back_whole() {
    let (import, receipt) = Foreign::new(&count(6), &[6]).send();
    let refused = Samples::<Vec<f64>>::from_import(import).err().unwrap();
    assert_eq!(refused.error.kind(), interop_core::ErrorKind::DType);
    assert_eq!(receipt.releases(), 0, "nothing was taken");
    let samples = Samples::<Vec<f32>>::from_import(*refused.value).unwrap();
    assert_eq!(samples.values, count(6));
    assert_eq!(receipt.releases(), 1);
}

#[test]
fn a_writable_lease_refuses_read_only_memory() {
    let (import, receipt) =
        Foreign { mutability: Mutability::ReadOnly, ..Foreign::new(&count(2), &[2]) }.send();
    let refused = Samples::<LeaseMut<f32>>::from_import(import).err().unwrap();
    assert_eq!(refused.error.kind(), interop_core::ErrorKind::ReadOnly);
    drop(refused);
    assert_eq!(receipt.releases(), 1);
}

#[test]
fn a_storage_of_any_type_takes_what_comes() {
    let (import, receipt) = Foreign::new(&[1_u16, 2, 3], &[3]).send();
    let samples = Samples::<SharedBuffer>::from_import(import).unwrap();
    assert_eq!(samples.info().unwrap().dtype(), interop_core::DType::U16);
    assert_eq!(samples.info().unwrap().address(), receipt.address);
}

#[test]
fn one_array_goes_out_and_back_without_a_copy() {
    let samples = Arc::new(Samples { values: HostVec::from(count(6)), shape: vec![3, 2] });
    let address = samples.info().unwrap().address();
    let first = Samples::<Lease<f32>>::from_dlpack(samples.share_dlpack().unwrap()).unwrap();
    let second = Samples::<LeaseMut<f32>>::from_dlpack(samples.share_dlpack().unwrap()).unwrap();
    assert_eq!(first.info().unwrap().address(), address);
    assert_eq!(second.info().unwrap().address(), address);
    assert_eq!(second.shape, [3, 2]);
    assert_eq!(Arc::strong_count(&samples), 3);
    drop((first, second));
    assert_eq!(Arc::strong_count(&samples), 1);
}

#[derive(CudaArray)]
#[cuda_array(shape = [len], export)]
struct AnyStorage {
    #[cuda_array(data)]
    values: Arc<dyn Storage + Send + Sync>,
    len: usize,
}

#[test]
fn the_storage_can_be_known_at_run_time_only() {
    let floats = AnyStorage { values: Arc::new(count(3)), len: 3 };
    let bytes = AnyStorage { values: Arc::new(HostVec::from([7_u8, 8])), len: 2 };
    assert_eq!(floats.info().unwrap().dtype().to_string(), "float32");
    let bytes: Samples<Vec<u8>> = Samples::from_dlpack(bytes.into_dlpack().unwrap()).unwrap();
    assert_eq!(bytes.values, [7, 8]);
}
