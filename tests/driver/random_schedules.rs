//! Random programs of producers, consumers and drops on three streams; the simulated driver chooses the order of the
//! work.
//!
//! The seed of a program determines its steps and the order of the driver's work; a failure prints it. The reads are
//! compared with those of a program without streams, and the driver must report nothing. The same program then runs
//! without one stream wait, and again without the wait of one release. Each is one that no other wait replaces,
//! according to `happens_before`. The driver must report the omission, whatever was read.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use interop_core::cuda::{CudaBuffer, MemoryKind, finish_releases, poll_releases, stream_wait};
use interop_core::protocols::dlpack::{ManagedTensor, Versioned};
use interop_core::{CudaArray, DType, Device, FromArray, Import, LeaseMut, StreamHandle};
use simulated_cuda::{Mistake, Policy, Report};

use crate::counted_imports::ReadyOn;
use crate::cuda_program::{Bytes, Stream};
use crate::exclusive_driver::{Turn, first_gpu};
use crate::happens_before::{Act, LEGACY, is_broken};
use crate::order_settings::Releases;
use crate::support::arrays::Array;
use crate::support::counted_owners::elsewhere;

const GPU: Device = Device::cuda(0);
/// The call that completes a stream wait.
const WAIT: &str = "cuStreamWaitEvent";
/// The call that records the event of a release.
const RECORD: &str = "cuCtxRecordEvent";
const BYTES: usize = 8;
const STEPS: usize = 24;

/// Splitmix64: a fixed sequence for each seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).expect("less than a number of things")
    }
}

/// What a program omits, to show that it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// A stream wait: this call of `cuStreamWaitEvent` has no effect.
    Edge(u64),
    /// The wait of a release: the array with this number, in the order of releases, is freed immediately.
    ReleaseScope(usize),
}

/// The forms in which a program holds an array.
enum Held {
    /// The struct that allocated the memory, shared with its exports.
    Own(Arc<Array<CudaBuffer>>),
    /// An import of such an export, or of an export of an import, as another library would hold it.
    Import(Array<LeaseMut<u8>>),
}

impl Held {
    fn new() -> Self {
        let memory = CudaBuffer::zeroed(MemoryKind::Pool, 0, DType::U8, BYTES).expect("enough memory");
        Self::Own(Arc::new(Array::new(memory, &[BYTES])))
    }

    fn address(&self) -> usize {
        match self {
            Self::Own(array) => array.info(),
            Self::Import(array) => array.info(),
        }
        .expect("good facts")
        .address()
    }

    /// Exports the array for a stream and consumes the struct.
    fn send(self, stream: StreamHandle) -> ManagedTensor<Versioned> {
        match self {
            Self::Own(array) => array.share_dlpack_as::<Versioned>(stream).expect("an export"),
            Self::Import(array) => array.into_dlpack_as::<Versioned>(stream).expect("an export"),
        }
    }
}

/// An array and what the program knows about it.
struct Known {
    held: Held,
    number: usize,
    /// The stream of its last use.
    last: Option<usize>,
    /// The expected value of its bytes.
    value: u8,
}

/// A running program.
struct Program<'t> {
    turn: &'t Turn,
    left: Option<Left>,
    dice: Dice,
    streams: [Stream; 3],
    arrays: Vec<Known>,
    /// The number of arrays created so far.
    made: usize,
    /// The number of arrays released so far.
    released: usize,
    acts: Vec<Act>,
    /// The destination and the expected value of each read.
    reads: Vec<(Bytes, u8)>,
}

/// The result of a program.
struct Outcome {
    acts: Vec<Act>,
    /// The number of reads that differ from the model.
    wrong: usize,
    reports: Vec<Report>,
}

impl<'t> Program<'t> {
    fn new(turn: &'t Turn, seed: u64, left: Option<Left>, streams: [Stream; 3]) -> Self {
        turn.set_seed(seed);
        turn.set_policy(if seed % 2 == 0 { Policy::Late } else { Policy::Random });
        turn.reset_calls();
        if let Some(Left::Edge(call)) = left {
            turn.lose(WAIT, call);
        }
        let (acts, arrays, reads) = (Vec::new(), Vec::new(), Vec::new());
        let mut new =
            Self { turn, left, dice: Dice(seed), streams, arrays, made: 0, released: 0, acts, reads };
        (0..3).for_each(|_| new.make());
        new
    }

    /// Creates an array, which waits for the legacy stream.
    fn make(&mut self) {
        self.arrays.push(Known { held: Held::new(), number: self.made, last: None, value: 0 });
        self.made += 1;
        self.acts.push(Act::HostWait { stream: LEGACY });
    }

