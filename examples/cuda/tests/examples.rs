//! Runs every example on the simulated driver, or on a GPU if there is no simulated driver. `output.txt` has the
//! output.

use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use interop_cuda_examples::{Outcome, bandwidth, blur, pinned, simulated, two_streams, vector_add};
use simulated_cuda::find;

/// Registers the kernels with the simulated driver, if there is one, and gives one test at a time exclusive use.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    static KERNELS: Once = Once::new();
    KERNELS.call_once(simulated::give_kernels);
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks that `output.txt` contains the printed text.
#[track_caller]
fn prints(outcome: Outcome) {
    let text = outcome.unwrap();
    if let Ok(sim) = find() {
        sim.assert_no_reports();
    }
    let expected = include_str!("../../output.txt");
    for line in text.lines() {
        assert!(expected.contains(line), "not in examples/output.txt: {line}");
    }
}

/// The figures depend on the GPU, so this test checks only that the example runs.
#[test]
fn bandwidth_runs() {
    let _turn = turn();
    let text = bandwidth::run(1 << 12).unwrap();
    for what in ["copy by the driver", "vector_add", "blur, 1 x 1365 x 3", "launch: "] {
        assert!(text.contains(what), "{text}");
    }
    if let Ok(sim) = find() {
        sim.assert_no_reports();
    }
}

#[test]
fn vector_add_prints() {
    let _turn = turn();
    prints(vector_add::run(1 << 20));
}

#[test]
fn blur_prints() {
    let _turn = turn();
    prints(blur::run(1080, 1920));
}

#[test]
fn pinned_prints() {
    let _turn = turn();
    prints(pinned::run(1 << 20));
}

#[test]
fn two_streams_print() {
    let _turn = turn();
    prints(two_streams::run(1 << 16, 100, 2_000_000));
}
