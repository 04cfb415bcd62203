//! What the two processes must wait for, and what is reported if they do not.

use simulated_cuda::{Mistake, Policy};

use crate::consumer;
use crate::driver::*;
use crate::fixture::Room;
use crate::other_process::{OtherProcess, hex};
use crate::page::Page;
use crate::ways::{PIECE, Shared, WAYS, Way};

/// Where the array starts in its memory, which the handle does not tell: it lies in both pieces of mapped memory.
const OFFSET: u64 = PIECE as u64 - 8;
/// The numbers of the page: the producer's work is done, and the consumer's.
const READY: usize = 0;
const DONE: usize = 1;

/// A process that writes memory, and one that reads it.
struct Pair {
    memory: Shared,
    stream: u64,
    page: Page,
    consumer: OtherProcess,
    // Dropped last: it ends the turn of the test.
    room: Room,
}

impl Pair {
    fn new(way: Way, policy: Policy, seed: u64) -> Self {
        let room = Room::new();
        room.sim.set_policy(policy);
        room.sim.set_seed(seed);
        let stream = room.stream();
        let memory = Shared::new(way, stream);
        ok(cuMemsetD8Async(memory.address, 0, memory.bytes, stream));
        ok(cuStreamSynchronize(stream));
        let page = Page::new();
        let mut consumer = consumer::start(policy, seed);
        consumer.tell(&format!("page {}", page.path()));
        Self { memory, stream, page, consumer, room }
    }

    fn set(&self, value: u8) {
        ok(cuMemsetD8Async(self.memory.address + OFFSET, value, 16, self.stream));
    }

    /// The consumer opens the memory, with what the host knows now.
    fn open(&mut self) {
        let (order, _files) = self.memory.order();
        self.consumer.tell(&format!("open {order}"));
    }

    /// Writes the value 42 and the number 7 on the stream.
    fn publish(&self) {
        self.set(42);
        ok(cuStreamWriteValue64_v2(self.stream, self.page.number(READY), 7, 0));
    }

    fn read(&mut self) {
        // In the second piece.
        self.consumer.tell(&format!("read {}", OFFSET + 12));
    }

    /// The consumer waits for the producer's number, and then reads the value, which is returned.
    fn read_in_order(&mut self) -> String {
        self.consumer.tell(&format!("wait {READY} 7"));
        self.read();
        self.consumer.ask("synchronize")
    }

    /// The producer's stream waits for the consumer.
    fn wait_for_consumer(&mut self) {
        self.consumer.tell(&format!("write {DONE} 1"));
        ok(cuStreamWaitValue64_v2(self.stream, self.page.number(DONE), 1, 0));
    }

    /// The reports of both processes, in words.
    fn reports(&mut self) -> String {
        let kinds: Vec<_> =
            self.room.sim.take_reports().iter().map(|report| format!("{:?}", report.mistake)).collect();
        format!("{} {}", kinds.join(" "), self.consumer.ask("reports")).trim().to_owned()
    }

    /// Ends both, after the memory is closed and freed.
    fn end(mut self) {
        self.consumer.tell("close");
        self.page.close();
        self.memory.free(self.stream);
        assert_eq!(self.room.sim.take_reports().len(), 0, "the end reports nothing new");
    }
}

/// Runs a scenario for all ways to share memory, under all policies and several seeds.
fn every_schedule(run: impl Fn(Pair, String)) {
    for way in WAYS {
        for (seed, policy) in
            [Policy::Late, Policy::Random, Policy::Eager, Policy::Random].into_iter().enumerate()
        {
            run(Pair::new(way, policy, seed as u64), format!("{way:?} {policy:?}"));
        }
    }
}

#[test]
fn work_that_the_consumer_does_not_wait_for_is_reported() {
    every_schedule(|mut pair, which| {
        pair.open();
        pair.publish();
        pair.read();
        ok(cuStreamSynchronize(pair.stream));
        pair.consumer.ask("synchronize");
        assert_eq!(pair.reports(), "Race", "{which}");
        // The reads of the consumer are not known here either.
        pair.wait_for_consumer();
        ok(cuStreamSynchronize(pair.stream));
        pair.end();
    });
}

