//! Random programs of producers, consumers and drops on three streams, whose work the driver runs in an order of its own.
//!
//! Every program has a seed, which decides its steps and the order of the driver's work, and which a failure names. What
//! is read is compared with what a program without streams would read, and the driver must have nothing to report. Then
//! the same program runs without one edge, and without the fence of one release, of which `ordering` says that nothing
//! else stands for it: the driver must report that, whatever is read.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use interop_core::cuda::{
    CudaBuffer, MemoryKind, ReleasePolicy, finish_releases, poll_releases, set_release_policy, stream_wait,
};
use interop_core::dlpack::{ManagedTensor, Versioned};
use interop_core::{CudaArray, DType, Device, FromArray, Import, LeaseMut, StreamHandle};
use interop_sim_client::{Mistake, Policy, Report};

use crate::cuda_program::{Bytes, Place, Stream};
use crate::exclusive_driver::{Turn, turn};
use crate::happens_before::{Act, LEGACY, is_broken};
use crate::support::arrays::Array;
use crate::support::counted_owners::elsewhere;

const GPU: Device = Device::cuda(0);
/// The call that makes an edge.
const WAIT: &str = "cuStreamWaitEvent";
/// The call that makes a fence.
const RECORD: &str = "cuCtxRecordEvent";
const BYTES: usize = 8;
const STEPS: usize = 24;

/// Splitmix64: a fixed sequence for a seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).expect("less than a number of things")
    }
}

/// What a program leaves out, to see that it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// An edge: this call of `cuStreamWaitEvent` orders nothing.
    Edge(u64),
    /// The fence of a release: the array that is released as the so-manieth is freed at once.
    ReleaseScope(usize),
}

/// An array of the program.
enum Held {
    /// The struct that made the memory, shared with its exports.
    Own(Arc<Array<CudaBuffer>>),
    /// What another library would have: an import of such an export, or of one of an import.
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

    /// Exports the array for a stream, and gives up the struct.
    fn send(self, stream: StreamHandle) -> ManagedTensor<Versioned> {
        match self {
            Self::Own(array) => array.share_dlpack_for_stream(stream).expect("an export"),
            Self::Import(array) => array.into_dlpack_for_stream(stream).expect("an export"),
        }
    }
}

/// An array with what the program knows of it.
struct Known {
    held: Held,
    number: usize,
    /// The stream of its last use.
    last: Option<usize>,
    /// The byte that it holds in the model.
    value: u8,
}

/// A program under way.
struct Program<'t> {
    turn: &'t Turn,
    left: Option<Left>,
    dice: Dice,
    streams: [Stream; 3],
    arrays: Vec<Known>,
    /// How many arrays there were.
    made: usize,
    /// How many were released.
    released: usize,
    acts: Vec<Act>,
    /// What was read, where it was put, and what it should be.
    reads: Vec<(Bytes, u8)>,
}

/// What became of a program.
struct Outcome {
    acts: Vec<Act>,
    /// How many reads found something else than the model.
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

    /// Makes an array, which waits for the legacy stream.
    fn make(&mut self) {
        self.arrays.push(Known { held: Held::new(), number: self.made, last: None, value: 0 });
        self.made += 1;
        self.acts.push(Act::HostWait { stream: LEGACY });
    }

    /// Has the core do something, for which the host does not wait, and notes the fences that come of it.
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

    /// Notes the edge that `work` makes, if it makes one.
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

    /// The array goes through DLPack to a consumer on a stream; perhaps it is dropped there, unread.
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
            let import = Import::from_dlpack(held.send(handle)).expect("a good tensor").with_stream(handle);
            Array::from_import(import).expect("an array of bytes")
        });
        self.arrays.push(Known { held: Held::Import(array), number, last: Some(stream), value });
    }

    /// Drops an array, whatever is still queued on it, here or on another thread.
    fn release(&mut self, at: usize, here: bool) {
        let Known { held, number, .. } = self.arrays.swap_remove(at);
        let unfenced = self.left == Some(Left::ReleaseScope(self.released));
        self.released += 1;
        if unfenced {
            // What waits for its event gets it by the way, before the array is freed: that is noted first.
            self.ask(poll_releases);
        }
        self.acts.push(Act::Release { array: number });
        set_release_policy(if unfenced { ReleasePolicy::Immediate } else { ReleasePolicy::AfterContext });
        if here {
            self.ask(|| drop(held));
        } else {
            self.ask(|| elsewhere(move || drop(held)));
        }
        set_release_policy(ReleasePolicy::AfterContext);
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

/// What one act would be left out as: the call of an edge, or the number of the release.
fn leaving_out(acts: &[Act], at: usize) -> Option<Left> {
    let releases = |acts: &[Act]| acts.iter().filter(|act| matches!(act, Act::Release { .. })).count();
    match acts[at] {
        Act::Edge { call, .. } => Some(Left::Edge(call)),
        Act::Release { .. } => Some(Left::ReleaseScope(releases(&acts[..at]))),
        _ => None,
    }
}

/// What went on in some programs, to see that they were of use.
#[derive(Debug, Default)]
struct Tally {
    edges: usize,
    fences: usize,
    /// Programs in which another fence stood for what was left out.
    made_good: usize,
    /// Programs that read what they should although an order was left out.
    unseen_by_values: usize,
}

/// Runs the program of a seed, of which nothing may be reported; and then without one of its edges, and without one of its
/// fences, each of them one that matters: that is reported.
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
        // Other releases may have been looked at, and fenced, at other times than before.
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

/// Runs so many programs: those of seeds from a random one on, or that of `INTEROP_SEED` alone.
fn try_seeds(count: u64) {
    let given = std::env::var("INTEROP_SEED").ok();
    let given = given.map(|seed| seed.parse().expect("INTEROP_SEED is a number"));
    let first = given.unwrap_or_else(|| RandomState::new().hash_one(count) >> 16);
    let seeds = first..first + if given.is_some() { 1 } else { count };
    println!("seeds {seeds:?}");
    let (turn, place) = (turn(), Place::primary(0));
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

/// Runs some programs in a process of its own, for there is one driver in a process, and more than one core.
fn run_alone(test: &str) {
    crate::support::run_alone(&format!("random_schedules::{test}"), || try_seeds(500));
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
