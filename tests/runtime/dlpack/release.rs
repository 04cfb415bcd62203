//! R92 to R99, bugs 20, 24, 25, 28, 32, 33: one release on each path, on any thread.
#![expect(unsafe_code, reason = "some structs hold raw pointers")]

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use interop_core::protocols::dlpack::{Legacy, ManagedTensor, Versioned};
use interop_core::storage::Owner;
use interop_core::{CudaArray, Device, FromArray, HostVec, Import, Lease, LeaseMut, SharedBuffer};

use crate::support::arrays::{Array, Matrix};
use crate::support::counted_owners::elsewhere;
use crate::support::foreign_tensors::{Claims, Form, Ledger};

/// A struct that holds imported memory by address.
#[derive(Debug, CudaArray)]
struct Raw {
    // SAFETY: only imports make the struct, and its owner keeps the memory alive.
    #[cuda_array(data(unsafe_raw))]
    pointer: *const i16,
    #[cuda_array(shape)]
    shape: Vec<usize>,
    #[cuda_array(device)]
    device: Device,
    #[cuda_array(owner)]
    owner: Owner,
}

// SAFETY: the pointer refers to memory that its owner keeps alive and that nothing writes.
unsafe impl Send for Raw {}

/// A path that a tensor can take; it is released at the end.
type Path<A> = (&'static str, fn(ManagedTensor<A>));

fn paths<A: Form>() -> Vec<Path<A>> {
    vec![
        ("never looked at", drop),
        ("looked at", |tensor| drop(tensor.info().unwrap())),
        ("imported", |tensor| drop(Import::from_dlpack(tensor).unwrap())),
        ("taken apart", |tensor| {
            let (info, owner) = Import::from_dlpack(tensor).unwrap().into_parts();
            drop(info);
            drop(owner);
        }),
        ("leased", |tensor| drop(Array::<Lease<i16>>::from_dlpack(tensor).unwrap())),
        ("leased, owner kept", |tensor| {
            let owner = Owner::from(Array::<Lease<i16>>::from_dlpack(tensor).unwrap().data);
            drop(owner);
        }),
        ("copied", |tensor| drop(Array::<Vec<i16>>::from_dlpack(tensor).unwrap())),
        ("shared", |tensor| drop(Array::<SharedBuffer>::from_dlpack(tensor).unwrap())),
        ("held by address", |tensor| {
            let raw = Raw::from_dlpack(tensor).unwrap();
            assert_eq!((raw.info().unwrap().address(), raw.device), (raw.pointer.addr(), Device::CPU));
        }),
        ("refused", |tensor| drop(Array::<Lease<f64>>::from_dlpack(tensor).unwrap_err())),
        ("refused, then taken", |tensor| {
            let refused = Matrix::<Lease<u8>>::from_import(Import::from_dlpack(tensor).unwrap()).unwrap_err();
            drop(Array::<Lease<i16>>::from_import(*refused.value).unwrap());
        }),
        ("exported again", |tensor| {
            let array: Array<Lease<i16>> = Array::from_dlpack(tensor).unwrap();
            let again = array.into_dlpack().unwrap();
            drop(Array::<Lease<i16>>::from_dlpack(again).unwrap());
        }),
        ("exported again by many", |tensor| {
            let array: Arc<Array<SharedBuffer>> = Arc::new(Array::from_dlpack(tensor).unwrap());
            let exports = [(); 3].map(|()| array.share_dlpack().unwrap());
            drop(array);
            drop(exports);
        }),
        ("dropped by a panic", |tensor| {
            let import = Import::from_dlpack(tensor).unwrap();
            let caught = panic::catch_unwind(AssertUnwindSafe(|| {
                let _array: Array<Lease<i16>> = Array::from_import(import).unwrap();
                panic::resume_unwind(Box::new("midway"));
            }));
            assert!(caught.is_err());
        }),
        ("leaked as a pointer and found again", |tensor| {
            let pointer = tensor.into_raw();
            // SAFETY: the pointer was given away one line above.
            drop(unsafe { ManagedTensor::from_raw(pointer) });
        }),
    ]
}

/// Each path of arrays of any rank, with and without elements, ends in one call of the deleter.
#[test]
fn every_path_releases_once() {
    fn case<A: Form>() {
        for shape in [&[2, 3][..], &[], &[0], &[3, 0, 2], &[1, 1, 1, 1, 1, 1, 4]] {
            for (path, go) in paths::<A>() {
                let (ledger, tensor) = Claims::new(shape).send::<A>();
                go(tensor);
                assert_eq!(ledger.released(), 1, "{path}: {shape:?}");
            }
        }
    }
    case::<Versioned>();
    case::<Legacy>();
}

/// R92, bug 24: a null deleter is not called.
#[test]
fn a_null_deleter_is_not_called() {
    fn case<A: Form>() {
        for (path, go) in paths::<A>() {
            let (ledger, tensor) = Claims { has_deleter: false, ..Claims::new(&[2, 3]) }.send::<A>();
            go(tensor);
            assert_eq!(ledger.released(), 0, "{path}");
        }
    }
    case::<Versioned>();
    case::<Legacy>();
}

/// R96, bug 43: the thread that drops the last handle calls the deleter.
#[test]
fn the_deleter_runs_where_the_drop_is() {
    fn case<A: Form>(take: fn(ManagedTensor<A>) -> Box<dyn Send>) {
        let (ledger, tensor) = Claims::new(&[2, 3]).send::<A>();
        let held = take(tensor);
        assert_eq!(ledger.released(), 0);
        let ((), thread) = elsewhere(move || drop(held));
        assert_eq!((ledger.released(), ledger.thread()), (1, Some(thread)));
    }
    case::<Versioned>(|tensor| Box::new(tensor));
    case::<Legacy>(|tensor| Box::new(tensor));
    case::<Versioned>(|tensor| Box::new(Import::from_dlpack(tensor).unwrap()));
    case::<Versioned>(|tensor| Box::new(Array::<LeaseMut<i16>>::from_dlpack(tensor).unwrap()));
    case::<Legacy>(|tensor| Box::new(Array::<SharedBuffer>::from_dlpack(tensor).unwrap()));
    case::<Legacy>(|tensor| Box::new(Raw::from_dlpack(tensor).unwrap()));
}

/// A lease keeps the memory alive while it lives, whatever else is dropped; a copy keeps nothing alive (bug 32).
#[test]
fn memory_is_held_as_long_as_it_is_used() {
    let send = || -> (Ledger, ManagedTensor<Versioned>) { Claims::new(&[2, 3]).send() };
    let (ledger, tensor) = send();
    let copied: Array<HostVec<i16>> = Array::from_dlpack(tensor).unwrap();
    assert_eq!((ledger.released(), copied.to_vec::<i16>().unwrap()), (1, vec![0, 1, 2, 3, 4, 5]));

    let (ledger, tensor) = send();
    let array: Array<SharedBuffer> = Array::from_dlpack(tensor).unwrap();
    let rows: Vec<Array<SharedBuffer>> =
        (0..2).map(|row| Array::new(array.data.byte_offset(6 * row).unwrap(), &[3])).collect();
    drop(array);
    let read: Vec<Vec<i16>> = rows.iter().map(|row| row.to_vec().unwrap()).collect();
    assert_eq!((ledger.released(), read), (0, vec![vec![0, 1, 2], vec![3, 4, 5]]));
    drop(rows);
    assert_eq!(ledger.released(), 1);
}

/// Four threads drop clones at the same time: one release, after the last read (section 2.8: the count is atomic).
#[test]
fn threads_that_drop_together_release_once() {
    for _ in 0..50 {
        let (ledger, tensor) = Claims::new(&[4]).send::<Versioned>();
        let array: Array<SharedBuffer> = Array::from_dlpack(tensor).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let mine = Array::new(array.data.clone(), &[4]);
                scope.spawn(move || assert_eq!(mine.to_vec::<i16>().unwrap(), [0, 1, 2, 3]));
            }
            drop(array);
        });
        assert_eq!(ledger.released(), 1);
    }
}
