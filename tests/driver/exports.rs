//! R97, R132, R139, R150: consumers of an export wait for its pending work, and its owner outlives the work of the
//! consumers.

use std::sync::{Arc, Mutex};

use interop_core::cuda::{CudaBuffer, MemoryKind, finish_releases, pending_releases};
use interop_core::protocols::dlpack::{Legacy, Versioned};
use interop_core::storage::{MemoryRegion, Mutability};
use interop_core::{CudaArray, Device, ErrorKind, FromArray, Import, LeaseMut, StreamHandle, live_exports};
use simulated_cuda::{Live, Mistake};

use crate::counted_imports::{ReadyOn, arrive, drained};
use crate::cuda_program::{Place, Stream, current};
use crate::exclusive_driver::{first_gpu, started, turn};
use crate::support::arrays::{Array, Claimed};
use crate::support::counted_owners::elsewhere;
use crate::support::foreign_tensors::look;
use crate::support::run_alone;

const GPU: Device = Device::cuda(0);
const KINDS: [MemoryKind; 4] =
    [MemoryKind::Device, MemoryKind::Pool, MemoryKind::Pinned, MemoryKind::Managed];

/// An array of the library's own memory, with work pending on a stream.
fn array(kind: MemoryKind, stream: StreamHandle) -> Array<CudaBuffer> {
    Array { stream, ..Array::new(CudaBuffer::from_slice(kind, 0, &[1_i16, 2, 3, 4]).unwrap(), &[4]) }
}

#[test]
fn an_export_costs_the_edge_that_its_streams_need() {
    let (turn, place) = first_gpu();
    let (mine, other) = (place.non_blocking().handle(), place.non_blocking().handle());
    let (legacy, nothing) = (StreamHandle::LegacyDefault, StreamHandle::NothingPending);
    let cases = [
        (nothing, legacy, 0),
        (nothing, nothing, 0),
        (mine, mine, 0),
        (legacy, legacy, 0),
        (mine, other, 1),
        (mine, legacy, 1),
        (mine, StreamHandle::PerThreadDefault, 1),
        (legacy, other, 1),
    ];
    for (pending, consumer, edges) in cases {
        for shares in [false, true] {
            let array = array(MemoryKind::Device, pending);
            turn.reset_calls();
            let tensor = if shares {
                Arc::new(array).share_dlpack_as::<Versioned>(consumer).unwrap()
            } else {
                array.into_dlpack_as::<Versioned>(consumer).unwrap()
            };
            let calls = turn.calls_of(["cuEventRecord", "cuStreamWaitEvent", "cuEventCreate"]);
            assert_eq!(calls, [edges, edges, 0], "{pending} for {consumer}, shared: {shares}");
            turn.assert_no_host_wait();
            drop(tensor);
            // A deferred release holds an event of the pool.
            assert_eq!(finish_releases(), 0);
        }
    }
}

#[test]
fn a_consumer_that_names_no_stream_works_on_the_legacy_one() {
    let (_turn, place) = first_gpu();
    let export = |array: Array<CudaBuffer>| array.into_dlpack().unwrap();
    let share = |array: Array<CudaBuffer>| Arc::new(array).share_dlpack().unwrap();
    for export in [export, share] {
        let (data, producer) = (place.bytes(1, 8), place.non_blocking());
        let array = array(MemoryKind::Device, producer.handle());
        producer.spin();
        producer.fill(&data, 7);
        let tensor = export(array);
        assert_eq!(place.legacy().reads(&data), 7);
        drop((tensor, data));
        assert_eq!(finish_releases(), 0);
    }
}

#[test]
fn the_consumers_work_comes_before_the_memory_goes() {
    let (turn, place) = first_gpu();
    for kind in KINDS {
        let tensor = array(kind, StreamHandle::NothingPending).into_dlpack().unwrap();
        let before = turn.live(Live::Allocations);
        let spin = place.non_blocking().spin();
        let ((), _) = turn.count(|| drop(tensor));
        turn.assert_no_host_wait();
        assert_eq!((drained(), turn.live(Live::Allocations)), (1, before), "{kind:?}");
        turn.release(spin);
        for _ in 0..3 {
            drained();
        }
        assert_eq!((pending_releases(), turn.live(Live::Allocations)), (0, before - 1), "{kind:?}");
    }
}

