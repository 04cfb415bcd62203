//! R131, R132, R139, R146 to R149, R154, R155: waits between two streams, and their cost.

use interop_core::cuda::stream_wait;
use interop_core::{Device, StreamHandle};

use simulated_cuda::Mistake;

use crate::cuda_program::{Bytes, Place, Stream, current};
use crate::exclusive_driver::{first_gpu, turn};

const GPU: Device = Device::cuda(0);

/// The functions that make a stream wait or prepare it.
const EDGE: [&str; 4] = ["cuEventRecord", "cuStreamWaitEvent", "cuEventCreate", "cuEventDestroy_v2"];

/// Each kind of stream, two of them handles, in the primary context of device 0.
fn values() -> [StreamHandle; 5] {
    let place = Place::primary(0);
    [
        StreamHandle::NothingPending,
        StreamHandle::LegacyDefault,
        StreamHandle::PerThreadDefault,
        place.blocking().handle(),
        place.non_blocking().handle(),
    ]
}

fn orders_nothing(from: StreamHandle, to: StreamHandle) -> bool {
    from == to || [from, to].contains(&StreamHandle::NothingPending)
}

#[test]
fn every_pair_is_one_record_and_one_wait_or_nothing() {
    let turn = turn();
    let values = values();
    for (from, to) in values.into_iter().flat_map(|from| values.map(|to| (from, to))) {
        let (done, calls) = turn.count(|| stream_wait(to, from, GPU));
        done.unwrap_or_else(|error| panic!("{from} to {to}: {error}"));
        if orders_nothing(from, to) {
            assert_eq!(calls, 0, "{from} to {to}");
        } else {
            assert_eq!(turn.calls_of(EDGE), [1, 1, 0, 0], "{from} to {to}");
        }
        turn.assert_no_host_wait();
        assert_eq!(current(), None, "{from} to {to}");
    }
}

#[test]
fn between_two_handles_an_edge_is_five_calls() {
    let (turn, place) = first_gpu();
    let (from, to) = (place.non_blocking().handle(), place.non_blocking().handle());
    let (done, calls) = turn.count(|| stream_wait(to, from, GPU));
    done.unwrap();
    assert_eq!(calls, 5);
}

/// Two streams that do not synchronize with each other by themselves, in contexts that may differ.
#[track_caller]
fn assert_orders(producer: Stream, consumer: Stream, data: &Bytes, make: impl FnOnce()) {
    producer.spin();
    producer.fill(data, 7);
    let path = simulated_cuda::sim().no_waits();
    make();
    drop(path);
    assert_eq!(consumer.reads(data), 7, "the consumer reads before the producer has written");
}

#[test]
fn a_slow_producer_is_waited_for() {
    let (_turn, place) = first_gpu();
    let raw = || place.non_blocking();
    // Default streams with non-blocking ones: they do not synchronize implicitly.
    let pairs =
        [(raw(), raw()), (place.legacy(), raw()), (raw(), place.legacy()), (place.per_thread(), raw())];
    for (producer, consumer) in pairs {
        let data = place.bytes(1, 64);
        assert_orders(producer, consumer, &data, || {
            stream_wait(consumer.handle(), producer.handle(), GPU).unwrap();
        });
    }
}

/// The counterexample for all tests here: without a wait the old value is read.
#[test]
fn without_an_edge_the_old_value_is_read() {
    let (turn, place) = first_gpu();
    let (producer, consumer, data) = (place.non_blocking(), place.non_blocking(), place.bytes(1, 64));
    let spin = producer.spin();
    producer.fill(&data, 7);
    stream_wait(consumer.handle(), StreamHandle::NothingPending, GPU).unwrap();
    assert_eq!((consumer.reads(&data), turn.is_pending(spin)), (1, true));
    turn.run_all();
    assert_eq!(turn.expect(Mistake::Race), 1);
}

#[test]
fn an_edge_does_not_hold_back_work_that_was_queued_before() {
    let (turn, place) = first_gpu();
    let (producer, consumer) = (place.non_blocking(), place.non_blocking());
    let (early, data) = (place.bytes(0, 8), place.bytes(0, 8));
    let spin = producer.spin();
    consumer.fill(&early, 3);
    stream_wait(consumer.handle(), producer.handle(), GPU).unwrap();
    consumer.fill(&data, 4);
    for _ in 0..4 {
        turn.step();
    }
    assert_eq!((early.value(), data.value(), turn.is_pending(spin)), (3, 0, true));
    turn.run_all();
}

