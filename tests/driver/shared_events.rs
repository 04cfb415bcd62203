//! The default policy: small arrays share the event of their release, within limits; and the driver calls of each
//! release.

use std::sync::Arc;
use std::sync::Barrier;
use std::thread;

use interop_core::cuda::{
    CudaBuffer, HoldReleases, MemoryKind, finish_releases, pending_releases, poll_releases, share_events_for,
    stream_wait,
};
use interop_core::protocols::dlpack::Versioned;
use interop_core::{CudaArray, DType, Device, FromArray, Import, LeaseMut, SharedBuffer, StreamHandle};
use simulated_cuda::{Policy, sim};

use crate::counted_imports::{arrive, drained, poll_in_passing};
use crate::cuda_program::{LARGE, Place, set_current};
use crate::exclusive_driver::{Turn, first_gpu, turn};
use crate::order_settings::Releases;
use crate::support::allocator::{Tally, watch};
use crate::support::arrays::Array;
use crate::support::counted_owners::elsewhere;
use crate::support::foreign_tensors::Ledger;

const GPU: Device = Device::cuda(0);
/// The maximum number of deferred small arrays per thread.
const MOST: usize = 64;
/// The maximum number of their bytes.
const MOST_BYTES: usize = 16 << 20;
const RECORD: &str = "cuCtxRecordEvent";

fn released(ledgers: &[Ledger]) -> usize {
    ledgers.iter().map(Ledger::released).sum()
}

/// Exclusive access to the driver with time limits disabled, so that only the counts matter.
fn turn_without_a_clock() -> Turn {
    let turn = turn();
    turn.set_policy(Policy::Eager);
    share_events_for(u64::MAX);
    let data = Place::primary(0).bytes(0, 8);
    // The first look in passing after an explicit poll records the event; this one has done so.
    drop(arrive(&data, GPU));
    poll_in_passing();
    drop(arrive(&data, GPU));
    assert_eq!(pending_releases(), 1);
    turn
}

#[test]
fn a_list_is_decided_when_it_is_full() {
    let turn = turn_without_a_clock();
    let data = Place::primary(0).bytes(0, 64);
    let mut ledgers = Vec::new();
    turn.reset_calls();
    // One release waits already.
    for number in 2..=3 * MOST {
        let (ledger, import) = arrive(&data, GPU);
        drop(import);
        ledgers.push(ledger);
        assert_eq!((turn.calls(RECORD), pending_releases()), ((number / MOST) as u64, number % MOST));
    }
    assert_eq!((released(&ledgers), pending_releases()), (ledgers.len(), 0));
}

/// The owners of a full list stay in vectors that are kept.
#[test]
fn a_full_list_allocates_no_memory_for_its_owners() {
    let _turn = turn_without_a_clock();
    let data = Place::primary(0).bytes(0, 64);
    let fill = || {
        let (ledgers, mut imports): (Vec<_>, Vec<_>) =
            (pending_releases()..MOST).map(|_| arrive(&data, GPU)).unzip();
        let last = imports.pop();
        drop(imports);
        let ((), tally) = watch(|| drop(last));
        assert_eq!((released(&ledgers), pending_releases()), (ledgers.len(), 0));
        tally
    };
    let (first, second) = (fill(), fill());
    // The list of contexts, which one event is made for.
    assert_eq!(second, Tally { made: 1, freed: 1, mismatched: 0 }, "after {first:?}");
}

#[test]
fn a_full_list_leaves_the_lists_of_other_threads_alone() {
    let turn = turn_without_a_clock();
    let data = Place::primary(0).bytes(0, 64);
    // Threads take the lists in turn, so at least one of two has another list than this thread.
    let dropped = || arrive(&data, GPU).0;
    for _ in 0..2 {
        let other = || drop(dropped());
        thread::scope(|scope| scope.spawn(other).join().expect("a release"));
    }
    assert_eq!(pending_releases(), 3);
    let mut ledgers = Vec::new();
    turn.reset_calls();
    while turn.calls(RECORD) == 0 {
        ledgers.push(dropped());
    }
    assert!((1..=2).contains(&pending_releases()), "{} of {}", pending_releases(), ledgers.len());
    assert!(ledgers.iter().all(|ledger| ledger.thread() == Some(thread::current().id())));
    assert_eq!(poll_releases(), 0);
}

