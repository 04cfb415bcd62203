//! Processes that are killed at random moments.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use interop_core::Import;
use interop_ipc::Parcel;

#[allow(clippy::wildcard_imports, reason = "the functions of the driver")]
use crate::driver::*;
use crate::memory::{Count, Gate, LONG, OfPool, Pieces, Pinned, handle, share, soon};
use crate::other::{Other, has_nothing, hex, unhex};
use crate::rows::{BLOCK, BYTES, Block, OFFSET, SEEN, hold, left, set, told};

/// How many processes wait for their turn, because each takes a while to start.
const WAITING: usize = 4;

/// Pseudorandom numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u16) -> u16 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u16::try_from(self.0 % u64::from(limit)).expect("16 bits")
    }
}

/// What has to stay right in this process.
struct Survivor {
    stream: usize,
    count: Count,
    target: Pinned,
    gate: Gate,
    /// The addresses of arrays in memory of each kind.
    places: [u64; 3],
}

impl Survivor {
    /// Kills a consumer that has some arrays open, while it does something with another one.
    fn kill_consumer(&mut self, mut other: Other, random: &mut Random) -> Result<(), String> {
        let mut parcels: Vec<Parcel<Import>> = Vec::new();
        for _ in 0..random.below(4) {
            let parcel = self.offer(parcels.len(), random);
            let answer = other.open(["open", "copy", "trip"][usize::from(random.below(3))], &parcel);
            if answer != "ok" {
                return Err(answer);
            }
            parcels.push(parcel);
        }
        // Some work of this process is still to come when the other one ends.
        let is_late = random.below(3) == 0;
        if is_late {
            self.gate.close(self.stream);
        }
        let last = self.offer(parcels.len(), random);
        let order = ["open", "copy", "trip", "late", "import"][usize::from(random.below(5))];
        other.begin(&format!("{order} {}", hex(last.bytes())));
        if random.below(2) == 0 {
            other.begin("drop");
        }
        std::thread::sleep(Duration::from_micros(random.below(1500).into()));
        other.kill();
        if is_late {
            self.gate.open();
        }
        parcels.push(last);
        if !has_nothing(other.number()) {
            return Err(format!("{order}: a lease is left"));
        }
        for parcel in parcels {
            parcel.take_back(LONG).map_err(|refused| format!("{order}: {refused}"))?;
        }
        if !soon(|| self.count.is_zero()) {
            return Err(format!("{order}: an array is left"));
        }
        Ok(())
    }

    /// Writes an array and offers it. Those of one consumer lie beside each other, because it may still read the one before.
    fn offer(&self, index: usize, random: &mut Random) -> Parcel<Import> {
        let place = self.places[usize::from(random.below(3))] + (index * BYTES) as u64;
        set(place, 1, BYTES, self.stream);
        share(place, BYTES, Some(self.stream), &self.count)
    }

    /// Kills a producer while this process opens its array, or waits for its work.
    fn kill_producer(&self, mut other: Other, random: &mut Random) -> Result<(), String> {
        let bytes = unhex(&other.ask("pending"));
        let is_early = random.below(4) == 0;
        let opened = std::thread::scope(|scope| {
            let (bytes, stream) = (&bytes, self.stream);
            let opened = scope.spawn(move || interop_ipc::open_on(bytes, handle(stream)));
            if !is_early {
                std::thread::sleep(Duration::from_micros(random.below(3000).into()));
            }
            other.kill();
            opened.join().expect("no panic")
        });
        match opened {
            Ok(import) => {
                ok(cuMemcpyAsync(self.target.address(), import.info().address() as u64, SEEN, self.stream));
                if !soon(|| cuStreamQuery(self.stream) == 0) {
                    return Err("the stream hangs".to_owned());
                }
            }
            Err(error) if error.kind() == interop_core::ErrorKind::Gone => {}
            Err(error) => return Err(error.to_string()),
        }
        interop_core::cuda::finish_releases();
        Ok(())
    }
}

/// Kills consumers and producers for some seconds. Nothing hangs, is left open, or grows.
pub(crate) fn at_random(seconds: u64, seed: u64) -> Result<String, String> {
    let (stream, mut random) = (stream(), Random(seed | 1 << 40));
    let (block, pieces) = (Block::new(BLOCK), Pieces::new(2, 1));
    let of_pool = OfPool::new(1 << 20, stream);
    let places = [block.0 + OFFSET, pieces.address + 4096, of_pool.address + 4096];
    let (count, target, gate) = (Count::default(), Pinned::new(SEEN), Gate::new());
    let mut survivor = Survivor { stream, count, target, gate, places };
    let mut waiting: VecDeque<_> = (0..WAITING).map(|_| Other::start()).collect();
    let (start, mut kills, mut before) = (Instant::now(), [0, 0], None);
    while start.elapsed() < Duration::from_secs(seconds) {
        let mut other = waiting.pop_front().expect("some wait");
        waiting.push_back(Other::start());
        // It has started.
        other.ask("reports");
        let which = usize::from(random.below(3) == 0);
        let done = match which {
            0 => survivor.kill_consumer(other, &mut random),
            _ => survivor.kill_producer(other, &mut random),
        };
        kills[which] += 1;
        done.map_err(|error| format!("kill {kills:?} of seed {seed}: {error}"))?;
        if kills[0] + kills[1] == 8 {
            before = Some(left_beside(&mut waiting));
        }
    }
    let text = format!("{} consumers and {} producers", kills[0], kills[1]);
    let Some(before) = before else { return hold(seconds < 10, text) };
    // What was killed last is still on its way.
    let mut after = before;
    let is_back = soon(|| {
        after = left_beside(&mut waiting);
        before.0.saturating_sub(after.0) <= 4 << 20 && after.1 <= before.1
    });
    let (grown, reports) = (before.0.saturating_sub(after.0), reports());
    let text = format!("{text}, {grown} bytes, {} to {} descriptors", before.1, after.1);
    // The work of a process ends before this one hears of its end.
    hold(is_back && reports == 0, text + &told(reports))
}

/// What is left beside the processes that wait, which have started.
fn left_beside(waiting: &mut VecDeque<Other>) -> (usize, usize) {
    for other in waiting {
        other.ask("reports");
    }
    left()
}
