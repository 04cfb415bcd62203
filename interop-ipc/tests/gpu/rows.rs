//! The rows of the table.

use std::time::{Duration, Instant};

use interop_core::Device;
use interop_ipc::share_import;
use simulated_cuda::sim;

#[allow(clippy::wildcard_imports, reason = "the functions of the driver")]
use crate::driver::*;
use crate::memory::{Count, Gate, LONG, Pieces, Pinned, array_on, handle, share, soon};
use crate::other::{NOT_SUPPORTED, Other, get_free, has_nothing, hex, unhex};
use crate::{kills, known_faults, rest, ways};

/// A block as that of a caching allocator, and an array in it.
pub(crate) const BLOCK: usize = 8 << 20;
pub(crate) const OFFSET: u64 = 3 << 20;
pub(crate) const BYTES: usize = 64 << 10;
/// The bytes that the other process copies.
pub(crate) const SEEN: usize = 4096;

/// Its name, and what it does so many times.
pub(crate) type Row = (&'static str, fn(usize) -> Result<String, String>);

/// Those about order.
pub(crate) const ORDER: [Row; 7] = [
    ("order to the consumer", |rounds| to_consumer(rounds, "copy", true)),
    ("order to the consumer, unnamed streams", |rounds| to_consumer(rounds / 10, "import", false)),
    ("order to the consumer, left out", left_out),
    ("order to the producer", |rounds| to_producer(rounds, TakeBack::OnHost)),
    ("order to the producer's stream", |rounds| to_producer(rounds, TakeBack::OnStream)),
    ("order to the producer, left out", |rounds| to_producer(rounds / 10, TakeBack::TooLate)),
    ("offset in a block", offsets),
];

pub(crate) const OTHERS: [Row; 27] = [
    ("dora#978: a stacked tensor", known_faults::dora_978),
    ("Mooncake#1622: tensors of one block", known_faults::mooncake_1622),
    ("contexts that are not current", |_| contexts()),
    ("a GPU that cannot wait for numbers", |_| without_numbers()),
    ("mapped memory in pieces", ways::mapped),
    ("memory of a pool", ways::of_pool),
    ("memory of a pool, opened twice", |_| ways::opened_twice()),
    ("memory of a pool, allocated again", ways::allocated_again),
    ("memory of a pool, refused by the driver", |_| ways::refused_by_the_driver()),
    ("host and GPU at once", |_| ways::host_and_gpu()),
    ("a copy of what cannot be shared", ways::copies),
    ("a copy of other layouts and memory", |_| ways::copies_of_others()),
    ("random kills", |rounds| kills::at_random(rounds.div_ceil(100).max(3) as u64, 1)),
    ("round trip, block known", |rounds| round_trip(rounds, true)),
    ("round trip, block new", |rounds| round_trip(rounds, false)),
    ("round trip, blocks that rest", rest::resting),
    ("opening 2 GiB", rest::opening),
    ("freed while it is open", rest::freed_while_open),
    ("closed while a stream waits", rest::closed_while_waiting),
    ("whether a producer runs", rest::alive),
    ("message", |_| message()),
    ("growth", growth),
    ("consumer killed", |rounds| consumer_killed(rounds / 100)),
    ("producer killed", |rounds| producer_killed(rounds / 100)),
    ("graph captures", |_| captures()),
    ("a GPU that the other process does not see", |_| ways::unseen_gpu()),
    ("memory that cannot be shared", |_| refusals()),
];

/// The text if it holds, or as an error.
pub(crate) fn hold(is_met: bool, text: String) -> Result<String, String> {
    if is_met { Ok(text) } else { Err(text) }
}

/// Whether the simulated driver has reported a race, if it is that driver.
fn is_reported(reports: usize) -> bool {
    reports > 0 || !is_simulated()
}

pub(crate) fn told(reports: usize) -> String {
    if is_simulated() { format!(", {reports} reports") } else { String::new() }
}

pub(crate) fn set(address: u64, value: u8, bytes: usize, stream: usize) {
    ok(cuMemsetD8Async(address, value, bytes, stream));
}

/// A value that differs from that of the round before.
pub(crate) fn value(round: usize) -> u8 {
    u8::try_from(round % 251).expect("a byte") + 1
}

/// An allocation, freed at its end.
pub(crate) struct Block(pub(crate) u64);

impl Block {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(get(|out| cuMemAlloc_v2(out, bytes)))
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        assert_eq!(cuMemFree_v2(self.0), 0, "a free");
    }
}

