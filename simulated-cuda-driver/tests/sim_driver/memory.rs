//! Allocations: who can access them, and when they are freed.

use simulated_cuda::{Live, Mistake};

use crate::driver::*;
use crate::fixture::{Room, address_of, alone, signal, touch};

/// `SIGSEGV`.
const FAULT: i32 = 11;

#[test]
fn the_host_faults_on_device_memory() {
    let inside = || {
        let room = Room::new();
        touch(room.memory(4));
    };
    let Some(output) = alone("memory::the_host_faults_on_device_memory", &[], inside) else { return };
    assert_eq!(signal(&output), Some(FAULT), "{output:?}");
}

#[test]
fn the_host_faults_on_freed_pinned_memory() {
    let inside = || {
        let room = Room::new();
        let pinned = room.pinned(4);
        assert_eq!(pinned.first(), 0);
        ok(cuMemFreeHost(pinned.0));
        pinned.first();
    };
    let Some(output) = alone("memory::the_host_faults_on_freed_pinned_memory", &[], inside) else { return };
    assert_eq!(signal(&output), Some(FAULT), "{output:?}");
}

#[test]
fn addresses_are_not_used_again() {
    let room = Room::new();
    let mut seen = Vec::new();
    for _ in 0..100 {
        let memory = room.memory(100);
        assert!(!seen.contains(&memory));
        assert_eq!(memory % 512, 0);
        seen.push(memory);
        ok(cuMemFree_v2(memory));
    }
}

#[test]
fn fresh_memory_holds_no_zeros() {
    let room = Room::new();
    let memory = get(|out| cuMemAlloc_v2(out, 4));
    assert_eq!(room.peek(memory), 0xcd);
}

#[test]
fn managed_and_pinned_memory_is_one_for_host_and_device() {
    let room = Room::new();
    let managed = get(|out| cuMemAllocManaged(out, 4, 1));
    ok(cuMemsetD8_v2(managed, 7, 4));
    assert_eq!(touch(managed), 7);
    let pinned = room.pinned(4);
    assert_eq!(get(|out| cuMemHostGetDevicePointer_v2(out, pinned.0, 0)), pinned.0);
    ok(cuMemsetD8_v2(pinned.0, 8, 4));
    assert_eq!(pinned.first(), 8);
    assert_eq!(cuMemAllocManaged(&mut 0, 4, 0), code::INVALID_VALUE);
}

#[test]
fn host_memory_is_registered_once() {
    let room = Room::new();
    let host = vec![0_u8; 64];
    let address = address_of(&host);
    ok(cuMemHostRegister_v2(address, 64, 0));
    assert_eq!(cuMemHostRegister_v2(address + 32, 64, 0), 712);
    let memory = room.memory(64);
    ok(cuMemsetD8_v2(memory, 5, 64));
    ok(cuStreamSynchronize(0));
    let stream = room.stream();
    ok(cuMemcpyDtoHAsync_v2(address, memory, 64, stream));
    assert_eq!(touch(address), 0, "a copy to registered memory is queued");
    ok(cuStreamSynchronize(0));
    ok(cuStreamSynchronize(stream));
    assert_eq!(touch(address), 5);
    ok(cuMemHostUnregister(address));
    assert_eq!(cuMemHostUnregister(address), 713);
}

#[test]
fn memory_is_freed_once_and_by_its_own_function() {
    let room = Room::new();
    let device = room.memory(4);
    let pinned = room.pinned(4);
    assert_eq!(cuMemFreeHost(device), code::INVALID_VALUE);
    assert_eq!(cuMemFree_v2(pinned.0), code::INVALID_VALUE);
    assert_eq!(cuMemFree_v2(device + 1), code::INVALID_VALUE);
    ok(cuMemFree_v2(device));
    room.sim.assert_no_reports();
    assert_eq!(cuMemFree_v2(device), code::INVALID_VALUE);
    room.expect(Mistake::DoubleFree, "was freed before");
}

#[test]
fn a_device_has_an_end() {
    let room = Room::new();
    let (mut free, mut total) = (0, 0);
    ok(cuMemGetInfo_v2(&mut free, &mut total));
    assert_eq!(cuMemAlloc_v2(&mut 0, total + 1), code::OUT_OF_MEMORY);
    assert_eq!(cuMemAlloc_v2(&mut 0, 0), code::INVALID_VALUE);
    let memory = room.memory(1000);
    let mut left = 0;
    ok(cuMemGetInfo_v2(&mut left, &mut total));
    assert_eq!(left, free - 1000);
    ok(cuMemFree_v2(memory));
}

#[test]
fn live_allocations_are_counted() {
    let room = Room::new();
    let before = room.sim.live(Live::Allocations);
    let memory = room.memory(4);
    assert_eq!(room.sim.live(Live::Allocations), before + 1);
    ok(cuMemFree_v2(memory));
    assert_eq!(room.sim.live(Live::Allocations), before);
}