#[test]
fn a_list_is_decided_when_it_has_too_many_bytes() {
    let turn = turn_without_a_clock();
    let data = Place::primary(0).bytes(0, LARGE - 2);
    let most = MOST_BYTES / LARGE;
    let (ledgers, imports): (Vec<_>, Vec<_>) = (0..most).map(|_| arrive(&data, GPU)).unzip();
    turn.reset_calls();
    for (number, import) in (1..).zip(imports) {
        drop(import);
        assert_eq!(turn.calls(RECORD), u64::from(number == most), "{number}");
    }
    assert_eq!((released(&ledgers), pending_releases()), (most, 0));
}

/// The next operation on any array records the event, wherever the small array was dropped.
#[test]
fn what_comes_next_decides() {
    let turn = turn();
    turn.set_policy(Policy::Eager);
    let place = Place::primary(0);
    let data = place.bytes(0, 64);
    let array = Arc::new(Array::<SharedBuffer>::from_import(arrive(&data, GPU).1).unwrap());
    let stream = place.non_blocking().handle();
    let next: [(&str, &dyn Fn()); 4] = [
        ("another hand-over", &poll_in_passing),
        ("an export", &|| drop(array.share_dlpack_as::<Versioned>(stream).unwrap())),
        ("a hand-over", &|| array.make_stream_wait(stream).unwrap()),
        ("a request", &|| {
            poll_releases();
        }),
    ];
    for (name, next) in next {
        finish_releases();
        let (ledger, import) = arrive(&data, GPU);
        elsewhere(move || drop(import));
        assert_eq!((ledger.released(), pending_releases()), (0, 1), "{name}");
        next();
        assert_eq!(ledger.released(), 1, "{name}");
    }
    // A stream wait concerns no array.
    let (ledger, import) = arrive(&data, GPU);
    drop(import);
    stream_wait(StreamHandle::LegacyDefault, stream, GPU).unwrap();
    assert_eq!(ledger.released(), 0);
    drop(array);
    assert_eq!(drained(), 0);
}

/// A time limit prevents two polls in a row from recording. An explicit poll, the end of a hold, or a new policy
/// lifts it.
#[test]
fn a_poll_in_passing_decides_at_once_after_a_request_a_hold_or_another_policy() {
    let _turn = turn_without_a_clock();
    let data = Place::primary(0).bytes(0, 64);
    let waits = || {
        let (ledger, import) = arrive(&data, GPU);
        drop(import);
        poll_in_passing();
        assert_eq!(ledger.released(), 0);
        ledger
    };
    let ways: [(&str, &dyn Fn()); 3] = [
        ("a hold", &|| drop(HoldReleases::new())),
        ("a policy", &|| Releases::AfterContext.set()),
        ("a request", &|| {
            poll_releases();
        }),
    ];
    for (name, way) in ways {
        let ledger = waits();
        way();
        poll_in_passing();
        assert_eq!(ledger.released(), 1, "{name}");
    }
    assert_eq!(finish_releases(), 0);
}

/// The event is recorded after all work that was queued before the drop, and the memory is released after the event.
#[test]
fn nothing_goes_before_the_work_that_was_queued_until_its_drop() {
    let (turn, place) = first_gpu();
    let data = place.bytes(0, 64);
    for number in 0..MOST {
        let (ledger, import) = arrive(&data, GPU);
        let spin = place.non_blocking().spin();
        let path = turn.no_waits();
        drop(import);
        if number % 2 == 0 {
            poll_in_passing();
        }
        drop(path);
        assert_eq!((drained() > 0, ledger.released(), turn.is_pending(spin)), (true, 0, true));
        turn.release(spin);
        assert_eq!((drained(), ledger.released()), (0, 1));
    }
}

/// While releases are held the lists exceed their limits, and no driver call is made.
#[test]
fn while_releases_are_held_any_number_waits() {
    let turn = turn_without_a_clock();
    let data = Place::primary(0).bytes(0, 64);
    let (ledgers, imports): (Vec<_>, Vec<_>) = (0..3 * MOST).map(|_| arrive(&data, GPU)).unzip();
    let held = HoldReleases::new();
    let ((), calls) = turn.count(|| drop(imports));
    assert_eq!((calls, released(&ledgers)), (0, 0));
    drop(held);
    assert_eq!((finish_releases(), released(&ledgers)), (0, ledgers.len()));
}