/// Arrays at several places of a block, and in small blocks, which lie in one page. By hand, the offset is lost.
fn offsets(_: usize) -> Result<String, String> {
    let (stream, mut other, count) = (stream(), Other::start(), Count::default());
    let block = Block::new(BLOCK);
    let small: Vec<_> = (0..4).map(|_| Block::new(SEEN)).collect();
    let places = [block.0, block.0 + SEEN as u64, block.0 + OFFSET + 64, block.0 + (BLOCK - SEEN) as u64];
    let places: Vec<_> = places.into_iter().chain(small.iter().map(|block| block.0)).collect();
    set(block.0, 200, BLOCK, stream);
    for (index, place) in places.iter().enumerate() {
        set(*place, value(index), SEEN, stream);
    }
    let mut wrong = 0;
    for (index, place) in places.iter().enumerate() {
        let parcel = share(*place, SEEN, Some(stream), &count);
        let opened = other.open("copy", &parcel);
        if opened != "ok" || other.ask(&format!("check {}", value(index))) != "true" {
            eprintln!("place {index}: {opened}");
            wrong += 1;
        }
    }
    other.tell("drop");
    if !soon(|| count.is_zero()) {
        return Err("arrays that were not given back".to_owned());
    }
    ok(cuStreamSynchronize(stream));
    let handle = get_handle(places[2]);
    let same = get_handle(places[0]) == handle;
    other.tell(&format!("hand {}", hex(&handle)));
    let lost = other.ask(&format!("seen {}", value(2))) == "false";
    hold(wrong == 0 && same && lost, format!("{wrong} of {} wrong; by hand wrong: {lost}", places.len()))
}

pub(crate) fn get_handle(address: u64) -> [u8; 64] {
    let mut handle = MemoryHandle([0; 64]);
    ok(cuIpcGetMemHandle(&mut handle, address));
    handle.0
}

/// Arrays that are written after the other process has queued its copy.
pub(crate) struct LateWrites {
    pub(crate) stream: usize,
    pub(crate) other: Other,
    pub(crate) count: Count,
    gate: Gate,
}

impl LateWrites {
    pub(crate) fn new() -> Self {
        Self { stream: stream(), other: Other::start(), count: Count::default(), gate: Gate::new() }
    }

    /// Returns how many of the arrays at an address were wrong.
    pub(crate) fn run(
        &mut self,
        rounds: usize,
        (address, bytes): (u64, usize),
        (how, is_named): (&str, bool),
    ) -> Result<usize, String> {
        let mut wrong = 0;
        for round in 0..rounds {
            self.gate.close(self.stream);
            set(address, value(round), bytes, self.stream);
            let parcel = share(address, bytes, is_named.then_some(self.stream), &self.count);
            let opened = self.other.open(how, &parcel);
            self.gate.open();
            if opened != "ok" {
                return Err(opened);
            }
            wrong += usize::from(self.other.ask(&format!("check {}", value(round))) != "true");
            self.other.tell("drop");
            parcel.take_back_on(handle(self.stream), LONG).map_err(|error| error.to_string())?;
        }
        Ok(wrong)
    }

    /// As [`run`](Self::run), until the end of this value: nothing is wrong, left or grown.
    pub(crate) fn end(mut self, rounds: usize, place: (u64, usize)) -> Result<String, String> {
        let mut wrong = self.run(rounds / 20 + 1, place, ("copy", true))?;
        let before = left();
        wrong += self.run(rounds, place, ("copy", true))?;
        let (after, reports) = (left(), self.other.reports());
        let grown = before.0.saturating_sub(after.0);
        let is_met = wrong + reports == 0 && grown <= 2 << 20 && after.1 <= before.1 && self.count.is_zero();
        let text =
            format!("{wrong} wrong of {rounds}, {grown} bytes, {} to {} descriptors", before.1, after.1);
        hold(is_met, text + &told(reports))
    }
}

