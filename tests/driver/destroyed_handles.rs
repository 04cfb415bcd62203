//! Destroyed streams and contexts, and the events and memory that are destroyed with them.
//!
//! Passing a destroyed stream is a mistake of the caller, and the real driver may crash. These tests show how the
//! library handles an error, not that the driver reports one.

use interop_core::cuda::{
    finish_releases, pending_releases, poll_releases, pooled_events, stream_synchronize, stream_wait,
};
use interop_core::protocols::RawDescriptor;
use interop_core::protocols::cai::CudaArrayInterface;
use interop_core::protocols::dlpack::{Ownership, Versioned, export};
use interop_core::{DType, Device, ErrorKind, Import, StreamHandle};
use simulated_cuda::{Live, Mistake};

use crate::counted_imports::{arrive, drained};
use crate::cuda_program::{Bytes, LARGE, Place, current, destroy_event, is_untimed, set_current};
use crate::exclusive_driver::{first_gpu, started, turn};
use crate::order_settings::Releases;
use crate::support::counted_owners::{Count, Counted, elsewhere};
use crate::support::{assert_told, run_alone};

const GPU: Device = Device::cuda(0);

#[test]
fn a_destroyed_stream_is_an_error_on_either_side() {
    let (turn, place) = first_gpu();
    for dead in [place.blocking(), place.non_blocking()] {
        dead.destroy();
        let others =
            [StreamHandle::LegacyDefault, StreamHandle::PerThreadDefault, place.non_blocking().handle()];
        for other in others {
            for (from, to) in [(dead.handle(), other), (other, dead.handle())] {
                let error = stream_wait(to, from, GPU).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Driver, "{from} to {to}: {error}");
                assert!(error.found().contains("CUDA_ERROR_CONTEXT_IS_DESTROYED (709)"), "{error}");
                assert!(error.allowed().contains(&format!("not the {}", dead.handle())), "{error}");
                assert_eq!((current(), turn.calls("cuStreamWaitEvent")), (None, 0));
            }
        }
        let error = stream_synchronize(dead.handle(), Device::CUDA_HOST).unwrap_err();
        let live = "a live stream of this process";
        assert_told(&error, (ErrorKind::Driver, "cuStreamGetCtx", "(709)", live));
    }
    turn.expect(Mistake::DestroyedStream);
}

#[test]
fn after_an_error_edges_are_made_as_before() {
    let (turn, place) = first_gpu();
    let (dead, one, two) = (place.non_blocking(), place.non_blocking(), place.non_blocking());
    dead.destroy();
    for _ in 0..3 {
        stream_wait(one.handle(), dead.handle(), GPU).unwrap_err();
        stream_wait(dead.handle(), one.handle(), GPU).unwrap_err();
    }
    stream_wait(two.handle(), one.handle(), GPU).unwrap();
    let events = turn.live(Live::Events);
    for _ in 0..10 {
        stream_wait(one.handle(), dead.handle(), GPU).unwrap_err();
        stream_wait(two.handle(), one.handle(), GPU).unwrap();
    }
    assert_eq!(turn.live(Live::Events), events, "an error costs no event");
    turn.expect(Mistake::DestroyedStream);
}

#[test]
fn the_streams_of_a_destroyed_context_are_errors_and_its_events_are_forgotten() {
    let turn = turn();
    for _ in 0..3 {
        let (own, primary) = (Place::foreign(0), Place::primary(0));
        let (inside, other, outside) = (own.non_blocking(), own.non_blocking(), primary.non_blocking());
        // The event that this thread used last belongs to the context that is destroyed.
        stream_wait(other.handle(), inside.handle(), GPU).unwrap();
        own.destroy();
        stream_wait(outside.handle(), inside.handle(), GPU).unwrap_err();
        stream_wait(inside.handle(), outside.handle(), GPU).unwrap_err();
        turn.expect(Mistake::DestroyedStream);
        let data = primary.bytes(1, 8);
        let producer = primary.non_blocking();
        producer.fill(&data, 7);
        stream_wait(outside.handle(), producer.handle(), GPU).unwrap();
        assert_eq!(outside.reads(&data), 7);
    }
}

