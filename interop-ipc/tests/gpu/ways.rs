//! Memory of each kind: how it is opened, and the copy of what cannot be.

use interop_core::cuda::pending_releases;
use interop_core::protocols::{RawDescriptor, Strides};
use interop_core::storage::{Mutability, Owner};
use interop_core::{DType, Device, ErrorKind, Import, StreamHandle};
use interop_ipc::{Parcel, copy_import, give_import, share_import, zeroed};

#[allow(clippy::wildcard_imports, reason = "the functions of the driver")]
use crate::driver::*;
use crate::memory::{Count, Gate, LONG, OfPool, Pieces, Pinned, array, array_on, handle, share, soon};
use crate::other::{NOT_SUPPORTED, Other, hex};
use crate::rows::{BYTES, Block, LateWrites, SEEN, hold, set, told, value};

/// An array over three pieces that are mapped one behind the other.
pub(crate) fn mapped(rounds: usize) -> Result<String, String> {
    let (writes, pieces) = (LateWrites::new(), Pieces::new(4, 1));
    // The first bytes, which the other process copies, lie in two pieces.
    let place = pieces.address + (Pieces::PIECE - SEEN / 2) as u64;
    writes.end(rounds, (place, Pieces::PIECE + SEEN))
}

/// An array in the middle of an allocation.
pub(crate) fn of_pool(rounds: usize) -> Result<String, String> {
    let writes = LateWrites::new();
    let memory = OfPool::new(4 << 20, writes.stream);
    writes.end(rounds, (memory.address + (1 << 20) + 64, BYTES))
}

/// For reading and for writing at once: the driver counts no openings of memory of a pool, so there is one. The other allocation of the
/// pool needs no second pool.
pub(crate) fn opened_twice() -> Result<String, String> {
    let (stream, mut other, count) = (stream(), Other::start(), Count::default());
    let memory = OfPool::new(1 << 20, stream);
    let second = memory.another(1 << 20);
    let place = memory.address + 4096;
    set(place, 3, BYTES, stream);
    set(second, 4, BYTES, stream);
    let for_reading = share(place, BYTES, Some(stream), &count);
    let to_write = array(place, BYTES, Some(stream), &count);
    let to_write = give_import(to_write, LONG).map_err(|refused| refused.to_string())?;
    let of_second = share(second, BYTES, Some(stream), &count);
    let mut wrong = usize::from(other.open("copy", &for_reading) != "ok" || other.ask("check 3") != "true");
    wrong += usize::from(other.open("open", &to_write) != "ok");
    let rights = other.ask("rights");
    other.tell("drop-first");
    for_reading.take_back_on(handle(stream), LONG).map_err(|refused| refused.to_string())?;
    // The end of the first must not be that of the second.
    other.tell("write 9");
    other.tell("again");
    wrong += usize::from(other.ask("check 9") != "true");
    wrong += usize::from(other.open("copy", &of_second) != "ok" || other.ask("check 4") != "true");
    let openings = ["cuMemPoolImportFromShareableHandle", "cuMemPoolImportPointer"]
        .map(|function| other.ask(&format!("calls {function}")));
    other.tell("drop");
    for parcel in [to_write, of_second] {
        parcel.take_back_on(handle(stream), LONG).map_err(|refused| refused.to_string())?;
    }
    let is_back = soon(|| count.is_zero());
    ok(cuMemFreeAsync(second, stream));
    drop(memory);
    let reports = other.reports();
    let is_met = wrong + reports == 0 && is_back && rights == "rw";
    let is_opened = !is_simulated() || openings == ["1", "2"];
    hold(is_met && is_opened, format!("{wrong} wrong, rights {rights}, opened {openings:?}{}", told(reports)))
}

/// Array after array, each of which is freed before the next one is allocated, often at its address.
pub(crate) fn allocated_again(rounds: usize) -> Result<String, String> {
    let (stream, mut other, count) = (stream(), Other::start(), Count::default());
    let memory = OfPool::new(1 << 20, stream);
    let (mut wrong, mut again, mut last) = (0, 0, 0);
    for round in 0..rounds {
        let place = memory.another(BYTES << (round % 3));
        again += usize::from(place == last);
        last = place;
        set(place, value(round), BYTES, stream);
        let parcel = share(place, BYTES, Some(stream), &count);
        let opened = other.open("copy", &parcel);
        wrong += usize::from(opened != "ok" || other.ask(&format!("check {}", value(round))) != "true");
        other.tell("drop");
        parcel.take_back_on(handle(stream), LONG).map_err(|refused| refused.to_string())?;
        ok(cuMemFreeAsync(place, stream));
        ok(cuStreamSynchronize(stream));
    }
    drop(memory);
    let reports = other.reports();
    let text = format!("{wrong} wrong of {rounds}, {again} at the address before{}", told(reports));
    hold(wrong + reports == 0 && count.is_zero(), text)
}

