//! Each driver call fails once, wherever it is made: the caller receives the error, and nothing leaks or is lost.

use std::panic::{AssertUnwindSafe, catch_unwind};

use interop_core::cuda::{
    CudaBuffer, MemoryKind, device_count, finish_releases, pending_releases, poll_releases,
    stream_synchronize, stream_wait,
};
use interop_core::{CudaArray, DType, Device, Error, Import, StreamHandle};
use simulated_cuda::{Live, Mistake};

use crate::counted_imports::{arrive, drained, tell};
use crate::cuda_program::{LARGE, Place, current, thread_mode};
use crate::exclusive_driver::{Turn, first_gpu, started, turn};
use crate::support::arrays::Array;
use crate::support::run_alone;

const GPU: Device = Device::cuda(0);

/// `CUDA_ERROR_OUT_OF_MEMORY`, `CUDA_ERROR_NOT_PERMITTED` and `CUDA_ERROR_UNKNOWN`: one that may pass, one that may
/// not, and one that says nothing.
const CODES: [i32; 3] = [2, 800, 999];

/// The functions that the library may call, by their exported names.
const FUNCTIONS: [&str; 34] = [
    "cuCtxGetApiVersion",
    "cuCtxGetCurrent",
    "cuCtxGetDevice",
    "cuCtxGetId",
    "cuCtxPushCurrent_v2",
    "cuCtxRecordEvent",
    "cuCtxSynchronize",
    "cuDeviceGetCount",
    "cuDevicePrimaryCtxGetState",
    "cuDevicePrimaryCtxRetain",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuMemAllocFromPoolAsync",
    "cuMemAllocManaged",
    "cuMemAlloc_v2",
    "cuMemFreeAsync",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemcpyAsync",
    "cuMemsetD8Async",
    "cuPointerGetAttribute",
    "cuPointerGetAttributes",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamGetCaptureInfo_v2",
    "cuStreamGetCtx",
    "cuStreamIsCapturing",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuThreadExchangeStreamCaptureMode",
];

/// Failing frees are not tested, because the memory would be lost.
fn is_a_free(name: &str) -> bool {
    name.starts_with("cuMemFree")
}

/// Runs `work` once for each driver call in it and makes that call fail. `matters` names the functions whose failure
/// must be reported.
fn fail_each(turn: &Turn, what: &str, matters: &[&str], work: &dyn Fn() -> Result<(), Error>) {
    work().unwrap_or_else(|error| panic!("{what}, undisturbed: {error}"));
    assert_eq!(finish_releases(), 0);
    turn.reset_calls();
    work().unwrap_or_else(|error| panic!("{what}, undisturbed: {error}"));
    let called = FUNCTIONS.map(|name| (name, turn.calls(name)));
    assert_eq!(finish_releases(), 0);
    assert!(
        matters.iter().all(|name| called.contains(&(name, 1)) || turn.calls(name) > 0),
        "{what}: {called:?}"
    );
    let kept = [Live::Allocations, Live::Contexts, Live::Streams].map(|kind| turn.live(kind));
    for (name, code) in called
        .into_iter()
        .filter(|(name, count)| *count > 0 && !is_a_free(name))
        .flat_map(|(name, _)| CODES.map(|code| (name, code)))
    {
        turn.fail_next(name, code);
        let answer = catch_unwind(AssertUnwindSafe(work));
        turn.clear_faults();
        let answer = answer.unwrap_or_else(|_| panic!("{what}: {name} fails with {code}: a panic"));
        // If memory runs out, the pools return what they keep, and the call is repeated.
        let is_repeated = matches!((name, code), ("cuMemAlloc_v2" | "cuMemAllocFromPoolAsync", 2));
        if is_repeated {
            answer.unwrap_or_else(|error| panic!("{what}: {error}"));
        } else if matters.contains(&name) {
            let error = answer.expect_err(&format!("{what}: the failure of {name} is kept secret"));
            assert!(error.to_string().contains(&format!("({code})")), "{what}: {error}");
            assert_eq!(error.location(), name, "{what}: {error}");
        }
        turn.run_all();
        assert_eq!(finish_releases(), 0, "{what}: {name} fails with {code}");
        let left = [Live::Allocations, Live::Contexts, Live::Streams].map(|kind| turn.live(kind));
        assert_eq!(left, kept, "{what}: {name} fails with {code}");
        assert_eq!((current(), thread_mode()), (None, 0), "{what}: {name} fails with {code}");
    }
}