#[test]
fn a_number_orders_the_consumer_after_the_producer() {
    every_schedule(|mut pair, which| {
        pair.open();
        pair.publish();
        assert_eq!(pair.read_in_order(), "42");
        pair.wait_for_consumer();
        pair.set(43);
        ok(cuStreamSynchronize(pair.stream));
        assert_eq!(pair.reports(), "", "{which}");
        pair.end();
    });
}

#[test]
fn a_producer_that_does_not_wait_before_it_writes_again_is_reported() {
    every_schedule(|mut pair, which| {
        pair.open();
        pair.publish();
        pair.read_in_order();
        pair.set(43);
        ok(cuStreamSynchronize(pair.stream));
        assert_eq!(pair.reports(), "Race", "{which}");
        pair.wait_for_consumer();
        ok(cuStreamSynchronize(pair.stream));
        pair.end();
    });
}

/// One step that the author of a program got wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Slip {
    None,
    /// The producer's number precedes its write.
    EarlyReady,
    /// The consumer reads on another stream than the one that waits.
    OtherStream,
    /// It waits for the number of the round before.
    OldNumber,
    /// Its number precedes its read.
    EarlyDone,
}

impl Pair {
    /// The same array is written and read twice.
    fn two_rounds(&mut self, slip: Slip) {
        self.open();
        for round in 1..=2 {
            let publish = |pair: &Self| {
                ok(cuStreamWriteValue64_v2(pair.stream, pair.page.number(READY), round, 0));
            };
            if slip == Slip::EarlyReady {
                publish(self);
                self.set(42);
            } else {
                self.set(42);
                publish(self);
            }
            let awaited = if slip == Slip::OldNumber { 1 } else { round };
            self.consumer.tell(&format!("wait {READY} {awaited}"));
            let done = format!("write {DONE} {round}");
            match slip {
                Slip::EarlyDone => self.consumer.tell(&done),
                Slip::OtherStream => self.consumer.tell(&format!("read-aside {}", OFFSET + 12)),
                _ => {}
            }
            if slip != Slip::OtherStream {
                self.read();
            }
            if slip != Slip::EarlyDone {
                self.consumer.tell(&done);
            }
            ok(cuStreamWaitValue64_v2(self.stream, self.page.number(DONE), round, 0));
        }
        self.consumer.ask("synchronize");
        ok(cuStreamSynchronize(self.stream));
    }
}

#[test]
fn one_step_in_the_wrong_place_is_reported_in_each_schedule() {
    use Slip::*;
    let policies = [Policy::Late, Policy::Random, Policy::Eager];
    for slip in [None, EarlyReady, OtherStream, OldNumber, EarlyDone] {
        for (way, policy) in WAYS.into_iter().flat_map(|way| policies.map(|policy| (way, policy))) {
            let mut pair = Pair::new(way, policy, 5);
            pair.two_rounds(slip);
            let reports = pair.reports();
            let are_races = !reports.is_empty() && reports.split(' ').all(|report| report == "Race");
            let is_right = if slip == None { reports.is_empty() } else { are_races };
            assert!(is_right, "{slip:?}, {way:?}, {policy:?}: {reports:?}");
            // The free would come too early as well.
            pair.consumer.kill();
            pair.page.close();
            pair.memory.free(pair.stream);
        }
    }
}

#[test]
fn what_the_host_has_waited_for_is_known_to_who_opens_the_handle() {
    every_schedule(|mut pair, which| {
        pair.set(42);
        ok(cuStreamSynchronize(pair.stream));
        pair.open();
        pair.read();
        assert_eq!(pair.consumer.ask("synchronize"), "42");
        assert_eq!(pair.reports(), "", "{which}");
        pair.consumer.kill();
        pair.page.close();
        pair.memory.free(pair.stream);
    });
}

