//! Pointer attributes.

use crate::driver::*;
use crate::fixture::{Room, address_of, address_of_mut};

const CONTEXT: i32 = 1;
const MEMORY_TYPE: i32 = 2;
const DEVICE_POINTER: i32 = 3;
const HOST_POINTER: i32 = 4;
const IS_MANAGED: i32 = 8;
const ORDINAL: i32 = 9;
const RANGE_START: i32 = 11;
const RANGE_SIZE: i32 = 12;
const MAPPED: i32 = 13;
const POOL: i32 = 17;
const ALL: [i32; 10] = [
    CONTEXT,
    MEMORY_TYPE,
    DEVICE_POINTER,
    HOST_POINTER,
    IS_MANAGED,
    ORDINAL,
    RANGE_START,
    RANGE_SIZE,
    MAPPED,
    POOL,
];

/// Returns all attributes of an address in one call. Half of them are four bytes; their upper halves are not written.
fn attributes(address: u64) -> [u64; 10] {
    let mut values = [0; 10];
    let places: Vec<u64> =
        values.iter_mut().map(|value| std::ptr::from_mut(value).expose_provenance() as u64).collect();
    ok(cuPointerGetAttributes(10, ALL.as_ptr(), places.as_ptr(), address));
    values
}

#[test]
fn each_kind_of_memory_is_told_apart() {
    let room = Room::new();
    let context = room.context;
    let device = room.memory(100);
    assert_eq!(attributes(device + 10), [context, 2, device + 10, 0, 0, 0, device, 100, 1, 0]);
    let managed = get(|out| cuMemAllocManaged(out, 100, 1));
    assert_eq!(attributes(managed), [context, 2, managed, managed, 1, 0, managed, 100, 1, 0]);
    let pinned = room.pinned(100).0;
    assert_eq!(attributes(pinned), [context, 1, pinned, pinned, 0, 0, pinned, 100, 1, 0]);
    let stream = room.stream();
    let pool = get(|out| cuMemAllocAsync(out, 100, stream));
    let [owner, kind, .., handle] = attributes(pool);
    assert_eq!((owner, kind), (0, 2), "memory of a pool belongs to no context");
    assert_ne!(handle, 0);
    ok(cuMemFreeAsync(pool, stream));
}

#[test]
fn the_ordinal_is_that_of_the_allocation() {
    let room = Room::new();
    let other = get(|out| cuCtxCreate_v2(out, 0, 1));
    let memory = room.memory(4);
    ok(cuCtxPushCurrent_v2(room.context));
    assert_eq!(attributes(memory)[5], 1);
    ok(cuCtxPopCurrent_v2(None));
    ok(cuCtxDestroy_v2(other));
}

#[test]
fn addresses_that_are_not_the_drivers_have_zeros_in_the_plural_only() {
    let room = Room::new();
    let freed = room.memory(4);
    ok(cuMemFree_v2(freed));
    let host = [0_u8; 4];
    for address in [freed, address_of(&host), 0, 0xdead_beef] {
        assert_eq!(attributes(address), [0; 10], "{address:#x}");
        assert_eq!(cuPointerGetAttribute(&mut 0, MEMORY_TYPE, address), code::INVALID_VALUE, "{address:#x}");
    }
    let memory = room.memory(4);
    assert_eq!(get(|out| cuPointerGetAttribute(out, MEMORY_TYPE, memory)), 2);
    assert_eq!(cuPointerGetAttribute(&mut 0, HOST_POINTER, memory), code::INVALID_VALUE);
}

#[test]
fn registered_memory_may_have_an_address_of_its_own_for_devices() {
    let room = Room::new();
    let as_on_host = |expected| assert_eq!(get(|out| cuDeviceGetAttribute(out, 91, 0)), expected);
    as_on_host(1);
    let mut memory = vec![0_u8; 64];
    let host = address_of_mut(&mut memory);
    room.sim.set_registered_apart(true);
    as_on_host(0);
    ok(cuMemHostRegister_v2(host, 64, 0));
    room.sim.set_registered_apart(false);
    let device = get(|out| cuMemHostGetDevicePointer_v2(out, host, 0));
    assert!(!(host..host + 64).contains(&device), "the same address");
    let context = room.context;
    for (seen, offset) in [(host, 0), (host, 63), (device, 0), (device, 63)] {
        let both = [device + offset, host + offset];
        assert_eq!(attributes(seen + offset), [context, 1, both[0], both[1], 0, 0, seen, 64, 1, 0]);
    }
    assert_eq!(attributes(device + 64), [0; 10]);
    // Both addresses refer to the same bytes, but devices can use only one of them and the host only the other.
    ok(cuMemsetD8_v2(device + 8, 7, 8));
    ok(cuStreamSynchronize(0));
    assert_eq!((memory[7], memory[8], memory[15], memory[16]), (0, 7, 7, 0));
    assert_eq!(cuMemsetD8_v2(host, 9, 8), code::INVALID_VALUE);
    ok(cuMemHostUnregister(host));
    assert_eq!((attributes(host), attributes(device)), ([0; 10], [0; 10]));
}

#[test]
fn a_range_is_the_whole_allocation() {
    let room = Room::new();
    let memory = room.memory(100);
    let mut size = 0;
    assert_eq!(get(|out| cuMemGetAddressRange_v2(out, &mut size, memory + 99)), memory);
    assert_eq!(size, 100);
    assert_eq!(cuMemGetAddressRange_v2(&mut 0, &mut size, memory + 100), code::NOT_FOUND);
}
