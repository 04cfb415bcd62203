//! R151 to R153: while a graph is captured the library makes no call that would invalidate the capture.

use std::sync::Arc;

use interop_core::cuda::{
    CudaBuffer, HoldReleases, MemoryKind, finish_releases, pending_releases, poll_releases,
    stream_synchronize, stream_wait,
};
use interop_core::protocols::dlpack::Versioned;
use interop_core::{CudaArray, DType, Device, ErrorKind, FromArray, Import, SharedBuffer, StreamHandle};
use simulated_cuda::{Live, Mistake};

use crate::counted_imports::{ReadyOn, arrive, drained, tell};
use crate::cuda_program::{LARGE, Place, Stream, current};
use crate::exclusive_driver::first_gpu;
use crate::support::arrays::Array;
use crate::support::assert_told;
use crate::support::counted_owners::elsewhere;
use crate::support::foreign_tensors::Ledger;

const GPU: Device = Device::cuda(0);

fn released(ledgers: &[Ledger]) -> usize {
    ledgers.iter().map(Ledger::released).sum()
}

/// Each kind of stream that can be paired with a capturing stream.
fn others(place: Place) -> [StreamHandle; 4] {
    [
        StreamHandle::LegacyDefault,
        StreamHandle::PerThreadDefault,
        place.blocking().handle(),
        place.non_blocking().handle(),
    ]
}

/// Blocking and non-blocking streams, each in each capture mode.
fn captured(place: Place) -> Vec<Stream> {
    let both = (0..3).flat_map(|mode| [(mode, place.blocking()), (mode, place.non_blocking())]);
    both.map(|(mode, stream)| {
        stream.begin_in(mode);
        // One at a time: a capture begins after the previous one has ended.
        assert!(stream.end());
        stream
    })
    .collect()
}

#[test]
fn an_edge_out_of_a_capture_or_into_one_is_refused_and_the_capture_stays_good() {
    let (turn, place) = first_gpu();
    for (mode, stream) in captured(place).into_iter().enumerate().map(|(at, stream)| (at / 2, stream)) {
        for other in others(place) {
            for into in [false, true] {
                // A wait is only needed if work is pending on a default stream.
                let work = match other {
                    StreamHandle::LegacyDefault => Some(place.legacy().spin()),
                    StreamHandle::PerThreadDefault => Some(place.per_thread().spin()),
                    _ => None,
                };
                stream.begin_in(u32::try_from(mode).unwrap());
                let (from, to) = if into { (other, stream.handle()) } else { (stream.handle(), other) };
                let error = stream_wait(to, from, GPU).unwrap_err();
                let said = "the captured stream alone";
                assert_told(&error, (ErrorKind::StreamCapture, "stream", "capture", said));
                assert_eq!((turn.calls("cuStreamWaitEvent"), current()), (0, None), "{from} to {to}");
                assert!(stream.end(), "mode {mode}: {from} to {to} spoils the capture");
                if let Some(work) = work {
                    turn.release(work);
                }
                turn.run_all();
            }
        }
    }
}

#[test]
fn a_capture_need_not_wait_for_an_idle_default_stream() {
    let (turn, place) = first_gpu();
    let stream = place.non_blocking();
    for default in [StreamHandle::LegacyDefault, StreamHandle::PerThreadDefault] {
        stream.begin();
        stream_wait(stream.handle(), default, GPU).unwrap();
        let error = stream_wait(default, stream.handle(), GPU).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StreamCapture, "its own work would be part of the capture");
        assert_eq!(turn.calls("cuStreamWaitEvent"), 0);
        assert!(stream.end());
    }
}

#[test]
fn within_one_capture_an_edge_is_made() {
    let (turn, place) = first_gpu();
    let (origin, branch) = (place.non_blocking(), place.non_blocking());
    origin.begin();
    origin.fork(branch);
    turn.reset_calls();
    stream_wait(origin.handle(), branch.handle(), GPU).unwrap();
    assert_eq!(turn.calls_of(["cuEventRecord", "cuStreamWaitEvent"]), [1, 1]);
    assert!(origin.end(), "the branch has come back by the edge");
}

#[test]
fn without_the_edge_the_branch_does_not_come_back() {
    let (turn, place) = first_gpu();
    let (origin, branch, data) = (place.non_blocking(), place.non_blocking(), place.bytes(0, 8));
    origin.begin();
    origin.fork(branch);
    branch.fill(&data, 1);
    stream_wait(origin.handle(), StreamHandle::NothingPending, GPU).unwrap();
    assert!(!origin.end());
    turn.expect(Mistake::Capture);
}

