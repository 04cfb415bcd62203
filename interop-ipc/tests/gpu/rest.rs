//! Blocks that stay mapped while no array uses them, and memory that is freed while it is open.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use interop_core::Import;
use interop_ipc::{Parcel, is_alive, lend_import};

#[allow(clippy::wildcard_imports, reason = "the functions of the driver")]
use crate::driver::*;
use crate::memory::{Count, LONG, array, handle, share, soon};
use crate::other::{Other, hex};
use crate::rows::{BLOCK, BYTES, Block, OFFSET, SEEN, get_handle, hold, set, told, value};

/// Offers an array once, that may rest.
fn lend(address: u64, stream: usize, count: &Count) -> Result<Parcel<Import>, String> {
    let import = array(address, BYTES, Some(stream), count);
    lend_import(import, true, 1, LONG).map_err(|refused| refused.to_string())
}

/// Array after array of one block, none of which is open together with another: the block is opened once, and the last array is kept
/// until it is closed, so that the block is not freed before.
pub(crate) fn resting(rounds: usize) -> Result<String, String> {
    let (stream, mut other, count) = (stream(), Other::start(), Count::default());
    let block = Block::new(BLOCK);
    let (mut wrong, mut times) = (0, Vec::new());
    for round in 0..rounds {
        let place = block.0 + OFFSET + (round % 16 * SEEN) as u64;
        let start = Instant::now();
        set(place, value(round), BYTES, stream);
        let parcel = lend(place, stream, &count)?;
        let opened = other.open("trip", &parcel);
        times.push(start.elapsed());
        if opened != "ok" {
            return Err(opened);
        }
        parcel.end_use(Some(handle(stream)), LONG).map_err(|error| error.to_string())?;
        wrong += usize::from(other.ask(&format!("first {}", value(round))) != "true");
    }
    times.sort();
    let openings = other.ask("calls cuIpcOpenMemHandle_v2").parse::<usize>().unwrap_or(0);
    let is_kept = !count.is_zero();
    let is_freed = soon(|| count.is_zero());
    drop(block);
    let reports = other.reports();
    // The last array waits for the end of a tenth of a second.
    let is_met = wrong + reports == 0 && is_freed && (!is_simulated() || openings == 1);
    let half = times[times.len() / 2].as_micros();
    hold(
        is_met,
        format!("{wrong} wrong, {openings} opened, kept {is_kept}, median {half} us{}", told(reports)),
    )
}

/// Opening an array of 2 GiB, beside the bare call, in turns.
pub(crate) fn opening(rounds: usize) -> Result<String, String> {
    let (stream, mut other, count) = (stream(), Other::start(), Count::default());
    let bytes = if is_simulated() { BLOCK } else { 2 << 30 };
    let block = Block::new(bytes);
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..=rounds.div_ceil(20) {
        let time = |answer: String| answer.parse::<u64>().map_err(|_| answer);
        bare.push(time(other.ask(&format!("time-bare {}", hex(&get_handle(block.0)))))?);
        let parcel = share(block.0, bytes, Some(stream), &count);
        ours.push(time(other.open("time", &parcel))?);
        other.tell("drop");
        // The mapping is closed by then.
        parcel.take_back(LONG).map_err(|error| error.to_string())?;
    }
    let median = |times: &mut Vec<u64>| {
        // The first one connects.
        times.remove(0);
        times.sort_unstable();
        times[times.len() / 2] / 1000
    };
    let (ours, bare) = (median(&mut ours), median(&mut bare));
    // The office counts each opening, which takes some 40 us. Without a GPU, the time says nothing.
    hold(
        2 * ours <= 3 * bare || is_simulated(),
        format!("median {ours} us, the bare call {bare}, limit 1.5 of it"),
    )
}

/// The block is freed by hand while it is open. CUDA leaves that undefined, and the simulated driver reports it. A large block stays
/// as it was on a GPU.
pub(crate) fn freed_while_open(_: usize) -> Result<String, String> {
    let (stream, mut other, count) = (stream(), Other::start(), Count::default());
    let block = Block::new(BLOCK);
    set(block.0, 5, BLOCK, stream);
    let parcel = lend(block.0 + OFFSET, stream, &count)?;
    let opened = other.open("open", &parcel);
    ok(cuStreamSynchronize(stream));
    drop((block, parcel));
    let reports = reports();
    other.tell("again");
    let is_same = other.ask("check 5") == "true";
    other.tell("drop");
    let is_back = soon(|| count.is_zero());
    hold(
        opened == "ok" && is_back && (is_simulated() == (reports > 0)),
        format!("as it was: {is_same}, given back: {is_back}{}", told(reports)),
    )
}

/// Who has an array of a producer open can ask whether that still runs.
pub(crate) fn alive(_: usize) -> Result<String, String> {
    let mut other = Other::start();
    let bytes = crate::other::unhex(&other.ask("pending"));
    let import = interop_ipc::open(&bytes).map_err(|error| error.to_string())?;
    let before = is_alive(&bytes);
    other.kill();
    let after = is_alive(&bytes);
    drop(import);
    ok(cuCtxSynchronize());
    interop_core::cuda::finish_releases();
    hold(before == Ok(true) && after == Ok(false), format!("before its end {before:?}, after it {after:?}"))
}

/// A block of one producer is closed, which waits for all work of the device, while a stream waits for the number of another producer.
/// The end of that one ends both waits.
pub(crate) fn closed_while_waiting(_: usize) -> Result<String, String> {
    let (stream, mut first, mut second) = (stream(), Other::start(), Other::start());
    let open = |message: String| {
        interop_ipc::open_on(&crate::other::unhex(&message), handle(stream))
            .map_err(|error| error.to_string())
    };
    // Its block is idle for a tenth of a second.
    drop(open(first.ask("offer"))?);
    ok(cuStreamSynchronize(stream));
    let pending = open(second.ask("pending"))?;
    // By a thread of its own, because a call of the driver may wait as well.
    let was_killed = AtomicBool::new(false);
    let (goes_on, was_waiting) = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(250));
            was_killed.store(true, Ordering::SeqCst);
            second.kill();
        });
        (soon(|| cuStreamQuery(stream) == 0), was_killed.load(Ordering::SeqCst))
    });
    if !goes_on {
        // Its drop would wait as well.
        std::mem::forget(pending);
        return Err("the stream hangs".to_owned());
    }
    drop(pending);
    ok(cuCtxSynchronize());
    interop_core::cuda::finish_releases();
    hold(was_waiting, format!("waited: {was_waiting}, went on: {goes_on}"))
}
