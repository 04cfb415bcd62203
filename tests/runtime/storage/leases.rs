//! Imports that use the memory in place.

use std::mem::replace;
use std::sync::Arc;

use interop_core::protocols::dlpack::{FLAG_READ_ONLY, Versioned};
use interop_core::storage::{FromImport, Mutability};
use interop_core::{
    CudaArray, DType, Device, Element, ErrorKind, FromArray, HostVec, Import, Kept, Lease, LeaseMut, Order,
    Result, SharedBuffer, Storage, StreamHandle,
};

use crate::support::arrays::{Array, Fortran, Matrix};
use crate::support::assert_told;
use crate::support::foreign_tensors::{Claims, look};
use crate::support::streams::stream as stream_of;

fn import(claims: Claims) -> Import {
    let (ledger, tensor) = claims.send::<Versioned>();
    drop(ledger);
    Import::from_dlpack(tensor).unwrap()
}

/// The memory stays that of the producer.
#[test]
fn memory_is_used_in_place() {
    let (_ledger, tensor) = Claims::new(&[2, 3]).send::<Versioned>();
    let address = look(&tensor).data;
    let mut lease: Matrix<LeaseMut<i16>> = Matrix::from_dlpack(tensor).unwrap();
    assert_eq!(lease.info().unwrap().address(), address);
    lease.map_inplace(|element: i16| -element).unwrap();
    let again = lease.into_dlpack().unwrap();
    assert_eq!(look(&again).data, address);
    let shared: Array<SharedBuffer> = Array::from_dlpack(again).unwrap();
    assert_eq!(shared.to_vec::<i16>().unwrap(), [0, -1, -2, -3, -4, -5]);
}

/// Any device, strides and memory kind are accepted, because nothing is read.
#[test]
fn leases_take_memory_from_anywhere() {
    let on = |device| Claims {
        device,
        dtype: DType::F32,
        strides: Some(vec![1, 2]),
        ..Claims::at(0x1_0000, &[2, 3])
    };
    for device in [Device::CPU, Device::cuda(4), Device::CUDA_HOST, Device::CUDA_MANAGED] {
        let lease: Array<Lease<f32>> = Array::from_import(import(on(device))).unwrap();
        assert_eq!(
            (lease.data.memory().unwrap().device, lease.strides.as_deref()),
            (device, Some(&[1, 2][..]))
        );
        assert_eq!(lease.info().unwrap().device(), device);
        assert!(Fortran::<Lease<f32>>::from_import(import(on(device))).is_ok());
        let refused = Matrix::<Lease<f32>>::from_import(import(on(device))).unwrap_err();
        let told =
            (ErrorKind::Strides, "strides[0]", "1 (strides [1, 2])", "3, which makes the array C-contiguous");
        assert_told(&refused.error, told);
        assert!(
            refused.error.to_string().contains("copy the array; or give the struct a strides field"),
            "bug 97"
        );
    }
}

/// The error names a stride that matters, not that of an axis of extent 1.
#[test]
fn an_axis_of_one_is_not_to_blame() {
    let gapped = Claims { strides: Some(vec![7, 3]), ..Claims::at(0x1_0000, &[1, 2]) };
    let refused = Matrix::<Lease<i16>>::from_import(import(gapped)).unwrap_err();
    let told =
        (ErrorKind::Strides, "strides[1]", "3 (strides [7, 3])", "1, which makes the array C-contiguous");
    assert_told(&refused.error, told);
}

/// A lease covers the memory of the import, and a struct around it cannot reach further.
#[test]
fn leases_end_where_the_import_ends() {
    let part =
        Claims { shape: Some(vec![3]), strides: Some(vec![-2]), byte_offset: 10, ..Claims::new(&[12]) };
    let mut lease: Array<Lease<i16>> = Array::from_import(import(part)).unwrap();
    assert_eq!(lease.to_vec::<i16>().unwrap(), [5, 3, 1]);
    assert_eq!(lease.data.memory().unwrap().range.len(), 10);
    for (shape, strides) in [(vec![4], vec![-2]), (vec![2], vec![1]), (vec![6], vec![-1])] {
        (lease.shape, lease.strides) = (shape, Some(strides));
        let told = (ErrorKind::OutOfBounds, "shape", "of int16 with strides", "the 10 bytes of memory");
        assert_told(&lease.info().unwrap_err(), told);
    }
    (lease.shape, lease.strides) = (vec![5], Some(vec![-1]));
    assert_eq!(lease.to_vec::<i16>().unwrap(), [5, 4, 3, 2, 1]);
}

