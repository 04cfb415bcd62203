//! CAI R43 to R60: an interface dict states no device and maybe no stream; the driver and the policy supply them.
#![expect(unsafe_code, reason = "creates imports of memory whose lifetime the caller promises")]

use interop_core::cuda::{Unordered, pending_releases, unordered};
use interop_core::protocols::cai::CudaArrayInterface;
use interop_core::{CudaArray, Device, ErrorKind, FromArray, Import, LeaseMut, Result, StreamHandle};

use simulated_cuda::Mistake;

use crate::counted_imports::drained;
use crate::cuda_program::{Bytes, Place, Stream, current};
use crate::exclusive_driver::{first_gpu, turn};
use crate::order_settings::set_unordered;
use crate::support::arrays::Array;
use crate::support::assert_told;
use crate::support::counted_owners::{Count, Counted};

/// Describes all of `bytes` in this version.
fn dict(bytes: &Bytes, version: i128, stream: Option<Stream>) -> CudaArrayInterface {
    CudaArrayInterface {
        shape: vec![crate::support::signed(bytes.count)],
        typestr: "|u1".into(),
        data: (bytes.at(), false),
        version,
        stream: stream.map_or(StreamHandle::NothingPending, Stream::handle),
        ..CudaArrayInterface::default()
    }
}

/// Returns the import and the number of times its owner was dropped.
fn arrive(dict: &CudaArrayInterface, consumer: StreamHandle) -> (Count, Result<Import>) {
    let count = Count::default();
    // SAFETY: the memory outlives the import in each test.
    let import = unsafe { Import::from_cai_for_stream(dict, consumer, Counted(count.clone(), ())) };
    (count, import)
}

#[test]
fn the_driver_names_the_device() {
    let turn = turn();
    let place = Place::primary(1);
    let nothing = StreamHandle::NothingPending;
    // Pinned memory may have two addresses, so it takes one more query. Pool memory belongs to no context, so the
    // current context of the thread is queried.
    for (bytes, device, asked) in [
        (place.bytes(0, 8), Device::cuda(1), [1, 0, 0]),
        (place.pool(0, 8), Device::cuda(1), [1, 0, 1]),
        (place.pinned(0, 8), Device::CUDA_HOST, [1, 1, 1]),
        (place.managed(0, 8), Device::CUDA_MANAGED, [1, 0, 0]),
    ] {
        let dict = dict(&bytes, 3, None);
        let ((count, import), calls) = place.with(|| turn.count(|| arrive(&dict, nothing)));
        let names = ["cuPointerGetAttributes", "cuPointerGetAttribute", "cuCtxGetCurrent"];
        assert_eq!((turn.calls_of(names), calls), (asked, asked.iter().sum()), "{device}");
        assert_eq!(import.as_ref().unwrap().info().device(), device);
        drop(import);
        assert_eq!((drained(), count.get()), (0, 1), "{device}");
    }
}

/// The caller names the device, so the address is not queried. The release still waits for the work.
#[test]
fn a_device_that_the_caller_names_is_believed() {
    let (turn, place) = first_gpu();
    for (bytes, device) in [
        (place.bytes(0, 8), Device::cuda(0)),
        (place.pool(0, 8), Device::cuda(0)),
        (place.pinned(0, 8), Device::CUDA_HOST),
        (place.managed(0, 8), Device::CUDA_MANAGED),
    ] {
        let (dict, count) = (dict(&bytes, 3, None), Count::default());
        // SAFETY: the memory outlives the import and is on the stated device.
        let import = || unsafe { Import::from_cai_on_device(&dict, device, Counted(count.clone(), ())) };
        let (import, calls) = turn.count(import);
        assert_eq!(
            (import.as_ref().unwrap().info().device(), calls),
            (device, turn.calls("cuCtxGetCurrent"))
        );
        let spin = place.non_blocking().spin();
        drop(import);
        assert_eq!((drained(), count.get()), (1, 0), "{device}");
        turn.release(spin);
        assert_eq!((drained(), count.get()), (0, 1), "{device}");
    }
}