    /// Runs `work` in the library, checks that the host does not wait, and notes the events of releases that it
    /// recorded.
    fn ask<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let before = self.turn.calls(RECORD);
        let path = self.turn.no_waits();
        let result = work();
        drop(path);
        if self.turn.calls(RECORD) != before {
            self.acts.push(Act::ReleaseScope);
        }
        result
    }

    /// Runs `work` and notes the stream wait that it made, if any.
    fn edge<R>(&mut self, from: Option<usize>, to: usize, work: impl FnOnce(StreamHandle) -> R) -> R {
        let before = self.turn.calls(WAIT);
        let handle = from.map_or(StreamHandle::NothingPending, |from| self.streams[from].handle());
        let result = self.ask(|| work(handle));
        match (self.turn.calls(WAIT) - before, from) {
            (0, _) => {}
            (1, Some(from)) => self.acts.push(Act::Edge { from, to, call: before }),
            (calls, from) => panic!("{calls} edges from {from:?} to {to}"),
        }
        result
    }

    /// Uses an array on a stream, after its last use.
    fn enter(&mut self, at: usize, stream: usize, writes: bool) -> Bytes {
        let (last, to) = (self.arrays[at].last.replace(stream), self.streams[stream].handle());
        self.edge(last, stream, |from| stream_wait(to, from, GPU).expect("an edge"));
        self.acts.push(Act::Use { stream, array: self.arrays[at].number, writes });
        self.streams[stream].bytes_at(self.arrays[at].held.address(), BYTES)
    }

    fn write(&mut self, at: usize, stream: usize) {
        let target = self.enter(at, stream, true);
        let value = u8::try_from(self.dice.below(255)).expect("a byte");
        self.streams[stream].fill(&target, value);
        self.arrays[at].value = value;
    }

    fn read(&mut self, at: usize, stream: usize) {
        let source = self.enter(at, stream, false);
        let seen = self.streams[stream].scratch(BYTES);
        self.streams[stream].copy(&seen, &source);
        self.reads.push((seen, self.arrays[at].value));
    }

    /// Sends the array through DLPack to a consumer on a stream, which may drop it unread.
    fn send(&mut self, at: usize, stream: usize) {
        let handle = self.streams[stream].handle();
        let Known { held, number, last, value } = self.arrays.swap_remove(at);
        let array = self.edge(last, stream, |pending| {
            let held = match held {
                Held::Import(array) => Held::Import(Array { stream: pending, ..array }),
                Held::Own(array) => {
                    stream_wait(handle, pending, GPU).expect("an edge");
                    Held::Own(array)
                }
            };
            let import = Import::from_dlpack(held.send(handle)).expect("a good tensor").ready_on(handle);
            Array::from_import(import).expect("an array of bytes")
        });
        self.arrays.push(Known { held: Held::Import(array), number, last: Some(stream), value });
    }

    /// Drops an array while work may still be queued on it, here or on another thread.
    fn release(&mut self, at: usize, here: bool) {
        let Known { held, number, .. } = self.arrays.swap_remove(at);
        let unfenced = self.left == Some(Left::ReleaseScope(self.released));
        self.released += 1;
        if unfenced {
            // Deferred releases get their event before this array is freed, so that is noted first.
            self.ask(poll_releases);
        }
        self.acts.push(Act::Release { array: number });
        if unfenced { Releases::Unordered } else { Releases::AfterContext }.set();
        if here {
            self.ask(|| drop(held));
        } else {
            self.ask(|| elsewhere(move || drop(held)));
        }
        Releases::AfterContext.set();
    }

    fn step(&mut self) {
        let (at, stream) = (self.dice.below(self.arrays.len()), self.dice.below(3));
        match self.dice.below(12) {
            0..3 => self.write(at, stream),
            3..6 => self.read(at, stream),
            6..8 => self.send(at, stream),
            8 => {
                self.read(at, stream);
                let here = self.dice.below(3) != 0;
                self.release(at, here);
                self.make();
            }
            9 => {
                self.streams[stream].spin();
            }
            10 => {
                self.ask(poll_releases);
            }
            _ => {
                self.turn.step();
            }
        }
    }

    /// Runs the program.
    fn run(mut self) -> Outcome {
        for _ in 0..STEPS {
            self.step();
        }
        while !self.arrays.is_empty() {
            self.release(0, true);
        }
        self.turn.run_all();
        assert_eq!(finish_releases(), 0);
        let wrong = self.reads.iter().filter(|(seen, expected)| seen.value() != *expected).count();
        self.reads.clear();
        self.turn.clear_faults();
        Outcome { acts: self.acts, wrong, reports: self.turn.take_reports() }
    }
}

