//! Many threads at once, and thread-local state.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use interop_core::cuda::{
    CudaBuffer, MemoryKind, device_address, finish_releases, is_available, pending_releases, poll_releases,
    start_release_thread, stream_synchronize, stream_wait,
};
use interop_core::protocols::RawDescriptor;
use interop_core::protocols::cai::CudaArrayInterface;
use interop_core::protocols::dlpack::{Ownership, Versioned, export};
use interop_core::{CudaArray, Device, Import, StreamHandle};
use simulated_cuda::{Live, Policy, sim};

use crate::counted_imports::{ReadyOn, arrive, await_release};
use crate::cuda_program::{Bytes, LARGE, Place, current};
use crate::exclusive_driver::{first_gpu, started, turn};
use crate::support::arrays::Array;
use crate::support::counted_owners::{Count, Counted, elsewhere};
use crate::support::run_alone;

const GPU: Device = Device::cuda(0);
const THREADS: usize = 6;
const ROUNDS: usize = 100;

fn dict(bytes: &Bytes) -> CudaArrayInterface {
    CudaArrayInterface {
        shape: vec![8],
        typestr: "|u1".into(),
        data: (bytes.at(), false),
        version: 3,
        ..CudaArrayInterface::default()
    }
}

#[test]
#[expect(unsafe_code, reason = "creates imports of memory whose lifetime the caller promises")]
fn threads_that_import_order_and_drop_at_once_release_everything_once() {
    let turn = turn();
    let places = [Place::primary(0), Place::primary(1)];
    let data = places.map(|place| place.bytes(0, 64));
    let (count, start) = (Count::default(), Barrier::new(THREADS));
    let events = turn.live(Live::Events);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (data, count, start) = (&data, &count, &start);
            scope.spawn(move || {
                let streams = places.map(Place::non_blocking);
                start.wait();
                for round in 0..ROUNDS {
                    let at = (round + number) % 2;
                    // SAFETY: the memory outlives the import.
                    let import = unsafe {
                        let owner = Counted(count.clone(), ());
                        Import::from_cai_for_stream(&dict(&data[at]), streams[at].handle(), owner)
                    };
                    stream_wait(streams[1 - at].handle(), streams[at].handle(), GPU).expect("an edge");
                    drop(import.expect("a good array"));
                    if round % 7 == number {
                        finish_releases();
                    }
                }
                assert_eq!(current(), None);
            });
        }
    });
    turn.run_all();
    assert_eq!((finish_releases(), count.get()), (0, THREADS * ROUNDS));
    // The pool keeps as many events as were in use at once, not one for each round.
    let most = u64::try_from(THREADS * 2 * 8).expect("a small number");
    assert!(turn.live(Live::Events) - events <= most, "{} events", turn.live(Live::Events) - events);
}

#[test]
fn a_per_thread_stream_is_that_of_the_thread_that_asks() {
    let (turn, place) = first_gpu();
    let (data, consumer) = (place.bytes(1, 8), place.non_blocking());
    let theirs = elsewhere(move || place.per_thread().spin()).0;
    place.per_thread().fill(&data, 7);
    stream_wait(consumer.handle(), StreamHandle::PerThreadDefault, GPU).unwrap();
    assert_eq!((consumer.reads(&data), turn.is_pending(theirs)), (7, true));
    turn.release(theirs);
    turn.run_all();
}

/// A context takes hundreds of megabytes. A thread without one makes its queries in the context of the memory or the
/// stream.
#[test]
fn a_thread_without_a_context_makes_none_on_a_device_that_nobody_uses() {
    run_alone("threads::a_thread_without_a_context_makes_none_on_a_device_that_nobody_uses", || {
        let sim = sim();
        assert!(is_available(), "the simulated driver starts");
        let own = Place::foreign(1);
        let (data, stream) = (own.pinned(0, 64), own.non_blocking());
        stream.fill(&data, 7);
        let before = sim.live(Live::Contexts);
        stream_synchronize(stream.handle(), Device::CUDA_HOST).unwrap();
        assert_eq!(device_address(data.at()), Ok(data.at()));
        let (ledger, import) = arrive(&data, Device::CUDA_HOST);
        drop(import.ready_on(stream.handle()));
        assert_eq!((finish_releases(), ledger.released()), (0, 1));
        assert_eq!((sim.live(Live::Contexts), current()), (before, None));
    });
}