#[test]
fn the_deleter_may_be_called_on_a_thread_without_a_context() {
    let turn = turn();
    let before = turn.live(Live::Allocations);
    for kind in KINDS {
        let tensor = array(kind, StreamHandle::NothingPending)
            .into_dlpack_as::<Legacy>(StreamHandle::LegacyDefault)
            .unwrap();
        elsewhere(move || {
            drop(tensor);
            assert_eq!(current(), None);
        });
        let tensor = array(kind, StreamHandle::NothingPending).into_dlpack().unwrap();
        Place::primary(1).with(|| drop(tensor));
        while finish_releases() > 0 {}
        assert_eq!(turn.live(Live::Allocations), before, "{kind:?}");
    }
}

#[test]
fn shared_exports_are_fresh_and_keep_the_struct() {
    let turn = turn();
    let before = turn.live(Live::Allocations);
    for kind in KINDS {
        let shared = Arc::new(array(kind, StreamHandle::NothingPending));
        let exports = [(); 5].map(|()| shared.share_dlpack().unwrap());
        assert_eq!(live_exports(), 5);
        let places = exports.each_ref().map(|tensor| (tensor.as_ptr().addr(), look(tensor).data));
        for (at, (package, data)) in places.iter().enumerate() {
            assert!(places[..at].iter().all(|(other, _)| other != package), "the same struct twice");
            assert_eq!(*data, shared.info().unwrap().address());
        }
        let import: Array<LeaseMut<i16>> = Array::from_dlpack(shared.share_dlpack().unwrap()).unwrap();
        assert_eq!(import.to_vec::<i16>().unwrap(), [1, 2, 3, 4]);
        drop((exports, import, shared));
        while finish_releases() > 0 {}
        assert_eq!((live_exports(), turn.live(Live::Allocations)), (0, before), "{kind:?}");
    }
}

#[test]
fn an_export_that_is_refused_gives_the_struct_back() {
    let (turn, place) = first_gpu();
    let dead = place.non_blocking();
    dead.destroy();
    let array = array(MemoryKind::Device, dead.handle());
    let refused = array.into_dlpack_as::<Versioned>(place.non_blocking().handle()).unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::Driver);
    turn.expect(Mistake::DestroyedStream);
    let again = Array { stream: StreamHandle::NothingPending, ..*refused.value };
    assert_eq!(again.to_vec::<i16>().unwrap(), [1, 2, 3, 4]);
    drop(again);
    assert_eq!((live_exports(), turn.live(Live::Operations)), (0, 0));
}

#[test]
fn memory_that_the_driver_does_not_know_is_exported_and_released_unordered() {
    let (turn, place) = first_gpu();
    let tensor = Array::new(Claimed::gpu::<f32>(4, 0), &[4]).into_dlpack().unwrap();
    let spin = place.non_blocking().spin();
    let ((), calls) = turn.count(|| drop(tensor));
    assert_eq!((calls, pending_releases()), (0, 0));
    turn.release(spin);
}

/// If the driver does not answer, the library assumes that the memory is in use.
#[test]
fn an_export_that_nobody_could_be_asked_about_is_released_after_all_work() {
    let turn = turn();
    let array = array(MemoryKind::Device, StreamHandle::NothingPending);
    turn.fail_next("cuPointerGetAttributes", 999);
    let tensor = array.into_dlpack().unwrap();
    let spin = Place::primary(0).non_blocking().spin();
    drop(tensor);
    assert_eq!((drained(), interop_core::live_allocations()), (1, 1));
    turn.release(spin);
    assert_eq!((drained(), interop_core::live_allocations()), (0, 0));
}

/// The driver destroys a primary context, and the memory in it, with its last handle.
#[test]
fn an_export_keeps_the_primary_context_of_its_memory() {
    run_alone("exports::an_export_keeps_the_primary_context_of_its_memory", || {
        let sim = started();
        let place = Place::primary(0);
        let data = place.bytes(7, 8).lost_with_its_context();
        let memory = MemoryRegion::new::<i16>(data.at(), 4, GPU, Mutability::Writable);
        let tensor = Array::new(Claimed(memory), &[4]).into_dlpack().unwrap();
        Place::release_primary(0);
        assert_eq!((sim.live(Live::Contexts), data.value()), (1, 7));
        drop(tensor);
        sim.assert_no_reports();
    });
}

#[test]
fn an_export_looks_at_what_waits() {
    let (turn, place) = first_gpu();
    let data = place.bytes(0, 8);
    let (ledger, import) = crate::counted_imports::arrive(&data, GPU);
    let spin = place.non_blocking().spin();
    drop(import);
    let array = array(MemoryKind::Device, StreamHandle::NothingPending);
    array.make_stream_wait(place.non_blocking().handle()).unwrap();
    assert_eq!(ledger.released(), 0);
    turn.release(spin);
    turn.run_all();
    array.make_stream_wait(place.non_blocking().handle()).unwrap();
    assert_eq!((ledger.released(), pending_releases()), (1, 0));
}

