//! Destroyed streams: which uses are reported, and which abort the process.

use simulated_cuda::{Live, Mistake};

use crate::driver::*;
use crate::fixture::{Room, alone, signal};

/// `SIGABRT`.
const ABORTED: i32 = 6;

/// The name of a driver function that takes a stream, and a call of it.
type Call<'a> = (&'a str, &'a dyn Fn(u64) -> i32);

#[test]
fn every_use_of_a_destroyed_stream_is_reported_and_does_nothing() {
    let room = Room::new();
    let (stream, event, memory) = (room.stream(), room.event(), room.memory(4));
    ok(cuStreamDestroy_v2(stream));
    let calls: [Call<'_>; 9] = [
        ("cuEventRecord", &|stream| cuEventRecord(event, stream)),
        ("cuStreamWaitEvent", &|stream| cuStreamWaitEvent(stream, event, 0)),
        ("cuStreamGetCtx", &|stream| cuStreamGetCtx(stream, &mut 0)),
        ("cuStreamIsCapturing", &|stream| cuStreamIsCapturing(stream, &mut 0)),
        ("cuStreamQuery", &cuStreamQuery),
        ("cuStreamSynchronize", &cuStreamSynchronize),
        ("cuStreamGetId", &|stream| cuStreamGetId(stream, &mut 0)),
        ("cuMemsetD8Async", &|stream| cuMemsetD8Async(memory, 1, 4, stream)),
        ("cuStreamDestroy_v2", &cuStreamDestroy_v2),
    ];
    for (name, call) in calls {
        assert_eq!(call(stream), code::DESTROYED, "{name}");
        let text = room.expect(Mistake::DestroyedStream, "use of a destroyed stream");
        assert!(text.contains(&format!("{name}({stream:#x})")), "{text}");
    }
    ok(cuCtxSynchronize());
    assert_eq!(room.peek(memory), 0);
}

/// Checks that `inside` aborts the process with a message that contains `words`.
fn dies(name: &str, words: &str, inside: impl FnOnce(&Room)) {
    let Some(output) = alone(name, &[], || inside(&Room::new())) else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(signal(&output), Some(ABORTED), "{said}");
    assert!(said.contains(words), "no {words:?} in {said}");
}

#[test]
fn leaving_a_context_that_was_destroyed_before_it_was_entered_ends_the_process() {
    let words = "the context was destroyed before it was pushed";
    let name = "handles::leaving_a_context_that_was_destroyed_before_it_was_entered_ends_the_process";
    dies(name, words, |_| {
        let other = get(|out| cuCtxCreate_v2(out, 0, 0));
        ok(cuCtxDestroy_v2(other));
        ok(cuCtxPushCurrent_v2(other));
        assert_eq!(cuCtxSynchronize(), code::DESTROYED);
        cuCtxPopCurrent_v2(None);
    });
}

#[test]
fn a_handle_that_is_no_stream_ends_the_process_everywhere() {
    let words = "this is not a stream";
    dies("handles::a_handle_that_is_no_stream_ends_the_process_everywhere", words, |room| {
        // An event is not a stream either.
        cuStreamGetCtx(room.event(), &mut 0);
    });
}

#[test]
fn handles_are_not_used_again() {
    let room = Room::new();
    let first = room.stream();
    ok(cuStreamDestroy_v2(first));
    let later: Vec<_> = (0..100).map(|_| room.stream()).collect();
    assert!(!later.contains(&first));
}

/// As in the real driver, the handle that was released last is reused first.
#[test]
fn handles_and_addresses_are_used_again_where_a_test_says_so() {
    let room = Room::new();
    room.sim.set_reuse(true);
    let (stream, event, memory, pinned) = (room.stream(), room.event(), room.memory(100), room.pinned(8));
    ok(cuStreamDestroy_v2(stream));
    ok(cuEventDestroy_v2(event));
    ok(cuMemFree_v2(memory));
    ok(cuMemFreeHost(pinned.0));
    assert_eq!((room.stream(), room.event(), room.memory(100)), (stream, event, memory));
    assert_eq!(room.pinned(8).0, pinned.0);

    let number = |context| get(|out: &mut u64| cuCtxGetId(context, out));
    let context = get(|out| cuCtxCreate_v2(out, 0, 0));
    let (before, lost) = (number(context), room.event());
    ok(cuCtxDestroy_v2(context));
    assert_eq!(get(|out| cuCtxCreate_v2(out, 0, 0)), context);
    assert_ne!(number(context), before, "the number is that of one context");
    assert_eq!(room.event(), lost);
    room.sim.assert_no_reports();

    room.sim.set_reuse(false);
    let kept = room.event();
    ok(cuEventDestroy_v2(kept));
    assert_ne!(room.event(), kept);
}

/// The context still waits for the work of a destroyed stream. A new stream with the same handle does not.
#[test]
fn the_work_of_a_destroyed_stream_is_not_that_of_the_one_with_its_handle() {
    let room = Room::new();
    room.sim.set_reuse(true);
    let (first, memory) = (room.stream(), room.memory(4));
    ok(cuMemsetD8Async(memory, 7, 4, first));
    ok(cuStreamDestroy_v2(first));
    let second = room.stream();
    assert_eq!(second, first);
    ok(cuStreamSynchronize(second));
    assert_eq!(room.sim.live(Live::Operations), 1, "nobody has waited for the first");
    ok(cuCtxSynchronize());
    ok(cuMemsetD8Async(memory, 8, 4, second));
    ok(cuStreamSynchronize(second));
    room.sim.assert_no_reports();
}