/// Bugs 140, 141: a storage validates by itself, also without a struct.
#[test]
fn leases_check_for_themselves() {
    let refused = |claims, kind, make: fn(&mut Import) -> Result<()>| {
        let (ledger, tensor) = Claims::send::<Versioned>(claims);
        let mut import = Import::from_dlpack(tensor).unwrap();
        let info = import.info().clone();
        let error = make(&mut import).unwrap_err();
        assert_eq!((error.kind(), import.info(), ledger.released()), (kind, &info, 0));
    };
    let readonly = || Claims { flags: FLAG_READ_ONLY, ..Claims::new(&[4]) };
    refused(readonly(), ErrorKind::ReadOnly, |import| {
        LeaseMut::<i16>::from_import(import, Order::C).map(drop)
    });
    refused(readonly(), ErrorKind::DType, |import| Lease::<f64>::from_import(import, Order::C).map(drop));
    refused(Claims::new(&[4]), ErrorKind::DType, |import| {
        LeaseMut::<u16>::from_import(import, Order::C).map(drop)
    });
    refused(Claims::new(&[4]), ErrorKind::Shape, |import| {
        Lease::<[i16; 3]>::from_import(import, Order::C).map(drop)
    });
    let lease = Lease::<i16>::from_import(&mut import(readonly()), Order::C).unwrap();
    assert_eq!(lease.memory().unwrap().mutability, Mutability::ReadOnly);
    let lease = LeaseMut::<[i16; 2]>::from_import(&mut import(Claims::new(&[3, 2])), Order::F).unwrap();
    assert_eq!(
        (lease.memory().unwrap().mutability, lease.memory().unwrap().range.len()),
        (Mutability::Writable, 12)
    );
}

/// Trailing axes become the parts of an element if their layout matches.
#[test]
fn leases_of_parts() {
    #[derive(Clone, Copy, Debug, PartialEq, Element)]
    #[repr(C)]
    struct Pair {
        a: i16,
        b: i16,
    }
    let lease: Array<Lease<[i16; 2]>> = Array::from_import(import(Claims::new(&[3, 2]))).unwrap();
    assert_eq!(lease.to_vec::<[i16; 2]>().unwrap(), [[0, 1], [2, 3], [4, 5]]);
    let pairs: Array<Lease<Pair>> = Array::from_import(import(Claims::new(&[3, 2]))).unwrap();
    assert_eq!(pairs.to_vec::<Pair>().unwrap()[2], Pair { a: 4, b: 5 });
    let gapped = || Claims { shape: Some(vec![2, 2]), strides: Some(vec![4, 1]), ..Claims::new(&[8]) };
    let lease: Array<Lease<[i16; 2]>> = Array::from_import(import(gapped())).unwrap();
    assert_eq!(
        (lease.strides.as_deref(), lease.to_vec::<[i16; 2]>().unwrap()),
        (Some(&[2][..]), vec![[0, 1], [4, 5]])
    );

    let refused = |claims, told| {
        let error = Array::<Lease<[i16; 2]>>::from_import(import(claims)).unwrap_err().error;
        assert_told(&error, told);
        let error = Array::<Lease<Pair>>::from_import(import(Claims { byte_offset: 0, ..Claims::new(&[5]) }))
            .unwrap_err();
        assert_told(&error.error, (ErrorKind::Shape, "shape", "[5] as the last axes", "[2]"));
    };
    let odd = Claims { shape: Some(vec![2, 2]), strides: Some(vec![3, 1]), ..Claims::new(&[8]) };
    refused(odd, (ErrorKind::Strides, "strides[0]", "3", "a multiple of 2"));
    let turned = Claims { shape: Some(vec![2, 2]), strides: Some(vec![1, 2]), ..Claims::new(&[8]) };
    refused(turned, (ErrorKind::Strides, "strides", "[2] for the last axes", "contiguous axes [2]"));
    refused(Claims::new(&[2, 3]), (ErrorKind::Shape, "shape", "[3] as the last axes of [2, 3]", "[2]"));
    refused(
        Claims::new(&[]),
        (ErrorKind::Rank, "shape", "0 axes", "1 axis or more, of which the last are [2]"),
    );
}

/// The import from which a lease has taken the memory has no elements, for any number of axes: nothing is taken twice.
#[test]
fn memory_is_taken_once() {
    for shape in [&[][..], &[4], &[2, 3], &[1; 9]] {
        let (ledger, tensor) = Claims::new(shape).send::<Versioned>();
        let mut import = Import::from_dlpack(tensor).unwrap();
        let taken = Lease::<i16>::from_import(&mut import, Order::C).unwrap();
        assert_eq!((import.info().numel(), import.info().address(), ledger.released()), (0, 0, 0));
        let again = Lease::<i16>::from_import(&mut import, Order::C).unwrap();
        assert_eq!(again.memory().unwrap().range, 0..0);
        drop((import, again));
        assert_eq!(ledger.released(), 0);
        drop(taken);
        assert_eq!(ledger.released(), 1);
    }
}

