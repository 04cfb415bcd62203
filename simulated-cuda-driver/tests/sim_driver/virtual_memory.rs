//! Virtual memory management, and memory pools that the program creates.

use simulated_cuda::Mistake;

use crate::driver::*;
use crate::fixture::{Room, touch};

const PIECE: usize = 2 << 20;
/// The attributes that distinguish a range from a mapping in it: the context, the start and size of the range, the size
/// and start of the mapping, and the pool.
const ASKED: [i32; 6] = [1, 11, 12, 18, 19, 17];

fn asked(address: u64) -> [u64; 6] {
    ASKED.map(|attribute| get(|out| cuPointerGetAttribute(out, attribute, address)))
}

/// Maps new memory of a device.
fn map(address: u64, device: i32) {
    let memory = get(|out| cuMemCreate(out, PIECE, [1, 0, 1, device].as_ptr(), 0));
    ok(cuMemMap(address, PIECE, 0, memory, 0));
    ok(cuMemRelease(memory));
    ok(cuMemSetAccess(address, PIECE, std::ptr::null(), 1));
}

fn reserve(pieces: usize) -> u64 {
    get(|out| cuMemAddressReserve(out, pieces * PIECE, 0, 0, 0))
}

#[test]
fn pieces_are_one_range_of_memory() {
    let room = Room::new();
    let (first, piece) = (reserve(3), PIECE as u64);
    map(first, 0);
    map(first + piece, 1);
    ok(cuMemsetD8_v2(first, 7, 2 * PIECE));
    ok(cuStreamSynchronize(0));
    assert_eq!([room.peek(first + piece - 1), room.peek(first + 2 * piece - 1)], [7, 7]);
    assert_eq!(asked(first + 5), [0, first, 3 * piece, piece, first, 0]);
    assert_eq!(asked(first + piece), [0, first, 3 * piece, piece, first + piece, 0]);
    let ordinals = [first, first + piece].map(|at| get(|out| cuPointerGetAttribute(out, 9, at)));
    assert_eq!(ordinals, [0, 1]);
    let mut size = 0;
    assert_eq!(get(|out| cuMemGetAddressRange_v2(out, &mut size, first + piece + 9)), first + piece);
    assert_eq!(size, PIECE);
}

#[test]
fn where_nothing_is_mapped_there_is_no_memory() {
    let room = Room::new();
    let (first, piece) = (reserve(3), PIECE as u64);
    map(first + piece, 0);
    for address in [first, first + 2 * piece] {
        assert_eq!(cuPointerGetAttribute(&mut 0, 2, address), code::INVALID_VALUE);
        assert_eq!(cuMemGetAddressRange_v2(&mut 0, &mut 0, address), code::NOT_FOUND);
    }
    assert_eq!(room.sim.read::<u8>(first + piece, PIECE + 1), None);
    room.expect(Mistake::OutOfBounds, "end where no memory is mapped");
    assert_eq!(cuMemAddressFree(first, 3 * PIECE), code::INVALID_VALUE, "a piece is mapped");
    assert_eq!(cuMemUnmap(first, usize::MAX), code::INVALID_VALUE, "no such range");
    assert_eq!(cuMemSetAccess(first + piece, usize::MAX, std::ptr::null(), 1), code::INVALID_VALUE);
    ok(cuMemUnmap(first + piece, PIECE));
    assert_eq!(room.sim.read::<u8>(first + piece, 1), None);
    room.expect(Mistake::OutOfBounds, "is in no allocation");
    ok(cuMemAddressFree(first, 3 * PIECE));
    assert_eq!(cuMemAddressFree(first, 3 * PIECE), code::INVALID_VALUE);
}

#[test]
fn what_cannot_be_mapped_is_an_invalid_value() {
    let _room = Room::new();
    let first = reserve(2);
    let properties = [1, 0, 1, 0];
    assert_eq!(cuMemCreate(&mut 0, PIECE - 1, properties.as_ptr(), 0), code::INVALID_VALUE);
    let memory = get(|out| cuMemCreate(out, PIECE, properties.as_ptr(), 0));
    for (address, bytes) in [(first - 1, PIECE), (first + PIECE as u64 + 1, PIECE), (first, 2 * PIECE)] {
        assert_eq!(cuMemMap(address, bytes, 0, memory, 0), code::INVALID_VALUE, "{bytes} bytes");
    }
    ok(cuMemMap(first, PIECE, 0, memory, 0));
    assert_eq!(cuMemMap(first, PIECE, 0, memory, 0), code::INVALID_VALUE, "something is mapped there");
    assert_eq!(cuMemSetAccess(first, 2 * PIECE, std::ptr::null(), 1), code::INVALID_VALUE);
    ok(cuMemRelease(memory));
    assert_eq!(cuMemRelease(memory), code::INVALID_VALUE);
}

#[test]
fn memory_from_a_pool_of_the_host_is_the_hosts() {
    let room = Room::new();
    let pool = get(|out| cuMemPoolCreate(out, [1, 0, 2, 0].as_ptr()));
    let stream = room.stream();
    let memory = get(|out| cuMemAllocFromPoolAsync(out, 100, pool, stream));
    ok(cuMemsetD8Async(memory, 9, 100, stream));
    ok(cuStreamSynchronize(stream));
    assert_eq!(touch(memory + 99), 9);
    let [context, start, size, .., handle] = asked(memory + 10);
    assert_eq!((context, size, handle), (0, 100, pool));
    assert!(!(start..start + size).contains(&(memory + 10)), "the start is one within the pool");
    assert_eq!(get(|out| cuPointerGetAttribute(out, 2, memory)) & 0xffff_ffff, 1);
    assert_eq!(get(|out| cuMemGetAddressRange_v2(out, &mut 0, memory + 10)), memory);
    ok(cuMemFreeAsync(memory, stream));
    ok(cuStreamSynchronize(stream));
    assert_eq!(cuPointerGetAttribute(&mut 0, 2, memory), code::INVALID_VALUE);
}