#[test]
fn memory_that_is_open_elsewhere_must_not_be_freed() {
    for way in [Way::Handle, Way::Pool] {
        let mut pair = Pair::new(way, Policy::Late, 1);
        pair.open();
        pair.memory.free(pair.stream);
        pair.room.expect(Mistake::UseAfterFree, "while other processes have it open (1 times)");
        pair.read();
        pair.consumer.ask("synchronize");
        assert_eq!(pair.reports(), "UseAfterFree", "{way:?}: the read comes after the free");
        pair.page.close();
    }
}

#[test]
fn mapped_memory_lives_as_long_as_one_process_has_it_mapped() {
    let mut pair = Pair::new(Way::Mapped, Policy::Late, 1);
    pair.open();
    pair.publish();
    ok(cuStreamSynchronize(pair.stream));
    pair.memory.free(pair.stream);
    assert_eq!(pair.read_in_order(), "42");
    assert_eq!(pair.reports(), "");
    pair.consumer.tell("close");
    pair.page.close();
}

#[test]
fn a_process_that_was_killed_has_nothing_open_and_uses_nothing() {
    for way in WAYS {
        let mut pair = Pair::new(way, Policy::Late, 1);
        pair.open();
        pair.publish();
        pair.read_in_order();
        pair.consumer.kill();
        // Its number will never come. The host writes it in its place, so that the stream goes on.
        ok(cuStreamWaitValue64_v2(pair.stream, pair.page.number(DONE), 1, 0));
        assert_eq!(cuStreamQuery(pair.stream), code::NOT_READY);
        pair.page.store(DONE, 1);
        pair.set(43);
        ok(cuStreamSynchronize(pair.stream));
        pair.memory.free(pair.stream);
        pair.room.sim.assert_no_reports();
        pair.page.close();
    }
}

#[test]
fn a_handle_is_that_of_the_block_and_opens_once() {
    let mut pair = Pair::new(Way::Handle, Policy::Late, 1);
    let memory = pair.memory.address;
    let [handle, same] = [0, OFFSET].map(|offset| get(|out| cuIpcGetMemHandle(out, memory + offset)));
    assert_eq!(handle.0, same.0, "the offset is not in the handle");
    assert_eq!(cuIpcOpenMemHandle_v2(&mut 0, handle, 1), code::INVALID_CONTEXT, "it is this process's own");
    pair.open();
    let address = pair.consumer.ask("address");
    pair.open();
    assert_eq!(pair.consumer.ask("address"), address, "counted, at the same address");
    assert_eq!(pair.consumer.ask("range"), format!("true {}", pair.memory.bytes));
    assert_eq!(pair.consumer.ask("free"), code::INVALID_VALUE.to_string(), "it is closed, not freed");
    pair.consumer.tell("close");
    pair.read();
    pair.consumer.ask("synchronize");
    assert_eq!(pair.reports(), "", "one of two openings is left");
    let mut wrong = handle;
    wrong.0[0] ^= 1;
    assert_eq!(pair.consumer.ask(&format!("try {}", hex(&wrong.0))), code::INVALID_VALUE.to_string());
    pair.end();
}

#[test]
fn other_memory_has_no_handle() {
    let room = Room::new();
    let stream = room.stream();
    let pinned = room.pinned(64).0;
    let pool = get(|out| cuMemAllocAsync(out, 64, stream));
    ok(cuStreamSynchronize(stream));
    let device = room.memory(64);
    let capable = |address| get(|out| cuPointerGetAttribute(out, 10, address)) & 1;
    assert_eq!([pinned, pool, device].map(capable), [0, 0, 1]);
    for address in [pinned, pool, 64] {
        assert_eq!(cuIpcGetMemHandle(&mut MemoryHandle::default(), address), code::INVALID_VALUE);
    }
    ok(cuMemFree_v2(device));
    ok(cuMemFreeAsync(pool, stream));
    ok(cuStreamSynchronize(stream));
}
