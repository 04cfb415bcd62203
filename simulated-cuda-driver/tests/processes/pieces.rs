//! Mapped memory that is exported and imported: its bytes, its handles, and what is refused.

use std::fs::File;

use crate::driver::*;
use crate::fixture::Room;
use crate::ways::{DESCRIPTOR, PIECE, Shared, Way, create, map, number_of, owned, unmap};

fn export(memory: u64) -> File {
    owned(get(|out| cuMemExportToShareableHandle(out, memory, DESCRIPTOR, 0))).into()
}

fn types(address: u64) -> u64 {
    get(|out| cuPointerGetAttribute(out, 14, address))
}

#[test]
fn every_mapping_of_memory_with_a_type_of_handle_has_its_bytes() {
    let room = Room::new();
    let memory = create();
    let file = export(memory);
    let first = map(&[memory], 3);
    // Here as in every other process.
    let same = get(|out| cuMemImportFromShareableHandle(out, number_of(&file), DESCRIPTOR));
    let second = map(&[same], 3);
    ok(cuMemsetD8_v2(first + 5, 7, 1));
    ok(cuStreamSynchronize(0));
    assert_eq!([room.peek(second + 5), room.peek(second + 6)], [7, 0]);
    unmap(first, PIECE);
    assert_eq!(room.peek(second + 5), 7, "the memory lives as long as it is mapped anywhere");
    let again = map(&[get(|out| cuMemRetainAllocationHandle(out, second))], 3);
    assert_eq!(room.peek(again + 5), 7);
    assert_eq!(types(second), 1);
    unmap(second, PIECE);
    unmap(again, PIECE);
}

#[test]
fn handles_are_counted() {
    let _room = Room::new();
    let memory = create();
    let first = map(&[memory], 3);
    assert_eq!(cuMemRelease(memory), code::INVALID_VALUE, "it was released");
    let [retained, same] = [5, 9].map(|offset| get(|out| cuMemRetainAllocationHandle(out, first + offset)));
    assert_eq!(retained, same);
    ok(cuMemRelease(retained));
    ok(cuMemRelease(retained));
    assert_eq!(cuMemRelease(retained), code::INVALID_VALUE);
    unmap(first, PIECE);
    assert_eq!(cuMemRetainAllocationHandle(&mut 0, first), code::INVALID_VALUE, "nothing is mapped");
}

#[test]
fn what_has_no_type_of_handle_is_not_exported() {
    let room = Room::new();
    let device = room.memory(64);
    assert_eq!(cuMemRetainAllocationHandle(&mut 0, device), code::INVALID_VALUE);
    let plain = get(|out| cuMemCreate(out, PIECE, [1, 0, 1, 0].as_ptr(), 0));
    assert_eq!(cuMemExportToShareableHandle(&mut 0, plain, DESCRIPTOR, 0), code::INVALID_VALUE);
    let first = map(&[plain], 3);
    assert_eq!([types(first), types(device)], [0, 0]);
    unmap(first, PIECE);
    // CU_MEM_HANDLE_TYPE_FABRIC.
    assert_eq!(cuMemCreate(&mut 0, PIECE, [1, 8, 1, 0].as_ptr(), 0), code::NOT_SUPPORTED);
    let memory = create();
    for (kind, flags) in [(0, 0), (2, 0), (DESCRIPTOR, 1)] {
        assert_eq!(cuMemExportToShareableHandle(&mut 0, memory, kind, flags), code::INVALID_VALUE);
    }
    ok(cuMemRelease(memory));
    ok(cuMemFree_v2(device));
}

#[test]
fn descriptors_of_other_things_are_refused() {
    let room = Room::new();
    let stream = room.stream();
    let pool = Shared::new(Way::Pool, stream);
    let (_, files) = pool.order();
    let other = File::open("/dev/null").expect("a file");
    for file in [number_of(&other), number_of(&files[0]), 9999] {
        assert_eq!(cuMemImportFromShareableHandle(&mut 0, file, DESCRIPTOR), code::UNKNOWN);
    }
    let memory = create();
    let file = export(memory);
    assert_eq!(cuMemPoolImportFromShareableHandle(&mut 0, number_of(&file), DESCRIPTOR, 0), code::UNKNOWN);
    assert_eq!(cuMemImportFromShareableHandle(&mut 0, number_of(&file), 2), code::INVALID_VALUE);
    ok(cuMemRelease(memory));
    pool.free(stream);
}
