//! Stream capture: which calls are allowed and which invalidate the capture, as observed with a real driver.

use std::thread;

use simulated_cuda::{Live, Mistake};

use crate::driver::*;
use crate::fixture::Room;

const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;
const RELAXED: u32 = 2;

/// The name of a call, and a function that makes it during a capture and returns the result code.
type Call<'a> = (&'a str, &'a (dyn Fn() -> i32 + Sync));

/// The capture status of a stream: none, active or invalidated.
fn state(stream: u64) -> i32 {
    get(|out| cuStreamIsCapturing(stream, out))
}

/// Captures on a new stream in `mode` while `call` runs on another thread in `thread_mode`. Returns the results of the
/// call and of the end of the capture.
fn beside(room: &Room, mode: u32, thread_mode: u32, call: &(dyn Fn() -> i32 + Sync)) -> (i32, i32) {
    let stream = room.stream();
    ok(cuStreamBeginCapture_v2(stream, mode));
    let context = room.context;
    let answer = thread::scope(|scope| {
        let other = scope.spawn(move || {
            ok(cuCtxSetCurrent(context));
            ok(cuThreadExchangeStreamCaptureMode(&mut { thread_mode }));
            call()
        });
        other.join().expect("the other thread")
    });
    let end = cuStreamEndCapture(stream, &mut 0);
    // An invalidated capture is reported; nothing else is.
    assert_eq!(room.expect_only(Mistake::Capture), usize::from(end != code::OK));
    (answer, end)
}

#[test]
fn calls_that_are_potentially_unsafe_spoil_global_captures_from_any_thread() {
    let room = Room::new();
    let (idle, event) = (room.stream(), room.event());
    let memories: Vec<_> = (0..16).map(|_| room.memory(4)).collect();
    let next = std::sync::Mutex::new(memories.into_iter());
    let memory = || next.lock().expect("no test panics with it").next().expect("enough memories");
    let calls: [Call<'_>; 7] = [
        ("cuMemAlloc", &|| cuMemAlloc_v2(&mut 0, 4)),
        ("cuMemAllocAsync", &|| cuMemAllocAsync(&mut 0, 4, idle)),
        ("cuMemFree", &|| cuMemFree_v2(memory())),
        ("cuMemFreeAsync", &|| cuMemFreeAsync(memory(), idle)),
        ("cuEventQuery", &|| cuEventQuery(event)),
        ("cuStreamSynchronize", &|| cuStreamSynchronize(idle)),
        ("cuEventSynchronize", &|| cuEventSynchronize(event)),
    ];
    for (name, call) in calls {
        assert_eq!(beside(&room, GLOBAL, GLOBAL, call), (code::UNSUPPORTED, code::INVALIDATED), "{name}");
        for mode in [THREAD_LOCAL, RELAXED] {
            assert_eq!(beside(&room, mode, GLOBAL, call), (code::OK, code::OK), "{name} beside mode {mode}");
        }
        assert_eq!(beside(&room, GLOBAL, RELAXED, call), (code::OK, code::OK), "{name} on a relaxed thread");
    }
    ok(cuCtxSynchronize());
}

#[test]
fn calls_on_the_whole_context_spoil_every_capture() {
    let room = Room::new();
    let (context, event) = (room.context, room.event());
    let calls: [Call<'_>; 2] = [
        ("cuCtxRecordEvent", &|| cuCtxRecordEvent(context, event)),
        ("cuCtxSynchronize", &|| cuCtxSynchronize()),
    ];
    for (name, call) in calls {
        for (mode, thread_mode) in
            [(GLOBAL, GLOBAL), (THREAD_LOCAL, GLOBAL), (RELAXED, GLOBAL), (GLOBAL, RELAXED)]
        {
            let answers = beside(&room, mode, thread_mode, call);
            assert_eq!(answers, (code::UNSUPPORTED, code::INVALIDATED), "{name} {mode} {thread_mode}");
        }
    }
}

