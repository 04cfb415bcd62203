//! Releases that run at the same time as other threads, captures and policies: they must not affect each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use interop_core::cuda::{
    HoldReleases, finish_releases, pending_releases, poll_releases, start_release_thread,
};
use interop_core::protocols::cai::CudaArrayInterface;
use interop_core::protocols::dlpack::{Ownership, Versioned};
use interop_core::{Device, Import};

use crate::counted_imports::{arrive, drained};
use crate::cuda_program::{LARGE, Place};
use crate::exclusive_driver::{first_gpu, started, turn};
use crate::support::counted_owners::{Count, Counted};
use crate::support::foreign_tensors::Claims;
use crate::support::run_alone;

const GPU: Device = Device::cuda(0);
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn the_thread_in_the_background_sees_what_another_thread_put_back() {
    run_alone("concurrent_releases::the_thread_in_the_background_sees_what_another_thread_put_back", || {
        // This does not use `turn()`, because no other thread may keep an event when that ends.
        let sim = started();
        start_release_thread().unwrap();
        let place = Place::primary(0);
        let data = place.bytes(0, 64);
        let (ledger, import) = arrive(&data, GPU);
        let spin = place.non_blocking().spin();
        drop(import);
        for _ in 0..100_000 {
            poll_releases();
        }
        sim.release(spin);
        let end = Instant::now() + PATIENCE;
        while ledger.released() == 0 && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!((ledger.released(), pending_releases()), (1, 0), "nobody else looks");
    });
}

#[test]
fn to_finish_waits_for_what_another_thread_is_looking_at() {
    let (turn, place) = first_gpu();
    let data = place.bytes(0, 64);
    let stop = AtomicBool::new(false);
    let early = thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                poll_releases();
            }
        });
        let early = (0..100).filter(|_| {
            let (ledger, import) = arrive(&data, GPU);
            let spin = place.non_blocking().spin();
            drop(import);
            // The work ends while this thread waits for it.
            let turn = &turn;
            let ender = scope.spawn(move || {
                thread::sleep(Duration::from_micros(300));
                turn.release(spin);
            });
            let left = finish_releases();
            let released = ledger.released();
            ender.join().unwrap();
            (left, released) != (0, 1)
        });
        let early = early.count();
        stop.store(true, Ordering::Relaxed);
        early
    });
    assert_eq!(early, 0, "of 100 returned before the release");
}

#[test]
#[expect(unsafe_code, reason = "an interface dict says nothing of its memory's life")]
fn a_dict_for_a_stream_that_captures_leaves_the_capture_valid() {
    let (_turn, place) = first_gpu();
    let (data, captures) = (place.bytes(0, 64), place.non_blocking());
    let dict = CudaArrayInterface {
        shape: vec![64],
        typestr: "|u1".into(),
        data: (data.at(), false),
        version: 3,
        stream: captures.handle(),
        ..CudaArrayInterface::default()
    };
    captures.begin();
    let count = Count::default();
    // SAFETY: `data` outlives the import.
    let import =
        unsafe { Import::from_cai_for_stream(&dict, captures.handle(), Counted(count.clone(), ())) }.unwrap();
    drop(import);
    let valid = captures.end();
    assert_eq!((drained(), count.get(), valid), (0, 1, true));
}

#[test]
#[expect(unsafe_code, reason = "an export of somebody's facts")]
fn an_owner_that_frees_memory_while_a_graph_is_captured_leaves_the_capture_valid() {
    let (turn, place) = first_gpu();
    let (data, own, captures) = (place.bytes(0, LARGE), place.bytes(0, 64), place.non_blocking());
    let (_ledger, import) = arrive(&data, GPU);
    let (info, kept) = import.into_parts();
    // The owner frees with `cuMemFree`, as the buffers of `cust` and `cudarc` do.
    // SAFETY: `data` outlives the export.
    let tensor =
        unsafe { interop_core::protocols::dlpack::export::<Versioned, _>(&info, own, Ownership::Owned) }
            .unwrap();
    let spin = place.non_blocking().spin();
    drop(tensor);
    assert_eq!(pending_releases(), 1);
    captures.begin();
    turn.release(spin);
    let frees = turn.calls("cuMemFree_v2");
    drained();
    assert_eq!((turn.calls("cuMemFree_v2"), captures.end()), (frees + 1, true));
    drop(kept);
    assert_eq!(drained(), 0);
}

/// Owns another array and records how deeply drops of this type are nested.
struct Within {
    depth: Arc<(AtomicUsize, AtomicUsize)>,
    array: Option<Import>,
}

impl Drop for Within {
    fn drop(&mut self) {
        let (now, most) = &*self.depth;
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        drop(self.array.take());
        now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The release of an array that was exported and imported again triggers another release, which polls implicitly. If
/// each one ran the next deferred release, the stack would be as deep as the list is long.
#[test]
#[expect(unsafe_code, reason = "an interface dict says nothing of its memory's life")]
fn releases_that_lead_to_others_are_not_within_each_other() {
    let (turn, place) = first_gpu();
    let (data, stream, depth) = (place.bytes(0, 64), place.non_blocking(), Arc::default());
    let dict = CudaArrayInterface {
        shape: vec![64],
        typestr: "|u1".into(),
        data: (data.at(), false),
        version: 3,
        ..CudaArrayInterface::default()
    };
    let imports: Vec<_> = (0..40)
        .map(|_| {
            let owner = Within { depth: Arc::clone(&depth), array: Some(arrive(&data, GPU).1) };
            // SAFETY: `data` outlives the import.
            unsafe { Import::from_cai_for_stream(&dict, stream.handle(), owner) }.unwrap()
        })
        .collect();
    let spin = place.non_blocking().spin();
    drop(imports);
    assert_eq!(pending_releases(), 40);
    turn.release(spin);
    turn.run_all();
    assert_eq!((drained(), depth.1.load(Ordering::SeqCst)), (0, 1));
}

#[test]
fn a_driver_that_answers_errors_does_not_keep_host_memory_out() {
    let turn = turn();
    // `CUDA_ERROR_NOT_INITIALIZED`, which a driver returns in a forked process.
    turn.fail_next("cuPointerGetAttributes", 3);
    let (ledger, tensor) = Claims::new(&[4]).send::<Versioned>();
    let import = Import::from_dlpack(tensor).expect("host memory");
    assert_eq!(turn.calls("cuPointerGetAttributes"), 1, "the driver was asked");
    drop(import);
    assert_eq!(ledger.released(), 1);
}

#[test]
fn a_hold_begins_after_decisions_under_way() {
    let (_turn, place) = first_gpu();
    let (data, captures) = (place.bytes(0, 64), place.non_blocking());
    let stop = AtomicBool::new(false);
    let spoiled = thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                drop(arrive(&data, GPU));
            }
        });
        let spoiled = (0..1000).filter(|_| {
            let _held = HoldReleases::new();
            captures.begin_in(2);
            thread::sleep(Duration::from_micros(20));
            !captures.end()
        });
        let spoiled = spoiled.count();
        stop.store(true, Ordering::Relaxed);
        spoiled
    });
    assert_eq!((drained(), spoiled), (0, 0), "captures under a hold that were spoiled");
}
