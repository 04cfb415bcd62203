//! Which frees wait for running work, and what is reported after those that do not.

use simulated_cuda::Mistake;

use crate::driver::*;
use crate::fixture::Room;

/// Returns pool memory that is ready for use on every stream.
fn pool_memory(stream: u64) -> u64 {
    let memory = get(|out| cuMemAllocAsync(out, 4, stream));
    ok(cuStreamSynchronize(stream));
    memory
}

#[test]
fn a_free_of_plain_memory_waits_for_all_work_of_the_device() {
    let room = Room::new();
    let managed = get(|out| cuMemAllocManaged(out, 4, 1));
    let memory = room.memory(4);
    let pinned = room.pinned(4);
    let frees: [(&dyn Fn() -> i32, &str); 3] = [
        (&|| cuMemFree_v2(memory), "device"),
        (&|| cuMemFree_v2(managed), "managed"),
        (&|| cuMemFreeHost(pinned.0), "pinned"),
    ];
    for (free, what) in frees {
        let spin = room.sim.spin(room.stream());
        ok(free());
        assert!(!room.sim.is_pending(spin), "{what}");
    }
}

#[test]
fn a_free_of_plain_memory_does_not_wait_for_another_device() {
    let room = Room::new();
    let memory = room.memory(4);
    let other = get(|out| cuCtxCreate_v2(out, 0, 1));
    let spin = room.sim.spin(room.stream());
    ok(cuMemFree_v2(memory));
    assert!(room.sim.is_pending(spin));
    room.expect(Mistake::WrongContext, "of device 0, and is freed in context");
    ok(cuCtxDestroy_v2(other));
}

#[test]
fn frees_of_pool_memory_wait_for_nothing() {
    let room = Room::new();
    let [idle, busy] = [room.stream(), room.stream()];
    let memories = [pool_memory(idle), pool_memory(idle)];
    let spin = room.sim.spin(busy);
    ok(cuMemFree_v2(memories[0]));
    ok(cuMemFreeAsync(memories[1], idle));
    assert!(room.sim.is_pending(spin));
    assert_eq!(cuPointerGetAttribute(&mut 0, 2, memories[1]), code::INVALID_VALUE, "freed at once");
}

#[test]
fn a_release_that_is_too_early_is_an_error_every_time() {
    let room = Room::new();
    for seed in 0..20 {
        room.sim.set_seed(seed);
        let [owner, user] = [room.stream(), room.stream()];
        let memory = pool_memory(owner);
        ok(cuMemsetD8Async(memory, 1, 4, user));
        ok(cuMemFreeAsync(memory, owner));
        ok(cuStreamSynchronize(user));
        room.expect(Mistake::UseAfterFree, "unordered");
    }
}

#[test]
fn a_release_after_an_edge_is_none() {
    let room = Room::new();
    for seed in 0..20 {
        room.sim.set_seed(seed);
        let [owner, user] = [room.stream(), room.stream()];
        let (memory, event) = (pool_memory(owner), room.event());
        ok(cuMemsetD8Async(memory, 1, 4, user));
        ok(cuEventRecord(event, user));
        ok(cuStreamWaitEvent(owner, event, 0));
        ok(cuMemFreeAsync(memory, owner));
        ok(cuCtxSynchronize());
        room.sim.assert_no_reports();
    }
}

#[test]
fn pool_memory_is_there_in_the_order_of_its_stream_only() {
    let room = Room::new();
    let [owner, user] = [room.stream(), room.stream()];
    let memory = get(|out| cuMemAllocAsync(out, 4, owner));
    ok(cuMemsetD8Async(memory, 1, 4, user));
    ok(cuStreamSynchronize(user));
    room.expect(Mistake::UseBeforeAllocation, "unordered");
    ok(cuMemsetD8Async(memory, 1, 4, owner));
    ok(cuStreamSynchronize(owner));
    assert_eq!(room.peek(memory), 1);
    ok(cuMemFreeAsync(memory, owner));
}

#[test]
fn a_second_free_is_an_error_also_before_the_first_has_run() {
    let room = Room::new();
    let stream = room.stream();
    let memory = pool_memory(stream);
    let spin = room.sim.spin(stream);
    ok(cuMemFreeAsync(memory, stream));
    assert_eq!(cuMemFreeAsync(memory, stream), code::INVALID_VALUE);
    room.expect(Mistake::DoubleFree, "is being freed already");
    assert_eq!(cuMemFree_v2(memory), code::INVALID_VALUE);
    room.expect(Mistake::DoubleFree, "is being freed already");
    room.sim.release(spin);
    assert_eq!(cuMemFreeAsync(memory, stream), code::INVALID_VALUE);
    room.expect(Mistake::DoubleFree, "was freed before");
}
