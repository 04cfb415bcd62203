//! Imports on the stream on which their caller works: nothing is ordered, nothing is recorded, and graphs stay valid.

use interop_core::cuda::{finish_releases, pending_releases};
use interop_core::protocols::dlpack::Versioned;
use interop_core::storage::Owner;
use interop_core::{
    CudaArray, Device, ErrorKind, FromArray, Import, Kept, LaunchScope, Lease, LeaseMut, StreamHandle,
};

use crate::counted_imports::{self, ReadyOn, Row, arrive, arrive_on, drained, tell};
use crate::cuda_program::{Bytes, LARGE, Place, Stream, set_current};
use crate::exclusive_driver::{first_gpu, turn};
use crate::support::arrays::{Array, Matrix};
use crate::support::counted_owners::elsewhere;
use crate::support::foreign_tensors::Ledger;

const GPU: Device = Device::cuda(0);

/// Imports memory that its library uses on this stream.
fn on(data: &Bytes, stream: Stream) -> (Ledger, Import) {
    arrive_on(data, GPU, stream)
}

fn row(data: &Bytes, stream: Stream) -> (Ledger, Row<LeaseMut<i16>>) {
    counted_imports::row(data, stream)
}

/// Each kind of stream of a library.
fn streams(place: Place) -> [Stream; 3] {
    [place.legacy(), place.blocking(), place.non_blocking()]
}

#[test]
fn only_the_pointer_is_asked_about_and_the_release_is_at_once() {
    let (turn, place) = first_gpu();
    for bytes in [64, 2 * LARGE] {
        let data = place.bytes(0, bytes);
        // A release of other memory is pending, for which nobody polls here.
        let (other, import) = arrive(&data, GPU);
        let spin = place.non_blocking().spin();
        drop(import);
        for stream in streams(place) {
            let ((ledger, import), calls) = turn.count(|| on(&data, stream));
            assert_eq!((calls, turn.calls("cuPointerGetAttributes")), (1, 1), "{stream:?}");
            let (array, calls) = turn.count(|| Array::<LeaseMut<i16>>::from_import(import).unwrap());
            assert_eq!((calls, array.stream), (0, stream.handle()));
            let ((), calls) = turn.count(|| drop(array));
            assert_eq!((calls, ledger.released()), (0, 1), "{stream:?}, {bytes} bytes");
            // The same without a `stream` field.
            let (ledger, array) = row(&data, stream);
            assert_eq!(array.info().unwrap().stream(), Some(stream.handle()));
            let ((), calls) = turn.count(|| drop(array));
            assert_eq!((calls, ledger.released()), (0, 1), "{stream:?}, {bytes} bytes");
        }
        assert_eq!(other.released(), 0);
        turn.release(spin);
        assert_eq!((drained(), other.released()), (0, 1));
    }
}

#[test]
fn our_own_operations_stay_on_the_stream() {
    let (turn, place) = first_gpu();
    let data = place.bytes(0, 64);
    for stream in streams(place) {
        stream.fill(&data, 7);
        let (ledger, array) = row(&data, stream);
        assert_eq!(array.to_vec::<i16>().unwrap(), [0x707; 32]);
        drop(array);
        assert_eq!((ledger.released(), pending_releases()), (1, 0), "{stream:?}");
        turn.assert_no_reports();
    }
}