/// Host memory belongs to no device and no context says which default stream is meant, so that of each device in use
/// counts.
#[test]
fn default_streams_beside_host_memory_are_those_of_the_devices_in_use() {
    run_alone("threads::default_streams_beside_host_memory_are_those_of_the_devices_in_use", || {
        let sim = sim();
        assert!(is_available(), "the simulated driver starts");
        let (legacy, place) = (StreamHandle::LegacyDefault, Place::primary(1));
        let (data, stream) = (place.pinned(0, 8), place.non_blocking());
        let before = sim.live(Live::Contexts);
        place.legacy().fill(&data, 7);
        stream_wait(stream.handle(), legacy, Device::CUDA_HOST).unwrap();
        assert_eq!((stream.reads(&data), sim.live(Live::Contexts)), (7, before), "a context was made");
        // A copy to the host does not go through another device.
        let buffer = CudaBuffer::from_slice(MemoryKind::Device, 1, &[1_u8, 2]).unwrap();
        assert_eq!(Array::new(buffer, &[2]).to_vec::<u8>().unwrap(), [1, 2]);
        assert_eq!(sim.live(Live::Contexts), before, "a context was made");

        let other = Place::primary(0);
        place.legacy().fill(&data, 8);
        stream_wait(stream.handle(), legacy, Device::CUDA_MANAGED).unwrap();
        assert_eq!(stream.reads(&data), 8);
        place.legacy().fill(&data, 9);
        stream_synchronize(legacy, Device::CUDA_HOST).unwrap();
        assert_eq!(data.value(), 9);
        let others = [place, other].map(|place| (place, place.pinned(0, 8)));
        stream.fill(&data, 10);
        stream_wait(legacy, stream.handle(), Device::CUDA_HOST).unwrap();
        for (place, seen) in &others {
            place.legacy().copy(seen, &data);
            place.legacy().finish();
            assert_eq!(seen.value(), 10, "{place:?}");
        }
        assert_eq!(current(), None);
        sim.assert_no_reports();
    });
}

#[test]
fn one_thread_releases_what_another_has_dropped() {
    let (turn, place) = first_gpu();
    let data = place.bytes(0, 64);
    let (ledger, import) = arrive(&data, GPU);
    let spin = place.non_blocking().spin();
    drop(import);
    turn.release(spin);
    let (left, thread) = elsewhere(finish_releases);
    assert_eq!((left, ledger.released(), ledger.thread()), (0, 1, Some(thread)));
}

#[test]
fn a_drain_on_every_thread_releases_each_once() {
    let (turn, place) = first_gpu();
    let data = place.bytes(0, 64);
    let spin = place.non_blocking().spin();
    let ledgers: Vec<_> = (0..30)
        .map(|_| {
            let (ledger, import) = arrive(&data, GPU);
            drop(import);
            ledger
        })
        .collect();
    let stop = Arc::new(AtomicBool::new(false));
    let drains: Vec<_> = (0..THREADS)
        .map(|_| {
            let stop = stop.clone();
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    poll_releases();
                }
            })
        })
        .collect();
    turn.release(spin);
    let end = Instant::now() + Duration::from_secs(60);
    while ledgers.iter().any(|ledger| ledger.released() == 0) {
        assert!(Instant::now() < end, "{} still wait", pending_releases());
        thread::yield_now();
    }
    stop.store(true, Ordering::Relaxed);
    for drain in drains {
        drain.join().expect("the thread ends well");
    }
    assert!(ledgers.iter().all(|ledger| ledger.released() == 1));
}

