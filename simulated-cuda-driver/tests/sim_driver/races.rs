//! Happens-before and races: what counts is synchronization, not the order in which operations happened to run.

use std::ffi::{CStr, c_void};
use std::ptr;

use simulated_cuda::{Arguments, Mistake, Policy, sim};

use crate::driver::*;
use crate::fixture::Room;

/// Returns two unordered streams, and memory that the first has a queued write to.
fn written(room: &Room) -> ([u64; 2], u64) {
    let (streams, memory) = ([room.stream(), room.stream()], room.memory(8));
    ok(cuMemsetD8Async(memory, 1, 8, streams[0]));
    (streams, memory)
}

/// Reads `memory` on a stream and runs everything. Returns the number of races.
#[track_caller]
fn races_of_a_read(room: &Room, memory: u64, stream: u64) -> usize {
    // The target is not initialized, because that would be work on the legacy stream.
    let target = get(|out| cuMemAlloc_v2(out, 8));
    ok(cuMemcpyDtoDAsync_v2(target, memory, 8, stream));
    ok(cuCtxSynchronize());
    room.expect_only(Mistake::Race)
}

/// Makes the stream `to` wait for the stream `from`.
fn edge(room: &Room, from: u64, to: u64) {
    let event = room.event();
    ok(cuEventRecord(event, from));
    ok(cuStreamWaitEvent(to, event, 0));
    ok(cuEventDestroy_v2(event));
}

#[test]
fn a_report_names_both_accesses_the_allocation_and_the_missing_edge() {
    let room = Room::new();
    let ([first, second], memory) = written(&room);
    ok(cuMemcpyDtoDAsync_v2(room.memory(4), memory + 2, 4, second));
    ok(cuCtxSynchronize());
    let text = room.expect(Mistake::Race, "an edge from operation");
    for part in [
        format!("write of 8 bytes at {memory:#x} by cuMemsetD8Async"),
        format!("read of 4 bytes at {:#x} by cuMemcpyDtoDAsync_v2", memory + 2),
        format!("(Device memory, 8 bytes at {memory:#x})"),
        format!("stream {second:#x} knows nothing of stream {first:#x}"),
    ] {
        assert!(text.contains(&part), "no {part:?} in {text}");
    }
}

#[test]
fn a_race_that_ran_in_the_right_order_is_one() {
    let room = Room::new();
    for policy in [Policy::Late, Policy::Random, Policy::Eager] {
        room.sim.set_policy(policy);
        let ([_, second], memory) = written(&room);
        room.sim.step();
        assert_eq!(room.peek(memory), 1, "the write has ended");
        assert_eq!(races_of_a_read(&room, memory, second), 1, "{policy:?}");
    }
}

#[test]
fn every_wait_of_the_host_orders() {
    let room = Room::new();
    let event = room.event();
    let waits: [(&str, &dyn Fn(u64) -> i32); 6] = [
        ("cuStreamSynchronize", &cuStreamSynchronize),
        ("cuCtxSynchronize", &|_| cuCtxSynchronize()),
        ("cuStreamQuery", &|stream| (0..9).map(|_| cuStreamQuery(stream)).min().unwrap_or(1)),
        ("cuEventSynchronize", &|stream| cuEventRecord(event, stream) + cuEventSynchronize(event)),
        ("cuEventQuery", &|stream| {
            cuEventRecord(event, stream) + (0..9).map(|_| cuEventQuery(event)).min().unwrap_or(1)
        }),
        ("cuMemFree", &|_| cuMemFree_v2(get(|out| cuMemAlloc_v2(out, 4)))),
    ];
    for (name, wait) in waits {
        let ([first, second], memory) = written(&room);
        assert_eq!(wait(first), code::OK, "{name}");
        assert_eq!(races_of_a_read(&room, memory, second), 0, "{name}");
        // A wait for other work orders nothing.
        let ([_, second], memory) = written(&room);
        ok(cuStreamSynchronize(second));
        assert_eq!(races_of_a_read(&room, memory, second), 1, "{name}");
    }
}

