//! Random programs of producers, consumers and drops on three streams, whose work the driver runs in an order of its own.
//!
//! Every program has a seed, which decides its steps and the order of the driver's work, and which a failure names. What
//! is read is compared with what a program without streams would read.

use std::sync::Arc;

use interop_core::cuda::{
    CudaBuffer, MemoryKind, ReleasePolicy, drain_releases, finish_releases, set_release_policy,
};
use interop_core::dlpack::{ManagedTensor, Versioned};
use interop_core::{CudaArray, DType, FromArray, Import, LeaseMut, StreamHandle};
use interop_sim_client::Policy;

use crate::gpu::{Bytes, Place, Stream};
use crate::support::arrays::Array;
use crate::support::owners::elsewhere;
use crate::turn::{Turn, turn};

const BYTES: usize = 8;
const STEPS: usize = 24;

/// Splitmix64: a fixed sequence for a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).expect("less than a number of things")
    }
}

/// What a program leaves out, to see that it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Nothing.
    Whole,
    /// The edges between streams.
    Unordered,
    /// The order of releases.
    Unfenced,
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
            Self::Own(array) => array.facts(),
            Self::Import(array) => array.facts(),
        }
        .expect("good facts")
        .address()
    }

    /// Exports the array for a stream, and gives up the struct.
    fn send(self, stream: StreamHandle) -> ManagedTensor<Versioned> {
        match self {
            Self::Own(array) => array.share_dlpack_for(stream).expect("an export"),
            Self::Import(array) => array.into_dlpack_for(stream).expect("an export"),
        }
    }
}

/// A program under way.
struct Program<'t> {
    turn: &'t Turn,
    mode: Mode,
    dice: Dice,
    streams: [Stream; 3],
    /// The arrays, with the stream of their last use and the byte that they hold in the model.
    arrays: Vec<(Held, Option<usize>, u8)>,
    /// What was read, where it was put, and what it should be.
    reads: Vec<(Bytes, u8)>,
}

impl<'t> Program<'t> {
    fn new(turn: &'t Turn, seed: u64, mode: Mode, streams: [Stream; 3]) -> Self {
        turn.set_seed(seed);
        turn.set_policy(if seed % 2 == 0 { Policy::Late } else { Policy::Random });
        let arrays = (0..3).map(|_| (Held::new(), None, 0)).collect();
        Self { turn, mode, dice: Dice(seed), streams, arrays, reads: Vec::new() }
    }

    /// Uses an array on a stream, after its last use.
    fn enter(&mut self, at: usize, stream: usize) -> Bytes {
        let (held, last, _) = &mut self.arrays[at];
        if self.mode != Mode::Unordered {
            let from = last.map_or(StreamHandle::NothingPending, |last| self.streams[last].handle());
            let to = self.streams[stream].handle();
            interop_core::cuda::order(from, to, interop_core::Device::cuda(0)).expect("an edge");
        }
        *last = Some(stream);
        self.streams[stream].bytes_at(held.address(), BYTES)
    }

    fn write(&mut self, at: usize, stream: usize) {
        let target = self.enter(at, stream);
        let value = u8::try_from(self.dice.below(255)).expect("a byte");
        self.streams[stream].fill(&target, value);
        self.arrays[at].2 = value;
    }

    fn read(&mut self, at: usize, stream: usize) {
        let source = self.enter(at, stream);
        let seen = self.streams[stream].scratch(BYTES);
        self.streams[stream].copy(&seen, &source);
        self.reads.push((seen, self.arrays[at].2));
    }

    /// The array goes through DLPack to a consumer on a stream; perhaps it is dropped there, unread.
    fn send(&mut self, at: usize, stream: usize) {
        let handle = self.streams[stream].handle();
        let (held, last, value) = self.arrays.swap_remove(at);
        let pending = match last {
            Some(last) if self.mode != Mode::Unordered => self.streams[last].handle(),
            _ => StreamHandle::NothingPending,
        };
        let held = match held {
            Held::Import(array) => Held::Import(Array { stream: pending, ..array }),
            Held::Own(array) => {
                array.order_before(handle).expect("an edge");
                interop_core::cuda::order(pending, handle, interop_core::Device::cuda(0)).expect("an edge");
                Held::Own(array)
            }
        };
        let import = Import::from_dlpack(held.send(handle)).expect("a good tensor").on_stream(handle);
        let array = Array::from_import(import).expect("an array of bytes");
        self.arrays.push((Held::Import(array), Some(stream), value));
    }

    /// Drops an array, whatever is still queued on it, here or on another thread, and makes another.
    fn replace(&mut self, at: usize) {
        let (held, ..) = self.arrays.swap_remove(at);
        match self.dice.below(3) {
            0 => {
                elsewhere(move || drop(held));
            }
            _ => drop(held),
        }
        self.arrays.push((Held::new(), None, 0));
    }

    fn step(&mut self) {
        let (at, stream) = (self.dice.below(self.arrays.len()), self.dice.below(3));
        match self.dice.below(12) {
            0..3 => self.write(at, stream),
            3..6 => self.read(at, stream),
            6..8 => self.send(at, stream),
            8 => {
                self.read(at, stream);
                self.replace(at);
            }
            9 => {
                self.streams[stream].spin();
            }
            10 => {
                drain_releases();
            }
            _ => {
                self.turn.step();
            }
        }
    }

    /// Runs the program: how many reads found something else than the model, and what the driver complained of.
    fn run(mut self) -> (usize, Vec<String>) {
        for _ in 0..STEPS {
            self.step();
        }
        self.arrays.clear();
        self.turn.run_all();
        assert_eq!(finish_releases(), 0);
        let wrong = self.reads.iter().filter(|(seen, expected)| seen.value() != *expected).count();
        self.reads.clear();
        (wrong, self.turn.take_errors())
    }
}

/// Runs the programs of these seeds, and says how many went wrong.
fn run(turn: &Turn, seeds: std::ops::Range<u64>, mode: Mode) -> usize {
    set_release_policy(match mode {
        Mode::Unfenced => ReleasePolicy::Immediate,
        _ => ReleasePolicy::AfterContext,
    });
    let place = Place::primary(0);
    let streams = [place.non_blocking(), place.non_blocking(), place.legacy()];
    let bad = seeds.filter(|seed| {
        let (wrong, errors) = Program::new(turn, *seed, mode, streams).run();
        let good = wrong == 0 && errors.is_empty();
        assert!(good || mode != Mode::Whole, "seed {seed}: {wrong} reads are wrong; {errors:#?}");
        !good
    });
    bad.count()
}

macro_rules! in_processes_of_their_own {
    ($($name:ident: $seeds:expr;)*) => {$(
        /// The driver keeps what it has seen, so that many programs in one process would become slow.
        #[test]
        fn $name() {
            crate::support::alone(concat!("schedules::", stringify!($name)), || {
                assert_eq!(run(&turn(), $seeds, Mode::Whole), 0);
            });
        }
    )*};
}

in_processes_of_their_own! {
    the_first_programs_read_what_they_should: 0..500;
    the_second_programs_read_what_they_should: 500..1000;
    the_third_programs_read_what_they_should: 1000..1500;
    the_fourth_programs_read_what_they_should: 1500..2000;
}

#[test]
fn without_edges_many_programs_read_what_they_should_not() {
    assert!(run(&turn(), 0..60, Mode::Unordered) > 20);
}

#[test]
fn without_fences_many_programs_use_memory_that_was_freed() {
    assert!(run(&turn(), 0..60, Mode::Unfenced) > 20);
}
