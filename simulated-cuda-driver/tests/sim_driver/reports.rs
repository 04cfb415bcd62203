//! Every kind of mistake, made on purpose. `races` tests unordered accesses in detail.

use simulated_cuda::{Mistake, Report};

use crate::driver::*;
use crate::fixture::Room;

#[test]
fn a_race() {
    let room = Room::new();
    let memory = room.memory(4);
    for stream in [room.stream(), room.stream()] {
        ok(cuMemsetD8Async(memory, 1, 4, stream));
    }
    ok(cuCtxSynchronize());
    room.expect(Mistake::Race, "unordered");
}

#[test]
fn a_use_after_the_free_in_order_or_not() {
    let room = Room::new();
    let [first, second] = [room.stream(), room.stream()];
    let [memory, other] = [0; 2].map(|_| get(|out| cuMemAllocAsync(out, 4, first)));
    ok(cuStreamSynchronize(first));
    let spin = room.sim.spin(first);
    ok(cuMemFreeAsync(memory, first));
    for value in 0..2 {
        ok(cuMemsetD8Async(memory, value, 4, first));
    }
    room.sim.release(spin);
    ok(cuStreamSynchronize(first));
    let reports = room.sim.take_reports();
    let after = |report: &Report| {
        report.mistake == Mistake::UseAfterFree
            && report.text.starts_with("free of 4 bytes")
            && report.text.ends_with("in this order")
    };
    assert!(reports.len() == 2 && reports.iter().all(after), "{reports:#?}");
    ok(cuMemsetD8Async(other, 1, 4, second));
    ok(cuMemFreeAsync(other, first));
    ok(cuCtxSynchronize());
    room.expect(Mistake::UseAfterFree, "unordered");
}

#[test]
fn a_use_before_the_allocation() {
    let room = Room::new();
    let memory = get(|out| cuMemAllocAsync(out, 4, room.stream()));
    ok(cuMemsetD8Async(memory, 1, 4, room.stream()));
    ok(cuCtxSynchronize());
    room.expect(Mistake::UseBeforeAllocation, "allocation of 4 bytes");
}

#[test]
fn a_second_free() {
    let room = Room::new();
    let memory = room.memory(4);
    ok(cuMemFree_v2(memory));
    assert_eq!(cuMemFree_v2(memory), code::INVALID_VALUE);
    room.expect(Mistake::DoubleFree, "was freed before");
}

#[test]
fn a_free_in_a_wrong_context() {
    let room = Room::new();
    let (device, pinned) = (room.memory(4), room.pinned(4));
    let managed = get(|out| cuMemAllocManaged(out, 4, 1));
    let pool = [0; 2].map(|_| get(|out| cuMemAllocAsync(out, 4, 0)));
    ok(cuCtxSynchronize());
    let same_device = get(|out| cuCtxCreate_v2(out, 0, 0));
    let frees: [(&dyn Fn() -> i32, &str); 3] = [
        (&|| cuMemFree_v2(device), "cuMemFree_v2"),
        (&|| cuMemFree_v2(managed), "cuMemFree_v2"),
        (&|| cuMemFreeHost(pinned.0), "cuMemFreeHost"),
    ];
    for (free, name) in frees {
        ok(free());
        room.expect(Mistake::WrongContext, name);
    }
    // Pool memory belongs to its device.
    ok(cuMemFree_v2(pool[0]));
    ok(cuCtxDestroy_v2(same_device));
    let other_device = get(|out| cuCtxCreate_v2(out, 0, 1));
    ok(cuMemFree_v2(pool[1]));
    room.expect(Mistake::WrongContext, "of device 1");
    ok(cuCtxDestroy_v2(other_device));
}

#[test]
fn an_event_that_nobody_keeps() {
    let room = Room::new();
    let before = room.event();
    let mark = room.sim.mark();
    let [kept, leaked, destroyed] = [room.event(), room.event(), room.event()];
    ok(cuEventDestroy_v2(destroyed));
    room.sim.report_leaked_events(mark, &[kept]);
    room.expect(Mistake::LeakedEvent, &format!("{leaked:#x}"));
    ok(cuEventDestroy_v2(leaked));
    room.sim.report_leaked_events(mark, &[kept]);
    room.sim.assert_no_reports();
    ok(cuEventDestroy_v2(before));
}