/// Everything that gives the address away, or the memory to somebody else.
#[test]
fn what_is_used_otherwise_is_released_after_the_work() {
    type Use = fn(Row<LeaseMut<i16>>, Stream);
    let uses: [(&str, Use); 12] = [
        ("a kernel view", |array, _| {
            array.view::<i16, 1>().unwrap().kernel_view().unwrap();
        }),
        ("a kernel view for writing", |mut array, _| {
            array.view_mut::<i16, 1>().unwrap().kernel_view_mut().unwrap();
        }),
        ("the address of a view", |array, _| assert_ne!(array.view::<i16, 1>().unwrap().address(), 0)),
        ("the address", |array, _| assert_ne!(array.info().unwrap().address(), 0)),
        ("the addresses", |array, _| assert!(!array.info().unwrap().byte_range().is_empty())),
        ("the region", |array, _| {
            assert_ne!(interop_core::Storage::memory(&array.data).unwrap().address, 0);
        }),
        ("an interface", |array, _| drop(array.to_cai().unwrap())),
        ("an export", |array, stream| {
            drop(array.into_dlpack_as::<Versioned>(stream.handle()).unwrap());
        }),
        ("the owner", |array, _| drop(Owner::from(array.data))),
        ("another thread", |array, _| {
            elsewhere(move || drop(array));
        }),
        ("a scope that is forgotten", |mut array, _| {
            let own = Place::primary(0).non_blocking();
            let scope = LaunchScope::on(&own);
            scope.write_any(&mut array).unwrap();
            std::mem::forget(scope);
        }),
        ("a kernel view before a scope", |mut array, _| {
            array.view::<i16, 1>().unwrap().kernel_view().unwrap();
            let scope = LaunchScope::new();
            scope.write_any(&mut array).unwrap();
            scope.finish().unwrap();
        }),
    ];
    let (turn, place) = first_gpu();
    let (data, stream) = (place.bytes(0, 64), place.non_blocking());
    for (name, spend) in uses {
        // A scope that is forgotten keeps its memory for ever.
        let data = place.bytes(0, 64);
        let (ledger, array) = row(&data, stream);
        let spin = place.non_blocking().spin();
        spend(array, stream);
        assert_eq!((drained(), ledger.released()), (1, 0), "{name}");
        turn.release(spin);
        assert_eq!((drained(), ledger.released()), (0, 1), "{name}");
    }
    let on_another = |import: Import| drop(import.ready_on(place.non_blocking().handle()));
    let spends: [&dyn Fn(Import); 2] = [&|import| drop(import.into_parts()), &on_another];
    for spend in spends {
        let (ledger, import) = on(&data, stream);
        let spin = place.non_blocking().spin();
        spend(import);
        assert_eq!((drained(), ledger.released()), (1, 0));
        turn.release(spin);
        assert_eq!((drained(), ledger.released()), (0, 1));
    }
}

/// What only looks at the description uses nothing.
#[test]
fn a_look_at_the_description_is_no_use() {
    let (_turn, place) = first_gpu();
    let (data, stream) = (place.bytes(0, 64), place.non_blocking());
    let (ledger, array) = row(&data, stream);
    let info = array.info().unwrap();
    assert_eq!(
        (info.device(), info.shape(), info.nbytes(), info.is_read_only()),
        (GPU, &[32][..], 64, false)
    );
    assert_eq!(array.view::<i16, 1>().unwrap().shape(), [32]);
    drop((info, array));
    assert_eq!((ledger.released(), pending_releases()), (1, 0));
}

#[test]
fn a_capture_stays_valid() {
    let (turn, place) = first_gpu();
    for bytes in [64, 2 * LARGE] {
        let data = place.bytes(0, bytes);
        // A small release is pending, and another one of a large array has its event.
        let parked: Vec<_> = [place.bytes(0, 64), place.bytes(0, 2 * LARGE)]
            .into_iter()
            .map(|data| {
                let (ledger, import) = arrive(&data, GPU);
                drop(import);
                (ledger, data)
            })
            .collect();
        for stream in [place.blocking(), place.non_blocking()] {
            stream.begin();
            let (ledger, array) = row(&data, stream);
            drop(array);
            assert_eq!(ledger.released(), 1);
            if bytes < LARGE {
                // Without a wait, as a library is told that needs none.
                let (unordered, import) = arrive(&data, GPU);
                let (import, calls) = turn.count(|| import.ready_on(StreamHandle::NothingPending));
                assert_eq!(calls, 0);
                drop(import);
                assert_eq!(unordered.released(), 0);
            }
            assert!(stream.end(), "{stream:?}");
            assert_eq!(drained(), 0);
        }
        drop(parked);
        turn.assert_no_reports();
    }
}

#[test]
fn an_array_that_is_kept_leaves_the_stream() {
    let (turn, place) = first_gpu();
    let data = place.bytes(0, 64);
    let stream = place.non_blocking();
    stream.spin();
    stream.fill(&data, 7);
    let (ledger, import) = on(&data, stream);
    let kept: Kept<Row<Lease<i16>>> = Kept::from_import(import).unwrap();
    turn.run_all();
    stream.destroy();
    assert_eq!(kept.info().unwrap().stream(), None);
    assert_eq!(kept.to_vec::<i16>().unwrap(), [0x707; 32]);
    drop(kept.0.into_dlpack().unwrap());
    assert_eq!((finish_releases(), ledger.released()), (0, 1));
}