/// The debug output of a lease has its type and address, but no elements.
#[test]
fn leases_can_be_shown() {
    let claims = || Claims { device: Device::cuda(1), ..Claims::at(0x1000, &[3]) };
    let lease = Lease::<i16>::from_import(&mut import(claims()), Order::C).unwrap();
    assert_eq!(format!("{lease:?}"), "Lease(int16 at 0x1000, CUDA (2), ordinal 1)");
    let lease = LeaseMut::<i16>::from_import(&mut import(claims()), Order::C).unwrap();
    assert_eq!(format!("{lease:?}"), "LeaseMut(int16 at 0x1000, CUDA (2), ordinal 1)");
    assert!(format!("{:?}", import(claims())).starts_with("Import(ArrayInfo"));
}

/// The owner of a lease may outlive it.
#[test]
fn owners_outlive_leases() {
    let (ledger, tensor) = Claims::new(&[3]).send::<Versioned>();
    let lease = Lease::<i16>::from_import(&mut Import::from_dlpack(tensor).unwrap(), Order::C).unwrap();
    let owner = interop_core::storage::Owner::from(lease);
    assert_eq!((ledger.released(), format!("{owner:?}").as_str()), (0, "Owner"));
    drop(owner);
    assert_eq!(ledger.released(), 1);
    drop(interop_core::storage::Owner::default());
}

/// An empty import becomes an empty lease.
#[test]
fn empty_leases() {
    let lease: Array<LeaseMut<i16>> = Array::from_import(import(Claims::at(0xDEAD_BEEF, &[0, 3]))).unwrap();
    assert_eq!((lease.data.memory().unwrap().range, lease.to_vec::<i16>().unwrap()), (0..0, vec![]));
    let host = Array::new(HostVec::<i16>::zeroed(0), &[0]);
    assert!(Array::<LeaseMut<i16>>::from_dlpack(host.into_dlpack().unwrap()).is_ok());
}

/// R136, bug 9: no stream works on memory that only the host can access, whatever stream the importer uses.
#[test]
fn host_memory_is_ready_on_every_stream() {
    let import = || {
        let samples = Array::new(vec![1_u16, 2], &[2, 1]).into_dlpack().unwrap();
        Import::from_dlpack(samples).unwrap().with_stream(stream_of(0x40)).unwrap()
    };
    assert_eq!(import().info().stream(), Some(StreamHandle::NothingPending));
    let lease: Matrix<Lease<u16>> = Matrix::from_import(import()).unwrap();
    assert_eq!(lease.to_vec::<u16>().unwrap(), [1, 2]);
    let lease: Array<LeaseMut<u16>> = Array::from_import(import()).unwrap();
    assert_eq!((lease.stream, lease.to_vec::<u16>().unwrap()), (StreamHandle::NothingPending, vec![1, 2]));
    let copy: Array<Vec<u16>> = Array::from_import(import()).unwrap();
    assert_eq!((copy.stream, copy.data), (StreamHandle::NothingPending, vec![1, 2]));
}

/// The facts about an array are those of its fields now, also if they were replaced: nothing is noted at the import.
#[test]
fn a_replaced_storage_is_described_anew() {
    let (ledger, tensor) = Claims::new(&[2, 3]).send::<Versioned>();
    let mut kept: Kept<Matrix<LeaseMut<i16>>> = Kept::from_dlpack(tensor).unwrap();
    let own = vec![7_i16; 6];
    let address = own.as_ptr().addr();
    let imported = replace(&mut kept.data, LeaseMut::from_owner(own));
    assert_eq!((kept.info().unwrap().address(), kept.to_vec::<i16>().unwrap()), (address, vec![7; 6]));
    // An export has the new memory, and the old memory lives as long as its lease.
    let tensor = kept.into_dlpack().unwrap();
    assert_eq!((look(&tensor).data, ledger.released()), (address, 0));
    drop(imported);
    assert_eq!(ledger.released(), 1);
    assert_eq!(Matrix::<Vec<i16>>::from_dlpack(tensor).unwrap().data, [7; 6]);

    // A shorter one is refused, and no consumer of a shared struct sees another storage.
    let mut shared = Arc::new(Matrix { data: HostVec::from([1_i16; 6]), rows: 2, columns: 3 });
    let tensor = shared.share_dlpack().unwrap();
    assert!(Arc::get_mut(&mut shared).is_none(), "the tensor has the struct");
    drop(tensor);
    Arc::get_mut(&mut shared).unwrap().data = HostVec::from([1_i16; 5]);
    assert_eq!(shared.share_dlpack().unwrap_err().kind(), ErrorKind::OutOfBounds);
}