#[test]
fn every_stated_stream_is_ordered_before_every_consumer() {
    let (turn, place) = first_gpu();
    let streams = || [place.legacy(), place.per_thread(), place.blocking(), place.non_blocking()];
    for version in [0, 1, 2, 3] {
        for (producer, consumer) in streams().into_iter().flat_map(|from| streams().map(|to| (from, to))) {
            let data = place.bytes(1, 8);
            let spin = producer.spin();
            producer.fill(&data, 7);
            turn.reset_calls();
            let (count, import) = arrive(&dict(&data, version, Some(producer)), consumer.handle());
            let same = producer.number() == consumer.number();
            let edges = u64::from(!same);
            assert_eq!(turn.calls_of(["cuEventRecord", "cuStreamWaitEvent"]), [edges; 2]);
            turn.assert_no_host_wait();
            assert!(turn.is_pending(spin));
            assert_eq!(import.as_ref().unwrap().info().stream(), Some(consumer.handle()));
            assert_eq!(consumer.reads(&data), 7, "version {version}");
            drop(import);
            assert_eq!((drained(), count.get(), current()), (0, 1, None));
        }
    }
}

#[test]
fn version_three_without_a_stream_has_nothing_pending() {
    let (turn, place) = first_gpu();
    let data = place.bytes(0, 8);
    for unknown_work in [false, true] {
        set_unordered(Unordered { unknown_work, ..unordered() });
        assert_eq!(unordered().unknown_work, unknown_work);
        let ((count, import), calls) =
            turn.count(|| arrive(&dict(&data, 3, None), place.non_blocking().handle()));
        import.unwrap();
        // The count includes the creation of the consumer's stream. A release of so few bytes makes no call.
        assert_eq!(turn.calls_of(["cuEventRecord", "cuCtxRecordEvent", "cuStreamWaitEvent"]), [0, 0, 0]);
        assert!(calls > 0);
        assert_eq!((drained(), count.get()), (0, 1));
    }
}

#[test]
fn an_earlier_version_comes_after_all_work() {
    let (turn, place) = first_gpu();
    let producers = [("non-blocking", place.non_blocking()), ("blocking", place.blocking())];
    for (unknown_work, expected) in [(false, 7), (true, 1)] {
        set_unordered(Unordered { unknown_work, ..unordered() });
        for (name, producer) in producers {
            for version in [0, 1, 2] {
                let (data, consumer) = (place.bytes(1, 8), place.non_blocking());
                producer.spin();
                producer.fill(&data, 7);
                turn.reset_calls();
                let (count, import) = arrive(&dict(&data, version, None), consumer.handle());
                turn.assert_no_host_wait();
                let seen = consumer.reads(&data);
                assert_eq!(seen, expected, "{unknown_work}, {name}, version {version}");
                drop(import.unwrap());
                turn.run_all();
                if expected == 1 {
                    assert_eq!(turn.expect(Mistake::Race), 1, "{unknown_work}, {name}, version {version}");
                }
                assert_eq!((drained(), count.get()), (0, 1));
            }
        }
    }
}

/// Pool memory belongs to no context, and pinned and managed memory to several: any context in use may have written
/// to it.
#[test]
fn an_earlier_version_comes_after_all_contexts_that_its_memory_may_be_used_in() {
    let _turn = turn();
    let (own, one, two) = (Place::foreign(0), Place::primary(0), Place::primary(1));
    {
        let memories: [fn(Place) -> Bytes; 3] =
            [|place| place.pool(1, 8), |place| place.pinned(1, 8), |place| place.managed(1, 8)];
        for (at, memory) in memories.into_iter().enumerate() {
            // The second device cannot access memory of the first device's pool.
            let producers = [own, one, two].into_iter().take(if at == 0 { 2 } else { 3 });
            for (producer, consumer) in
                producers.flat_map(|place| [own.non_blocking(), own.legacy()].map(|to| (place, to)))
            {
                let data = memory(own);
                let writer = producer.non_blocking();
                writer.spin();
                writer.fill(&data, 7);
                let (count, import) = own.with(|| arrive(&dict(&data, 2, None), consumer.handle()));
                assert_eq!(consumer.reads(&data), 7, "memory {at} that {producer:?} writes");
                drop(import.unwrap());
                assert_eq!((drained(), count.get(), current()), (0, 1, None));
            }
        }
    }
    own.destroy();
}