#[test]
fn a_wait_of_the_host_where_none_may_be() {
    let room = Room::new();
    let (stream, event, memory) = (room.stream(), room.event(), room.memory(4));
    let (mut host, spare) = ([0_u8; 4], room.memory(4));
    let host = crate::fixture::address_of_mut(&mut host);
    ok(cuEventRecord(event, stream));
    let waits: [(&str, &dyn Fn() -> i32); 6] = [
        ("cuStreamSynchronize", &|| cuStreamSynchronize(stream)),
        ("cuEventSynchronize", &|| cuEventSynchronize(event)),
        ("cuCtxSynchronize", &|| cuCtxSynchronize()),
        ("cuMemcpyDtoH_v2", &|| cuMemcpyDtoH_v2(host, memory, 4)),
        ("cuMemcpyDtoHAsync_v2", &|| cuMemcpyDtoHAsync_v2(host, memory, 4, stream)),
        ("cuMemFree_v2", &|| cuMemFree_v2(spare)),
    ];
    for (name, wait) in waits {
        let guard = room.sim.no_waits();
        ok(wait());
        drop(guard);
        let reports = room.sim.take_reports();
        let named = |report: &simulated_cuda::Report| report.text.starts_with(name);
        assert!(!reports.is_empty() && reports.iter().all(named), "{name}: {reports:?}");
        assert!(reports.iter().all(|report| report.mistake == Mistake::HostWait), "{reports:?}");
    }
    let guard = room.sim.no_waits();
    ok(cuMemsetD8Async(memory, 1, 4, stream));
    ok(cuEventRecord(event, stream));
    ok(cuStreamWaitEvent(0, event, 0));
    cuEventQuery(event);
    let context = room.context;
    let other = std::thread::spawn(move || {
        ok(cuCtxSetCurrent(context));
        cuCtxSynchronize()
    });
    ok(other.join().expect("the other thread"));
    drop(guard);
    ok(cuCtxSynchronize());
    room.sim.assert_no_reports();
}

#[test]
fn a_capture_that_is_spoilt() {
    let room = Room::new();
    let stream = room.stream();
    ok(cuStreamBeginCapture_v2(stream, 2));
    assert_eq!(cuCtxSynchronize(), code::UNSUPPORTED);
    assert_eq!(cuCtxSynchronize(), code::UNSUPPORTED);
    // Reported once: an invalidated capture cannot be invalidated again.
    room.expect(
        Mistake::Capture,
        &format!("cuCtxSynchronize spoils the capture that stream {stream:#x} began"),
    );
    assert_eq!(cuStreamEndCapture(stream, &mut 0), code::INVALIDATED);
}

#[test]
fn a_stream_that_was_destroyed() {
    let room = Room::new();
    let stream = room.stream();
    ok(cuStreamDestroy_v2(stream));
    assert_eq!(cuStreamIsCapturing(stream, &mut 0), code::DESTROYED);
    room.expect(Mistake::DestroyedStream, "cuStreamIsCapturing");
}

#[test]
fn an_event_that_was_destroyed() {
    let room = Room::new();
    let event = room.event();
    ok(cuEventDestroy_v2(event));
    assert_eq!(cuEventDestroy_v2(event), code::INVALID_HANDLE);
    room.expect(Mistake::DestroyedEvent, "cuEventDestroy_v2");
}

#[test]
fn an_access_out_of_bounds() {
    let room = Room::new();
    let memory = room.memory(4);
    assert_eq!(room.sim.read::<u8>(memory, 5), None);
    room.expect(Mistake::OutOfBounds, "end beyond the allocation of 4 bytes");
    assert_eq!(room.sim.read::<u8>(memory + 4, 1), None);
    room.expect(Mistake::OutOfBounds, "is in no allocation");
    room.sim.host_reads(memory, 4);
    room.expect(Mistake::OutOfBounds, "which only devices reach");
}

extern "C" fn calls_the_driver(_: u64) {
    assert_eq!(cuCtxSynchronize(), code::NOT_PERMITTED);
}

#[test]
fn a_call_from_a_host_function() {
    let room = Room::new();
    ok(cuLaunchHostFunc(0, calls_the_driver, 0));
    ok(cuCtxSynchronize());
    room.expect(Mistake::CallInside, "cuCtxSynchronize");
}

#[test]
fn a_kernel_without_a_function() {
    let room = Room::new();
    let text = c".version 7.0\n.target sm_70\n.entry nobody() { ret; }";
    let module = get(|out| cuModuleLoadData(out, text.as_ptr()));
    assert_eq!(cuModuleGetFunction(&mut 0, module, c"nobody".as_ptr()), code::NOT_FOUND);
    room.expect(Mistake::NoKernel, "nobody");
}