#[test]
fn an_edge_orders_one_way_and_what_was_before_it() {
    let room = Room::new();
    let ([first, second], memory) = written(&room);
    edge(&room, first, second);
    assert_eq!(races_of_a_read(&room, memory, second), 0);
    let ([first, second], memory) = written(&room);
    edge(&room, second, first);
    assert_eq!(races_of_a_read(&room, memory, second), 1, "the other way round");
    let ([first, second], memory) = written(&room);
    edge(&room, first, second);
    ok(cuMemsetD8Async(memory, 2, 8, first));
    assert_eq!(races_of_a_read(&room, memory, second), 1, "written again after the edge");
    let ([first, second], memory) = written(&room);
    let third = room.stream();
    edge(&room, first, third);
    edge(&room, third, second);
    assert_eq!(races_of_a_read(&room, memory, second), 0, "by way of a third stream");
}

#[test]
fn a_wait_for_what_has_ended_orders_as_well() {
    let room = Room::new();
    let ([first, second], memory) = written(&room);
    let event = room.event();
    ok(cuEventRecord(event, first));
    while room.sim.step() {}
    ok(cuStreamWaitEvent(second, event, 0));
    assert_eq!(races_of_a_read(&room, memory, second), 0);
}

#[test]
fn an_event_of_the_context_orders_all_its_streams() {
    let room = Room::new();
    let ([_, second], memory) = written(&room);
    let event = room.event();
    while room.sim.step() {}
    ok(cuCtxRecordEvent(room.context, event));
    ok(cuStreamWaitEvent(second, event, 0));
    assert_eq!(races_of_a_read(&room, memory, second), 0);
}

#[test]
fn the_legacy_stream_orders_blocking_streams_and_no_others() {
    let room = Room::new();
    let blocking = [room.blocking_stream(), room.blocking_stream()];
    let cases = [
        ([blocking[0], 1], 0),
        ([1, blocking[0]], 0),
        ([2, 1], 0),
        (blocking, 1),
        ([blocking[0], 2], 1),
        ([room.stream(), 1], 1),
        ([1, room.stream()], 1),
    ];
    for ([from, to], races) in cases {
        let memory = room.memory(8);
        ok(cuMemsetD8Async(memory, 1, 8, from));
        assert_eq!(races_of_a_read(&room, memory, to), races, "{from:#x} to {to:#x}");
    }
    // Any work on the legacy stream orders two blocking streams.
    let memory = room.memory(8);
    ok(cuMemsetD8Async(memory, 1, 8, blocking[0]));
    ok(cuEventRecord(room.event(), 1));
    assert_eq!(races_of_a_read(&room, memory, blocking[1]), 0);
}

#[test]
fn only_bytes_in_common_race_and_only_if_one_is_written() {
    let room = Room::new();
    let [first, second] = [room.stream(), room.stream()];
    let memory = room.memory(8);
    ok(cuMemsetD8Async(memory, 1, 4, first));
    ok(cuMemsetD8Async(memory + 4, 1, 4, second));
    ok(cuMemsetD8Async(memory + 3, 1, 1, first));
    ok(cuCtxSynchronize());
    assert_eq!(room.expect_only(Mistake::Race), 0);
    ok(cuMemsetD8Async(memory, 1, 5, first));
    ok(cuMemsetD8Async(memory + 4, 1, 4, second));
    ok(cuCtxSynchronize());
    assert_eq!(room.expect_only(Mistake::Race), 1);
    for stream in [first, second] {
        ok(cuMemcpyDtoDAsync_v2(room.memory(8), memory, 8, stream));
    }
    ok(cuCtxSynchronize());
    assert_eq!(room.expect_only(Mistake::Race), 0, "two that read");
}

/// A name, a function that queues work on memory on a stream, and whether it replaces the earlier use.
type Work<'a> = (&'a str, &'a dyn Fn(u64, u64), bool);

/// The history of an allocation keeps exactly what later uses may race with.
#[test]
fn a_later_use_stands_for_an_earlier_one_only_if_it_is_as_much() {
    let room = Room::new();
    let [target, other] = [room.memory(8), room.memory(8)];
    let seconds: [Work<'_>; 3] = [
        ("a write of all", &|memory, stream| ok(cuMemsetD8Async(memory, 2, 8, stream)), true),
        ("a write of a part", &|memory, stream| ok(cuMemsetD8Async(memory, 2, 4, stream)), false),
        ("a read", &|memory, stream| ok(cuMemcpyDtoDAsync_v2(target, memory, 8, stream)), false),
    ];
    for (name, use_it, stands) in seconds {
        let ([first, second], memory) = written(&room);
        edge(&room, first, second);
        use_it(memory, second);
        while room.sim.step() {}
        ok(cuMemcpyDtoDAsync_v2(other, memory + 4, 4, room.stream()));
        ok(cuCtxSynchronize());
        let text = room.expect(Mistake::Race, "read of 4 bytes");
        assert_eq!(text.contains(&format!("of stream {second:#x}), and")), stands, "{name}: {text}");
    }
}