/// Its library works on, on a stream that nobody knows: a scope comes after what the library did, and before what it does.
/// The host reads what it did.
#[test]
fn an_array_that_is_kept_is_ordered_with_all_work() {
    let (_turn, place) = first_gpu();
    let (data, copied) = (place.bytes(0, 64), place.bytes(0, 64));
    let (stream, theirs, other) = (place.non_blocking(), place.non_blocking(), place.non_blocking());
    let (ledger, import) = on(&data, stream);
    let kept: Kept<Row<Lease<i16>>> = Kept::from_import(import).unwrap();
    let (field, import) = on(&data, stream);
    let with_a_field: Kept<Array<Lease<i16>>> = Kept::from_import(import).unwrap();
    assert_eq!(with_a_field.info().unwrap().stream(), Some(StreamHandle::LegacyDefault));
    for (number, is_plain) in [(3, true), (4, false)] {
        theirs.spin();
        theirs.fill(&data, number);
        let elements = if is_plain { kept.to_vec::<i16>() } else { with_a_field.to_vec::<i16>() };
        assert_eq!(elements.unwrap(), [i16::from(number) * 0x101; 32]);
        let (target, mut array) = row(&copied, other);
        theirs.spin();
        theirs.fill(&data, number + 2);
        let scope = LaunchScope::new();
        if is_plain {
            scope.read_any(&kept).unwrap()
        } else {
            scope.read_any(&with_a_field).unwrap()
        };
        // The library of a kept array does not tell its stream, so that of the next array is the scope's.
        scope.write_any(&mut array).unwrap();
        assert_eq!(scope.stream::<StreamHandle>().unwrap(), other.handle());
        other.spin();
        other.copy(&copied, &data);
        scope.finish().unwrap();
        theirs.fill(&data, 9);
        assert_eq!((other.reads(&copied), theirs.reads(&data)), (number + 2, 9));
        drop(array);
        assert_eq!(target.released(), 1);
    }
    drop((kept, with_a_field));
    assert_eq!((finish_releases(), ledger.released(), field.released()), (0, 1, 1));
}

/// The import that comes back can be used for the call, on the stream that captures.
#[test]
fn an_array_cannot_be_kept_during_a_capture() {
    let (_turn, place) = first_gpu();
    let (data, stream) = (place.bytes(0, 64), place.non_blocking());
    // A release is pending, whose event would invalidate the capture.
    drop(arrive(&data, GPU).1);
    stream.begin();
    let (ledger, import) = on(&data, stream);
    let refused = Kept::<Row<Lease<i16>>>::from_import(import).unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::StreamCapture);
    let array: Row<LeaseMut<i16>> = Row::from_import(*refused.value).unwrap();
    assert_eq!(array.info().unwrap().stream(), Some(stream.handle()));
    drop(array);
    assert!(stream.end());
    assert_eq!((finish_releases(), ledger.released()), (0, 1));
}

/// A graph orders its own work: on the stream that the user has named, in a scope on it, and in one on another stream, into which the
/// capture is forked.
#[test]
fn arrays_and_scopes_take_part_in_a_capture() {
    let (turn, place) = first_gpu();
    let data = place.bytes(0, 64);
    let in_scope = |stream: Stream, own: Option<&Stream>| {
        let (ledger, mut array) = row(&data, stream);
        let (scope, on) = (own.map_or_else(LaunchScope::new, LaunchScope::on), *own.unwrap_or(&stream));
        scope.write_any(&mut array).unwrap();
        assert_eq!(scope.stream::<StreamHandle>().unwrap(), on.handle());
        on.fill(&data, 4);
        scope.finish().unwrap();
        ledger
    };
    let named = |stream: Stream| {
        let (ledger, import) = arrive(&data, GPU);
        let array: Row<LeaseMut<i16>> = Row::from_import(import.ready_on(stream.handle())).unwrap();
        assert_eq!(array.info().unwrap().stream(), Some(stream.handle()));
        ledger
    };
    let other = place.non_blocking();
    let uses: [(&str, &dyn Fn(Stream) -> Ledger); 3] = [
        ("named", &named),
        ("its scope", &|stream| in_scope(stream, None)),
        ("a scope elsewhere", &|stream| in_scope(stream, Some(&other))),
    ];
    set_current(Some(place));
    for (name, used) in uses {
        for stream in [place.non_blocking(), place.per_thread()] {
            stream.begin();
            let ledger = used(stream);
            assert!(stream.end(), "{name}: {stream:?}");
            assert_eq!((finish_releases(), ledger.released()), (0, 1), "{name}: {stream:?}");
        }
    }
    set_current(None);
    turn.assert_no_reports();
}

/// The table of records has an end. What comes without one is on the caller's stream all the same.
#[test]
fn an_array_without_a_record_is_on_the_stream() {
    let (_turn, place) = first_gpu();
    let (data, stream) = (place.bytes(0, 64), place.non_blocking());
    let held: Vec<_> = (0..1500).map(|_| row(&data, stream)).collect();
    let (first, import) = on(&data, stream);
    let kept: Kept<Array<Lease<i16>>> = Kept::from_import(import).unwrap();
    assert_eq!(kept.info().unwrap().stream(), Some(StreamHandle::LegacyDefault));
    stream.begin();
    let (second, array) = row(&data, stream);
    assert_eq!(array.info().unwrap().stream(), Some(stream.handle()));
    drop(array);
    assert!(stream.end());
    stream.destroy();
    assert_eq!(kept.to_vec::<i16>().unwrap(), [0; 32]);
    drop((kept, held));
    assert_eq!((finish_releases(), first.released(), second.released()), (0, 1, 1));
}

