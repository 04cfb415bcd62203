//! R150 for many releases: releases that share an event, and a long list of deferred releases.

use std::thread;
use std::time::Duration;

use interop_core::cuda::{finish_releases, pending_releases, poll_releases, start_release_thread};
use interop_core::{Device, FromArray, SharedBuffer};
use simulated_cuda::Policy;

use crate::counted_imports::{arrive, await_release, drained};
use crate::cuda_program::Place;
use crate::exclusive_driver::{started, turn};
use crate::order_settings::Releases;
use crate::support::arrays::Array;
use crate::support::foreign_tensors::Ledger;
use crate::support::owner_chains::{on_a_small_stack, passed_on};
use crate::support::run_alone;

const GPU: Device = Device::cuda(0);

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

/// Releases that an ended thread queued are found by any other thread.
#[test]
fn what_a_thread_has_left_is_found_by_the_others() {
    let _turn = turn();
    let data = Place::primary(0).bytes(0, 64);
    let (ledger, import) = arrive(&data, GPU);
    thread::spawn(|| drop(import)).join().unwrap();
    assert_eq!((ledger.released(), pending_releases()), (0, 1));
    assert_eq!((finish_releases(), ledger.released()), (0, 1));
}

/// The background thread sleeps while nothing waits, and a release of a small array wakes it.
#[test]
fn the_thread_in_the_background_sees_what_is_left_in_a_list() {
    run_alone("deferred_releases::the_thread_in_the_background_sees_what_is_left_in_a_list", || {
        // This does not use `turn()`, because no other thread may keep an event when that ends.
        started().set_policy(Policy::Eager);
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

/// A release that another release triggers is queued and does not run inside it, under each policy.
#[test]
fn the_end_of_a_long_chain_on_a_gpu_is_not_the_end_of_the_stack() {
    const LINKS: usize = 4000;
    for policy in [Releases::Unordered, Releases::AfterContext] {
        let turn = turn();
        turn.set_policy(Policy::Eager);
        policy.set();
        let data = Place::primary(0).bytes(0, 64);
        let (ledger, import) = arrive(&data, GPU);
        let left = on_a_small_stack(move || {
            drop(passed_on(Array::<SharedBuffer>::from_import(import).unwrap(), LINKS));
            finish_releases()
        });
        assert_eq!((left, ledger.released()), (0, 1), "{policy:?}");
    }
}