#[test]
fn a_use_that_is_not_ordered_stands_for_nothing() {
    let room = Room::new();
    let ([first, second], memory) = written(&room);
    while room.sim.step() {}
    ok(cuMemsetD8Async(memory, 2, 8, second));
    while room.sim.step() {}
    assert_eq!(room.expect_only(Mistake::Race), 1);
    let third = room.stream();
    edge(&room, second, third);
    ok(cuMemcpyDtoDAsync_v2(room.memory(8), memory, 8, third));
    while room.sim.step() {}
    room.expect(Mistake::Race, &format!("stream {third:#x} knows nothing of stream {first:#x}"));
}

#[test]
fn memory_of_the_pool_is_ordered_from_its_allocation_to_its_free() {
    let room = Room::new();
    let [owner, user] = [room.stream(), room.stream()];
    let memory = get(|out| cuMemAllocAsync(out, 8, owner));
    edge(&room, owner, user);
    ok(cuMemsetD8Async(memory, 1, 8, user));
    edge(&room, user, owner);
    ok(cuMemFreeAsync(memory, owner));
    ok(cuCtxSynchronize());
    assert_eq!(room.expect_only(Mistake::UseAfterFree), 0);
    // Here the use has ended before the free is queued, so the data shows no error; the report still appears.
    let memory = get(|out| cuMemAllocAsync(out, 8, owner));
    edge(&room, owner, user);
    ok(cuMemsetD8Async(memory, 1, 8, user));
    while room.sim.step() {}
    ok(cuMemFreeAsync(memory, owner));
    room.expect(Mistake::UseAfterFree, "an edge from operation");
}

const PTX: &CStr = c".version 7.0\n.target sm_70\n.entry says() { ret; }\n.entry silent() { ret; }";

/// `says(const unsigned char *from, unsigned char *to)`, four bytes each
extern "C" fn says(_: *const u32, _: *const u32, _: u32, parameters: *const *const c_void) {
    // SAFETY: the driver passes the registered parameters.
    let arguments = unsafe { Arguments::new(parameters) };
    // SAFETY: the parameters are registered with this type.
    let from = unsafe { arguments.get::<u64>(0) };
    // SAFETY: as above.
    let to = unsafe { arguments.get::<u64>(1) };
    let _ = (sim().read::<u8>(from, 4), sim().write::<u8>(to, 4));
}

/// Takes the same parameters and declares no access.
extern "C" fn silent(_: *const u32, _: *const u32, _: u32, _: *const *const c_void) {}

#[test]
fn a_kernel_that_says_nothing_is_taken_to_write_what_it_is_handed() {
    let room = Room::new();
    let module = get(|out| cuModuleLoadData(out, PTX.as_ptr()));
    room.sim.register_kernel("says", &[8, 8], says);
    room.sim.register_kernel("silent", &[8, 8], silent);
    let [first, second] = [room.stream(), room.stream()];
    for (name, races) in [(c"says", 0), (c"silent", 1)] {
        let function = get(|out| cuModuleGetFunction(out, module, name.as_ptr()));
        let [from, to] = [room.memory(8), room.memory(8)];
        let parameters = [ptr::from_ref(&from).cast(), ptr::from_ref(&to).cast::<c_void>()];
        let values = parameters.as_ptr();
        ok(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, first, values, ptr::null()));
        // Both read the first four bytes. What the kernel does with the last four bytes is unknown.
        ok(cuMemcpyDtoDAsync_v2(room.memory(8), from, 4, second));
        ok(cuMemsetD8Async(to + 4, 1, 4, second));
        ok(cuCtxSynchronize());
        assert_eq!(room.expect_only(Mistake::Race), races * 2, "{name:?}");
    }
}