#[test]
fn an_edge() {
    let (turn, place) = first_gpu();
    let (one, two) = (place.non_blocking().handle(), place.non_blocking().handle());
    let between = ["cuEventRecord", "cuStreamWaitEvent", "cuStreamIsCapturing", "cuStreamGetCtx"];
    fail_each(&turn, "between handles", &between, &|| stream_wait(two, one, GPU));
    let legacy = StreamHandle::LegacyDefault;
    let default = [
        "cuEventRecord",
        "cuStreamWaitEvent",
        "cuStreamIsCapturing",
        "cuCtxPushCurrent_v2",
        "cuCtxGetCurrent",
    ];
    fail_each(&turn, "from a default stream", &default, &|| stream_wait(two, legacy, GPU));
    fail_each(&turn, "to a default stream", &default, &|| stream_wait(legacy, one, GPU));
    fail_each(&turn, "between default streams", &default, &|| {
        stream_wait(legacy, StreamHandle::PerThreadDefault, GPU)
    });
    stream_wait(two, one, GPU).unwrap();
}

#[test]
fn an_event_that_cannot_be_made() {
    let turn = turn();
    // Each try uses a new context, which has no event yet.
    for code in CODES {
        let own = Place::foreign(0);
        let (one, two) = (own.non_blocking().handle(), own.non_blocking().handle());
        turn.fail_next("cuEventCreate", code);
        let error = stream_wait(two, one, GPU).unwrap_err();
        assert!(error.found().contains(&format!("({code})")), "{error}");
        turn.clear_faults();
        stream_wait(two, one, GPU).unwrap();
        own.destroy();
    }
}

#[test]
fn a_wait_of_the_host() {
    let (turn, place) = first_gpu();
    let stream = place.non_blocking().handle();
    let matters = ["cuEventRecord", "cuEventSynchronize", "cuStreamIsCapturing", "cuStreamGetCtx"];
    fail_each(&turn, "a wait", &matters, &|| stream_synchronize(stream, Device::CUDA_HOST));
}

#[test]
fn an_import_and_its_release() {
    let (turn, place) = first_gpu();
    let cases = [
        (place.bytes(0, 64), GPU),
        (place.pool(0, 64), GPU),
        (place.pinned(0, 64), Device::CUDA_HOST),
        (place.managed(0, 64), Device::CUDA_MANAGED),
    ];
    for (bytes, device) in cases {
        fail_each(&turn, &device.to_string(), &["cuPointerGetAttributes"], &|| {
            let (ledger, tensor) = tell(&bytes, device);
            let import = Import::from_dlpack(tensor).map(drop).map_err(Error::from);
            turn.run_all();
            while finish_releases() != 0 {}
            assert_eq!(ledger.released(), 1, "{device}");
            import
        });
    }
}

/// Whatever fails while a release is recorded, it still waits for the pending work.
#[test]
fn a_release_beside_pending_work_waits_although_a_call_fails() {
    let (turn, place) = first_gpu();
    let data = place.bytes(0, 64);
    let names = [
        "cuCtxGetApiVersion",
        "cuCtxGetCurrent",
        "cuCtxPushCurrent_v2",
        "cuCtxRecordEvent",
        "cuEventCreate",
        "cuEventQuery",
        "cuStreamIsCapturing",
        "cuThreadExchangeStreamCaptureMode",
    ];
    for (name, code) in names.into_iter().flat_map(|name| CODES.map(|code| (name, code))) {
        let (ledger, import) = arrive(&data, GPU);
        let spin = place.non_blocking().spin();
        turn.fail_next(name, code);
        drop(import);
        turn.fail_next(name, code);
        poll_releases();
        turn.clear_faults();
        assert_eq!((drained(), ledger.released()), (1, 0), "{name} fails with {code}");
        turn.release(spin);
        assert_eq!((drained(), ledger.released(), thread_mode()), (0, 1, 0), "{name} fails with {code}");
    }
}

