//! Contexts: a thread's stack, primary contexts, and destruction.

use std::thread;

use simulated_cuda::{Live, Mistake};

use crate::driver::*;
use crate::fixture::Room;

#[test]
fn contexts_are_pushed_and_popped() {
    let room = Room::new();
    let other = get(|out| cuCtxCreate_v2(out, 0, 1));
    assert_eq!(get(cuCtxGetCurrent), other);
    assert_eq!(get(cuCtxGetDevice), 1);
    assert_eq!(get(|out| cuCtxPopCurrent_v2(Some(out))), other);
    assert_eq!(get(cuCtxGetCurrent), room.context);
    ok(cuCtxPushCurrent_v2(other));
    ok(cuCtxPopCurrent_v2(None));
    ok(cuCtxDestroy_v2(other));
    assert_eq!(get(cuCtxGetDevice), 0);
}

#[test]
fn setting_replaces_the_current_context_of_this_thread_only() {
    let room = Room::new();
    let context = room.context;
    let elsewhere = thread::spawn(move || {
        assert_eq!(get(cuCtxGetCurrent), 0);
        assert_eq!(cuMemAlloc_v2(&mut 0, 4), code::INVALID_CONTEXT);
        assert_eq!(cuCtxPopCurrent_v2(None), code::INVALID_CONTEXT);
        ok(cuCtxSetCurrent(context));
        assert_eq!(get(cuCtxGetCurrent), context);
        ok(cuCtxSetCurrent(0));
        assert_eq!(get(cuCtxGetCurrent), 0);
    });
    elsewhere.join().expect("the other thread");
    assert_eq!(get(cuCtxGetCurrent), context);
}

#[test]
fn a_destroyed_context_is_no_longer_usable() {
    let room = Room::new();
    let other = get(|out| cuCtxCreate_v2(out, 0, 0));
    let stream = get(|out| cuStreamCreate(out, 0));
    ok(cuCtxPushCurrent_v2(other));
    ok(cuCtxDestroy_v2(other));
    // The context was pushed twice; the remaining entry refers to a destroyed context.
    assert_eq!(cuCtxSynchronize(), code::DESTROYED);
    assert_eq!(cuStreamGetCtx(stream, &mut 0), code::DESTROYED);
    room.expect(Mistake::DestroyedStream, "cuStreamGetCtx");
    assert_eq!(cuCtxGetApiVersion(other, &mut 0), code::INVALID_CONTEXT);
    ok(cuCtxPopCurrent_v2(None));
}

#[test]
fn a_context_takes_what_belongs_to_it_along() {
    let room = Room::new();
    let before = room.sim.live(Live::Allocations);
    let other = get(|out| cuCtxCreate_v2(out, 0, 0));
    let (stream, _event) = (room.stream(), room.event());
    let memory = room.memory(16);
    ok(cuMemsetD8Async(memory, 1, 16, stream));
    ok(cuCtxDestroy_v2(other));
    assert_eq!(room.sim.live(Live::Allocations), before);
    assert_eq!(room.sim.live(Live::Operations), 0);
    assert_eq!((room.sim.live(Live::Streams), room.sim.live(Live::Events)), (0, 0));
}

#[test]
fn memory_that_goes_with_its_context_is_freed_then() {
    let room = Room::new();
    let user = room.stream();
    let other = get(|out| cuCtxCreate_v2(out, 0, 0));
    let memory = room.memory(4);
    ok(cuMemsetD8Async(memory, 1, 4, user));
    while room.sim.step() {}
    // The destruction waits for the context's own streams only.
    ok(cuCtxDestroy_v2(other));
    room.expect(Mistake::UseAfterFree, "by cuCtxDestroy_v2");
}

#[test]
fn a_primary_context_lives_as_long_as_somebody_keeps_it() {
    let _room = Room::new();
    let active = || get(|out| cuDevicePrimaryCtxGetState(1, &mut 0, out));
    assert_eq!(active(), 0);
    let first = get(|out| cuDevicePrimaryCtxRetain(out, 1));
    assert_eq!(get(|out| cuDevicePrimaryCtxRetain(out, 1)), first);
    ok(cuDevicePrimaryCtxRelease_v2(1));
    assert_eq!(active(), 1);
    assert_eq!(cuCtxDestroy_v2(first), code::INVALID_CONTEXT);
    ok(cuDevicePrimaryCtxRelease_v2(1));
    assert_eq!(active(), 0);
    assert_eq!(cuDevicePrimaryCtxRelease_v2(1), code::INVALID_CONTEXT);
    assert_eq!(cuCtxGetApiVersion(first, &mut 0), code::INVALID_CONTEXT);
}

#[test]
fn a_reset_empties_a_primary_context() {
    let room = Room::new();
    let context = get(|out| cuDevicePrimaryCtxRetain(out, 1));
    ok(cuCtxPushCurrent_v2(context));
    let before = room.sim.live(Live::Allocations);
    room.memory(4);
    ok(cuDevicePrimaryCtxReset_v2(1));
    assert_eq!(room.sim.live(Live::Allocations), before);
    ok(cuCtxPopCurrent_v2(None));
    ok(cuDevicePrimaryCtxRelease_v2(1));
}

#[test]
fn every_context_has_its_own_number() {
    let room = Room::new();
    let other = get(|out| cuCtxCreate_v2(out, 0, 0));
    let own = get(|out| cuCtxGetId(0, out));
    assert_eq!(own, get(|out| cuCtxGetId(other, out)));
    assert_ne!(own, get(|out| cuCtxGetId(room.context, out)));
    ok(cuCtxDestroy_v2(other));
}
