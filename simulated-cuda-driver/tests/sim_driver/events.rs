//! Events: which record counts, and what waits for it.

use simulated_cuda::Mistake;

use crate::driver::*;
use crate::fixture::Room;

#[test]
fn an_event_without_a_record_holds_nobody_back() {
    let room = Room::new();
    let event = room.event();
    ok(cuEventQuery(event));
    ok(cuEventSynchronize(event));
    ok(cuStreamWaitEvent(room.stream(), event, 0));
}

#[test]
fn a_wait_is_for_the_record_before_it() {
    let room = Room::new();
    let [producer, consumer] = [room.stream(), room.stream()];
    let event = room.event();
    ok(cuEventRecord(event, producer));
    ok(cuStreamWaitEvent(consumer, event, 0));
    let spin = room.sim.spin(producer);
    ok(cuEventRecord(event, producer));
    ok(cuStreamSynchronize(consumer));
    assert!(room.sim.is_pending(spin), "the second record came after the wait");
    assert_eq!(cuEventQuery(event), code::NOT_READY);
    ok(cuEventSynchronize(event));
    assert!(!room.sim.is_pending(spin));
}

#[test]
fn an_event_covers_what_was_before_it_only() {
    let room = Room::new();
    let (stream, event, memory) = (room.stream(), room.event(), room.memory(4));
    ok(cuMemsetD8Async(memory, 1, 4, stream));
    ok(cuEventRecord(event, stream));
    ok(cuMemsetD8Async(memory, 2, 4, stream));
    ok(cuEventSynchronize(event));
    assert_eq!(room.peek(memory), 1);
}

#[test]
fn an_event_of_a_context_covers_all_its_streams() {
    let room = Room::new();
    let [first, second, third] = [room.stream(), room.blocking_stream(), room.stream()];
    let spins = [first, second].map(|stream| room.sim.spin(stream));
    let event = room.event();
    ok(cuCtxRecordEvent(room.context, event));
    assert_eq!(cuEventQuery(event), code::NOT_READY);
    ok(cuStreamWaitEvent(third, event, 0));
    ok(cuStreamSynchronize(third));
    assert!(!spins.iter().any(|spin| room.sim.is_pending(*spin)));
}

#[test]
fn an_event_is_recorded_in_its_own_context_only() {
    let room = Room::new();
    let event = room.event();
    let other = get(|out| cuCtxCreate_v2(out, 0, 0));
    assert_eq!(cuEventRecord(event, room.stream()), code::INVALID_HANDLE);
    assert_eq!(cuEventRecord(event, 0), code::INVALID_HANDLE);
    assert_eq!(cuCtxRecordEvent(other, event), code::INVALID_HANDLE);
    ok(cuCtxDestroy_v2(other));
    ok(cuEventRecord(event, 0));
}

#[test]
fn time_passes_between_two_records() {
    let room = Room::new();
    let (stream, memory) = (room.stream(), room.memory(4));
    let [start, end] = [0, 1].map(|_| get(|out| cuEventCreate(out, 0)));
    assert_eq!(cuEventElapsedTime(&mut 0.0, start, end), code::INVALID_HANDLE);
    ok(cuEventRecord(start, stream));
    ok(cuMemsetD8Async(memory, 2, 4, stream));
    ok(cuEventRecord(end, stream));
    assert_eq!(cuEventElapsedTime(&mut 0.0, start, end), code::NOT_READY);
    ok(cuEventSynchronize(end));
    assert!(get(|out| cuEventElapsedTime(out, start, end)) > 0.0);
    let untimed = room.event();
    ok(cuEventRecord(untimed, stream));
    ok(cuEventSynchronize(untimed));
    assert_eq!(cuEventElapsedTime(&mut 0.0, start, untimed), code::INVALID_HANDLE);
}

#[test]
fn a_destroyed_event_is_an_error_of_the_program() {
    let room = Room::new();
    let event = room.event();
    ok(cuEventDestroy_v2(event));
    assert_eq!(cuEventQuery(event), code::INVALID_HANDLE);
    room.expect(Mistake::DestroyedEvent, "is not an event, or was destroyed");
}

#[test]
fn flags_that_do_not_exist_are_refused() {
    let room = Room::new();
    assert_eq!(cuEventCreate(&mut 0, 8), code::INVALID_VALUE);
    // CU_EVENT_INTERPROCESS requires CU_EVENT_DISABLE_TIMING.
    assert_eq!(cuEventCreate(&mut 0, 4), code::INVALID_VALUE);
    assert_eq!(cuStreamWaitEvent(room.stream(), room.event(), 2), code::INVALID_VALUE);
}