#[test]
fn two_captures_are_not_merged() {
    let (turn, place) = first_gpu();
    let streams = [place.non_blocking(), place.non_blocking()];
    for stream in streams {
        stream.begin();
    }
    let error = stream_wait(streams[1].handle(), streams[0].handle(), GPU).unwrap_err();
    assert_told(
        &error,
        (ErrorKind::StreamCapture, "stream", "not part of the capture", "the captured stream alone"),
    );
    assert_eq!(turn.calls("cuStreamWaitEvent"), 0);
    assert_eq!(streams.map(Stream::end), [true; 2]);
}

#[test]
fn the_same_stream_and_no_ordering_are_fine() {
    let (turn, place) = first_gpu();
    for stream in [place.blocking(), place.non_blocking()] {
        stream.begin();
        let this = stream.handle();
        let nothing = StreamHandle::NothingPending;
        let pairs = [(this, this), (nothing, this), (this, nothing)];
        let ((), calls) =
            turn.count(|| pairs.map(|(from, to)| stream_wait(to, from, GPU).unwrap()).into_iter().collect());
        assert_eq!(calls, 0);
        assert!(stream.end());
    }
}

#[test]
fn streams_beside_a_capture_are_ordered() {
    let (_turn, place) = first_gpu();
    let (captures, producer, consumer) = (place.blocking(), place.non_blocking(), place.non_blocking());
    let data = place.bytes(1, 8);
    captures.begin();
    producer.fill(&data, 7);
    stream_wait(consumer.handle(), producer.handle(), GPU).unwrap();
    assert!(captures.end());
    assert_eq!(consumer.reads(&data), 7);
}

#[test]
fn the_legacy_stream_is_not_touched_while_a_stream_that_joins_with_it_captures() {
    let (turn, place) = first_gpu();
    let (captures, other) = (place.blocking(), place.non_blocking());
    captures.begin();
    let legacy = StreamHandle::LegacyDefault;
    for (from, to) in [(legacy, other.handle()), (other.handle(), legacy)] {
        let error = stream_wait(to, from, GPU).unwrap_err();
        assert_told(
            &error,
            (
                ErrorKind::StreamCapture,
                "stream",
                "synchronizes with a capturing stream",
                "the captured stream alone",
            ),
        );
    }
    let error = stream_synchronize(legacy, GPU).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StreamCapture, "{error}");
    turn.assert_no_host_wait();
    assert!(captures.end());
}

#[test]
fn the_host_waits_for_no_stream_that_captures_and_for_all_others() {
    let (turn, place) = first_gpu();
    let (captures, other, data) = (place.non_blocking(), place.non_blocking(), place.pinned(1, 8));
    captures.begin();
    turn.reset_calls();
    let error = stream_synchronize(captures.handle(), Device::CUDA_HOST).unwrap_err();
    assert_told(
        &error,
        (ErrorKind::StreamCapture, "stream", "a wait on the host", "the captured stream alone"),
    );
    turn.assert_no_host_wait();
    other.fill(&data, 7);
    stream_synchronize(other.handle(), Device::CUDA_HOST).unwrap();
    turn.host_reads(data.address, 8);
    assert_eq!(data.value(), 7);
    assert!(captures.end());
}

#[test]
fn a_release_beside_a_blocking_capture_is_parked_until_the_capture_is_over() {
    let (turn, place) = first_gpu();
    let (data, captures) = (place.bytes(0, 64), place.blocking());
    let (ledger, import) = arrive(&data, GPU);
    captures.begin();
    drop(import);
    assert_eq!((ledger.released(), pending_releases(), turn.calls("cuCtxRecordEvent")), (0, 1, 0));
    assert_eq!((poll_releases(), finish_releases()), (1, 1), "it cannot be decided");
    assert!(captures.end(), "the release spoils the capture");
    assert_eq!((drained(), ledger.released()), (0, 1));
}

/// The documented limit, which applies to arrays of at least a mebibyte: the capture is invalidated, and an error
/// says so.
#[test]
fn the_release_of_a_large_array_beside_a_non_blocking_capture_spoils_it() {
    let (turn, place) = first_gpu();
    let (data, captures) = (place.bytes(0, LARGE), place.non_blocking());
    let (ledger, import) = arrive(&data, GPU);
    captures.begin();
    drop(import);
    assert_eq!((ledger.released(), pending_releases()), (0, 1));
    assert!(!captures.end());
    turn.expect(Mistake::Capture);
    assert_eq!((drained(), ledger.released()), (0, 1));
}