/// The producer's work starts after the consumer has queued its own.
fn to_consumer(rounds: usize, how: &str, is_named: bool) -> Result<String, String> {
    let (mut writes, block) = (LateWrites::new(), Block::new(BLOCK));
    set(block.0, 0, BLOCK, writes.stream);
    let wrong = writes.run(rounds, (block.0 + OFFSET, BYTES), (how, is_named))?;
    let reports = writes.other.reports();
    hold(
        wrong + reports == 0 && writes.count.is_zero(),
        format!("{wrong} wrong of {rounds}{}", told(reports)),
    )
}

/// As `to_consumer`, on a stream that does not wait: the race is there.
fn left_out(rounds: usize) -> Result<String, String> {
    let (stream, mut other, count, mut gate) = (stream(), Other::start(), Count::default(), Gate::new());
    let block = Block::new(BLOCK);
    set(block.0, 0, BLOCK, stream);
    let (mut wrong, rounds) = (0, rounds / 10);
    for round in 0..rounds {
        gate.close(stream);
        set(block.0 + OFFSET, value(round), BYTES, stream);
        let parcel = share(block.0 + OFFSET, BYTES, Some(stream), &count);
        let opened = other.open("unordered", &parcel);
        wrong += usize::from(opened == "ok" && other.ask(&format!("seen {}", value(round))) != "true");
        gate.open();
        other.tell("drop");
        parcel.take_back(LONG).map_err(|error| error.to_string())?;
    }
    let reports = other.reports();
    hold(wrong == rounds && is_reported(reports), format!("{wrong} wrong of {rounds}{}", told(reports)))
}

/// When the producer writes again.
#[derive(Clone, Copy, PartialEq)]
enum TakeBack {
    /// The host waits.
    OnHost,
    OnStream,
    /// After the write.
    TooLate,
}

/// The consumer's work starts late, and the producer writes again.
fn to_producer(rounds: usize, how: TakeBack) -> Result<String, String> {
    let (stream, mut other, count) = (stream(), Other::start(), Count::default());
    let block = Block::new(BLOCK);
    set(block.0, 0, BLOCK, stream);
    // Another array of the block, so that the block stays open.
    let kept = share(block.0, SEEN, Some(stream), &count);
    other.tell(&format!("keep {}", hex(kept.bytes())));
    let mut wrong = 0;
    for round in 0..rounds {
        set(block.0 + OFFSET, value(round), BYTES, stream);
        let parcel = share(block.0 + OFFSET, BYTES, Some(stream), &count);
        let opened = other.open("late", &parcel);
        if opened != "ok" {
            return Err(opened);
        }
        match how {
            TakeBack::OnHost => {
                let early = parcel.take_back(Duration::from_micros(500));
                let Err(refused) = early else {
                    return Err("given back before its work was done".to_owned());
                };
                other.tell("gate");
                refused.value.take_back(LONG).map_err(|error| error.to_string())?;
                set(block.0 + OFFSET, 255, BYTES, stream);
            }
            TakeBack::OnStream => {
                parcel.take_back_on(handle(stream), LONG).map_err(|error| error.to_string())?;
                set(block.0 + OFFSET, 255, BYTES, stream);
                other.tell("gate");
            }
            TakeBack::TooLate => {
                set(block.0 + OFFSET, 255, BYTES, stream);
                ok(cuStreamSynchronize(stream));
                other.tell("gate");
                parcel.take_back(LONG).map_err(|error| error.to_string())?;
            }
        }
        ok(cuStreamSynchronize(stream));
        wrong += usize::from(other.ask(&format!("check {}", value(round))) != "true");
    }
    other.tell("forget");
    other.tell("drop");
    kept.take_back(LONG).map_err(|error| error.to_string())?;
    let reports = other.reports();
    let is_met = match how {
        // The simulated driver does not see that the host reads a number, and reports what follows.
        TakeBack::OnHost => wrong == 0,
        TakeBack::OnStream => wrong + reports == 0,
        TakeBack::TooLate => wrong == rounds && is_reported(reports),
    };
    hold(is_met && count.is_zero(), format!("{wrong} wrong of {rounds}{}", told(reports)))
}