#[test]
fn a_consumer_that_wants_no_order_gets_none() {
    let (turn, place) = first_gpu();
    let (data, producer) = (place.bytes(1, 8), place.non_blocking());
    producer.fill(&data, 7);
    for version in [2, 3] {
        let stated = (version == 3).then_some(producer);
        let (dict, nothing) = (dict(&data, version, stated), StreamHandle::NothingPending);
        let ((_, import), calls) = turn.count(|| arrive(&dict, nothing));
        assert_eq!((calls, import.unwrap().info().stream()), (1, Some(nothing)), "version {version}");
        turn.run_all();
        assert_eq!(drained(), 0);
    }
}

#[test]
fn streams_of_another_context_and_device_are_ordered() {
    let turn = turn();
    let own = Place::foreign(0);
    {
        let primary = Place::primary(0);
        let data = primary.bytes(1, 8);
        let producers = [own.non_blocking(), own.blocking(), Place::primary(1).non_blocking()];
        for producer in producers {
            for consumer in
                [primary.legacy(), primary.non_blocking(), primary.per_thread(), own.non_blocking()]
            {
                primary.legacy().fill(&data, 1);
                turn.run_all();
                producer.spin();
                producer.fill(&data, 7);
                let (count, import) = arrive(&dict(&data, 3, Some(producer)), consumer.handle());
                let import = import.unwrap();
                assert_eq!(consumer.reads(&data), 7);
                drop(import);
                turn.run_all();
                assert_eq!((drained(), count.get(), current()), (0, 1, None));
            }
        }
    }
    own.destroy();
}

/// A default stream is that of the memory's context, not that of the context that is current on the consumer's
/// thread.
#[test]
fn a_default_stream_is_that_of_the_context_of_the_memory() {
    let turn = turn();
    let own = Place::foreign(0);
    for (version, stated) in [(3, Some(own.legacy())), (3, Some(own.per_thread())), (2, None)] {
        for place in [None, Some(Place::primary(0)), Some(Place::primary(1))] {
            let (data, consumer) = (own.bytes(1, 8), own.non_blocking());
            let producer = stated.unwrap_or(own.legacy());
            producer.spin();
            producer.fill(&data, 7);
            let import = || arrive(&dict(&data, version, stated), consumer.handle());
            let (count, import) = place.map_or_else(import, |place| place.with(import));
            assert_eq!(consumer.reads(&data), 7, "{stated:?} with {place:?} current");
            drop(import.unwrap());
            turn.run_all();
            assert_eq!((drained(), count.get(), current()), (0, 1, None));
        }
    }
    own.destroy();
}

#[test]
fn bad_dicts_are_refused_with_the_driver_s_answer_and_their_owner_goes_once() {
    let (turn, place) = first_gpu();
    let (data, host, dead) = (place.bytes(0, 8), [0_u8; 8], place.non_blocking());
    let freed = place.bytes(0, 8).at();
    dead.destroy();
    let good = dict(&data, 3, None);
    let at = |address| CudaArrayInterface { data: (address, false), ..good.clone() };
    let outside = "the allocation of 8 bytes";
    let cases = [
        (at(host.as_ptr().addr()), ErrorKind::Device, "memory that CUDA can reach"),
        (at(freed), ErrorKind::Device, "memory that CUDA can reach"),
        (at(data.at() + 1), ErrorKind::OutOfBounds, outside),
        (CudaArrayInterface { shape: vec![9], ..good.clone() }, ErrorKind::OutOfBounds, outside),
        (CudaArrayInterface { strides: Some(vec![-1]), ..good.clone() }, ErrorKind::OutOfBounds, outside),
        (CudaArrayInterface { stream: dead.handle(), ..good.clone() }, ErrorKind::Driver, "a live stream"),
        (CudaArrayInterface { version: 4, ..good.clone() }, ErrorKind::Version, "0 to 3"),
    ];
    for (dict, kind, allowed) in cases {
        let (count, import) = arrive(&dict, StreamHandle::LegacyDefault);
        let error = import.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.allowed().contains(allowed), "{error}");
        assert_eq!((count.get(), pending_releases(), current()), (1, 0, None), "{error}");
    }
    turn.expect(Mistake::DestroyedStream);
}