#[test]
fn an_empty_export_is_asked_about_by_nobody() {
    let turn = turn();
    for kind in KINDS {
        let empty = CudaBuffer::from_slice::<f32>(kind, 0, &[]).unwrap();
        let ((), calls) = turn.count(|| {
            let tensor = Array::new(empty, &[0, 3]).into_dlpack().unwrap();
            assert_eq!(look(&tensor).data, 0);
            drop(Import::from_dlpack(tensor).unwrap());
        });
        assert_eq!(calls, 0, "{kind:?}");
    }
}

#[test]
fn a_chain_of_imports_and_exports_is_ordered_from_end_to_end() {
    let (_turn, place) = first_gpu();
    let data = place.bytes(0, 8);
    let streams: [Stream; 4] = core::array::from_fn(|_| place.non_blocking());
    streams[0].spin();
    streams[0].fill(&data, 7);
    let (ledger, import) = crate::counted_imports::arrive(&data, GPU);
    let mut array: Array<LeaseMut<i16>> = Array::from_import(import.ready_on(streams[0].handle())).unwrap();
    for stream in &streams[1..] {
        let tensor = array.into_dlpack_as::<Versioned>(stream.handle()).unwrap();
        let import = Import::from_dlpack(tensor).unwrap().ready_on(stream.handle());
        array = Array::from_import(import).unwrap();
    }
    assert_eq!(array.stream, streams[3].handle());
    assert_eq!(streams[3].reads(&data), 7);
    drop(array);
    while finish_releases() > 0 {}
    assert_eq!(ledger.released(), 1);
}

#[test]
fn order_before_is_an_edge_from_the_arrays_own_stream() {
    let (turn, place) = first_gpu();
    let (data, producer, consumer) = (place.bytes(1, 8), place.non_blocking(), place.non_blocking());
    let array = array(MemoryKind::Device, producer.handle());
    producer.spin();
    producer.fill(&data, 7);
    turn.reset_calls();
    array.make_stream_wait(producer.handle()).unwrap();
    assert_eq!(turn.all_calls(), 0);
    array.make_stream_wait(consumer.handle()).unwrap();
    turn.assert_no_host_wait();
    assert_eq!(consumer.reads(&data), 7);
}

/// A field that notes which context is current when it is dropped.
struct Witness(Arc<Mutex<Option<Place>>>);

impl Drop for Witness {
    fn drop(&mut self) {
        *self.0.lock().unwrap() = current();
    }
}

#[derive(CudaArray)]
#[cuda_array(shape = [len], export)]
struct Witnessed<S> {
    #[cuda_array(data)]
    values: S,
    len: usize,
    _witness: Witness,
}

/// Another field may free memory in the context that is current, as the buffers of `cust` do.
#[test]
fn other_fields_of_imported_memory_are_dropped_in_its_context() {
    let (_turn, place) = first_gpu();
    let data = place.bytes(0, 8);
    let (ledger, import) = arrive(&data, GPU);
    let array: Array<LeaseMut<i16>> = Array::from_import(import).unwrap();
    let seen = Arc::new(Mutex::new(None));
    let array = Witnessed { values: array.data, len: 4, _witness: Witness(Arc::clone(&seen)) };
    let tensor = array.into_dlpack().unwrap();
    elsewhere(move || drop(tensor));
    while finish_releases() > 0 {}
    assert_eq!((*seen.lock().unwrap(), ledger.released()), (Some(place), 1));
}

/// The drop of an import is ordered in itself, so an export of it orders nothing more.
#[test]
fn an_export_of_imported_memory_is_released_after_the_consumers_work() {
    let (turn, place) = first_gpu();
    let data = place.bytes(0, 8);
    for shares in [false, true] {
        let (ledger, import) = arrive(&data, GPU);
        let array: Array<LeaseMut<i16>> = Array::from_import(import).unwrap();
        let export =
            || if shares { Arc::new(array).share_dlpack().unwrap() } else { array.into_dlpack().unwrap() };
        let (tensor, calls) = turn.count(export);
        assert_eq!(calls, 0, "shared: {shares}");
        let spin = place.non_blocking().spin();
        elsewhere(move || drop(tensor));
        assert_eq!((drained(), ledger.released()), (1, 0), "shared: {shares}");
        turn.release(spin);
        drained();
        assert_eq!((pending_releases(), ledger.released()), (0, 1), "shared: {shares}");
    }
}
