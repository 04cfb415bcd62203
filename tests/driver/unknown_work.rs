//! Exports of CUDA memory of which nobody knows the stream: the consumer waits for all work of the memory's context.

use std::sync::Arc;

use interop_core::cuda::{CudaBuffer, HoldReleases, MemoryKind, Unordered, finish_releases, unordered};
use interop_core::protocols::dlpack::Versioned;
use interop_core::{CudaArray, DType, Device, ErrorKind, FromArray, Import, Lease, StreamHandle};
use simulated_cuda::Live;

use crate::counted_imports::Row;
use crate::cuda_program::{Bytes, Place, Stream};
use crate::exclusive_driver::{Turn, first_gpu};
use crate::order_settings::set_unordered;

/// Memory that work on a stream which nobody names is still writing: with 5 in each byte.
fn late(kind: MemoryKind, place: Place, hidden: Stream) -> (Arc<Row<CudaBuffer>>, Bytes) {
    let data = CudaBuffer::zeroed(kind, 0, DType::I16, 32).unwrap();
    let array = Row { data, len: 32 };
    let bytes = place.non_blocking().bytes_at(array.info().unwrap().address(), 64);
    hidden.spin();
    hidden.fill(&bytes, 5);
    (Arc::new(array), bytes)
}

fn counted(turn: &Turn) -> [u64; 3] {
    turn.calls_of(["cuCtxRecordEvent", "cuEventRecord", "cuStreamWaitEvent"])
}

#[test]
fn a_consumer_waits_for_all_work() {
    let (turn, place) = first_gpu();
    for consumer in [place.non_blocking(), place.blocking(), place.legacy()] {
        for hidden in [place.non_blocking(), place.blocking()] {
            let (array, bytes) = late(MemoryKind::Device, place, hidden);
            turn.reset_calls();
            let tensor = array.share_dlpack_as::<Versioned>(consumer.handle()).unwrap();
            assert_eq!(counted(&turn), [1, 0, 1], "one event, and one wait");
            turn.assert_no_host_wait();
            assert_eq!(consumer.reads(&bytes), 5);
            drop(tensor);
            turn.run_all();
            assert_eq!(finish_releases(), 0);
        }
    }
}

/// Safe code cannot promise that nothing is pending, so the host makes it true.
#[test]
fn nothing_is_pending_for_a_consumer_without_a_stream() {
    let (turn, place) = first_gpu();
    let (array, bytes) = late(MemoryKind::Device, place, place.non_blocking());
    let tensor = array.share_dlpack_as::<Versioned>(StreamHandle::NothingPending).unwrap();
    assert_eq!(place.non_blocking().reads(&bytes), 5);
    drop(tensor);
    turn.run_all();
    assert_eq!(finish_releases(), 0);
}

#[test]
fn a_copy_to_the_host_waits_for_all_work() {
    let (_turn, place) = first_gpu();
    for kind in [MemoryKind::Device, MemoryKind::Pool, MemoryKind::Pinned, MemoryKind::Managed] {
        let (array, _) = late(kind, place, place.non_blocking());
        assert_eq!(array.to_vec::<i16>().unwrap(), [0x505; 32], "{kind:?}");
    }
}

/// The dict names a stream of its own, so that a look at it holds back nobody else.
#[test]
fn an_interface_names_a_stream_that_waits() {
    let (turn, place) = first_gpu();
    let (array, bytes) = late(MemoryKind::Device, place, place.non_blocking());
    let first = array.to_cai().unwrap();
    assert!(matches!(first.stream, StreamHandle::Raw(_)), "a stream of the library: {}", first.stream);
    let streams = turn.live(Live::Streams);
    turn.reset_calls();
    for _ in 0..10 {
        assert_eq!(array.to_cai().unwrap().stream, first.stream);
    }
    assert_eq!(turn.live(Live::Streams), streams, "one stream for the context");
    turn.assert_no_host_wait();
    let consumer = place.non_blocking();
    // SAFETY: the array keeps the memory alive, and the stream of the library lives as long as the context.
    #[expect(unsafe_code, reason = "an interface is plain data")]
    let import = unsafe { Import::from_cai_for_stream(&first, consumer.handle(), array) }.unwrap();
    assert_eq!(consumer.reads(&bytes), 5);
    drop(import);
    turn.run_all();
    assert_eq!(finish_releases(), 0);
}

#[test]
fn a_program_may_order_unknown_work_itself() {
    let (turn, place) = first_gpu();
    let array =
        Arc::new(Row { data: CudaBuffer::zeroed(MemoryKind::Device, 0, DType::I16, 32).unwrap(), len: 32 });
    for (unknown_work, calls) in [(false, [1, 0, 1]), (true, [0, 0, 0])] {
        set_unordered(Unordered { unknown_work, ..unordered() });
        turn.reset_calls();
        let tensor = array.share_dlpack_as::<Versioned>(place.non_blocking().handle()).unwrap();
        assert_eq!(counted(&turn), calls, "{unknown_work}");
        drop(tensor);
        assert_eq!(finish_releases(), 0);
    }
}

/// An event for a whole context would invalidate a capture, so the export is refused before the driver is called.
#[test]
fn a_capture_is_left_alone() {
    let (turn, place) = first_gpu();
    let array =
        Arc::new(Row { data: CudaBuffer::zeroed(MemoryKind::Device, 0, DType::I16, 32).unwrap(), len: 32 });
    let refused = |stream: StreamHandle| {
        let error = array.share_dlpack_as::<Versioned>(stream).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StreamCapture, "{error}");
        assert_eq!(array.to_cai().unwrap_err().kind(), ErrorKind::StreamCapture);
    };
    // The consumer's stream captures, a blocking stream captures, and releases are held.
    let stream = place.blocking();
    stream.begin();
    refused(stream.handle());
    refused(place.non_blocking().handle());
    assert!(stream.end());
    let held = HoldReleases::new();
    refused(place.non_blocking().handle());
    drop(held);
    assert_eq!(counted(&turn)[0], 0);
    drop(array.share_dlpack_as::<Versioned>(place.non_blocking().handle()).unwrap());
    assert_eq!(finish_releases(), 0);
}

/// An import of memory without a stream is put on one.
#[test]
fn memory_without_a_stream_comes_in_after_all_work() {
    let (_turn, place) = first_gpu();
    let (array, bytes) = late(MemoryKind::Device, place, place.non_blocking());
    let info = array.info().unwrap();
    let owner = interop_core::storage::Owner::new(array);
    #[expect(unsafe_code, reason = "an import of a known description")]
    // SAFETY: the owner keeps the memory alive.
    let import = unsafe { Import::from_parts(info, owner) };
    let row: Row<Lease<i16>> = Row::from_import(import).unwrap();
    assert_eq!(row.info().unwrap().stream(), Some(StreamHandle::LegacyDefault));
    assert_eq!((place.legacy().reads(&bytes), row.info().unwrap().device()), (5, Device::cuda(0)));
    drop(row);
    assert_eq!(finish_releases(), 0);
}