#[test]
fn what_the_host_does_with_memory_that_it_shares_is_declared() {
    let room = Room::new();
    let ([first, _], pinned) = ([room.stream(), room.stream()], room.pinned(8));
    ok(cuMemsetD8Async(pinned.0, 1, 8, first));
    ok(cuStreamSynchronize(first));
    room.sim.host_reads(pinned.0, 8);
    ok(cuMemsetD8Async(pinned.0, 2, 8, first));
    while room.sim.step() {}
    room.sim.host_reads(pinned.0 + 7, 1);
    room.expect(Mistake::Race, "by the program");
    ok(cuStreamSynchronize(first));
    // A host access comes before everything that the host requests later.
    room.sim.host_writes(pinned.0, 8);
    ok(cuMemsetD8Async(pinned.0, 3, 8, first));
    ok(cuCtxSynchronize());
}

extern "C" fn writes_on_the_host(address: u64) {
    sim().host_writes(address, 8);
}

#[test]
fn a_host_function_is_in_the_order_of_its_stream() {
    let room = Room::new();
    let ([first, second], pinned) = ([room.stream(), room.stream()], room.pinned(8));
    ok(cuMemsetD8Async(pinned.0, 1, 8, first));
    ok(cuLaunchHostFunc(first, writes_on_the_host, pinned.0));
    ok(cuCtxSynchronize());
    assert_eq!(room.expect_only(Mistake::Race), 0);
    ok(cuMemsetD8Async(pinned.0, 1, 8, first));
    ok(cuLaunchHostFunc(second, writes_on_the_host, pinned.0));
    ok(cuCtxSynchronize());
    assert_eq!(room.expect_only(Mistake::Race), 1);
}

#[test]
fn nodes_of_a_graph_are_ordered_by_its_edges_only() {
    let room = Room::new();
    let [origin, branch, outside] = [room.stream(), room.stream(), room.stream()];
    for (joined, races) in [(true, 0), (false, 1)] {
        let memory = room.memory(8);
        ok(cuStreamBeginCapture_v2(origin, 0));
        edge(&room, origin, branch);
        ok(cuMemsetD8Async(memory, 1, 8, branch));
        if joined {
            edge(&room, branch, origin);
        }
        ok(cuMemsetD8Async(memory, 2, 8, origin));
        edge(&room, branch, origin);
        let graph = get(|out| cuStreamEndCapture(origin, out));
        for _ in 0..2 {
            ok(cuGraphLaunch(graph, origin));
            ok(cuCtxSynchronize());
            assert_eq!(room.expect_only(Mistake::Race), races, "in each launch");
        }
        ok(cuGraphLaunch(graph, origin));
        edge(&room, origin, outside);
        assert_eq!(races_of_a_read(&room, memory, outside), races, "the end of a launch is an edge");
        ok(cuGraphLaunch(graph, origin));
        assert!(races_of_a_read(&room, memory, outside) > races, "without it none is");
        ok(cuGraphDestroy(graph));
    }
}

#[test]
fn running_everything_orders_what_comes_after() {
    let room = Room::new();
    let ([_, second], memory) = written(&room);
    room.sim.run_all();
    assert_eq!(races_of_a_read(&room, memory, second), 0);
}

#[test]
fn a_call_that_is_lost_orders_nothing() {
    let room = Room::new();
    let event = room.event();
    for (name, before) in [("cuStreamWaitEvent", 0), ("cuStreamWaitEvent", 1), ("cuCtxRecordEvent", 0)] {
        let ([first, second], memory) = written(&room);
        room.sim.lose(name, before);
        ok(cuStreamWaitEvent(first, event, 0));
        ok(cuCtxRecordEvent(room.context, event));
        ok(cuStreamWaitEvent(second, event, 0));
        // The first wait has no effect on this read.
        let races = usize::from((name, before) != ("cuStreamWaitEvent", 0));
        assert_eq!(races_of_a_read(&room, memory, second), races, "{name} after {before}");
        let ([_, second], memory) = written(&room);
        ok(cuCtxRecordEvent(room.context, event));
        ok(cuStreamWaitEvent(second, event, 0));
        assert_eq!(races_of_a_read(&room, memory, second), 0, "the next is not lost");
    }
}
