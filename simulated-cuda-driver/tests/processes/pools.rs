//! Pools that are exported and imported: what is refused, and how memory is given back.

use simulated_cuda::Policy;

use crate::consumer;
use crate::driver::*;
use crate::fixture::Room;
use crate::other_process::hex;
use crate::ways::{DESCRIPTOR, Shared, Way, create, new_pool, number_of, owned};

#[test]
fn a_pool_has_data_for_others_once_it_was_exported() {
    let room = Room::new();
    let (stream, pool) = (room.stream(), new_pool());
    let memory = get(|out| cuMemAllocFromPoolAsync(out, 100, pool, stream));
    let attributes = |address| [17, 14].map(|number| get(|out| cuPointerGetAttribute(out, number, address)));
    assert_eq!(attributes(memory + 9), [pool, 1]);
    assert_eq!(get(|out| cuPointerGetAttribute(out, 1, memory)), 0, "it belongs to no context");
    let data = &mut MemoryHandle::default();
    assert_eq!(cuMemPoolExportPointer(data, memory), code::INVALID_VALUE, "the pool was not exported");
    let file = owned(get(|out| cuMemPoolExportToShareableHandle(out, pool, DESCRIPTOR, 0)));
    ok(cuMemPoolExportPointer(data, memory + 9));
    assert_eq!(data.0, get(|out: &mut MemoryHandle| cuMemPoolExportPointer(out, memory)).0);
    let used = |expected| assert_eq!(get(|out| cuMemPoolGetAttribute(pool, 7, out)), expected);
    ok(cuStreamSynchronize(stream));
    used(100);
    // The process has the pool already.
    let same = get(|out| cuMemPoolImportFromShareableHandle(out, number_of(&file), DESCRIPTOR, 0));
    assert_eq!(cuMemPoolImportPointer(&mut 0, same, data), code::INVALID_VALUE);
    ok(cuMemFreeAsync(memory, stream));
    ok(cuStreamSynchronize(stream));
    used(0);
    assert_eq!(cuMemPoolExportPointer(data, memory), code::INVALID_VALUE, "it was freed");
}

#[test]
fn pools_without_a_type_of_handle_are_not_exported() {
    let room = Room::new();
    let stream = room.stream();
    let plain = get(|out| cuMemPoolCreate(out, [1, 0, 1, 0].as_ptr()));
    let memory = get(|out| cuMemAllocAsync(out, 64, stream));
    let pool = get(|out| cuPointerGetAttribute(out, 17, memory));
    assert_ne!(pool, 0);
    assert_eq!(get(|out| cuPointerGetAttribute(out, 14, memory)), 0);
    for pool in [plain, pool, 0] {
        assert_eq!(cuMemPoolExportToShareableHandle(&mut 0, pool, DESCRIPTOR, 0), code::INVALID_VALUE);
    }
    assert_eq!(cuMemPoolExportPointer(&mut MemoryHandle::default(), memory), code::INVALID_VALUE);
    ok(cuMemFreeAsync(memory, stream));
    ok(cuStreamSynchronize(stream));
}

#[test]
fn another_process_uses_the_memory_and_gives_it_back() {
    let room = Room::new();
    let stream = room.stream();
    let (memory, other) = (Shared::new(Way::Pool, stream), Shared::new(Way::Pool, stream));
    ok(cuMemsetD8Async(memory.address, 5, memory.bytes, stream));
    ok(cuStreamSynchronize(stream));
    let mut consumer = consumer::start(Policy::Late, 1);
    let (order, _files) = memory.order();
    for free in ["free", "free-async"] {
        consumer.tell(&format!("open {order}"));
        consumer.tell("read 9");
        assert_eq!(consumer.ask("synchronize"), "5");
        assert_eq!(consumer.ask("range"), format!("true {}", memory.bytes));
        assert_eq!(consumer.ask("types"), "0", "it cannot be passed on");
        let invalid = code::INVALID_VALUE.to_string();
        assert_eq!([consumer.ask("allocate"), consumer.ask("export")], [invalid.clone(), invalid]);
        assert_eq!(consumer.ask(free), "0");
        assert_eq!([consumer.ask(free), consumer.ask("reports")], ["1", "DoubleFree"], "{free}");
    }
    // The data of another pool, and a pool that is none.
    let (_, files) = other.order();
    let mut words = order.split_whitespace().skip(1);
    let (path, data) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let of_other = format!("/proc/{}/fd/{}", std::process::id(), number_of(&files[0]));
    assert_eq!(consumer.ask(&format!("try {of_other} {data}")), "0 1");
    assert_eq!(consumer.ask(&format!("try {path} {}", hex(&[0; 64]))), "0 1");
    assert_eq!(consumer.ask(&format!("try /dev/null {data}")), "999 1");
    // Its reads were told by a pipe, which the driver does not see.
    consumer.kill();
    memory.free(stream);
    other.free(stream);
    room.sim.assert_no_reports();
}

#[test]
fn memory_that_is_mapped_for_reading_is_not_written() {
    let _room = Room::new();
    let memory = create();
    let file = owned(get(|out| cuMemExportToShareableHandle(out, memory, DESCRIPTOR, 0)));
    let mut consumer = consumer::start(Policy::Late, 1);
    let path = format!("/proc/{}/fd/{}", std::process::id(), number_of(&file));
    assert_eq!(consumer.ask(&format!("read-only {path}")), format!("{} 0", code::INVALID_VALUE));
    ok(cuMemRelease(memory));
}