/// Each call of the driver for memory of a pool fails once, on either side: the array stays on offer.
pub(crate) fn refused_by_the_driver() -> Result<String, String> {
    if !is_simulated() {
        return Ok("skipped: no call of this driver fails".to_owned());
    }
    let (stream, mut other, count) = (stream(), Other::start(), Count::default());
    let memory = OfPool::new(1 << 20, stream);
    set(memory.address, 6, BYTES, stream);
    let parcel = share(memory.address, BYTES, Some(stream), &count);
    let mut answers = Vec::new();
    for function in ["cuMemPoolExportToShareableHandle", "cuMemPoolExportPointer"] {
        fail(function, NOT_SUPPORTED);
        answers.push(other.open("open", &parcel));
    }
    for function in ["cuMemPoolImportFromShareableHandle", "cuMemPoolImportPointer"] {
        other.tell(&format!("fail {function}"));
        answers.push(other.open("open", &parcel));
    }
    let kinds = ["Gone: ", "Gone: ", "Driver: ", "Driver: "];
    let are_told = answers.iter().zip(kinds).all(|(answer, kind)| answer.starts_with(kind));
    let is_right = other.open("copy", &parcel) == "ok" && other.ask("check 6") == "true";
    other.tell("drop");
    parcel.take_back_on(handle(stream), LONG).map_err(|refused| refused.to_string())?;
    hold(are_told && is_right && soon(|| count.is_zero()), format!("{} refused, then opened", answers.len()))
}

/// The blocks of the host have other numbers than those of the GPU.
pub(crate) fn host_and_gpu() -> Result<String, String> {
    let (stream, mut other, count) = (stream(), Other::start(), Count::default());
    let host = || {
        let import = zeroed(DType::U8, &[SEEN]).map_err(|error| error.to_string())?;
        share_import(import, 1, LONG).map_err(|refused| refused.to_string())
    };
    let blocks: Vec<_> = (0..40).map(|_| Block::new(SEEN)).collect();
    let arrays = blocks.iter().map(|block| {
        set(block.0, 5, SEEN, stream);
        Ok(share(block.0, SEEN, Some(stream), &count))
    });
    let parcels = (0..80).map(|_| host()).chain(arrays).collect::<Result<Vec<_>, _>>()?;
    let refused: Vec<_> =
        parcels.iter().map(|parcel| other.open("open", parcel)).filter(|answer| answer != "ok").collect();
    other.tell("again");
    let is_right = other.ask("check 5") == "true";
    other.tell("drop");
    for parcel in parcels {
        parcel.take_back(LONG).map_err(|refused| refused.to_string())?;
    }
    let first = refused.first().cloned().unwrap_or_default();
    hold(refused.is_empty() && is_right, format!("{} of 120 refused {first}", refused.len()))
}

/// Memory of the default pool, which has no handle: the copy is queued behind the late write, and the next write comes after it. The
/// release of the copy before it is due then, and must not wait for the late write either.
pub(crate) fn copies(rounds: usize) -> Result<String, String> {
    let (stream, mut other, count, mut gate) = (stream(), Other::start(), Count::default(), Gate::new());
    let memory = get(|out| cuMemAllocAsync(out, BYTES, stream));
    let (mut wrong, mut is_deferred, rounds) = (0, true, rounds.div_ceil(10).max(10));
    for round in 0..rounds {
        gate.close(stream);
        set(memory, value(round), BYTES, stream);
        let import = array(memory, BYTES, Some(stream), &count);
        let refused = share_import(import, 1, LONG).map(drop).unwrap_err();
        if refused.error.kind() != ErrorKind::Unsupported {
            return Err(refused.to_string());
        }
        // If the host waited, the row would not end.
        let parcel = copy_import(&refused.value, 1, LONG).map_err(|error| error.to_string())?;
        drop(refused);
        set(memory, 255, BYTES, stream);
        let opened = other.open("copy", &parcel);
        gate.open();
        wrong += usize::from(opened != "ok" || other.ask(&format!("check {}", value(round))) != "true");
        other.tell("drop");
        let copy = parcel.take_back_on(handle(stream), LONG).map_err(|error| error.to_string())?;
        gate.close(stream);
        drop(copy);
        is_deferred &= pending_releases() != 0;
        gate.open();
        ok(cuCtxSynchronize());
    }
    ok(cuMemFreeAsync(memory, stream));
    ok(cuStreamSynchronize(stream));
    let reports = other.reports();
    hold(
        wrong + reports == 0 && count.is_zero() && is_deferred,
        format!("{wrong} wrong of {rounds}, releases later: {is_deferred}{}", told(reports)),
    )
}