/// A real driver accepts a push of a destroyed context, and the process crashes when it is popped.
#[test]
fn a_context_that_goes_before_the_release_takes_no_one_with_it() {
    let turn = turn();
    let own = Place::foreign(0);
    let (ledger, import) = arrive(&memory_of(own), GPU);
    own.destroy();
    turn.reset_calls();
    drop(import);
    assert_eq!((ledger.released(), pending_releases(), current()), (1, 0, None));
    assert_eq!(turn.calls("cuCtxPushCurrent_v2"), 0);
}

#[test]
fn a_context_that_goes_while_a_release_waits_for_it_releases_once() {
    let turn = turn();
    let own = Place::foreign(0);
    let (ledger, import) = arrive(&memory_of(own), GPU);
    own.non_blocking().spin();
    drop(import);
    assert_eq!((ledger.released(), pending_releases()), (0, 1));
    own.destroy();
    assert_eq!((poll_releases(), ledger.released()), (0, 1));
    assert_eq!(turn.live(Live::Operations), 0);
}

#[test]
fn a_context_that_goes_while_a_release_is_undecided_releases_once() {
    let _turn = turn();
    let own = Place::foreign(0);
    let (ledger, import) = arrive(&memory_of(own), GPU);
    let stream = own.blocking();
    stream.begin();
    drop(import);
    assert_eq!((drained(), ledger.released()), (1, 0));
    own.with(|| assert!(stream.end()));
    own.destroy();
    assert_eq!((drained(), ledger.released()), (0, 1));
}

/// Destroying a current context pops it.
#[test]
#[expect(unsafe_code, reason = "memory that is described by hand")]
fn an_owner_that_destroys_the_context_of_its_memory_leaves_the_threads_own() {
    struct Whole(Option<Bytes>, Place);
    impl Drop for Whole {
        fn drop(&mut self) {
            drop(self.0.take());
            self.1.destroy();
        }
    }
    let _turn = turn();
    for policy in [Releases::AfterContext, Releases::Unordered] {
        policy.set();
        for before in [None, Some(Place::primary(0)), Some(Place::primary(1))] {
            let own = Place::foreign(0);
            let data = own.bytes(0, 64);
            let claims = RawDescriptor { dtype: DType::U8, ..RawDescriptor::new(data.at(), GPU, &[64]) };
            let info = claims.validate().unwrap();
            // SAFETY: the owner keeps the memory alive.
            let tensor = unsafe { export::<Versioned, _>(&info, Whole(Some(data), own), Ownership::Owned) };
            set_current(before);
            drop(tensor.unwrap());
            assert_eq!((finish_releases(), current()), (0, before), "{policy:?}");
            set_current(None);
        }
    }
}

/// A context stays current on a thread when another thread destroys it. It says nothing about work in other contexts.
#[test]
#[expect(unsafe_code, reason = "memory that is described by hand")]
fn a_destroyed_context_that_is_current_hides_no_work() {
    let (turn, place) = first_gpu();
    let dead = Place::foreign(0);
    set_current(Some(dead));
    elsewhere(move || dead.destroy());
    let count = Count::default();
    let owner = || Counted(count.clone(), ());
    for (data, device) in
        [(place.bytes(0, 64), GPU), (place.pool(0, 64), GPU), (place.pinned(0, 64), Device::CUDA_HOST)]
    {
        let interface = CudaArrayInterface {
            shape: vec![64],
            typestr: "|u1".into(),
            data: (data.at(), false),
            version: 3,
            ..CudaArrayInterface::default()
        };
        let info = RawDescriptor { dtype: DType::U8, ..RawDescriptor::new(data.at(), device, &[64]) }
            .validate()
            .unwrap();
        // SAFETY: the memory lives until the end of the round.
        let told = unsafe { Import::from_cai_on_device(&interface, device, owner()) }.unwrap();
        // SAFETY: as above.
        let tensor = unsafe { export::<Versioned, _>(&info, owner(), Ownership::Owned) }.unwrap();
        let (ledger, import) = arrive(&data, device);
        let spin = place.non_blocking().spin();
        let released = count.get();
        drop((told, tensor, import));
        assert_eq!((drained(), count.get() - released, ledger.released()), (3, 0, 0), "{device}");
        turn.release(spin);
        assert_eq!((drained(), count.get() - released, ledger.released()), (0, 2, 1), "{device}");
    }
    set_current(None);
}