#[test]
fn an_empty_stream_field_leaves_the_stream_of_the_caller() {
    #[derive(Debug, CudaArray)]
    #[cuda_array(shape = [len])]
    struct Optional<S> {
        #[cuda_array(data)]
        data: S,
        len: usize,
        #[cuda_array(stream)]
        stream: Option<StreamHandle>,
    }
    let (_turn, place) = first_gpu();
    let (data, stream) = (place.bytes(0, 64), place.non_blocking());
    stream.spin();
    stream.fill(&data, 7);
    let (ledger, import) = on(&data, stream);
    let mut array: Optional<Lease<i16>> = Optional::from_import(import).unwrap();
    array.stream = None;
    assert_eq!(array.to_vec::<i16>().unwrap(), [0x707; 32]);
    drop(array);
    assert_eq!((finish_releases(), ledger.released()), (0, 1));
}

/// The handle of a destroyed stream may belong to another one by now.
#[test]
fn a_stream_that_is_gone_is_not_used_by_the_release() {
    let turn = turn();
    turn.set_reuse(true);
    let place = Place::primary(0);
    let data = place.bytes(0, 64);
    for is_used in [false, true] {
        let stream = place.non_blocking();
        let (ledger, array) = row(&data, stream);
        if is_used {
            array.view::<i16, 1>().unwrap().kernel_view().unwrap();
        }
        stream.destroy();
        let next = place.non_blocking();
        let spin = next.spin();
        drop(array);
        assert_eq!((drained(), ledger.released()), (usize::from(is_used), usize::from(!is_used)));
        turn.release(spin);
        assert_eq!((drained(), ledger.released()), (0, 1));
        next.destroy();
    }
}

/// A per-thread default stream is another one on another thread, so the stream that waits for it takes its place.
#[test]
fn a_per_thread_stream_becomes_the_legacy_one() {
    let (_turn, place) = first_gpu();
    let data = place.bytes(0, 64);
    place.per_thread().spin();
    place.per_thread().fill(&data, 7);
    let (_ledger, array) = row(&data, place.per_thread());
    assert_eq!(array.info().unwrap().stream(), Some(StreamHandle::LegacyDefault));
    elsewhere(move || assert_eq!(array.to_vec::<i16>().unwrap(), [0x707; 32]));
    assert_eq!(finish_releases(), 0);
}

/// Imports beyond the table of records are released by events.
#[test]
fn any_number_of_arrays_is_released_once() {
    let (_turn, place) = first_gpu();
    let (data, stream) = (place.bytes(0, 64), place.non_blocking());
    let (ledgers, rows): (Vec<_>, Vec<_>) = (0..1500).map(|_| row(&data, stream)).unzip();
    drop(rows);
    assert_eq!(finish_releases(), 0);
    assert!(ledgers.iter().all(|ledger| ledger.released() == 1));
}

#[test]
fn a_tensor_that_is_refused_is_released_at_once() {
    let (_turn, place) = first_gpu();
    let (data, stream) = (place.bytes(0, 64), place.non_blocking());
    let (ledger, import) = on(&data, stream);
    let refused = Matrix::<Lease<f64>>::from_import(import).unwrap_err();
    assert_eq!(ledger.released(), 0);
    drop(refused);
    assert_eq!((ledger.released(), pending_releases()), (1, 0));
    // Host memory has no stream.
    let (ledger, tensor) = tell(&data, GPU);
    drop(Import::from_dlpack(tensor).unwrap());
    assert_eq!((finish_releases(), ledger.released()), (0, 1));
}

/// The record of an array is with its owner, so there is one for each.
#[test]
fn the_uses_of_any_number_of_arrays_are_known() {
    const MANY: usize = 2000;
    let (turn, place) = first_gpu();
    let (data, stream) = (place.bytes(0, 64), place.non_blocking());
    let (ledgers, arrays): (Vec<_>, Vec<_>) = (0..MANY).map(|_| row(&data, stream)).unzip();
    turn.reset_calls();
    drop(arrays);
    assert_eq!((turn.all_calls(), pending_releases()), (0, 0));
    assert!(ledgers.iter().all(|ledger| ledger.released() == 1));
}