/// Any context may use the memory, and the driver does not report which contexts are in use. The work is pending in
/// the other device's context.
#[test]
fn a_release_waits_while_nobody_says_which_contexts_are_in_use() {
    let turn = turn();
    let (place, other) = (Place::primary(0), Place::primary(1));
    for code in CODES {
        for (data, device) in
            [(place.pinned(0, 64), Device::CUDA_HOST), (place.managed(0, 64), Device::CUDA_MANAGED)]
        {
            let (ledger, import) = arrive(&data, device);
            let spin = other.non_blocking().spin();
            for _ in 0..2 {
                // The query for the first device succeeds, and the one for the second fails.
                turn.fail_next("cuDevicePrimaryCtxGetState", 0);
                turn.fail_next("cuDevicePrimaryCtxGetState", code);
            }
            drop(import);
            assert_eq!((poll_releases(), ledger.released()), (1, 0), "{device} after {code}");
            turn.clear_faults();
            assert_eq!((drained(), ledger.released(), turn.is_pending(spin)), (1, 0, true), "{device}");
            turn.release(spin);
            assert_eq!((drained(), ledger.released()), (0, 1), "{device} after {code}");
        }
    }
}

/// A lost device runs nothing any more, so it keeps no memory and does not block waits for other devices.
#[test]
fn a_device_that_is_lost_is_waited_for_by_nobody() {
    let turn = turn();
    let data = Place::primary(0).pinned(0, LARGE);
    let (ledger, import) = arrive(&data, Device::CUDA_HOST);
    let spin = Place::primary(0).non_blocking().spin();
    turn.fail_next("cuDevicePrimaryCtxGetState", 0);
    turn.fail_next("cuDevicePrimaryCtxGetState", 226);
    drop(import);
    assert_eq!((turn.calls("cuDevicePrimaryCtxGetState"), ledger.released()), (2, 0));
    turn.release(spin);
    assert_eq!((drained(), ledger.released()), (0, 1));
}

/// The number of devices is queried once; only a failed query is repeated.
#[test]
fn a_count_of_devices_that_failed_is_asked_for_again() {
    run_alone("failing_calls::a_count_of_devices_that_failed_is_asked_for_again", || {
        let sim = started();
        let (data, other) = (Place::primary(0).pinned(0, LARGE), Place::primary(1).non_blocking());
        let (ledger, import) = arrive(&data, Device::CUDA_HOST);
        let spin = other.spin();
        sim.fail_next("cuDeviceGetCount", 999);
        drop(import);
        assert_eq!((pending_releases(), ledger.released(), device_count()), (1, 0, 2));
        sim.release(spin);
        assert_eq!((drained(), ledger.released(), sim.calls("cuDeviceGetCount")), (0, 1, 2));
    });
}

/// The caller promises the location of the memory, not for the absence of pending work.
#[test]
#[expect(unsafe_code, reason = "the promise of who trusts")]
fn a_trusted_import_waits_although_its_context_cannot_be_had() {
    run_alone("failing_calls::a_trusted_import_waits_although_its_context_cannot_be_had", || {
        let sim = started();
        let place = Place::primary(0);
        let data = place.bytes(0, 64);
        let (ledger, tensor) = tell(&data, GPU);
        sim.fail_next("cuDevicePrimaryCtxRetain", 2);
        // SAFETY: the tensor describes its memory correctly.
        let import = unsafe { Import::from_dlpack_unchecked(tensor) }.unwrap();
        let spin = place.non_blocking().spin();
        drop(import);
        assert_eq!((drained(), ledger.released()), (1, 0));
        sim.release(spin);
        assert_eq!((drained(), ledger.released()), (0, 1));
    });
}

/// After a kernel failed nothing runs in its context any more, and every call fails there.
#[test]
fn a_context_that_is_broken_keeps_nothing() {
    let turn = turn();
    let data = Place::primary(0).bytes(0, LARGE);
    // The errors after which, according to `CUresult`, each call fails or the process must be ended.
    let broken = [700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 226, 810, 911];
    for (name, code) in ["cuCtxRecordEvent", "cuEventQuery", "cuStreamIsCapturing"]
        .into_iter()
        .flat_map(|name| broken.map(|code| (name, code)))
        // A live context returns this code for an event that is no longer valid, and another event is used.
        .filter(|call| *call != ("cuCtxRecordEvent", 709))
    {
        let (ledger, import) = arrive(&data, GPU);
        let spin = Place::primary(0).non_blocking().spin();
        turn.fail_next(name, code);
        drop(import);
        assert_eq!(ledger.released(), 1, "{name} fails with {code}");
        turn.release(spin);
    }
    // The last code is the answer for an event that was destroyed with its context and whose handle was reused.
    for code in [719, 709, 400] {
        let (ledger, import) = arrive(&data, GPU);
        let spin = Place::primary(0).non_blocking().spin();
        drop(import);
        turn.fail_next("cuEventQuery", code);
        assert_eq!((poll_releases(), ledger.released()), (0, 1), "{code}");
        turn.release(spin);
    }
}