/// Memory that is destroyed together with its context, so nothing frees it.
fn memory_of(place: Place) -> Bytes {
    let bytes = place.bytes(0, LARGE);
    Bytes::lost_with_its_context(bytes)
}

#[test]
fn threads_that_end_leave_no_event_behind() {
    let (turn, place) = first_gpu();
    let (from, to) = (place.non_blocking().handle(), place.non_blocking().handle());
    let edge = move || stream_wait(to, from, GPU).unwrap();
    elsewhere(edge);
    let before = turn.live(Live::Events);
    for _ in 0..50 {
        elsewhere(edge);
    }
    assert_eq!(turn.live(Live::Events), before);
}

#[test]
fn events_tell_no_time() {
    let (_turn, place) = first_gpu();
    stream_wait(place.non_blocking().handle(), place.non_blocking().handle(), GPU).unwrap();
    // This thread's own event comes last. Events of destroyed contexts are no longer valid.
    let own = *pooled_events().last().unwrap();
    assert!(is_untimed(own as u64));
}

/// A reset destroys everything in the primary context, but the context handle stays valid.
#[test]
fn events_are_made_anew_in_a_primary_context_that_was_reset() {
    run_alone("destroyed_handles::events_are_made_anew_in_a_primary_context_that_was_reset", || {
        let sim = started();
        let edge = || {
            let place = Place::primary(0);
            stream_wait(place.non_blocking().handle(), place.non_blocking().handle(), GPU).unwrap();
            place
                .with(|| stream_wait(place.non_blocking().handle(), StreamHandle::LegacyDefault, GPU))
                .unwrap();
        };
        edge();
        elsewhere(edge);
        Place::reset_primary(0);
        edge();
        elsewhere(edge);
        sim.assert_no_reports();
    });
}

/// A stream wait retains the primary context, so its events can be reused for the next wait without a query.
#[test]
fn an_edge_keeps_the_primary_context_and_asks_for_no_number() {
    run_alone("destroyed_handles::an_edge_keeps_the_primary_context_and_asks_for_no_number", || {
        let sim = started();
        let place = Place::primary(0);
        let (from, to) = (place.non_blocking().handle(), place.non_blocking().handle());
        stream_wait(to, from, GPU).unwrap();
        sim.reset_calls();
        stream_wait(to, from, GPU).unwrap();
        assert_eq!((sim.calls("cuCtxGetId"), sim.all_calls()), (0, 5));
        Place::release_primary(0);
        assert_eq!(sim.live(Live::Contexts), 1);
        sim.assert_no_reports();
    });
}

/// The counterexample for the check at the end of each test here.
#[test]
fn an_event_that_nobody_keeps_is_reported() {
    let (turn, place) = first_gpu();
    stream_wait(place.non_blocking().handle(), place.non_blocking().handle(), GPU).unwrap();
    turn.report_lost_events();
    turn.assert_no_reports();
    let event = place.event();
    turn.report_lost_events();
    assert_eq!(turn.expect(Mistake::LeakedEvent), 1);
    destroy_event(event);
}

#[test]
fn a_thread_that_ends_with_an_import_of_its_own_releases_it() {
    use std::cell::RefCell;
    thread_local! {
        static KEPT: RefCell<Option<interop_core::Import>> = const { RefCell::new(None) };
    }
    let (_turn, place) = first_gpu();
    let data = place.bytes(0, 64);
    let (ledger, import) = arrive(&data, GPU);
    elsewhere(move || KEPT.set(Some(import)));
    assert_eq!((drained(), ledger.released()), (0, 1));
}
