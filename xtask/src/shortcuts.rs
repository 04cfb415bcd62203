//! The shortcuts of the core: code that avoids work. A shortcut must accept a subset of what the full path accepts, with the same
//! result, and a test checks that. One that saves less than a tenth of its call is removed.

use std::path::PathBuf;

use crate::{files, workspace};

/// What was switched off once, and measured with and without it in one run: `CPython` 3.11, two cores of an AMD EPYC, the minimum of 25
/// rounds. The columns are the code, what it avoids, a call, nanoseconds with it and without it, and what checks it.
const MEASURED: [[&str; 6]; 9] = [
    [
        "`Reader::NumPy`: the C struct of a NumPy array is read",
        "its `__dlpack__`",
        "`f(numpy_array)`",
        "152",
        "329",
        "`test_numpy_struct.py`",
    ],
    [
        "`call_with_keywords` without a tuple and a dict",
        "`PyObject_Call`",
        "`f(object of a Python class)`",
        "512",
        "612",
        "`test_producers.py`",
    ],
    [
        "`PyObject_GetOptionalAttr`: an absent attribute without an exception",
        "`getattr`",
        "`f(object with a legacy capsule)`",
        "781",
        "1370",
        "`test_producers.py`",
    ],
    [
        "`has_fixed_attributes`: a `bytearray` or a `memoryview` is asked for its buffer at once",
        "two lookups of attributes that are not there",
        "`f(memoryview)`",
        "461",
        "553",
        "`test_buffer_import.py`",
    ],
    [
        "`Dims`: up to five extents without an allocation",
        "a `Box`",
        "`__dlpack__`",
        "84",
        "135",
        "`array/dims.rs`, tests",
    ],
    [
        "`Loops::new`: contiguous arrays are one loop",
        "axes are sorted and merged",
        "`fold` of 16 elements in Rust",
        "48",
        "73",
        "`memory/host/loops.rs`, `tests/runtime`",
    ],
    [
        "`Strided::for_each_chunk`: a contiguous array is passed in place",
        "loops",
        "`checksum` of 16 elements",
        "350",
        "420",
        "`tests/runtime`",
    ],
    [
        "`Strided::copy_to`: one copy of a contiguous array",
        "loops",
        "`to_vec` of 16 elements in Rust",
        "36",
        "66",
        "`tests/runtime`",
    ],
    [
        "`FREE_EVENTS`, and `THREAD_EVENT`, the last event of a thread",
        "`cuEventCreate`, `cuEventDestroy`",
        "an order between two streams",
        "2 driver calls",
        "4",
        "`tests/driver/stream_wait.rs`",
    ],
];

/// What is part of a larger mechanism and was not measured by itself: the code, what it avoids, and what checks it.
const OTHERS: [[&str; 3]; 12] = [
    [
        "`validate_with` and `validate_into`: the rules are compiled into their caller, for a constant rank where it has one",
        "`validate`",
        "`tests/runtime/descriptor`",
    ],
    [
        "`with_lists`: the rules are compiled for each rank from one to four",
        "for any rank",
        "`tests/runtime/dlpack/import.rs`",
    ],
    [
        "`ExpectedDevice`: a class of host arrays needs no stream",
        "`__dlpack_device__` first",
        "`test_producers.py`",
    ],
    [
        "`Uses`: an array that was used on its caller's stream alone is released without an event",
        "an event of the context",
        "`tests/driver/callers_stream.rs`",
    ],
    [
        "`Uses` of a block of the pool: its memory is free behind one event of its stream",
        "an event of the context, and a poll",
        "`tests/driver/loops.rs`",
    ],
    [
        "`Reach` of a batch: small arrays share an event",
        "one event for each",
        "`tests/driver/shared_events.rs`",
    ],
    [
        "`Signal`: a thread that nobody awaits wakes nobody",
        "a condition variable alone",
        "`order/release/queue.rs`; `tests/driver/threads.rs`",
    ],
    [
        "`PIECES`: pinned memory for uploads stays with its context",
        "pinned anew for each upload",
        "`tests/driver/device_copies.rs`",
    ],
    [
        "`expected_device`: only the capsule is asked for in CuPy and JAX",
        "`__dlpack_device__` first",
        "`test_producers.py`",
    ],
    ["`imported`: a loaded module is read from `sys.modules`", "`import`", "`test_producers.py`"],
    [
        "`Keeper` and `array_over`: a result for NumPy by its C API",
        "an object of our class and `numpy.from_dlpack`",
        "`test_results.py`",
    ],
    [
        "`Tile`: two arrays of opposite orders are walked in tiles",
        "row by row",
        "`memory/host/loops.rs`, tests",
    ],
];

/// Returns what stands in backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[test]
fn every_shortcut_has_its_code_and_its_test() {
    let root = workspace::root();
    let code = files::texts_below(&root.join("interop-core/src"), &["rs"]);
    let tests = files::texts_below(&root.join("tests"), &["rs", "py"]);
    let measured = MEASURED.iter().map(|row| (row[0], row[5]));
    for (first, last) in measured.chain(OTHERS.iter().map(|row| (row[0], row[2]))) {
        // What the row quotes first is an item or a file; other words of the row may be those of Python.
        let name = quoted(first).next().unwrap_or_else(|| panic!("a row without code: {first}"));
        let name = name.rsplit("::").next().unwrap_or(name);
        let is_there = |(path, text): &(PathBuf, String)| text.contains(name) || path.ends_with(name);
        assert!(code.iter().any(is_there), "`{name}` is not in the code");
        assert!(quoted(last).next().is_some(), "nothing checks `{name}`");
        for test in quoted(last) {
            let is_test =
                |(path, _): &(PathBuf, String)| path.to_string_lossy().replace('\\', "/").contains(test);
            assert!(code.iter().chain(&tests).any(is_test), "`{test}` is no test");
        }
    }
}