/// Two rows, in reverse: the first bytes are those of the last row.
fn reversed(device: Device, address: u64, stream: Option<StreamHandle>) -> Import {
    let (shape, strides) = ([2, SEEN as i64], [-(SEEN as i64), 1]);
    let last = usize::try_from(address).expect("64 bits") + SEEN;
    let descriptor = RawDescriptor {
        dtype: DType::U8,
        stream,
        strides: Strides::Elements(&strides),
        mutability: Mutability::Writable,
        ..RawDescriptor::new(last, device, &shape)
    };
    // SAFETY: 1: the program frees the memory after its last use. 2: it is in no `Box`. 3: work is on the stream, or in the context.
    unsafe { Import::from_parts(descriptor.validate().expect("an array"), Owner::new(())) }
}

/// Copies an import, has the other process open the copy, and tells the device of the copy if its first bytes are right.
fn copied(import: &Import, expected: u8, other: &mut Other) -> Result<Device, String> {
    let parcel: Parcel<Import> = copy_import(import, 1, LONG).map_err(|error| error.to_string())?;
    let opened = other.open("copy", &parcel);
    let seen = other.ask(&format!("check {expected}"));
    other.tell("drop");
    let copy = parcel.take_back(LONG).map_err(|refused| refused.to_string())?;
    let is_in_order = copy.info().strides().windows(2).all(|pair| pair[0] >= pair[1]);
    if opened == "ok" && seen == "true" && is_in_order {
        Ok(copy.info().device())
    } else {
        Err(format!("{opened}, {seen}, strides {:?}", copy.info().strides()))
    }
}

/// The copies of views, and of pinned, managed and mapped memory: what they hold, and where they are.
pub(crate) fn copies_of_others() -> Result<String, String> {
    let (stream, mut other, count) = (stream(), Other::start(), Count::default());
    let pool = get(|out| cuMemAllocAsync(out, 2 * SEEN, stream));
    let (pinned, pieces) = (Pinned::new(2 * SEEN), Pieces::new(1, 0));
    let managed = get(|out| cuMemAllocManaged(out, 2 * SEEN, 1));
    for address in [pool, pinned.address(), managed, pieces.address] {
        set(address, 1, SEEN, stream);
        set(address + SEEN as u64, 2, SEEN, stream);
    }
    let (gpu, on) = (Device::cuda(0), Some(handle(stream)));
    let mut found = Vec::new();
    for (device, address, stream) in [
        (gpu, pool, on),
        // The host waits for all work of the context.
        (gpu, pool, None),
        (gpu, pieces.address, on),
        (Device::CUDA_MANAGED, managed, on),
        (Device::CUDA_HOST, pinned.address(), on),
    ] {
        let import = reversed(device, address, stream);
        found.push(copied(&import, 2, &mut other).map_err(|error| format!("{device}: {error}"))?);
    }
    let empty = copied(&array_on(gpu, pool, 0, Some(stream), &count), 2, &mut other);
    ok(cuStreamBeginCapture_v2(stream, 1));
    let captured = copy_import(&reversed(gpu, pool, on), 1, LONG).map(drop).unwrap_err();
    let mut graph = 0;
    let code = cuStreamEndCapture(stream, &mut graph);
    if code == 0 {
        ok(cuGraphDestroy(graph));
    }
    ok(cuMemFreeAsync(pool, stream));
    ok(cuStreamSynchronize(stream));
    ok(cuMemFree_v2(managed));
    let is_met = found == [gpu, gpu, gpu, gpu, Device::CPU]
        && empty == Ok(gpu)
        && (code, captured.kind()) == (0, ErrorKind::StreamCapture);
    hold(is_met, format!("{found:?}, empty {empty:?}, captured {code} {:?}", captured.kind()))
}

/// As with another `CUDA_VISIBLE_DEVICES`. The array stays on offer.
pub(crate) fn unseen_gpu() -> Result<String, String> {
    let (stream, mut other, count) = (stream(), Other::start(), Count::default());
    let block = Block::new(SEEN);
    let uuid = get(|out| cuDeviceGetUuid_v2(out, 0));
    let parcel = share(block.0, SEEN, Some(stream), &count);
    let mut message = parcel.bytes().to_vec();
    let at = message.windows(16).position(|bytes| bytes == uuid).ok_or("no GPU in the message")?;
    message[at] ^= 1;
    let refused = other.ask(&format!("open {}", hex(&message)));
    let is_kept = other.open("open", &parcel) == "ok";
    other.tell("drop");
    parcel.take_back(LONG).map_err(|refused| refused.to_string())?;
    let is_met = refused.starts_with("Device: ") && refused.contains("CUDA_VISIBLE_DEVICES");
    hold(is_met && is_kept, format!("{refused:.60}; then opened: {is_kept}"))
}
