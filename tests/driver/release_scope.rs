//! The scope of a release: it waits for each context once, releases are polled in order, and captures elsewhere do
//! not matter.

use interop_core::Device;
use interop_core::cuda::{finish_releases, pending_releases, poll_releases};

use crate::counted_imports::{arrive, drained};
use crate::cuda_program::{LARGE, Place};
use crate::exclusive_driver::{first_gpu, turn};

const GPU: Device = Device::cuda(0);

/// `CUDA_ERROR_UNKNOWN`.
const UNKNOWN: i32 = 999;

#[test]
fn each_context_in_use_is_asked_once() {
    let turn = turn();
    let own = Place::foreign(0);
    for (place, contexts) in [(Place::primary(0), 2), (own, 3)] {
        let data = place.pinned(0, LARGE);
        let (_, import) = arrive(&data, Device::CUDA_HOST);
        turn.reset_calls();
        drop(import);
        assert_eq!(turn.calls("cuCtxRecordEvent"), contexts);
        assert_eq!(finish_releases(), 0);
    }
    own.destroy();
}

/// The oldest release is polled first, also after an unsuccessful poll.
#[test]
fn what_waits_longest_is_looked_at_first() {
    let (turn, place) = first_gpu();
    let data = [place.bytes(0, 8), place.bytes(0, 8)];
    let (parked, spins): (Vec<_>, Vec<_>) = data
        .iter()
        .map(|data| {
            let (ledger, import) = arrive(data, GPU);
            let spin = place.non_blocking().spin();
            drop(import);
            poll_releases();
            (ledger, spin)
        })
        .unzip();
    assert_eq!(poll_releases(), 2);
    turn.release(spins[0]);
    while turn.step() {}
    poll_releases();
    assert_eq!([parked[0].released(), parked[1].released()], [1, 0]);
    turn.release(spins[1]);
    assert_eq!(drained(), 0);
}

/// A capture in the global mode forbids event queries on every thread.
#[test]
fn a_release_leaves_a_strict_capture_on_another_device_alone() {
    let _turn = turn();
    let data = Place::primary(0).bytes(0, 8);
    let (ledger, import) = arrive(&data, GPU);
    let capturing = Place::primary(1).non_blocking();
    capturing.begin_in(0);
    drop(import);
    assert_eq!((drained(), ledger.released()), (0, 1));
    assert!(capturing.end(), "the release has spoilt the capture");
}

/// Nothing runs in a destroyed context, and the work in the other contexts can be waited for.
#[test]
fn a_context_that_is_gone_keeps_nobody_from_waiting_for_the_others() {
    let turn = turn();
    let own = Place::foreign(0);
    let (ledger, import) = arrive(&own.pinned(0, 8).lost_with_its_context(), Device::CUDA_HOST);
    own.destroy();
    turn.fail_next("cuCtxRecordEvent", UNKNOWN);
    drop(import);
    assert_eq!((ledger.released(), pending_releases()), (0, 1));
    turn.fail_next("cuCtxRecordEvent", UNKNOWN);
    assert_eq!((finish_releases(), ledger.released()), (0, 1));
}