#[test]
fn threads_share_events_and_release_everything_once() {
    const THREADS: usize = 20;
    const ROUNDS: usize = 200;
    let turn = turn_without_a_clock();
    let data = Place::primary(0).bytes(0, 64);
    let start = Barrier::new(THREADS);
    let (ledgers, mut imports): (Vec<_>, Vec<_>) = (0..THREADS * ROUNDS).map(|_| arrive(&data, GPU)).unzip();
    turn.reset_calls();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let own = imports.split_off(imports.len() - ROUNDS);
            let start = &start;
            scope.spawn(move || {
                start.wait();
                drop(own);
            });
        }
    });
    let (all, left) = (THREADS * ROUNDS, pending_releases());
    assert!(left <= 16 * MOST, "{left} wait");
    assert!(ledgers.iter().all(|ledger| ledger.released() <= 1));
    // A thread that fills its list records an event for at least that many releases.
    let events = turn.calls(RECORD);
    assert!((1..=(all / MOST) as u64).contains(&events), "{events} events for {all} releases");
    assert_eq!((finish_releases(), released(&ledgers)), (0, all));
}

/// The calls of each release, by owner of the memory: a foreign deleter is called without any driver call.
#[test]
fn a_foreign_release_makes_no_call_and_our_own_frees_in_its_context() {
    let turn = turn();
    sim().set_policy(Policy::Eager);
    Releases::Unordered.set();
    let place = Place::primary(0);
    let data = place.bytes(0, 64);
    let (ledger, import) = arrive(&data, GPU);
    let ((), calls) = turn.count(|| drop(import));
    assert_eq!((calls, ledger.released()), (0, 1));

    let buffer = || {
        let array = Array::new(CudaBuffer::zeroed(MemoryKind::Device, 0, DType::U8, 64).unwrap(), &[64]);
        Arc::new(array)
    };
    let names =
        ["cuMemFree_v2", "cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuThreadExchangeStreamCaptureMode"];
    // An export that is not the last owner frees nothing.
    let array = buffer();
    let tensor = array.share_dlpack().unwrap();
    let ((), calls) = turn.count(|| drop(tensor));
    assert_eq!(calls, 0);
    // The last owner frees in its context: the context is queried and pushed, and the capture mode is set to relaxed.
    // Our buffer also does both itself, because it may be dropped without an export.
    let tensor = array.share_dlpack().unwrap();
    drop(array);
    turn.reset_calls();
    drop(tensor);
    assert_eq!(turn.calls_of(names), [1, 3, 1, 4]);
    turn.reset_calls();
    drop(buffer());
    assert_eq!(turn.calls_of(["cuMemFree_v2", "cuThreadExchangeStreamCaptureMode"])[0], 1);
}

/// A struct without a `stream` field.
#[derive(CudaArray)]
#[cuda_array(shape = [len], import)]
struct Bare<S> {
    #[cuda_array(data)]
    _data: S,
    #[expect(dead_code, reason = "an import fills it")]
    len: usize,
}

/// Import and export in plain Rust: each queries the pointer once.
#[test]
fn in_and_out_asks_two_questions_about_the_pointer() {
    let turn = turn();
    Releases::Unordered.set();
    let array = Array::new(CudaBuffer::zeroed(MemoryKind::Device, 0, DType::I16, 64).unwrap(), &[64]);
    let array = Arc::new(array);
    let import = || {
        let tensor = array.share_dlpack_as::<Versioned>(StreamHandle::NothingPending).unwrap();
        Import::from_dlpack(tensor).unwrap()
    };
    for current in [None, Some(Place::primary(0))] {
        set_current(current);
        let ((), calls) = turn.count(|| drop(Array::<LeaseMut<i16>>::from_import(import()).unwrap()));
        assert_eq!((calls, turn.calls("cuPointerGetAttributes")), (2, 2), "{current:?}");
        // The context of the import's default stream is not known. A struct without a stream field queries the
        // current context, so that it can find the stream later when another context is current.
        let ((), calls) = turn.count(|| drop(Bare::<LeaseMut<i16>>::from_import(import()).unwrap()));
        assert_eq!((calls, turn.calls("cuCtxGetCurrent")), (3, 1), "{current:?}");
    }
    set_current(None);
}
