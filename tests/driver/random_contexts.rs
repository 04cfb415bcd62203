//! Random programs with several contexts, devices and memory kinds. The owner overwrites its memory as soon as it is
//! released.
//!
//! `random_schedules` covers programs in one context. These programs vary where work and memory are: two devices and
//! a context that a library created, each with its streams; memory of each kind; arrays that are passed on, shared,
//! and dropped on any thread, with any current context and any policy.

use std::sync::Arc;

use interop_core::cuda::{HoldReleases, finish_releases, poll_releases, stream_wait};
use interop_core::protocols::RawDescriptor;
use interop_core::protocols::dlpack::{ManagedTensor, Ownership, Versioned, export};
use interop_core::{CudaArray, DType, Device, FromArray, Import, LeaseMut, StreamHandle};

use crate::counted_imports::ReadyOn;
use crate::cuda_program::{Bytes, Place, Stream, current, set_current};
use crate::exclusive_driver::{Turn, turn};
use crate::order_settings::Releases;
use crate::random_schedules::Dice;
use crate::support::arrays::Array;
use crate::support::counted_owners::elsewhere;

const BYTES: usize = 8;
const STEPS: usize = 40;
const NOTHING: StreamHandle = StreamHandle::NothingPending;
/// The index of the context that a library created on device 0. The smaller indices are the primary contexts.
const OWN: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Device,
    Pool,
    Pinned,
    Managed,
}

/// The owner of some memory. Its drop models a reuse: it overwrites the memory on a stream that waits for no other.
struct Reused(Bytes, Place);

impl Drop for Reused {
    fn drop(&mut self) {
        let stream = self.1.non_blocking();
        stream.fill(&self.0, 0xEE);
        stream.finish();
        stream.destroy();
    }
}

type Leased = Array<LeaseMut<u8>>;

/// The forms in which a program holds an array.
enum Held {
    Lease(Leased),
    SharedBuffer(Arc<Leased>),
    Tensor(ManagedTensor<Versioned>),
}

fn lease(tensor: ManagedTensor<Versioned>) -> Held {
    let import = Import::from_dlpack(tensor).expect("a good tensor").ready_on(NOTHING);
    Held::Lease(Array::from_import(import).expect("an array of bytes"))
}

/// An array and what the program knows about it.
struct Known {
    held: Held,
    kind: Kind,
    /// The index of the memory's context.
    home: usize,
    device: Device,
    address: usize,
    /// The streams with work on the array since the last write, with a flag for writes.
    uses: Vec<(usize, bool)>,
}

struct Program<'t> {
    turn: &'t Turn,
    dice: Dice,
    policies: [Releases; 2],
    places: [Place; 3],
    streams: &'t [(usize, Stream)],
    arrays: Vec<Known>,
    /// The destinations of the copies.
    seen: Vec<Bytes>,
    hold: Option<HoldReleases>,
}

