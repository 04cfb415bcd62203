//! Handles that the driver reuses: what is cached for an old handle is not applied to the new object.

use interop_core::cuda::{pending_releases, poll_releases, pooled_events, stream_wait};
use interop_core::{Device, StreamHandle};

use crate::counted_imports::arrive;
use crate::cuda_program::{LARGE, Place, destroy_event, is_reached};
use crate::exclusive_driver::{started, turn};
use crate::support::counted_owners::elsewhere;
use crate::support::run_alone;

const GPU: Device = Device::cuda(0);

/// An event of other code in the process, recorded after unfinished work.
fn beside_us(place: Place) -> u64 {
    let (event, busy) = (place.event(), place.non_blocking());
    busy.spin();
    busy.record(event);
    event
}

/// Makes a stream wait within a context, for another stream or for the default stream.
fn edge(place: Place, from_default: bool) {
    let [from, to] = [(); 2].map(|()| place.non_blocking().handle());
    let from = if from_default { StreamHandle::LegacyDefault } else { from };
    place.with(|| stream_wait(to, from, GPU)).unwrap();
}

/// The wait caches an event for the next one, which is destroyed with its context. A new context and a new event may
/// then get the handles of both.
#[test]
fn an_event_that_went_with_its_context_is_not_taken_for_the_one_that_has_its_handle() {
    let turn = turn();
    for from_default in [false, true] {
        for own_thread in [false, true] {
            for in_primary in [false, true] {
                turn.set_reuse(true);
                let first = Place::foreign(0);
                let last = turn.mark();
                if own_thread {
                    edge(first, from_default);
                } else {
                    elsewhere(move || edge(first, from_default));
                }
                first.destroy();
                let second = Place::foreign(0);
                assert_eq!(second, first, "the handle of the context is not given out again");
                let theirs = beside_us(if in_primary { Place::primary(0) } else { second });
                turn.report_leaked_events(last, &[theirs]);
                turn.assert_no_reports();
                edge(second, from_default);
                edge(Place::primary(0), from_default);
                let case = (from_default, own_thread, in_primary);
                assert!(!is_reached(theirs), "{case:?}: recorded by us");
                turn.run_all();
                assert!(is_reached(theirs), "{case:?}");
                destroy_event(theirs);
                second.destroy();
                turn.set_reuse(false);
            }
        }
    }
}

/// The work ended with the context. An event of other code with the same handle says nothing about it.
#[test]
fn a_release_does_not_wait_for_the_event_that_has_the_handle_of_its_own() {
    let turn = turn();
    turn.set_reuse(true);
    let first = Place::foreign(0);
    let (ledger, import) = arrive(&first.bytes(0, LARGE).lost_with_its_context(), GPU);
    first.non_blocking().spin();
    drop(import);
    assert_eq!((ledger.released(), pending_releases()), (0, 1));
    first.destroy();
    let second = Place::foreign(0);
    assert_eq!(second, first, "the handle of the context is not given out again");
    let theirs = beside_us(second);
    assert_eq!((poll_releases(), ledger.released()), (0, 1));
    edge(second, false);
    assert!(!is_reached(theirs), "recorded by us");
    turn.run_all();
    destroy_event(theirs);
    second.destroy();
}

/// An event that is no longer valid is not destroyed, because other code may own the handle now.
#[test]
fn an_event_of_others_that_has_the_handle_of_a_lost_one_is_not_destroyed() {
    run_alone(
        "reused_handles::an_event_of_others_that_has_the_handle_of_a_lost_one_is_not_destroyed",
        || {
            let sim = started();
            let (primary, own) = (Place::primary(0), Place::foreign(0));
            edge(primary, true);
            let [ours] = pooled_events()[..] else { panic!("not one event: {:?}", pooled_events()) };
            sim.set_reuse(true);
            Place::reset_primary(0);
            let theirs = beside_us(own);
            assert_eq!(theirs, ours as u64, "the handle of the event is not given out again");
            edge(primary, true);
            edge(primary, false);
            assert!(!is_reached(theirs), "recorded by us");
            sim.run_all();
            assert!(is_reached(theirs));
            assert!(!pooled_events().contains(&ours));
            sim.assert_no_reports();
        },
    );
}

/// A program may create contexts again and again; the caches for destroyed ones must not accumulate.
#[test]
fn what_was_kept_for_a_context_that_is_gone_is_forgotten() {
    const ROUNDS: usize = 20;
    let turn = turn();
    turn.set_reuse(true);
    let mut kept = Vec::new();
    for _ in 0..ROUNDS {
        let place = Place::foreign(0);
        edge(place, false);
        // The thread keeps this event and returns the other to the pool.
        edge(Place::primary(0), false);
        kept.push(pooled_events().len());
        place.destroy();
    }
    // A thread of another test may return an event meanwhile.
    assert!(kept[ROUNDS - 1] < kept[0] + ROUNDS - 1, "{kept:?}");
}
