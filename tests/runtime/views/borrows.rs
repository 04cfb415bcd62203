//! Memory that several structs share has one writer or many readers at a time.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use interop_core::protocols::dlpack::Versioned;
use interop_core::{CudaArray, Error, ErrorKind, FromArray, HostVec, Lease, LeaseMut, SharedBuffer};

use crate::support::arrays::Array;
use crate::support::assert_told;
use crate::support::foreign_tensors::Claims;

fn host(len: usize) -> HostVec<u32> {
    HostVec::zeroed(len)
}

/// Two structs over the same memory: while one is borrowed for writing, the other is refused, and vice versa.
#[track_caller]
fn exclusive<A: CudaArray, B: CudaArray>(mut a: A, mut b: B) {
    let busy = |error: &Error, found| {
        assert_told(
            error,
            (ErrorKind::AlreadyBorrowed, "data", found, "one writer, or any number of readers"),
        );
    };
    let writer = a.view_mut::<u32, 1>().unwrap().host_view_mut().unwrap();
    busy(&b.view_mut::<u32, 1>().unwrap().host_view_mut().unwrap_err(), "a writer of 0x");
    busy(&b.view::<u32, 1>().unwrap().host_view().unwrap_err(), "a writer of 0x");
    busy(&b.map_inplace(|element: u32| element).unwrap_err(), "a writer of 0x");
    busy(&b.to_vec::<u32>().unwrap_err(), "a writer of 0x");
    busy(&b.fold((), |(), _: u32| ()).unwrap_err(), "a writer of 0x");
    drop(writer);

    let reader = a.view::<u32, 1>().unwrap().host_view().unwrap();
    assert!(b.view::<u32, 1>().unwrap().host_view().is_ok() && b.to_vec::<u32>().is_ok());
    b.fold((), |(), _: u32| ()).unwrap();
    busy(&b.view_mut::<u32, 1>().unwrap().host_view_mut().unwrap_err(), "a reader of 0x");
    busy(&b.map_inplace(|element: u32| element).unwrap_err(), "a reader of 0x");
    drop(reader);
    b.map_inplace(|element: u32| element + 1).unwrap();
    assert_eq!(a.to_vec::<u32>().unwrap()[0], 1);
}

/// Each way in which two structs can share writable memory.
#[test]
fn sharers_exclude_each_other() {
    let all = Arc::new(host(4));
    exclusive(Array::new(all.clone(), &[4]), Array::new(all, &[4]));
    let all = SharedBuffer::new(host(4));
    exclusive(Array::new(all.clone(), &[4]), Array::new(all, &[2]));
    let array = Arc::new(Array::new(host(4), &[4]));
    let lease = || -> Array<LeaseMut<u32>> { Array::from_dlpack(array.share_dlpack().unwrap()).unwrap() };
    exclusive(lease(), lease());
    let (_ledger, tensor) = Claims {
        dtype: interop_core::DType::U32,
        shape: Some(vec![2]),
        memory: Some(vec![0; 5]),
        ..Claims::new(&[])
    }
    .send::<Versioned>();
    // Host memory of this producer may be at any even address.
    let import: Array<SharedBuffer> = Array::from_dlpack(tensor).unwrap();
    let again = Array::new(import.data.clone(), &[2]);
    if import.info().unwrap().address() % 4 == 0 {
        exclusive(import, again);
    }
}

/// The exported struct is read under the same rule as its imports.
#[test]
fn an_exporter_reads_what_importers_write() {
    let array = Arc::new(Array::new(host(4), &[4]));
    let mut lease: Array<LeaseMut<u32>> = Array::from_dlpack(array.share_dlpack().unwrap()).unwrap();
    let reader = array.view::<u32, 1>().unwrap().host_view().unwrap();
    assert_eq!(lease.map_inplace(|element: u32| element).unwrap_err().kind(), ErrorKind::AlreadyBorrowed);
    let copy = reader.clone();
    drop(reader);
    assert_eq!(
        lease.map_inplace(|element: u32| element).unwrap_err().kind(),
        ErrorKind::AlreadyBorrowed,
        "the copy still reads"
    );
    drop(copy);
    lease.map_inplace(|element: u32| element + 7).unwrap();
    assert_eq!(array.to_vec::<u32>().unwrap(), [7; 4]);
}

/// A read-only borrower conflicts with a writer, although neither could create the other's view.
#[test]
fn a_reader_without_the_right_to_write_counts() {
    let array = Arc::new(Array::new(host(4), &[4]));
    let lease: Array<Lease<u32>> = Array::from_dlpack(array.share_dlpack().unwrap()).unwrap();
    let mut other: Array<LeaseMut<u32>> = Array::from_dlpack(array.share_dlpack().unwrap()).unwrap();
    let reader = lease.view::<u32, 1>().unwrap().host_view().unwrap();
    assert_eq!(other.map_inplace(|element: u32| element).unwrap_err().kind(), ErrorKind::AlreadyBorrowed);
    drop(reader);
    let writer = other.view_mut::<u32, 1>().unwrap().host_view_mut().unwrap();
    assert_eq!(lease.to_vec::<u32>().unwrap_err().kind(), ErrorKind::AlreadyBorrowed);
    drop(writer);
    assert_eq!(lease.to_vec::<u32>().unwrap(), [0; 4]);
}

/// Disjoint memory does not conflict: parts without overlap, adjacent parts, and empty parts.
#[test]
fn memory_apart_is_apart() {
    let all = SharedBuffer::new(host(8));
    let mut first = Array::new(all.clone(), &[4]);
    let mut second = Array::new(all.byte_offset(16).unwrap(), &[4]);
    let mut empty = Array::new(all.clone(), &[0]);
    let one = first.view_mut::<u32, 1>().unwrap().host_view_mut().unwrap();
    let two = second.view_mut::<u32, 1>().unwrap().host_view_mut().unwrap();
    let none = empty.view_mut::<u32, 1>().unwrap().host_view_mut().unwrap();
    assert_eq!(
        Array::new(all.byte_offset(12).unwrap(), &[1]).to_vec::<u32>().unwrap_err().kind(),
        ErrorKind::AlreadyBorrowed
    );
    drop((one, two, none));
}