/// Write, share, send, open, copy, drop, answer.
fn round_trip(rounds: usize, is_known: bool) -> Result<String, String> {
    let (stream, mut other, count) = (stream(), Other::start(), Count::default());
    let block = Block::new(BLOCK);
    let kept = share(block.0, SEEN, Some(stream), &count);
    if is_known {
        other.tell(&format!("keep {}", hex(kept.bytes())));
    }
    let mut times = Vec::new();
    for round in 0..rounds {
        let start = Instant::now();
        set(block.0 + OFFSET, value(round), BYTES, stream);
        let parcel = share(block.0 + OFFSET, BYTES, Some(stream), &count);
        let opened = other.open("trip", &parcel);
        times.push(start.elapsed());
        if opened != "ok" {
            return Err(opened);
        }
        if !is_known {
            other.tell("drop");
        }
        parcel.take_back(LONG).map_err(|error| error.to_string())?;
    }
    other.tell("forget");
    other.tell("drop");
    times.sort();
    let (half, most) = (times[times.len() / 2].as_micros(), times[times.len() * 9 / 10].as_micros());
    // Half of the time that PyTorch's reduction takes.
    let limit = if is_known { 210 } else { 365 };
    let text = format!("median {half} us, nine of ten {most}, limit {limit}");
    // Without a GPU, the time says nothing.
    hold(half <= limit || is_simulated(), text)
}

fn message() -> Result<String, String> {
    let (block, stream) = (Block::new(BLOCK), stream());
    let parcel = share(block.0 + OFFSET, BYTES, Some(stream), &Count::default());
    let bytes = parcel.bytes().len();
    parcel.take_back(LONG).map_err(|error| error.to_string())?;
    hold(bytes <= 200, format!("{bytes} bytes"))
}

/// The free bytes of the device, after all work, and the open descriptors. The simulated driver keeps some of its own.
pub(crate) fn left() -> (usize, usize) {
    ok(cuCtxSynchronize());
    let open = std::fs::read_dir("/proc/self/fd").expect("the descriptors").flatten();
    let targets = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    (get_free(), targets.filter(|target| !target.to_string_lossy().contains("simulated-cuda")).count())
}