/// Returns how to omit an operation: the call of a stream wait, or the number of a release.
fn leaving_out(acts: &[Act], at: usize) -> Option<Left> {
    let releases = |acts: &[Act]| acts.iter().filter(|act| matches!(act, Act::Release { .. })).count();
    match acts[at] {
        Act::Edge { call, .. } => Some(Left::Edge(call)),
        Act::Release { .. } => Some(Left::ReleaseScope(releases(&acts[..at]))),
        _ => None,
    }
}

/// Counts over several programs, to show that the programs are useful.
#[derive(Debug, Default)]
struct Tally {
    edges: usize,
    fences: usize,
    /// Programs in which another release's wait replaced the omitted one.
    made_good: usize,
    /// Programs whose reads were right although a wait was omitted.
    unseen_by_values: usize,
}

/// Runs the program of a seed, which must cause no report. Then runs it without one of its stream waits, and without
/// the wait of one of its releases. Each omission matters and must be reported.
fn try_seed(turn: &Turn, seed: u64, streams: [Stream; 3], tally: &mut Tally) {
    let again = format!("INTEROP_SEED={seed} runs this again");
    let Outcome { acts, wrong, reports } = Program::new(turn, seed, None, streams).run();
    assert!(wrong == 0 && reports.is_empty(), "{wrong} reads are wrong; {reports:#?}\n{again}");
    assert!(!is_broken(&acts, None), "{acts:#?}\n{again}");
    let matters = (0..acts.len()).filter(|at| is_broken(&acts, Some(*at)));
    let matters: Vec<Left> = matters.filter_map(|at| leaving_out(&acts, at)).collect();
    let (edges, fences): (Vec<_>, Vec<_>) =
        matters.into_iter().partition(|left| matches!(left, Left::Edge(_)));
    let mut dice = Dice(!seed);
    for (all, mistake, count) in
        [(edges, Mistake::Race, &mut tally.edges), (fences, Mistake::UseAfterFree, &mut tally.fences)]
    {
        if all.is_empty() {
            continue;
        }
        let left = all[dice.below(all.len())];
        let Outcome { acts, wrong, reports } = Program::new(turn, seed, Some(left), streams).run();
        // The events of other releases may have been recorded at other times than in the first run.
        let here = (0..acts.len()).find(|at| leaving_out(&acts, *at) == Some(left)).expect("it is there");
        if !is_broken(&acts, Some(here)) {
            tally.made_good += 1;
            continue;
        }
        let told = !reports.is_empty() && reports.iter().all(|report| report.mistake == mistake);
        assert!(told, "without {left:?} not {mistake:?}, and nothing else: {reports:#?}\n{again}");
        *count += 1;
        tally.unseen_by_values += usize::from(wrong == 0);
    }
}

/// Runs `count` programs with seeds from a random one on, or only the program of `INTEROP_SEED`.
fn try_seeds(count: u64) {
    let given = std::env::var("INTEROP_SEED").ok();
    let given = given.map(|seed| seed.parse().expect("INTEROP_SEED is a number"));
    let first = given.unwrap_or_else(|| RandomState::new().hash_one(count) >> 16);
    let seeds = first..first + if given.is_some() { 1 } else { count };
    println!("seeds {seeds:?}");
    let (turn, place) = first_gpu();
    let streams = [place.non_blocking(), place.non_blocking(), place.legacy()];
    let mut tally = Tally::default();
    seeds.for_each(|seed| try_seed(&turn, seed, streams, &mut tally));
    println!("{tally:?}");
    if given.is_none() {
        let many = usize::try_from(count / 2).expect("a small number");
        let of_use = tally.edges > many && tally.fences > many && tally.unseen_by_values > many / 10;
        assert!(of_use, "{tally:?} of {count} programs");
    }
}

/// Runs some programs in their own process: a process has only one driver, and a machine has several CPU cores.
fn run_alone(test: &str) {
    // A release build runs all.
    let count = if cfg!(debug_assertions) { 125 } else { 500 };
    crate::support::run_alone(&format!("random_schedules::{test}"), || try_seeds(count));
}

#[test]
fn some_programs_are_ordered_and_nothing_less_would_do() {
    run_alone("some_programs_are_ordered_and_nothing_less_would_do");
}

#[test]
fn other_programs_are_ordered_and_nothing_less_would_do() {
    run_alone("other_programs_are_ordered_and_nothing_less_would_do");
}

#[test]
fn more_programs_are_ordered_and_nothing_less_would_do() {
    run_alone("more_programs_are_ordered_and_nothing_less_would_do");
}

#[test]
fn still_more_programs_are_ordered_and_nothing_less_would_do() {
    run_alone("still_more_programs_are_ordered_and_nothing_less_would_do");
}