/// A failed wait is repeated.
#[test]
fn a_wait_that_fails_releases_nothing() {
    let (turn, place) = first_gpu();
    let data = place.bytes(0, LARGE);
    for (name, code) in
        ["cuEventSynchronize", "cuCtxGetCurrent"].map(|name| CODES.map(|code| (name, code))).concat()
    {
        let (ledger, import) = arrive(&data, GPU);
        place.non_blocking().spin();
        drop(import);
        turn.fail_next(name, code);
        assert_eq!((finish_releases(), ledger.released()), (1, 0), "{name} fails with {code}");
        assert_eq!((finish_releases(), ledger.released()), (0, 1), "{name} fails with {code}");
    }
}

/// Without an event for the whole context the host waits for it, which an undetected capture forbids. The driver's
/// error does not mean that the work has finished.
#[test]
fn a_wait_that_a_capture_forbids_releases_nothing() {
    let (turn, place) = first_gpu();
    let (data, captures) = (place.bytes(0, 64), place.non_blocking());
    let (ledger, import) = arrive(&data, GPU);
    let spin = place.non_blocking().spin();
    for _ in 0..2 {
        turn.fail_next("cuCtxRecordEvent", 500);
    }
    drop(import);
    captures.begin();
    assert_eq!((finish_releases(), ledger.released(), turn.is_pending(spin)), (1, 0, true));
    assert!(!captures.end(), "it is spoiled, loudly");
    turn.expect(Mistake::Capture);
    assert_eq!((finish_releases(), ledger.released()), (0, 1));
}

#[test]
fn an_export_whose_pointer_cannot_be_asked_about_is_released_in_order() {
    let (turn, place) = first_gpu();
    let data = place.bytes(0, 64);
    let (ledger, import) = arrive(&data, GPU);
    let array = <Array<interop_core::LeaseMut<i16>> as interop_core::FromArray>::from_import(import).unwrap();
    turn.fail_next("cuPointerGetAttributes", 999);
    let tensor = array.into_dlpack().unwrap();
    let spin = place.non_blocking().spin();
    drop(tensor);
    assert_eq!((drained() > 0, ledger.released()), (true, 0));
    turn.release(spin);
    assert_eq!((drained(), ledger.released()), (0, 1));
}

#[test]
fn a_buffer_of_each_kind() {
    let turn = turn();
    let kinds = [
        (MemoryKind::Device, "cuMemAlloc_v2"),
        (MemoryKind::Pool, "cuMemAllocFromPoolAsync"),
        (MemoryKind::Pinned, "cuMemHostAlloc"),
        (MemoryKind::Managed, "cuMemAllocManaged"),
    ];
    for (kind, allocates) in kinds {
        let made = [allocates, "cuMemsetD8Async", "cuStreamSynchronize", "cuCtxPushCurrent_v2"];
        fail_each(&turn, &format!("{kind:?}"), &made, &|| {
            CudaBuffer::zeroed(kind, 0, DType::F32, 16).map(drop)
        });
        let copied = [allocates, "cuMemcpyAsync"];
        fail_each(&turn, &format!("{kind:?} of a slice"), &copied, &|| {
            CudaBuffer::from_slice(kind, 0, &[1_u8, 2, 3]).map(drop)
        });
    }
}

#[test]
fn a_copy_to_the_host() {
    let turn = turn();
    for kind in [MemoryKind::Device, MemoryKind::Pool] {
        let array = Array::new(CudaBuffer::from_slice(kind, 1, &[1_u8, 2, 3]).unwrap(), &[3]);
        fail_each(&turn, &format!("{kind:?}"), &["cuMemcpyAsync", "cuStreamSynchronize"], &|| {
            array.to_vec::<u8>().map(|elements| assert_eq!(elements, [1, 2, 3]))
        });
    }
    assert_eq!((finish_releases(), pending_releases()), (0, 0));
}