#[test]
fn harmless_calls_spoil_nothing() {
    let room = Room::new();
    let (idle, event, memory, context) = (room.stream(), room.event(), room.memory(4), room.context);
    let calls: [Call<'_>; 7] = [
        ("cuEventCreate", &|| cuEventCreate(&mut 0, 2)),
        ("cuEventRecord", &|| cuEventRecord(event, idle)),
        ("cuStreamWaitEvent", &|| cuStreamWaitEvent(idle, event, 0)),
        ("cuPointerGetAttribute", &|| cuPointerGetAttribute(&mut 0, 2, memory)),
        ("cuCtxPushCurrent", &|| cuCtxPushCurrent_v2(context)),
        ("cuStreamCreate", &|| cuStreamCreate(&mut 0, 1)),
        // The legacy stream, while a non-blocking stream captures.
        ("cuEventRecord(legacy)", &|| cuEventRecord(event, 0)),
    ];
    for (name, call) in calls {
        assert_eq!(beside(&room, GLOBAL, GLOBAL, call), (code::OK, code::OK), "{name}");
    }
}

#[test]
fn a_thread_is_stopped_by_its_own_thread_local_capture() {
    let room = Room::new();
    let stream = room.stream();
    ok(cuStreamBeginCapture_v2(stream, THREAD_LOCAL));
    assert_eq!(cuMemAlloc_v2(&mut 0, 4), code::UNSUPPORTED);
    room.expect(Mistake::Capture, "cuMemAlloc_v2 spoils the capture");
    assert_eq!(cuStreamEndCapture(stream, &mut 0), code::INVALIDATED);
    ok(cuStreamBeginCapture_v2(stream, RELAXED));
    ok(cuMemAlloc_v2(&mut 0, 4));
    ok(cuStreamEndCapture(stream, &mut 0));
}

#[test]
fn the_legacy_stream_spoils_the_capture_of_a_blocking_stream() {
    let room = Room::new();
    let (stream, event) = (room.blocking_stream(), room.event());
    let calls: [&dyn Fn() -> i32; 2] = [&|| cuEventRecord(event, 0), &|| cuStreamWaitEvent(0, event, 0)];
    for call in calls {
        ok(cuStreamBeginCapture_v2(stream, RELAXED));
        assert_eq!(cuStreamIsCapturing(0, &mut 0), code::IMPLICIT);
        assert_eq!(state(stream), 1, "asking spoils nothing");
        assert_eq!(call(), code::IMPLICIT);
        assert_eq!(state(stream), 2);
        room.expect(Mistake::Capture, "depend on a capturing blocking stream");
        assert_eq!(cuStreamEndCapture(stream, &mut 0), code::INVALIDATED);
    }
    assert_eq!(state(0), 0);
}

#[test]
fn captured_work_runs_when_its_graph_is_launched() {
    let room = Room::new();
    let [first, second] = [room.stream(), room.stream()];
    let (event, [source, target]) = (room.event(), [room.memory(4), room.memory(4)]);
    ok(cuStreamBeginCapture_v2(first, GLOBAL));
    ok(cuMemsetD8Async(source, 1, 4, first));
    ok(cuEventRecord(event, first));
    ok(cuStreamWaitEvent(second, event, 0));
    assert_eq!(state(second), 1, "a wait for a captured event joins the capture");
    ok(cuMemcpyDtoDAsync_v2(target, source, 4, second));
    ok(cuEventRecord(event, second));
    ok(cuStreamWaitEvent(first, event, 0));
    let graph = get(|out| cuStreamEndCapture(first, out));
    assert_eq!([state(first), state(second)], [0, 0]);
    ok(cuStreamSynchronize(first));
    assert_eq!(room.peek(target), 0);
    let (auto_free, device_launch) = (1, 4);
    let refused = cuGraphInstantiateWithFlags(&mut 0, graph, auto_free | device_launch);
    assert_eq!(refused, code::INVALID_VALUE, "these two exclude each other");
    let executable = get(|out| cuGraphInstantiateWithFlags(out, graph, auto_free));
    for _ in 0..2 {
        ok(cuMemsetD8Async(target, 0, 4, first));
        ok(cuGraphLaunch(executable, first));
        ok(cuStreamSynchronize(first));
        assert_eq!(room.peek(target), 1);
    }
    ok(cuGraphExecDestroy(executable));
    ok(cuGraphDestroy(graph));
    assert_eq!(room.sim.live(Live::Captures), 0);
}

