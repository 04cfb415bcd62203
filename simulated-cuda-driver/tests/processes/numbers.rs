//! Numbers that streams of one process write and wait for.

use simulated_cuda::{Mistake, Policy};

use crate::driver::*;
use crate::fixture::Room;
use crate::page::Page;

/// `CU_STREAM_WAIT_VALUE_...`.
const GEQ: u32 = 0;
const EQ: u32 = 1;
const AND: u32 = 2;
const NOR: u32 = 3;

#[test]
fn a_stream_waits_until_the_number_is_there() {
    let room = Room::new();
    let (page, stream) = (Page::new(), room.stream());
    let cases = [
        (GEQ, 5, [4, 6]),
        // A number that has wrapped around is greater.
        (GEQ, u64::MAX, [u64::MAX - 1, 3]),
        (EQ, 5, [6, 5]),
        (AND, 6, [9, 2]),
        (NOR, 6, [!6, 1]),
    ];
    for (flags, number, [too_early, enough]) in cases {
        page.store(0, too_early);
        ok(cuStreamWaitValue64_v2(stream, page.number(0), number, flags));
        for _ in 0..8 {
            assert_eq!(cuStreamQuery(stream), code::NOT_READY, "{flags} {number} {too_early}");
        }
        page.store(0, enough);
        ok(cuStreamSynchronize(stream));
    }
    page.close();
}

/// Two streams, of which the second writes what the first has written: after the number of another index, if `index` is not 0.
fn ordered_by(page: &Page, room: &Room, index: usize) {
    let ([first, second], memory) = ([room.stream(), room.stream()], room.memory(8));
    ok(cuMemsetD8Async(memory, 1, 8, first));
    ok(cuStreamWriteValue64_v2(first, page.number(0), 1, 0));
    page.store(1, 1);
    ok(cuStreamWaitValue64_v2(second, page.number(index), 1, 0));
    ok(cuMemsetD8Async(memory, 2, 8, second));
    ok(cuCtxSynchronize());
    assert_eq!([page.load(0), page.load(1)], [1, 1]);
}

#[test]
fn what_follows_the_wait_comes_after_what_precedes_the_write() {
    for policy in [Policy::Late, Policy::Random, Policy::Eager] {
        let room = Room::new();
        room.sim.set_policy(policy);
        let page = Page::new();
        ordered_by(&page, &room, 0);
        room.sim.assert_no_reports();
        ordered_by(&page, &room, 1);
        assert_eq!(room.expect_only(Mistake::Race), 1, "another number says nothing");
        page.close();
    }
}

#[test]
fn a_number_in_pinned_memory_orders_streams_of_the_process() {
    let room = Room::new();
    let ([first, second], memory) = ([room.stream(), room.stream()], room.memory(8));
    let number = room.pinned(8).0;
    ok(cuMemsetD8Async(memory, 1, 8, first));
    ok(cuStreamWriteValue64_v2(first, number, 1, 0));
    ok(cuStreamWaitValue64_v2(second, number, 1, 0));
    ok(cuMemsetD8Async(memory, 2, 8, second));
    ok(cuCtxSynchronize());
}

#[test]
fn what_is_not_simulated_is_refused() {
    let room = Room::new();
    let (page, stream, device) = (Page::new(), room.stream(), room.memory(8));
    for (address, flags, expected) in [
        (page.number(0) + 4, 0, code::INVALID_VALUE),
        (8, 0, code::INVALID_VALUE),
        (device, 0, code::NOT_SUPPORTED),
        // CU_STREAM_WAIT_VALUE_FLUSH.
        (page.number(0), 1 << 30, code::NOT_SUPPORTED),
    ] {
        assert_eq!(cuStreamWaitValue64_v2(stream, address, 1, flags), expected, "{address:#x} {flags}");
        assert_eq!(cuStreamWriteValue64_v2(stream, address, 1, flags), expected, "{address:#x} {flags}");
    }
    ok(cuStreamBeginCapture_v2(stream, 2));
    assert_eq!(cuStreamWaitValue64_v2(stream, page.number(0), 1, 0), code::NOT_SUPPORTED);
    let graph = get(|out| cuStreamEndCapture(stream, out));
    ok(cuGraphDestroy(graph));
    page.close();
}