/// Dropping a small array makes no driver call, so it does not affect a capture. This holds on any thread, for
/// imports and for our exports, without a `HoldReleases` guard. The release waits for the end of the capture.
#[test]
fn small_arrays_that_another_thread_drops_leave_a_capture_alone() {
    let (turn, place) = first_gpu();
    for mode in 0..3 {
        let (data, captures) = (place.bytes(0, 256 << 10), place.non_blocking());
        let (ledgers, arrays): (Vec<Ledger>, Vec<_>) = (0..4)
            .map(|_| {
                let (ledger, import) = arrive(&data, GPU);
                let array = Arc::new(Array::<SharedBuffer>::from_import(import).unwrap());
                let exported = array.share_dlpack().unwrap();
                (ledger, (array, exported))
            })
            .unzip();
        captures.begin_in(mode);
        turn.reset_calls();
        elsewhere(move || drop(arrays));
        assert_eq!((turn.all_calls(), pending_releases()), (0, 4), "mode {mode}");
        assert!(captures.end(), "mode {mode}: a drop has spoilt the capture");
        // Each array was exported, so its own release follows that of the export.
        assert_eq!((finish_releases(), released(&ledgers)), (0, 4), "mode {mode}");
    }
}

#[test]
fn held_releases_leave_every_capture_alone() {
    let (turn, place) = first_gpu();
    let (data, captures) = (place.bytes(0, 64), place.non_blocking());
    let (ledger, import) = arrive(&data, GPU);
    let (held, also) = (HoldReleases::new(), HoldReleases::new());
    captures.begin();
    let ((), calls) = turn.count(|| drop(import));
    assert_eq!((calls, pending_releases()), (0, 1));
    assert_eq!((poll_releases(), finish_releases()), (1, 1));
    assert!(captures.end());
    drop(held);
    assert_eq!((poll_releases(), ledger.released()), (1, 0), "one still holds");
    drop(also);
    assert_eq!((drained(), ledger.released()), (0, 1));
}

#[test]
fn what_is_imported_for_a_stream_that_captures_is_released_at_once() {
    let (turn, place) = first_gpu();
    let (data, captures) = (place.bytes(0, 64), place.non_blocking());
    captures.begin();
    let (ledger, import) = arrive(&data, GPU);
    let import = import.ready_on(captures.handle());
    let ((), calls) = turn.count(|| drop(import));
    assert_eq!((ledger.released(), pending_releases(), calls), (1, 0, 0));
    assert!(captures.end());
}

#[test]
fn imports_and_exports_on_a_stream_that_captures_leave_it_good() {
    let (turn, place) = first_gpu();
    let (data, captures) = (place.bytes(0, 64), place.non_blocking());
    captures.begin();
    turn.reset_calls();
    let (ledger, tensor) = tell(&data, GPU);
    let import = Import::from_dlpack(tensor).unwrap().ready_on(captures.handle());
    let array = <Array<interop_core::LeaseMut<i16>> as interop_core::FromArray>::from_import(import).unwrap();
    captures.fill(&data, 9);
    let tensor = array.into_dlpack_as::<Versioned>(captures.handle()).unwrap();
    turn.assert_no_host_wait();
    assert!(captures.end());
    drop(tensor);
    assert_eq!(drained(), 0);
    assert_eq!(ledger.released(), 1);
}

/// Meanwhile memory is initialized, copied and freed without the legacy stream, which would invalidate the capture.
#[test]
fn buffers_are_made_read_and_freed_while_streams_capture() {
    let (turn, place) = first_gpu();
    let kinds = [MemoryKind::Device, MemoryKind::Pool, MemoryKind::Pinned, MemoryKind::Managed];
    for (kind, captures) in kinds.iter().flat_map(|kind| captured(place).into_iter().map(move |s| (*kind, s)))
    {
        let before = turn.live(Live::Streams);
        let outlived = CudaBuffer::zeroed(kind, 0, DType::F32, 4).unwrap();
        // Pool memory is released like imports are, which would invalidate a non-blocking capture.
        let held = HoldReleases::new();
        captures.begin();
        let zeroed = Array::new(CudaBuffer::zeroed(kind, 0, DType::U8, 3).unwrap(), &[3]);
        let copied = Array::new(CudaBuffer::from_slice(kind, 0, &[1_u8, 2, 3]).unwrap(), &[3]);
        assert_eq!(zeroed.to_vec::<u8>().unwrap(), [0; 3]);
        assert_eq!(copied.to_vec::<u8>().unwrap(), [1, 2, 3], "{kind:?} beside {captures:?}");
        drop((zeroed, copied, outlived));
        assert!(captures.end(), "{kind:?}: the capture is spoiled");
        assert_eq!(turn.live(Live::Streams), before, "{kind:?}");
        drop(held);
        assert_eq!(finish_releases(), 0);
    }
}
