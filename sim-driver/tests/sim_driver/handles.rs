//! Streams that are gone: what the driver notices, and what ends the process.

use crate::driver::*;
use crate::room::{Room, alone, signal};

/// `SIGABRT`.
const ABORTED: i32 = 6;

#[test]
fn some_functions_notice_a_destroyed_stream() {
    let room = Room::new();
    let (stream, event) = (room.stream(), room.event());
    ok(cuStreamDestroy_v2(stream));
    assert_eq!(cuEventRecord(event, stream), code::DESTROYED);
    assert_eq!(cuStreamWaitEvent(stream, event, 0), code::DESTROYED);
    assert_eq!(cuStreamGetCtx(stream, &mut 0), code::DESTROYED);
}

/// Checks that `inside` ends the process with a message that has these words.
fn dies(name: &str, words: &str, inside: impl FnOnce(&Room)) {
    let Some(output) = alone(name, &[], || inside(&Room::new())) else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(signal(&output), Some(ABORTED), "{said}");
    assert!(said.contains(words), "no {words:?} in {said}");
}

#[test]
fn asking_whether_a_destroyed_stream_captures_ends_the_process() {
    let words = "cuStreamIsCapturing";
    dies("handles::asking_whether_a_destroyed_stream_captures_ends_the_process", words, |room| {
        let stream = room.stream();
        ok(cuStreamDestroy_v2(stream));
        cuStreamIsCapturing(stream, &mut 0);
    });
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
fn asking_whether_a_destroyed_stream_is_done_ends_the_process() {
    let words = "the stream was destroyed";
    dies("handles::asking_whether_a_destroyed_stream_is_done_ends_the_process", words, |room| {
        let stream = room.stream();
        ok(cuStreamDestroy_v2(stream));
        cuStreamQuery(stream);
    });
}

#[test]
fn asking_a_destroyed_stream_for_its_number_ends_the_process() {
    dies("handles::asking_a_destroyed_stream_for_its_number_ends_the_process", "cuStreamGetId", |room| {
        let stream = room.stream();
        ok(cuStreamDestroy_v2(stream));
        cuStreamGetId(stream, &mut 0);
    });
}

#[test]
fn a_handle_that_is_no_stream_ends_the_process_everywhere() {
    let words = "this is no stream";
    dies("handles::a_handle_that_is_no_stream_ends_the_process_everywhere", words, |room| {
        // An event is no stream either.
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