#[test]
fn later_work_of_the_producer_is_not_waited_for() {
    let (turn, place) = first_gpu();
    let (producer, consumer, data) = (place.non_blocking(), place.non_blocking(), place.bytes(1, 8));
    producer.fill(&data, 2);
    stream_wait(consumer.handle(), producer.handle(), GPU).unwrap();
    let spin = producer.spin();
    producer.fill(&data, 9);
    assert_eq!((consumer.reads(&data), turn.is_pending(spin)), (2, true));
    turn.run_all();
    assert_eq!(turn.expect(Mistake::Race), 1, "it is ordered with nothing");
}

#[test]
fn edges_in_a_row_reuse_one_event_and_each_holds() {
    let (turn, place) = first_gpu();
    let streams: [Stream; 6] = core::array::from_fn(|_| place.non_blocking());
    let data: [Bytes; 6] = core::array::from_fn(|_| place.bytes(0, 8));
    streams[0].spin();
    streams[0].fill(&data[0], 42);
    turn.reset_calls();
    for at in 1..6 {
        stream_wait(streams[at].handle(), streams[at - 1].handle(), GPU).unwrap();
        streams[at].copy(&data[at], &data[at - 1]);
    }
    assert_eq!(turn.calls_of(EDGE), [5, 5, 0, 0]);
    streams[5].finish();
    assert_eq!(data[5].value(), 42);
}

#[test]
fn devices_are_ordered_in_both_directions() {
    let _turn = turn();
    let places = [Place::primary(0), Place::primary(1)];
    for (from, to) in [(0, 1), (1, 0)] {
        let (producer, consumer) = (places[from].non_blocking(), places[to].non_blocking());
        let data = places[from].managed(1, 32);
        assert_orders(producer, consumer, &data, || {
            stream_wait(consumer.handle(), producer.handle(), Device::cuda(signed(from))).unwrap();
        });
    }
}

fn signed(ordinal: usize) -> i32 {
    crate::support::signed(ordinal)
}

#[test]
fn a_stream_of_a_library_with_a_context_of_its_own_is_ordered_with_every_other() {
    let turn = turn();
    let (own, primary) = (Place::foreign(0), Place::primary(0));
    let other = Place::primary(1);
    {
        let data = primary.managed(1, 32);
        let pairs = [
            (own.non_blocking(), primary.non_blocking()),
            (primary.non_blocking(), own.non_blocking()),
            (own.non_blocking(), primary.legacy()),
            (primary.legacy(), own.non_blocking()),
            (own.non_blocking(), other.non_blocking()),
            (other.non_blocking(), own.non_blocking()),
            (other.non_blocking(), primary.legacy()),
            (other.non_blocking(), primary.per_thread()),
        ];
        for (number, (producer, consumer)) in pairs.into_iter().enumerate() {
            primary.legacy().fill(&data, 1);
            turn.run_all();
            producer.spin();
            producer.fill(&data, 7);
            stream_wait(consumer.handle(), producer.handle(), GPU)
                .unwrap_or_else(|error| panic!("pair {number}: {error}"));
            assert_eq!(consumer.reads(&data), 7, "pair {number}");
        }
    }
    own.destroy();
}

#[test]
fn the_default_stream_is_that_of_the_current_context_on_the_device() {
    let turn = turn();
    let (own, primary) = (Place::foreign(0), Place::primary(0));
    {
        let (data, consumer) = (own.bytes(1, 16), own.non_blocking());
        own.legacy().spin();
        own.legacy().fill(&data, 7);
        own.with(|| stream_wait(consumer.handle(), StreamHandle::LegacyDefault, GPU)).unwrap();
        assert_eq!(consumer.reads(&data), 7);
        // If a context of another device is current, the default stream is that of the primary context of the
        // memory's device.
        let (data, consumer) = (primary.bytes(1, 16), primary.non_blocking());
        primary.legacy().spin();
        primary.legacy().fill(&data, 7);
        Place::primary(1).with(|| stream_wait(consumer.handle(), StreamHandle::LegacyDefault, GPU)).unwrap();
        assert_eq!(consumer.reads(&data), 7);
    }
    turn.run_all();
    own.destroy();
}

#[test]
fn the_callers_context_stays() {
    let _turn = turn();
    let own = Place::foreign(1);
    let all = [Place::primary(0), Place::primary(1), own];
    let values = values();
    for place in all {
        for (from, to) in values.into_iter().flat_map(|from| values.map(|to| (from, to))) {
            for device in [Device::cuda(0), Device::cuda(1), Device::CUDA_HOST, Device::CUDA_MANAGED] {
                place.with(|| {
                    stream_wait(to, from, device).unwrap_or_else(|error| panic!("{from} to {to}: {error}"));
                    assert_eq!(current(), Some(place), "{from} to {to} on {device}");
                });
            }
        }
    }
    assert_eq!(current(), None);
    own.destroy();
}
