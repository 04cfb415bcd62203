//! The end of a process whose reports nobody has read.

use std::process::Output;

use simulated_cuda::sim;

use crate::driver::*;
use crate::fixture::{NON_BLOCKING, alone};

/// Two sets of one byte on two streams, which nothing orders. Nothing waits for them either.
fn racing_work() {
    sim();
    ok(cuInit(0));
    let context = get(|out| cuDevicePrimaryCtxRetain(out, 0));
    ok(cuCtxSetCurrent(context));
    let memory = get(|out| cuMemAlloc_v2(out, 4));
    for _ in 0..2 {
        let stream = get(|out| cuStreamCreate(out, NON_BLOCKING));
        ok(cuMemsetD8Async(memory, 1, 4, stream));
    }
}

fn messages(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn reports_are_printed_and_end_the_process_with_an_error() {
    let name = "end::reports_are_printed_and_end_the_process_with_an_error";
    let Some(output) = alone(name, &[], racing_work) else { return };
    let messages = messages(&output);
    assert_eq!(output.status.code(), Some(1), "{messages}");
    assert_eq!(messages.matches("Race: write of 4 bytes").count(), 1, "{messages}");
    assert!(messages.contains("mistakes of this program: 1"), "{messages}");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains("1 passed"), "what the program printed is not lost: {printed}");
}

#[test]
fn they_can_be_ignored() {
    let off = [("SIMULATED_CUDA_REPORTS", "off")];
    let Some(output) = alone("end::they_can_be_ignored", &off, racing_work) else { return };
    assert_eq!((output.status.code(), messages(&output)), (Some(0), String::new()));
}

#[test]
fn reports_that_were_read_are_not_printed() {
    let inside = || {
        racing_work();
        sim().run_all();
        assert_eq!(sim().reports().len(), 1);
    };
    let Some(output) = alone("end::reports_that_were_read_are_not_printed", &[], inside) else { return };
    assert_eq!((output.status.code(), messages(&output)), (Some(0), String::new()));
}

#[test]
fn another_error_of_the_program_is_kept() {
    let inside = || {
        racing_work();
        std::process::exit(3);
    };
    let Some(output) = alone("end::another_error_of_the_program_is_kept", &[], inside) else { return };
    assert_eq!(output.status.code(), Some(3));
    assert!(messages(&output).contains("Race"), "{}", messages(&output));
}

#[test]
fn a_forked_child_does_not_repeat_them() {
    let inside = || {
        racing_work();
        sim().run_all();
        // SAFETY: the child only ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            std::process::exit(0);
        }
        let mut status = 1;
        // SAFETY: `status` is valid for a write.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0, "the child ends well");
    };
    let Some(output) = alone("end::a_forked_child_does_not_repeat_them", &[], inside) else { return };
    assert_eq!(messages(&output).matches("Race: ").count(), 1, "{}", messages(&output));
}

#[test]
fn a_backtrace_says_where_each_operation_was_requested() {
    let name = "end::a_backtrace_says_where_each_operation_was_requested";
    let wanted = [("SIMULATED_CUDA_BACKTRACE", "1")];
    let Some(output) = alone(name, &wanted, racing_work) else { return };
    let messages = messages(&output);
    assert_eq!(messages.matches("cuMemsetD8Async, was requested here:").count(), 2, "{messages}");
    let own = messages.lines().filter(|line| line.ends_with("racing_work")).count();
    assert_eq!(own, 2, "{messages}");
    assert!(!messages.contains(" ./src/"), "frames of the driver: {messages}");
}
