//! Copies and sets in every direction, synchronous and queued.

use simulated_cuda::Mistake;

use crate::driver::*;
use crate::fixture::{Room, address_of, address_of_mut};

#[test]
fn bytes_go_there_and_back() {
    let room = Room::new();
    let numbers: Vec<u32> = (0..1000).collect();
    let [first, second] = [room.memory(4000), room.memory(4000)];
    ok(cuMemcpyHtoD_v2(first, address_of(&numbers), 4000));
    ok(cuMemcpyDtoD_v2(second, first, 4000));
    let mut back = vec![0_u32; 1000];
    ok(cuMemcpyDtoH_v2(address_of_mut(&mut back), second, 4000));
    assert_eq!(back, numbers);
}

#[test]
fn a_queued_copy_from_plain_host_memory_reads_it_at_once() {
    let room = Room::new();
    let (stream, memory) = (room.stream(), room.memory(4));
    let mut host = vec![1_u8; 4];
    ok(cuMemcpyHtoDAsync_v2(memory, address_of(&host), 4, stream));
    host.fill(9);
    ok(cuStreamSynchronize(stream));
    assert_eq!(room.peek(memory), 1);
}

#[test]
fn a_queued_copy_to_plain_host_memory_waits() {
    let room = Room::new();
    let (stream, memory) = (room.stream(), room.memory(4));
    ok(cuMemsetD8Async(memory, 3, 4, stream));
    let mut host = vec![0_u8; 4];
    ok(cuMemcpyDtoHAsync_v2(address_of_mut(&mut host), memory, 4, stream));
    assert_eq!(host, [3; 4]);
}

#[test]
fn copies_of_pinned_memory_run_when_somebody_waits() {
    let room = Room::new();
    let (stream, memory, pinned) = (room.stream(), room.memory(4), room.pinned(4));
    ok(cuMemsetD8_v2(pinned.0, 1, 4));
    ok(cuMemcpyAsync(memory, pinned.0, 4, stream));
    assert_eq!(room.peek(memory), 0);
    // A change of the source before the copy has run reaches the target.
    ok(cuMemsetD8_v2(pinned.0, 2, 4));
    ok(cuStreamSynchronize(stream));
    assert_eq!(room.peek(memory), 2);
    room.expect(Mistake::Race, "Pinned memory");
}

#[test]
fn copies_between_devices_and_sets_do_not_make_the_host_wait() {
    let room = Room::new();
    let [first, second] = [room.memory(4), room.memory(4)];
    ok(cuMemsetD8_v2(first, 6, 4));
    ok(cuMemcpyDtoD_v2(second, first, 4));
    assert_eq!((room.peek(first), room.peek(second)), (0, 0));
    ok(cuCtxSynchronize());
    assert_eq!((room.peek(first), room.peek(second)), (6, 6));
}

#[test]
fn a_set_repeats_its_pattern() {
    let room = Room::new();
    let (stream, memory) = (room.stream(), room.memory(8));
    ok(cuMemsetD32Async(memory, 0x0403_0201, 2, stream));
    ok(cuStreamSynchronize(stream));
    assert_eq!([0, 1, 2, 3, 4, 7].map(|offset| room.peek(memory + offset)), [1, 2, 3, 4, 1, 4]);
    assert_eq!(cuMemsetD32Async(memory + 2, 0, 1, stream), code::INVALID_VALUE);
}

#[test]
fn what_ends_beyond_the_memory_is_refused() {
    let room = Room::new();
    let (stream, memory) = (room.stream(), room.memory(4));
    let host = [0_u8; 8];
    assert_eq!(cuMemcpyHtoD_v2(memory, address_of(&host), 5), code::INVALID_VALUE);
    assert_eq!(cuMemcpyHtoD_v2(memory + 2, address_of(&host), 3), code::INVALID_VALUE);
    assert_eq!(cuMemsetD8Async(memory, 0, 5, stream), code::INVALID_VALUE);
    assert_eq!(cuMemcpyDtoDAsync_v2(memory, address_of(&host), 4, stream), code::INVALID_VALUE);
    ok(cuMemcpyHtoD_v2(memory, address_of(&host), 0));
}

#[test]
fn memory_that_was_freed_is_refused() {
    let room = Room::new();
    let (memory, freed) = (room.memory(4), room.memory(4));
    ok(cuMemFree_v2(freed));
    assert_eq!(cuMemcpyDtoD_v2(memory, freed, 4), code::INVALID_VALUE);
    assert_eq!(cuMemsetD8_v2(freed, 0, 4), code::INVALID_VALUE);
}
