//! The functions that control the driver from tests.

use std::thread;
use std::time::Duration;

use simulated_cuda::{Live, Policy};

use crate::driver::*;
use crate::fixture::Room;

#[test]
fn an_ordered_failure_comes_once_and_does_nothing() {
    let room = Room::new();
    let before = room.sim.live(Live::Streams);
    room.sim.fail_next("cuStreamCreate", 2);
    room.sim.fail_next("cuMemAlloc", 2);
    let mut stream = 77;
    assert_eq!(cuStreamCreate(&mut stream, 0), code::OUT_OF_MEMORY);
    assert_eq!((stream, room.sim.live(Live::Streams)), (77, before));
    // The name without the version applies to every version.
    assert_eq!(cuMemAlloc_v2(&mut 0, 4), code::OUT_OF_MEMORY);
    ok(cuStreamCreate(&mut stream, 0));
    ok(cuMemAlloc_v2(&mut 0, 4));
}

#[test]
fn all_calls_fail_until_it_is_taken_back() {
    let room = Room::new();
    room.sim.fail_all(3);
    let mut stream = 77;
    for _ in 0..2 {
        assert_eq!((cuStreamCreate(&mut stream, 0), cuCtxSynchronize(), stream), (3, 3, 77));
    }
    // Error texts remain available.
    let mut text = std::ptr::null();
    ok(cuGetErrorName(3, &mut text));
    room.sim.fail_all(0);
    ok(cuCtxSynchronize());
    room.sim.fail_all(3);
    room.sim.clear_faults();
    ok(cuCtxSynchronize());
}

#[test]
fn calls_are_counted_by_name() {
    let room = Room::new();
    room.sim.reset_calls();
    ok(cuCtxSynchronize());
    ok(cuCtxSynchronize());
    room.event();
    assert_eq!(room.sim.calls("cuCtxSynchronize"), 2);
    assert_eq!(room.sim.calls("cuEventCreate"), 1);
    assert_eq!(room.sim.calls("cuEventQuery"), 0);
    assert_eq!(room.sim.all_calls(), 3);
}

#[test]
fn a_spin_lasts_until_it_is_released() {
    let room = Room::new();
    let stream = room.stream();
    let spin = room.sim.spin(stream);
    for _ in 0..100 {
        assert_eq!(cuStreamQuery(stream), code::NOT_READY);
    }
    room.sim.release(spin);
    assert!(!room.sim.is_pending(spin));
    ok(cuStreamQuery(stream));
}

#[test]
fn under_the_eager_policy_a_wait_for_a_spin_blocks() {
    let room = Room::new();
    room.sim.set_policy(Policy::Eager);
    let stream = room.stream();
    let spin = room.sim.spin(stream);
    let waiting = thread::spawn(move || cuStreamSynchronize(stream));
    // Long enough for the other thread to return if it did not block.
    thread::sleep(Duration::from_millis(50));
    assert!(!waiting.is_finished());
    room.sim.release(spin);
    ok(waiting.join().expect("the waiting thread"));
}

#[test]
fn work_runs_step_by_step() {
    let room = Room::new();
    let (stream, memory) = (room.stream(), room.memory(1));
    ok(cuMemsetD8Async(memory, 1, 1, stream));
    ok(cuMemsetD8Async(memory, 2, 1, stream));
    assert!(room.sim.step());
    assert_eq!((room.peek(memory), room.sim.live(Live::Operations)), (1, 1));
    assert!(room.sim.step());
    assert_eq!(room.peek(memory), 2);
    assert!(!room.sim.step());
}

#[test]
fn everything_can_be_run_to_the_end() {
    let room = Room::new();
    let (stream, memory) = (room.stream(), room.memory(1));
    room.sim.spin(stream);
    ok(cuMemsetD8Async(memory, 1, 1, stream));
    room.sim.run_all();
    assert_eq!((room.peek(memory), room.sim.live(Live::Operations)), (1, 0));
}
