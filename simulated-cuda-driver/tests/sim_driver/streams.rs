//! Order between streams: what is guaranteed, and what is not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use simulated_cuda::{Live, Mistake, Policy};

use crate::driver::*;
use crate::fixture::Room;

#[test]
fn nothing_runs_until_somebody_waits() {
    let room = Room::new();
    let (stream, memory) = (room.stream(), room.memory(4));
    ok(cuMemsetD8Async(memory, 1, 4, stream));
    ok(cuMemsetD8Async(memory, 2, 4, stream));
    assert_eq!(room.peek(memory), 0);
    ok(cuStreamSynchronize(stream));
    assert_eq!(room.peek(memory), 2);
}

#[test]
fn a_wait_runs_only_what_it_needs() {
    let room = Room::new();
    let [first, second] = [room.stream(), room.stream()];
    let memory = room.memory(4);
    ok(cuMemsetD8Async(memory, 1, 4, first));
    ok(cuStreamSynchronize(second));
    assert_eq!(room.peek(memory), 0);
}

/// Writes 1 on one stream, copies it on another, and returns the copied value. Checks that a race is reported exactly
/// if the copy did not see the write.
fn producer_and_consumer(room: &Room, producer: u64, consumer: u64, edge: bool) -> u8 {
    let [source, target] = [room.memory(4), room.memory(4)];
    ok(cuMemsetD8Async(source, 1, 4, producer));
    if edge {
        let event = room.event();
        ok(cuEventRecord(event, producer));
        ok(cuStreamWaitEvent(consumer, event, 0));
        ok(cuEventDestroy_v2(event));
    }
    ok(cuMemcpyDtoDAsync_v2(target, source, 4, consumer));
    ok(cuStreamSynchronize(consumer));
    let copied = room.peek(target);
    ok(cuCtxSynchronize());
    assert_eq!(room.expect_only(Mistake::Race), usize::from(copied == 0));
    copied
}

#[test]
fn a_missing_edge_shows_every_time() {
    let room = Room::new();
    for seed in 0..20 {
        room.sim.set_seed(seed);
        assert_eq!(producer_and_consumer(&room, room.stream(), room.stream(), false), 0);
        assert_eq!(producer_and_consumer(&room, room.stream(), room.stream(), true), 1);
    }
}

#[test]
fn the_legacy_stream_and_blocking_streams_wait_for_each_other() {
    let room = Room::new();
    assert_eq!(producer_and_consumer(&room, 0, room.blocking_stream(), false), 1);
    assert_eq!(producer_and_consumer(&room, room.blocking_stream(), 1, false), 1);
    assert_eq!(producer_and_consumer(&room, 2, 1, false), 1);
    // Two blocking streams do not wait for each other.
    assert_eq!(producer_and_consumer(&room, room.blocking_stream(), room.blocking_stream(), false), 0);
}

#[test]
fn the_legacy_stream_and_non_blocking_streams_do_not() {
    let room = Room::new();
    assert_eq!(producer_and_consumer(&room, 0, room.stream(), false), 0);
    assert_eq!(producer_and_consumer(&room, room.stream(), 0, false), 0);
}

#[test]
fn an_edge_may_cross_contexts_and_devices() {
    let room = Room::new();
    let producer = room.stream();
    let event = room.event();
    let spin = room.sim.spin(producer);
    ok(cuEventRecord(event, producer));
    let other = get(|out| cuCtxCreate_v2(out, 0, 1));
    let consumer = room.stream();
    ok(cuStreamWaitEvent(consumer, event, 0));
    ok(cuStreamSynchronize(consumer));
    assert!(!room.sim.is_pending(spin));
    ok(cuCtxDestroy_v2(other));
}

#[test]
fn each_thread_has_its_own_default_stream() {
    let room = Room::new();
    let own = get(|out| cuStreamGetId(2, out));
    assert_eq!(own, get(|out| cuStreamGetId(2, out)));
    let context = room.context;
    let other = thread::spawn(move || {
        ok(cuCtxSetCurrent(context));
        get(|out| cuStreamGetId(2, out))
    });
    assert_ne!(own, other.join().expect("the other thread"));
    assert_ne!(own, get(|out| cuStreamGetId(1, out)));
    assert_eq!(get(|out| cuStreamGetId(0, out)), get(|out| cuStreamGetId(1, out)));
}

#[test]
fn asking_often_brings_the_end() {
    let room = Room::new();
    let (stream, memory) = (room.stream(), room.memory(4));
    ok(cuMemsetD8Async(memory, 1, 4, stream));
    assert_eq!(cuStreamQuery(stream), code::NOT_READY);
    let asked = (0..100).take_while(|_| cuStreamQuery(stream) == code::NOT_READY).count();
    assert!(asked < 10, "{asked}");
    assert_eq!(room.peek(memory), 1);
}

