//! R150 for many at once: releases that share an event, and a list of those that wait that is long.

use interop_core::Device;
use interop_core::cuda::{ReleasePolicy, drain_releases, pending_releases, set_release_policy};

use crate::arrivals::{arrive, drained};
use crate::gpu::Place;
use crate::support::foreign::Ledger;
use crate::turn::turn;

const GPU: Device = Device::cuda(0);

/// A device that is never idle lets many wait: a look by the way asks for the first event of each context and no more, and
/// what is done goes from the front.
#[test]
fn a_look_costs_the_same_however_many_wait() {
    const MANY: usize = 40;
    let turn = turn();
    let (place, other) = (Place::primary(0), Place::primary(1));
    let (data, elsewhere) = (place.bytes(0, 64), other.bytes(1, 64));
    let park = |data, device| {
        let (ledger, import) = arrive(data, device);
        drop(import);
        ledger
    };
    let spin = place.non_blocking().spin();
    let early: Vec<_> = (0..MANY).map(|_| park(&data, GPU)).collect();
    let later = place.non_blocking().spin();
    let late: Vec<_> = (0..MANY).map(|_| park(&data, GPU)).collect();
    let abroad = other.non_blocking().spin();
    let foreign = park(&elsewhere, Device::cuda(1));
    turn.reset_calls();
    let released = |ledgers: &[Ledger]| ledgers.iter().map(Ledger::released).sum::<usize>();
    assert_eq!((drain_releases(), released(&early), turn.calls("cuEventQuery")), (2 * MANY + 1, 0, 2));
    turn.release(abroad);
    drained();
    assert_eq!((foreign.released(), released(&early)), (1, 0), "nobody of another device is in its way");
    turn.release(spin);
    assert_eq!((drained(), released(&early), released(&late)), (MANY, MANY, 0));
    turn.release(later);
    assert_eq!((drained(), released(&late)), (0, MANY));
}

#[test]
fn a_batch_shares_one_event_and_comes_after_the_work() {
    const BATCH: usize = 32;
    let turn = turn();
    set_release_policy(ReleasePolicy::Batched);
    let place = Place::primary(0);
    let data = place.bytes(0, 64);
    let arrived = |count| (0..count).map(|_| arrive(&data, GPU)).unzip::<_, _, Vec<_>, Vec<_>>();
    let released = |ledgers: &[Ledger]| ledgers.iter().map(Ledger::released).sum::<usize>();
    for late in [false, true] {
        let (mut ledgers, imports) = arrived(BATCH - 1);
        turn.reset_calls();
        drop(imports);
        let (ledger, last) = arrive(&data, GPU);
        ledgers.push(ledger);
        let untouched = turn.calls_of(["cuCtxRecordEvent", "cuEventQuery"]) == [0, 0];
        assert_eq!((untouched, released(&ledgers), pending_releases()), (true, 0, BATCH - 1));
        let spin = late.then(|| place.non_blocking().spin());
        drop(last);
        assert_eq!(turn.calls("cuCtxRecordEvent"), 1, "one event for all");
        if let Some(spin) = spin {
            assert_eq!((drained(), released(&ledgers)), (BATCH, 0));
            turn.release(spin);
        }
        assert_eq!((drained(), released(&ledgers), turn.calls("cuCtxRecordEvent")), (0, BATCH, 1));
    }
    // Whoever asks does not wait for more, and each context has an event.
    let other = Place::primary(1).bytes(1, 64);
    let (ledgers, imports) = arrived(3);
    let (far, there) = arrive(&other, Device::cuda(1));
    drop((imports, there));
    turn.reset_calls();
    assert_eq!((drained(), released(&ledgers), far.released()), (0, 3, 1));
    assert_eq!(turn.calls("cuCtxRecordEvent"), 2);
    turn.assert_no_host_wait();
}

#[test]
fn a_batch_that_is_not_full_is_decided_under_the_next_policy() {
    let _turn = turn();
    set_release_policy(ReleasePolicy::Batched);
    let data = Place::primary(0).bytes(0, 64);
    let (ledger, import) = arrive(&data, GPU);
    drop(import);
    assert_eq!((ledger.released(), pending_releases()), (0, 1));
    set_release_policy(ReleasePolicy::AfterContext);
    // Imports look again by the way.
    let imports: Vec<_> = (0..64).map(|_| arrive(&data, GPU)).collect();
    assert_eq!((ledger.released(), pending_releases()), (1, 0));
    drop(imports);
    assert_eq!(drained(), 0);
}
