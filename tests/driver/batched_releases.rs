//! R150 for many releases: releases that share an event, and a long list of deferred releases.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use interop_core::cuda::{
    HoldReleases, ReleasePolicy, finish_releases, pending_releases, poll_releases, set_release_policy,
    start_release_thread,
};
use interop_core::{Device, FromArray, SharedBuffer};
use interop_sim_client::{Policy, sim};

use crate::counted_imports::{arrive, await_release, drained};
use crate::cuda_program::Place;
use crate::exclusive_driver::{started, turn};
use crate::support::arrays::Array;
use crate::support::foreign_tensors::Ledger;
use crate::support::owner_chains::{on_a_small_stack, passed_on};
use crate::support::run_alone;

const GPU: Device = Device::cuda(0);
/// The number of releases in one batch of `ReleasePolicy::Batched`.
const BATCH: usize = 32;

fn released(ledgers: &[Ledger]) -> usize {
    ledgers.iter().map(Ledger::released).sum()
}

/// A busy device lets many releases wait. An implicit poll queries only the first event of each context. Releases
/// that are done are removed from the front.
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
    poll_releases();
    let later = place.non_blocking().spin();
    let late: Vec<_> = (0..MANY).map(|_| park(&data, GPU)).collect();
    let abroad = other.non_blocking().spin();
    let foreign = park(&elsewhere, Device::cuda(1));
    poll_releases();
    turn.reset_calls();
    assert_eq!((poll_releases(), released(&early), turn.calls("cuEventQuery")), (2 * MANY + 1, 0, 2));
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
    let turn = turn();
    set_release_policy(ReleasePolicy::Batched);
    let place = Place::primary(0);
    let data = place.bytes(0, 64);
    let arrived = |count| (0..count).map(|_| arrive(&data, GPU)).unzip::<_, _, Vec<_>, Vec<_>>();
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
    // An explicit poll does not wait for a full batch, and each context has an event.
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
    // Imports poll implicitly.
    let imports: Vec<_> = (0..64).map(|_| arrive(&data, GPU)).collect();
    assert_eq!((ledger.released(), pending_releases()), (1, 0));
    drop(imports);
    assert_eq!(drained(), 0);
}

/// Each thread queues its releases in its own slot. The thread that completes a batch records the event for all
/// slots.
#[test]
fn threads_fill_batches_together_and_leave_less_than_one() {
    const THREADS: usize = 20;
    const ROUNDS: usize = 50;
    let turn = turn();
    sim().set_policy(Policy::Eager);
    set_release_policy(ReleasePolicy::Batched);
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
    assert!(left < BATCH, "{left} wait");
    assert!(ledgers.iter().all(|ledger| ledger.released() <= 1));
    assert_eq!(released(&ledgers), all - left);
    let events = turn.calls("cuCtxRecordEvent");
    assert!((1..=(all / BATCH) as u64).contains(&events), "{events} events for {all} releases");
    assert_eq!((finish_releases(), released(&ledgers)), (0, all));
}

/// Releases that an ended thread queued are found by any other thread.
#[test]
fn what_a_thread_has_left_is_found_by_the_others() {
    let _turn = turn();
    set_release_policy(ReleasePolicy::Batched);
    let data = Place::primary(0).bytes(0, 64);
    let (ledger, import) = arrive(&data, GPU);
    thread::spawn(|| drop(import)).join().unwrap();
    assert_eq!((ledger.released(), pending_releases()), (0, 1));
    assert_eq!((finish_releases(), ledger.released()), (0, 1));
}

/// The background thread sleeps while nothing waits, and a release queued for a batch wakes it.
#[test]
fn the_thread_in_the_background_sees_what_is_left_for_a_batch() {
    run_alone("batched_releases::the_thread_in_the_background_sees_what_is_left_for_a_batch", || {
        // This does not use `turn()`, because no other thread may keep an event when that ends.
        started().set_policy(Policy::Eager);
        set_release_policy(ReleasePolicy::Batched);
        start_release_thread().unwrap();
        let data = Place::primary(0).bytes(0, 64);
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(20));
            let (ledger, import) = arrive(&data, GPU);
            drop(import);
            await_release(&ledger);
        }
    });
}

/// A batch that fills up while releases are held is recorded by the first poll afterwards.
#[test]
fn a_batch_that_was_filled_while_releases_are_held_is_decided_later() {
    let turn = turn();
    sim().set_policy(Policy::Eager);
    set_release_policy(ReleasePolicy::Batched);
    let data = Place::primary(0).bytes(0, 64);
    let held = HoldReleases::new();
    let ledgers: Vec<Ledger> = (0..BATCH + 3).map(|_| arrive(&data, GPU).0).collect();
    turn.reset_calls();
    let last = arrive(&data, GPU);
    assert_eq!((released(&ledgers), turn.calls("cuCtxRecordEvent")), (0, 0));
    drop(held);
    drop(last);
    assert_eq!((released(&ledgers), pending_releases(), turn.calls("cuCtxRecordEvent")), (BATCH + 3, 1, 1));
    assert_eq!(finish_releases(), 0);
}

/// Releases queued for a batch are recorded together, even if polls of other releases happen meanwhile.
#[test]
fn a_look_in_passing_does_not_take_a_batch_apart() {
    let turn = turn();
    let place = Place::primary(0);
    let data = place.bytes(0, 64);
    let spin = place.non_blocking().spin();
    let (late, import) = arrive(&data, GPU);
    drop(import);
    assert_eq!(poll_releases(), 1);
    set_release_policy(ReleasePolicy::Batched);
    let (ledgers, imports): (Vec<_>, Vec<_>) = (0..BATCH).map(|_| arrive(&data, GPU)).unzip();
    let mut others = Vec::new();
    for (number, import) in (1..).zip(imports) {
        turn.reset_calls();
        drop(import);
        assert_eq!(turn.calls("cuCtxRecordEvent"), u64::from(number == BATCH), "{number} are left");
        // This import polls the late release.
        others.push(arrive(&data, GPU));
        assert_ne!(turn.calls("cuEventQuery"), 0);
    }
    turn.release(spin);
    assert_eq!((finish_releases(), late.released(), released(&ledgers)), (0, 1, BATCH));
    drop(others);
    assert_eq!(finish_releases(), 0);
}

/// A release that another release triggers is queued and does not run inside it, under each policy.
#[test]
fn the_end_of_a_long_chain_on_a_gpu_is_not_the_end_of_the_stack() {
    const LINKS: usize = 4000;
    for policy in [ReleasePolicy::Immediate, ReleasePolicy::AfterContext, ReleasePolicy::Batched] {
        let turn = turn();
        turn.set_policy(Policy::Eager);
        set_release_policy(policy);
        let data = Place::primary(0).bytes(0, 64);
        let (ledger, import) = arrive(&data, GPU);
        let left = on_a_small_stack(move || {
            drop(passed_on(Array::<SharedBuffer>::from_import(import).unwrap(), LINKS));
            finish_releases()
        });
        assert_eq!((left, ledger.released()), (0, 1), "{policy:?}");
    }
}
