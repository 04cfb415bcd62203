//! The targets without libFuzzer: every seed, and mutations of them, so that no change waits for a fuzzer to see a fault
//! that is near (bugs 98, 165 to 172).

use std::panic::{AssertUnwindSafe, catch_unwind};

use interop_fuzz::{TARGETS, seeds};

/// Mutations of each seed.
const MUTATIONS: u64 = 100;

/// A generator of numbers (xorshift), whose state says which they will be.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() >> 33).expect("31 bits") % end.max(1)
    }

    /// Changes, inserts or removes a few bytes.
    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            let (at, byte) = (self.below(bytes.len() + 1), self.next().to_le_bytes()[7]);
            match (self.below(4), bytes.get_mut(at)) {
                (0, _) | (_, None) => bytes.insert(at, byte),
                (1, _) => drop(bytes.remove(at)),
                (2, Some(place)) => *place = byte,
                (_, Some(place)) => *place ^= 1 << (byte % 8),
            }
        }
    }
}

/// Runs a target, and says how to run it again where it fails.
fn check(name: &str, target: fn(&[u8]), id: &str, bytes: &[u8]) {
    if let Err(failure) = catch_unwind(AssertUnwindSafe(|| target(bytes))) {
        eprintln!("target {name}, near the case {id}: {bytes:?}");
        std::panic::resume_unwind(failure);
    }
}

#[test]
fn every_seed_and_what_is_near_it() {
    let seeds = seeds::all();
    for (name, target) in TARGETS {
        let mine: Vec<_> = seeds.iter().filter(|(target, ..)| target == name).collect();
        assert!(mine.len() > 200, "{} seeds for {name}", mine.len());
        for (number, (_, id, bytes)) in (1..).zip(&mine) {
            check(name, *target, id, bytes);
            let mut numbers = Numbers(number);
            for _ in 0..MUTATIONS {
                let mut bytes = bytes.clone();
                numbers.mutate(&mut bytes);
                check(name, *target, id, &bytes);
            }
        }
    }
}
