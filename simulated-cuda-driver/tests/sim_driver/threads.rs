//! What a host thread knows of work that another thread has waited for.

use std::sync::mpsc::channel;
use std::thread;

use simulated_cuda::{HandedOver, Mistake};

use crate::driver::*;
use crate::fixture::Room;

/// Writes memory on one stream and waits for it. A thread that already exists receives the address through a channel
/// and reads the memory on another stream. Returns the number of races.
fn races(room: &Room, declared: bool) -> usize {
    let [first, second] = [room.stream(), room.stream()];
    let (memory, target) = (room.memory(4), room.memory(4));
    let (context, sim) = (room.context, room.sim);
    let (to_other, from_here) = channel::<(u64, Option<HandedOver>)>();
    let (ready, is_ready) = channel();
    let other = thread::spawn(move || {
        ok(cuCtxSetCurrent(context));
        ready.send(()).expect("somebody waits");
        let (memory, handed) = from_here.recv().expect("an address");
        if let Some(handed) = handed {
            sim.take_over(handed);
        }
        ok(cuMemcpyDtoDAsync_v2(target, memory, 4, second));
    });
    is_ready.recv().expect("the other thread is there");
    ok(cuMemsetD8Async(memory, 1, 4, first));
    ok(cuStreamSynchronize(first));
    to_other.send((memory, declared.then(|| sim.hand_over()))).expect("somebody waits");
    other.join().expect("the other thread");
    ok(cuCtxSynchronize());
    room.expect_only(Mistake::Race)
}

#[test]
fn threads_are_one_unless_they_are_told_apart() {
    let room = Room::new();
    assert_eq!(races(&room, false), 0);
    room.sim.set_threads_apart(true);
    assert_eq!((races(&room, false), races(&room, true)), (1, 0));
    room.sim.set_threads_apart(false);
    assert_eq!(races(&room, false), 0);
}

#[test]
fn the_begin_and_the_end_of_a_thread_order() {
    let room = Room::new();
    room.sim.set_threads_apart(true);
    let [first, second, third] = [room.stream(), room.stream(), room.stream()];
    let (memory, target, context) = (room.memory(4), room.memory(4), room.context);
    ok(cuMemsetD8Async(memory, 1, 4, first));
    ok(cuStreamSynchronize(first));
    let other = thread::spawn(move || {
        ok(cuCtxSetCurrent(context));
        ok(cuMemsetD8Async(memory, 2, 4, second));
        ok(cuStreamSynchronize(second));
    });
    other.join().expect("the other thread");
    ok(cuMemcpyDtoDAsync_v2(target, memory, 4, third));
    ok(cuCtxSynchronize());
    assert_eq!(room.peek(target), 2);
}