/// Columns of one array share no element, although their address ranges overlap.
#[test]
fn columns_of_an_array_are_apart() {
    let all = SharedBuffer::new(host(12));
    let column = |at: isize| Array::strided(all.byte_offset(4 * at).unwrap(), &[4], &[3]);
    let (mut first, mut second, mut again) = (column(0), column(2), column(0));
    let one = first.view_mut::<u32, 1>().unwrap().host_view_mut().unwrap();
    let mut two = second.view_mut::<u32, 1>().unwrap().host_view_mut().unwrap();
    (0..4).for_each(|at| two.write([at], 7).unwrap());
    assert_eq!(again.map_inplace(|element: u32| element).unwrap_err().kind(), ErrorKind::AlreadyBorrowed);
    let row = Array::new(all.clone(), &[3]);
    assert_eq!(row.to_vec::<u32>().unwrap_err().kind(), ErrorKind::AlreadyBorrowed);
    assert_eq!(column(1).to_vec::<u32>().unwrap(), [0; 4]);
    drop((one, two));
    assert_eq!(row.to_vec::<u32>().unwrap(), [0, 0, 7]);
}

/// The compiler already checks the borrows of a `Vec`, so they are not checked again at run time.
#[test]
fn a_vector_is_borrowed_by_the_compiler() {
    let mut array = Array::new(vec![1_u32, 2, 3], &[3]);
    let (a, b) = (
        array.view::<u32, 1>().unwrap().host_view().unwrap(),
        array.view::<u32, 1>().unwrap().host_view().unwrap(),
    );
    assert!(a.iter().eq(b.iter()));
    drop((a, b));
    array.view_mut::<u32, 1>().unwrap().host_view_mut().unwrap().write([0], 9).unwrap();
    assert_eq!(array.data, [9, 2, 3]);
}

/// A leaked view keeps its memory borrowed, but not that of a later vector at the same address.
#[test]
#[cfg_attr(miri, ignore = "it leaks views on purpose, which Miri reports")]
fn a_leaked_view_holds_no_later_memory() {
    let mut seen = Vec::new();
    for _ in 0..2000 {
        let mut array = Array::new(host(64), &[64]);
        let address = array.info().unwrap().address();
        // This would be refused if the leaked view of an earlier vector still counted.
        std::mem::forget(array.view_mut::<u32, 1>().unwrap().host_view_mut().unwrap());
        assert_eq!(array.to_vec::<u32>().unwrap_err().kind(), ErrorKind::AlreadyBorrowed);
        if seen.contains(&address) {
            return;
        }
        seen.push(address);
    }
    panic!("the allocator gives out no place again");
}

/// A panic or an error while elements are changed ends the borrow.
#[test]
fn panics_and_errors_let_go() {
    let all = SharedBuffer::new(host(4));
    let (mut a, b) = (Array::new(all.clone(), &[4]), Array::new(all, &[4]));
    let mut seen = 0;
    let caught = panic::catch_unwind(AssertUnwindSafe(|| {
        a.map_inplace(|_: u32| {
            seen += 1;
            if seen == 3 {
                panic::resume_unwind(Box::new(()));
            }
            seen
        })
    }));
    assert!(caught.is_err());
    assert_eq!(b.to_vec::<u32>().unwrap(), [1, 2, 0, 0]);
    // A nested access to the borrowed memory is refused and does not deadlock.
    a.map_inplace(|_: u32| b.to_vec::<u32>().unwrap_err().kind() as u32).unwrap();
    assert!(b.to_vec::<u32>().unwrap().iter().all(|kind| *kind == ErrorKind::AlreadyBorrowed as u32));
}

/// Imports that copy also borrow the memory for reading.
#[test]
fn copies_are_readers() {
    let array = Arc::new(Array::new(host(4), &[4]));
    let send = || array.share_dlpack().unwrap();
    let mut lease: Array<LeaseMut<u32>> = Array::from_dlpack(send()).unwrap();
    let writer = lease.view_mut::<u32, 1>().unwrap().host_view_mut().unwrap();
    assert_eq!(Array::<Vec<u32>>::from_dlpack(send()).unwrap_err().kind(), ErrorKind::AlreadyBorrowed);
    assert!(Array::<Lease<u32>>::from_dlpack(send()).is_ok(), "holding on to memory reads nothing");
    drop(writer);
    assert!(Array::<Vec<u32>>::from_dlpack(send()).is_ok());
}

/// Threads that retry get access eventually, and no borrow is miscounted.
#[test]
fn threads_take_turns() {
    const ROUNDS: u32 = if cfg!(miri) { 5 } else { 500 };
    const PATIENCE: Duration = Duration::from_secs(60);
    let all = SharedBuffer::new(host(3));
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..4 {
            let mut mine = Array::new(all.clone(), &[3]);
            scope.spawn(move || {
                let mut done = 0;
                while done < ROUNDS {
                    match mine.map_inplace(|element: u32| element + 1) {
                        Ok(()) => done += 1,
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::AlreadyBorrowed);
                            assert!(start.elapsed() < PATIENCE, "after {done} rounds nobody gives way");
                            thread::yield_now();
                        }
                    }
                }
            });
        }
    });
    assert_eq!(Array::new(all, &[3]).to_vec::<u32>().unwrap(), [4 * ROUNDS; 3]);
}