#[test]
fn a_capture_is_seen_before_the_order_of_all_work() {
    let (turn, place) = first_gpu();
    let (data, consumer) = (place.bytes(0, 8), place.non_blocking());
    for (captures, to) in [(place.blocking(), consumer), (consumer, consumer)] {
        captures.begin();
        let (count, import) = arrive(&dict(&data, 2, None), to.handle());
        let error = import.unwrap_err();
        assert_told(
            &error,
            (ErrorKind::StreamCapture, "stream", "a wait for all", "the captured stream alone"),
        );
        assert_eq!((count.get(), turn.calls("cuCtxRecordEvent")), (1, 0));
        assert!(captures.end());
    }
}

#[test]
fn an_empty_array_is_on_the_device_that_is_current() {
    let turn = turn();
    let empty = |address| CudaArrayInterface {
        shape: vec![2, 0],
        typestr: "<f4".into(),
        data: (address, false),
        version: 2,
        ..CudaArrayInterface::default()
    };
    for (place, device) in [(None, 0), (Some(Place::primary(0)), 0), (Some(Place::primary(1)), 1)] {
        let import = || arrive(&empty(0xDEAD), Place::primary(device).non_blocking().handle());
        let (count, import) = place.map_or_else(import, |place| place.with(import));
        assert_eq!(import.as_ref().unwrap().info().device(), Device::cuda(device));
        assert_eq!(
            turn.calls_of(["cuStreamWaitEvent", "cuCtxRecordEvent"]),
            [0; 2],
            "there is no work on it"
        );
        turn.reset_calls();
        drop(import);
        assert_eq!((count.get(), turn.all_calls()), (1, 0));
    }
}

/// The driver crashes on most queries of a destroyed stream.
#[test]
fn a_consumer_that_was_destroyed_is_asked_for_its_context_and_no_more() {
    let (turn, place) = first_gpu();
    let (data, dead) = (place.bytes(0, 8), place.non_blocking());
    dead.destroy();
    let (count, import) = arrive(&dict(&data, 2, None), dead.handle());
    assert_told(&import.unwrap_err(), (ErrorKind::Driver, "cuStreamGetCtx", "(709)", "a live stream"));
    let asked = ["cuStreamGetCtx", "cuStreamIsCapturing", "cuCtxRecordEvent", "cuStreamWaitEvent"];
    assert_eq!((count.get(), turn.calls_of(asked)), (1, [1, 0, 0, 0]));
    turn.expect(Mistake::DestroyedStream);
}

/// Drivers before 12.5 cannot record an event for a whole context.
#[test]
fn the_host_waits_for_all_work_where_no_event_comes_after_it() {
    const NOT_FOUND: i32 = 500;
    let (turn, place) = first_gpu();
    let (data, consumer) = (place.bytes(1, 8), place.non_blocking());
    let producer = place.non_blocking();
    let spin = producer.spin();
    producer.fill(&data, 7);
    turn.fail_next("cuCtxRecordEvent", NOT_FOUND);
    let (count, import) = arrive(&dict(&data, 2, None), consumer.handle());
    assert!(!turn.is_pending(spin), "nobody has waited");
    assert_eq!((import.is_ok(), consumer.reads(&data)), (true, 7));
    drop(import);
    assert_eq!((drained(), count.get()), (0, 1));
}

#[test]
fn what_we_write_we_read() {
    let (_turn, place) = first_gpu();
    let (data, producer, consumer) = (place.bytes(1, 8), place.non_blocking(), place.non_blocking());
    producer.spin();
    producer.fill(&data, 7);
    let (count, import) = arrive(&dict(&data, 3, Some(producer)), producer.handle());
    let array: Array<LeaseMut<u8>> = Array::from_import(import.unwrap()).unwrap();
    let again = array.to_cai().unwrap();
    assert_eq!((again.version, again.stream), (3, producer.handle()));
    let (_, import) = arrive(&again, consumer.handle());
    assert_eq!(consumer.reads(&data), 7);
    drop((array, import));
    assert_eq!((drained(), count.get()), (0, 1));
}