/// The memory in use in MiB, as `nvidia-smi` tells it, or 0 where there is no such program.
fn used_by_all() -> usize {
    let mut command = std::process::Command::new("nvidia-smi");
    let output =
        command.args(["--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]).output();
    let output = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().parse().ok());
    output.ok().flatten().unwrap_or(0)
}

/// Memory of the device and descriptors, before and after many arrays.
fn growth(rounds: usize) -> Result<String, String> {
    let (stream, mut other, count) = (stream(), Other::start(), Count::default());
    let block = Block::new(BLOCK);
    let mut free = |times: usize| {
        for _ in 0..times {
            let parcel = share(block.0 + OFFSET, BYTES, Some(stream), &count);
            assert_eq!(other.open("trip", &parcel), "ok");
            other.tell("drop");
            parcel.take_back(LONG).expect("given back");
        }
        (left(), used_by_all())
    };
    let (before, used) = free(rounds / 20 + 5);
    let (after, used_after) = free(rounds);
    let grown = before.0.saturating_sub(after.0);
    let is_met = grown <= 2 << 20 && after.1 <= before.1 && used_after <= used && count.is_zero();
    let text = format!("{grown} bytes, {} to {} descriptors in {rounds}", before.1, after.1);
    hold(is_met, format!("{text}; nvidia-smi {used} to {used_after} MiB"))
}

/// The array is shared and opened on threads without a context, and while another context is current.
fn contexts() -> Result<String, String> {
    let (stream, mut other, count) = (stream(), Other::start(), Count::default());
    let block = Block::new(BLOCK);
    set(block.0 + OFFSET, 5, BYTES, stream);
    let place = block.0 + OFFSET;
    let on_thread = |count: Count| std::thread::spawn(move || share(place, BYTES, Some(stream), &count));
    let parcel = on_thread(count.clone()).join().map_err(|_| "panicked".to_owned())?;
    let mut wrong = usize::from(other.open("thread", &parcel) != "ok" || other.ask("check 5") != "true");
    other.tell("drop");
    parcel.take_back_on(handle(stream), LONG).map_err(|error| error.to_string())?;
    let context = get(|out| cuCtxCreate_v2(out, 0, 0));
    let parcel = share(place, BYTES, Some(stream), &count);
    wrong += usize::from(other.open("copy", &parcel) != "ok" || other.ask("check 5") != "true");
    other.tell("drop");
    parcel.take_back_on(handle(stream), LONG).map_err(|error| error.to_string())?;
    // Streams of contexts that are not the primary ones, on both sides.
    ok(cuStreamSynchronize(stream));
    let foreign = crate::driver::stream();
    set(place, 6, BYTES, foreign);
    let parcel = share(place, BYTES, Some(foreign), &count);
    wrong += usize::from(other.open("foreign", &parcel) != "ok" || other.ask("check 6") != "true");
    other.tell("drop");
    parcel.take_back_on(handle(foreign), LONG).map_err(|error| error.to_string())?;
    set(place, 7, BYTES, foreign);
    ok(cuStreamSynchronize(foreign));
    let reports = other.reports();
    let is_left = !count.is_zero();
    ok(cuCtxDestroy_v2(context));
    start();
    hold(wrong + reports == 0 && !is_left, format!("{wrong} wrong of 3{}", told(reports)))
}

/// Where streams cannot write or await numbers, the host waits.
fn without_numbers() -> Result<String, String> {
    if !is_simulated() {
        return Ok("skipped: this GPU can".to_owned());
    }
    let (stream, mut other, count) = (stream(), Other::start(), Count::default());
    let block = Block::new(BLOCK);
    let mut wrong = 0;
    for round in 0..4 {
        set(block.0 + OFFSET, value(round), BYTES, stream);
        match round {
            0 => fail("cuStreamWriteValue64", NOT_SUPPORTED),
            1 => other.tell("fail cuStreamWaitValue64"),
            // The number of the drop.
            2 => other.tell("fail cuStreamWriteValue64"),
            _ => {}
        }
        let parcel = share(block.0 + OFFSET, BYTES, Some(stream), &count);
        if round == 3 {
            fail("cuStreamWaitValue64", NOT_SUPPORTED);
        }
        let opened = other.open("copy", &parcel);
        wrong += usize::from(opened != "ok" || other.ask(&format!("check {}", value(round))) != "true");
        other.tell("drop");
        parcel.take_back_on(handle(stream), LONG).map_err(|error| error.to_string())?;
    }
    sim().clear_faults();
    hold(wrong == 0 && count.is_zero(), format!("{wrong} wrong of 4"))
}

/// The consumer ends by a signal at each step: nothing is left, and no stream hangs.
fn consumer_killed(rounds: usize) -> Result<String, String> {
    let steps = ["started", "opened", "with pending work", "given back with pending work"];
    let (stream, count) = (stream(), Count::default());
    for round in 0..rounds.max(1) {
        for step in steps {
            let block = Block::new(BLOCK);
            set(block.0, 1, BLOCK, stream);
            let mut other = Other::start();
            let kept = share(block.0, SEEN, Some(stream), &count);
            let parcel = share(block.0 + OFFSET, BYTES, Some(stream), &count);
            match step {
                "started" => {}
                "opened" => drop(other.open("open", &parcel)),
                "with pending work" => drop(other.open("copy", &parcel)),
                _ => {
                    other.tell(&format!("keep {}", hex(kept.bytes())));
                    other.tell(&format!("late {}", hex(parcel.bytes())));
                }
            }
            other.kill();
            if !has_nothing(other.number()) {
                return Err(format!("{step}: a lease is left"));
            }
            kept.withdraw();
            drop(kept);
            let taken = parcel.take_back(LONG);
            let error = taken.map(drop).err().map(|refused| refused.to_string());
            if error.is_some() || !soon(|| count.is_zero()) {
                return Err(format!("{step}, round {round}: {error:?}"));
            }
            set(block.0, 2, BLOCK, stream);
            ok(cuStreamSynchronize(stream));
        }
    }
    Ok(format!("{} steps, {} times", steps.len(), rounds.max(1)))
}

/// The producer ends before it has written its number: the stream goes on.
fn producer_killed(rounds: usize) -> Result<String, String> {
    let (stream, target) = (stream(), Pinned::new(SEEN));
    let mut longest = Duration::ZERO;
    for _ in 0..rounds.max(1) {
        let mut other = Other::start();
        let bytes = unhex(&other.ask("pending"));
        let import = interop_ipc::open_on(&bytes, handle(stream)).map_err(|error| error.to_string())?;
        ok(cuMemcpyAsync(target.address(), import.info().address() as u64, SEEN, stream));
        if cuStreamQuery(stream) == 0 {
            return Err("the stream did not wait".to_owned());
        }
        other.kill();
        let start = Instant::now();
        if !soon(|| cuStreamQuery(stream) == 0) {
            return Err("the stream hangs".to_owned());
        }
        longest = longest.max(start.elapsed());
        let gone = interop_ipc::open_on(&bytes, handle(stream)).map(drop).unwrap_err();
        if gone.kind() != interop_core::ErrorKind::Gone {
            return Err(gone.to_string());
        }
        drop(import);
        ok(cuCtxSynchronize());
        interop_core::cuda::finish_releases();
    }
    Ok(format!("{} times, streams went on after at most {longest:?}", rounds.max(1)))
}

/// A stream that captures a graph neither offers nor opens an array, and its capture stays valid.
fn captures() -> Result<String, String> {
    let (stream, mut other, count) = (stream(), Other::start(), Count::default());
    let block = Block::new(BLOCK);
    ok(cuStreamBeginCapture_v2(stream, 1));
    let refused = share_import(crate::memory::array(block.0, SEEN, Some(stream), &count), 1, LONG);
    let refused = refused.map(drop).unwrap_err().error;
    let graph = get(|out| cuStreamEndCapture(stream, out));
    ok(cuGraphDestroy(graph));
    let parcel = share_import(crate::memory::array(block.0, SEEN, Some(stream), &count), 2, LONG);
    let parcel = parcel.map_err(|refused| refused.to_string())?;
    let answer = other.open("capture", &parcel);
    let is_kept = other.open("copy", &parcel);
    other.tell("drop");
    parcel.withdraw();
    let is_met =
        refused.kind() == interop_core::ErrorKind::StreamCapture && answer.starts_with("0 StreamCapture");
    hold(is_met && is_kept == "ok", format!("{:.60}; {answer:.60}; then {is_kept}", refused.to_string()))
}

/// Each error names the allocator.
fn refusals() -> Result<String, String> {
    let stream = stream();
    let refusal = |device, address| {
        let import = array_on(device, address, SEEN, Some(stream), &Count::default());
        share_import(import, 1, LONG)
            .map(drop)
            .map_err(|refused| refused.to_string())
            .err()
            .unwrap_or_default()
    };
    let pool = get(|out| cuMemAllocAsync(out, SEEN, stream));
    let pinned = Pinned::new(SEEN);
    let managed = get(|out| cuMemAllocManaged(out, SEEN, 1));
    let pieces = Pieces::new(1, 0);
    let found = [
        (refusal(Device::cuda(0), pieces.address), "without a type of handle"),
        (refusal(Device::cuda(0), pool), "cudaMallocAsync"),
        (refusal(Device::CUDA_HOST, pinned.address()), "CUDAHost"),
        (refusal(Device::CUDA_MANAGED, managed), "CUDAManaged"),
    ];
    ok(cuMemFreeAsync(pool, stream));
    ok(cuMemFree_v2(managed));
    ok(cuStreamSynchronize(stream));
    for (text, word) in &found {
        if !text.contains(word) {
            return Err(format!("{word}: {text}"));
        }
    }
    Ok(format!("{} kinds", found.len()))
}