#[test]
fn a_destroyed_stream_leaves_its_work() {
    let room = Room::new();
    let (stream, memory) = (room.blocking_stream(), room.memory(4));
    ok(cuMemsetD8Async(memory, 1, 4, stream));
    ok(cuStreamDestroy_v2(stream));
    assert_eq!(room.peek(memory), 0);
    ok(cuStreamSynchronize(0));
    assert_eq!(room.peek(memory), 1);
}

#[test]
fn flags_and_contexts_of_streams_are_told() {
    let room = Room::new();
    let [plain, apart] = [room.blocking_stream(), room.stream()];
    assert_eq!([plain, apart].map(|stream| get(|out| cuStreamGetFlags(stream, out))), [0, 1]);
    assert_eq!(get(|out| cuStreamGetCtx(plain, out)), room.context);
    assert_eq!(get(|out| cuStreamGetCtx(0, out)), room.context);
    assert_eq!(cuStreamCreate(&mut 0, 2), code::INVALID_VALUE);
}

static CALLED_WITH: AtomicU64 = AtomicU64::new(0);
static ANSWER_INSIDE: AtomicU64 = AtomicU64::new(0);

extern "C" fn note(data: u64) {
    CALLED_WITH.store(data, Ordering::SeqCst);
    let answer = cuStreamQuery(0);
    ANSWER_INSIDE.store(u64::try_from(answer).expect("a code"), Ordering::SeqCst);
}

#[test]
fn a_host_function_runs_in_its_turn_and_may_not_call_the_driver() {
    let room = Room::new();
    let stream = room.stream();
    ok(cuLaunchHostFunc(stream, note, 42));
    assert_eq!(CALLED_WITH.load(Ordering::SeqCst), 0);
    ok(cuStreamSynchronize(stream));
    assert_eq!(CALLED_WITH.load(Ordering::SeqCst), 42);
    assert_eq!(ANSWER_INSIDE.load(Ordering::SeqCst), code::NOT_PERMITTED as u64);
    room.expect(Mistake::CallInside, "was called from a host function");
}

/// Queues two unordered writes of one byte, many times. Returns which one ended last each time.
fn last_writers(room: &Room, seed: u64) -> Vec<u8> {
    room.sim.set_seed(seed);
    let [first, second] = [room.stream(), room.stream()];
    let write = |_| {
        let memory = room.memory(1);
        ok(cuMemsetD8Async(memory, 1, 1, first));
        ok(cuMemsetD8Async(memory, 2, 1, second));
        ok(cuCtxSynchronize());
        assert_eq!(room.expect_only(Mistake::Race), 1, "in whatever order they ran");
        room.peek(memory)
    };
    (0..20).map(write).collect()
}

#[test]
fn a_seed_fixes_the_order_and_another_changes_it() {
    let room = Room::new();
    let order = last_writers(&room, 5);
    assert!(order.contains(&1) && order.contains(&2), "{order:?}");
    assert_eq!(order, last_writers(&room, 5));
    assert_ne!(order, last_writers(&room, 6));
}

#[test]
fn under_the_random_policy_a_wait_runs_other_work_too() {
    let room = Room::new();
    room.sim.set_policy(Policy::Random);
    let [first, second] = [room.stream(), room.stream()];
    let ran = |_| {
        let [memory, other] = [room.memory(1), room.memory(1)];
        ok(cuMemsetD8Async(memory, 1, 1, first));
        ok(cuMemsetD8Async(other, 1, 1, second));
        ok(cuStreamSynchronize(second));
        let ran = room.sim.live(Live::Operations) == 0;
        ok(cuCtxSynchronize());
        ran
    };
    let ran: Vec<_> = (0..20).map(ran).collect();
    assert!(ran.contains(&true) && ran.contains(&false), "{ran:?}");
}

#[test]
fn under_the_eager_policy_work_runs_at_once() {
    let room = Room::new();
    room.sim.set_policy(Policy::Eager);
    let (stream, memory) = (room.stream(), room.memory(4));
    ok(cuMemsetD8Async(memory, 1, 4, stream));
    assert_eq!(room.peek(memory), 1);
    ok(cuStreamQuery(stream));
}

static COUNTED: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: u64) {
    COUNTED.fetch_add(1, Ordering::SeqCst);
    // Gives other threads time to run while the lock is released.
    thread::yield_now();
}

#[test]
fn threads_share_the_driver() {
    let room = Room::new();
    let context = room.context;
    let memory = room.memory(4);
    let work = move |offset: u64| {
        ok(cuCtxSetCurrent(context));
        let stream = get(|out| cuStreamCreate(out, 1));
        for value in 0..200 {
            ok(cuMemsetD8Async(memory + offset, value, 1, stream));
            ok(cuLaunchHostFunc(stream, count, 0));
            ok(cuStreamSynchronize(stream));
        }
        ok(cuStreamDestroy_v2(stream));
    };
    let threads: Vec<_> = (0..4).map(|offset| thread::spawn(move || work(offset))).collect();
    for thread in threads {
        thread.join().expect("a thread");
    }
    assert_eq!(COUNTED.load(Ordering::SeqCst), 800);
    assert_eq!([0, 1, 2, 3].map(|offset| room.peek(memory + offset)), [199; 4]);
}