impl Program<'_> {
    /// Makes a context current in which the array may be used. For a primary context it sometimes leaves none
    /// current.
    fn enter(&mut self, home: usize) {
        let named = home == OWN || self.dice.below(2) == 0;
        set_current(named.then_some(self.places[home]));
    }

    fn make(&mut self) {
        let home = self.dice.below(3);
        let (place, gpu) = (self.places[home], Device::cuda(i32::from(home == 1)));
        let (kind, bytes, device) = match self.dice.below(4) {
            0 => (Kind::Device, place.bytes(0, BYTES), gpu),
            1 => (Kind::Pool, place.pool(0, BYTES), gpu),
            2 => (Kind::Pinned, place.pinned(0, BYTES), Device::CUDA_HOST),
            _ => (Kind::Managed, place.managed(0, BYTES), Device::CUDA_MANAGED),
        };
        let address = bytes.at();
        let claims =
            RawDescriptor { dtype: DType::U8, ..RawDescriptor::new(address, device, &[BYTES as i64]) };
        let info = claims.validate().expect("good claims");
        self.enter(home);
        #[expect(unsafe_code, reason = "an export of a library's own memory")]
        // SAFETY: the owner keeps the memory alive, and nothing else uses it.
        let tensor = unsafe { export(&info, Reused(bytes, place), Ownership::Owned) };
        let held = lease(tensor.expect("an export"));
        set_current(None);
        self.arrays.push(Known { held, kind, home, device, address, uses: Vec::new() });
    }

    /// Returns whether the stream belongs to a context that may use the memory and that a release waits for.
    fn reaches(&self, at: usize, stream: usize) -> bool {
        let (Known { kind, home, .. }, of) = (&self.arrays[at], self.streams[stream].0);
        match kind {
            Kind::Device => of == *home,
            Kind::Pool => (of == 1) == (*home == 1) && (of != OWN || *home == OWN),
            Kind::Pinned | Kind::Managed => of != OWN || *home == OWN,
        }
    }

    /// Uses an array on a stream, after the earlier uses through any array that shares its memory.
    fn work(&mut self, at: usize) {
        let streams: Vec<usize> = (0..self.streams.len()).filter(|on| self.reaches(at, *on)).collect();
        let (on, writes) = (streams[self.dice.below(streams.len())], self.dice.below(2) == 0);
        let Known { home, device, address, .. } = self.arrays[at];
        let stream = self.streams[on].1;
        self.enter(home);
        for (before, wrote) in self.arrays[at].uses.clone() {
            if writes || wrote {
                stream_wait(stream.handle(), self.streams[before].1.handle(), device).expect("an edge");
            }
        }
        set_current(None);
        if self.dice.below(3) == 0 {
            stream.spin();
        }
        let memory = stream.bytes_at(address, BYTES);
        if writes {
            stream.fill(&memory, 3);
        } else {
            let seen = stream.scratch(BYTES);
            stream.copy(&seen, &memory);
            self.seen.push(seen);
        }
        for known in self.arrays.iter_mut().filter(|known| known.address == address) {
            if writes {
                known.uses.clear();
            }
            known.uses.push((on, writes));
        }
    }

    /// Passes the array on, or shares it.
    fn send(&mut self, at: usize) {
        let Known { held, kind, home, device, address, uses } = self.arrays.swap_remove(at);
        self.enter(home);
        let held = match (held, self.dice.below(4)) {
            (Held::Lease(array), 0) => Held::SharedBuffer(Arc::new(array)),
            (Held::Lease(array), 1) => {
                Held::Tensor(array.into_dlpack_as::<Versioned>(NOTHING).expect("an export"))
            }
            (Held::Lease(array), _) => lease(array.into_dlpack_as::<Versioned>(NOTHING).expect("an export")),
            (Held::Tensor(tensor), _) => lease(tensor),
            (Held::SharedBuffer(array), _) => {
                let held = lease(array.share_dlpack_as::<Versioned>(NOTHING).expect("an export"));
                self.arrays.push(Known { held, kind, home, device, address, uses: uses.clone() });
                Held::SharedBuffer(array)
            }
        };
        set_current(None);
        self.arrays.push(Known { held, kind, home, device, address, uses });
    }

    /// Drops an array while work may still be queued on it.
    fn release(&mut self, at: usize) {
        let held = self.arrays.swap_remove(at).held;
        self.policies[self.dice.below(self.policies.len())].set();
        let [one, two, own] = self.places;
        let place = [None, Some(one), Some(two), Some(own)][self.dice.below(4)];
        let drop = move || {
            set_current(place);
            drop(held);
            assert_eq!(current(), place);
            set_current(None);
        };
        if self.dice.below(2) == 0 { drop() } else { elsewhere(drop).0 }
    }

    fn step(&mut self) {
        if self.arrays.is_empty() {
            self.make();
        }
        let at = self.dice.below(self.arrays.len());
        match self.dice.below(16) {
            0 | 1 => self.make(),
            2..8 => self.work(at),
            8..11 => self.send(at),
            11 => self.release(at),
            12 => drop(poll_releases()),
            13 => self.hold = if self.hold.is_none() { Some(HoldReleases::new()) } else { None },
            14 => drop(elsewhere(finish_releases)),
            _ => drop(self.turn.step()),
        }
    }

    /// Runs the program.
    fn run(mut self) {
        for _ in 0..STEPS {
            self.step();
        }
        while !self.arrays.is_empty() {
            self.release(0);
        }
        self.hold = None;
        while finish_releases() != 0 {}
        self.turn.run_all();
    }
}

/// Runs the programs of some seeds under these policies and checks the driver's reports after each.
fn run(turn: &Turn, policies: [Releases; 2], seeds: std::ops::Range<u64>, mut check: impl FnMut(u64)) {
    let places = [Place::primary(0), Place::primary(1), Place::foreign(0)];
    let of = |at: usize| {
        let place = places[at];
        [place.non_blocking(), place.non_blocking(), place.blocking()].map(|stream| (at, stream))
    };
    let streams: Vec<_> = (0..3).flat_map(of).collect();
    for seed in seeds {
        turn.set_seed(seed);
        let (dice, arrays, seen, hold) = (Dice(seed), Vec::new(), Vec::new(), None);
        Program { turn, dice, policies, places, streams: &streams, arrays, seen, hold }.run();
        check(seed);
    }
    places[OWN].destroy();
}

#[test]
fn programs_in_several_places_release_after_the_work_in_all() {
    let turn = turn();
    let policies = [Releases::AfterContext, Releases::AfterAllContexts];
    // A release build runs all.
    let seeds = if cfg!(debug_assertions) { 0..50 } else { 0..200 };
    run(&turn, policies, seeds, |seed| {
        let reports = turn.take_reports();
        assert!(reports.is_empty(), "seed {seed}: {reports:#?}");
    });
}

/// The counterexample: without waiting releases the memory is overwritten while it is in use.
#[test]
fn programs_in_several_places_race_where_nothing_is_waited_for() {
    let turn = turn();
    run(&turn, [Releases::Unordered; 2], 0..5, |seed| {
        assert!(!turn.take_reports().is_empty(), "seed {seed} is of no use");
    });
}