/// The drop of each owner finishes releases on another thread while that one may wait for this drop. A nested call
/// waits for nothing.
#[test]
#[expect(unsafe_code, reason = "memory that is described by hand")]
fn owners_that_finish_releases_on_two_threads_do_not_wait_for_each_other() {
    struct Finishing(Arc<Barrier>, Count);
    impl Drop for Finishing {
        fn drop(&mut self) {
            // From here on both are being dropped.
            self.0.wait();
            finish_releases();
            drop(Counted(self.1.clone(), ()));
        }
    }
    let turn = turn();
    let (both, count) = (Arc::new(Barrier::new(2)), Count::default());
    let data = [0, 1].map(|ordinal| Place::primary(ordinal).bytes(0, 8));
    let spins = (0..).zip(&data).map(|(ordinal, data)| {
        let info = RawDescriptor::new(data.at(), Device::cuda(ordinal), &[2]).validate().unwrap();
        let owner = Finishing(both.clone(), count.clone());
        // SAFETY: the memory lives until the end of the test.
        let tensor = unsafe { export::<Versioned, _>(&info, owner, Ownership::Owned) }.unwrap();
        let spin = Place::primary(ordinal).non_blocking().spin();
        drop(tensor);
        spin
    });
    spins.collect::<Vec<_>>().into_iter().for_each(|spin| turn.release(spin));
    assert_eq!(pending_releases(), 2);
    let (done, answers) = mpsc::channel();
    for _ in 0..2 {
        let (done, count) = (done.clone(), count.clone());
        thread::spawn(move || {
            while pending_releases() > 0 && count.get() == 0 {
                poll_releases();
            }
            done.send(())
        });
    }
    for _ in 0..2 {
        answers.recv_timeout(Duration::from_secs(30)).expect("they wait for each other");
    }
    assert_eq!((finish_releases(), count.get()), (0, 2));
}

/// Drivers before 12.5 cannot record an event for a whole context.
#[test]
fn in_the_background_a_driver_without_events_of_contexts_is_waited_for() {
    run_alone("threads::in_the_background_a_driver_without_events_of_contexts_is_waited_for", || {
        const NOT_FOUND: i32 = 500;
        let sim = sim();
        assert!(is_available(), "the simulated driver starts");
        sim.set_policy(Policy::Eager);
        for _ in 0..100_000 {
            sim.fail_next("cuCtxRecordEvent", NOT_FOUND);
        }
        let place = Place::primary(0);
        let data = place.bytes(0, 64);
        let spin = place.non_blocking().spin();
        let (ledger, import) = arrive(&data, GPU);
        drop(import);
        assert_eq!((poll_releases(), ledger.released()), (1, 0));
        start_release_thread().unwrap();
        thread::sleep(Duration::from_millis(20));
        assert_eq!((ledger.released(), sim.is_pending(spin)), (0, true));
        sim.release(spin);
        await_release(&ledger);
    });
}

/// The background thread runs for the rest of the process, so the test runs in its own process.
#[test]
fn in_the_background_nobody_has_to_ask() {
    run_alone("threads::in_the_background_nobody_has_to_ask", || {
        // This does not use `turn()`, because no other thread may keep an event when that ends.
        let sim = started();
        start_release_thread().unwrap();
        start_release_thread().unwrap();
        let place = Place::primary(0);
        let data = place.bytes(0, LARGE);
        for _ in 0..3 {
            let (ledger, import) = arrive(&data, GPU);
            let spin = place.non_blocking().spin();
            drop(import);
            thread::sleep(Duration::from_millis(20));
            assert_eq!((ledger.released(), sim.is_pending(spin)), (0, true));
            sim.release(spin);
            await_release(&ledger);
        }
    });
}