#[test]
fn waits_for_what_is_outside_spoil_a_capture() {
    let room = Room::new();
    let (stream, outside, event, memory) = (room.stream(), room.stream(), room.event(), room.memory(4));
    ok(cuEventRecord(event, outside));
    ok(cuStreamBeginCapture_v2(stream, RELAXED));
    assert_eq!(cuStreamWaitEvent(stream, event, 0), code::ISOLATION);
    room.expect(Mistake::Capture, "cuStreamWaitEvent spoils the capture");
    assert_eq!(cuMemsetD8Async(memory, 0, 4, stream), code::INVALIDATED);
    assert_eq!(cuStreamEndCapture(stream, &mut 0), code::INVALIDATED);
    ok(cuCtxSynchronize());
}

#[test]
fn captured_streams_and_events_cannot_be_waited_for() {
    let room = Room::new();
    let (stream, event) = (room.stream(), room.event());
    let calls: [(&dyn Fn() -> i32, i32); 4] = [
        (&|| cuStreamSynchronize(stream), code::UNSUPPORTED),
        (&|| cuStreamQuery(stream), code::UNSUPPORTED),
        (&|| cuEventQuery(event), code::CAPTURED_EVENT),
        (&|| cuEventSynchronize(event), code::CAPTURED_EVENT),
    ];
    for (call, expected) in calls {
        ok(cuStreamBeginCapture_v2(stream, RELAXED));
        ok(cuEventRecord(event, stream));
        assert_eq!(call(), expected);
        room.expect(Mistake::Capture, "spoils the capture");
        assert_eq!(cuStreamEndCapture(stream, &mut 0), code::INVALIDATED);
    }
}

#[test]
fn a_capture_ends_where_and_when_it_may() {
    let room = Room::new();
    let [first, second] = [room.stream(), room.stream()];
    let (event, memory) = (room.event(), room.memory(4));
    assert_eq!(cuStreamEndCapture(first, &mut 0), 401);
    assert_eq!(cuStreamBeginCapture_v2(0, GLOBAL), code::UNSUPPORTED);
    let fork = || {
        ok(cuStreamBeginCapture_v2(first, GLOBAL));
        ok(cuEventRecord(event, first));
        ok(cuStreamWaitEvent(second, event, 0));
        ok(cuMemsetD8Async(memory, 0, 4, second));
    };
    fork();
    assert_eq!(cuStreamEndCapture(first, &mut 0), code::UNJOINED);
    room.expect(Mistake::Capture, "unjoined work");
    fork();
    assert_eq!(cuStreamEndCapture(second, &mut 0), code::UNMATCHED);
    room.expect(Mistake::Capture, "not ended in the same stream");
    assert_eq!(cuStreamEndCapture(first, &mut 0), code::INVALIDATED);
    ok(cuStreamBeginCapture_v2(first, GLOBAL));
    let elsewhere = thread::spawn(move || cuStreamEndCapture(first, &mut 0));
    assert_eq!(elsewhere.join().expect("the other thread"), code::WRONG_THREAD);
    ok(cuStreamEndCapture(first, &mut 0));
}

#[test]
fn two_captures_do_not_merge() {
    let room = Room::new();
    let [first, second] = [room.stream(), room.stream()];
    let event = room.event();
    ok(cuStreamBeginCapture_v2(first, RELAXED));
    ok(cuStreamBeginCapture_v2(second, RELAXED));
    ok(cuEventRecord(event, first));
    assert_eq!(cuStreamWaitEvent(second, event, 0), code::MERGE);
    assert_eq!(room.expect_only(Mistake::Capture), 2, "both are spoilt");
    for stream in [first, second] {
        assert_eq!(cuStreamEndCapture(stream, &mut 0), code::INVALIDATED);
    }
}

#[test]
fn a_thread_gets_its_mode_back() {
    let _room = Room::new();
    let mut mode = RELAXED;
    ok(cuThreadExchangeStreamCaptureMode(&mut mode));
    assert_eq!(mode, GLOBAL);
    ok(cuThreadExchangeStreamCaptureMode(&mut mode));
    assert_eq!(mode, RELAXED);
    assert_eq!(cuThreadExchangeStreamCaptureMode(&mut 3), code::INVALID_VALUE);
}
