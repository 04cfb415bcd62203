//! Queued operations: what each must come after, and which one runs next.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::handle::{Handle, OpId};
use crate::happens_before::Step;
use crate::kernels::Launch;

/// What a copy reads or writes.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// Memory that the driver knows, by the address that the program uses.
    Cuda(u64),
    /// Host memory that the driver does not know.
    Host(u64),
    /// Bytes that were copied when the operation was queued.
    Staged(Arc<[u8]>),
}

/// A host function that was queued on a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Callback {
    /// From `cuLaunchHostFunc`.
    Plain(extern "C" fn(u64), u64),
    /// From `cuStreamAddCallback`; it also receives the stream and a result code.
    WithStream(extern "C" fn(u64, i32, u64), Handle, u64),
}

/// What an operation does.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// Nothing: the operation only waits for others.
    Nothing,
    /// Marks the event's latest record as reached.
    Record(Handle),
    Copy {
        to: Place,
        from: Place,
        bytes: u64,
    },
    /// `pattern` repeated over `bytes`.
    Set {
        to: u64,
        pattern: [u8; 4],
        width: u8,
        bytes: u64,
    },
    Kernel(Launch),
    Host(Callback),
    /// Makes pool memory usable.
    Alloc(u64),
    /// Returns memory to the pool.
    Free(u64),
    /// Writes a number that others may wait for, perhaps in other processes.
    WriteNumber {
        address: u64,
        number: u64,
    },
    /// Waits for a number.
    WaitForNumber {
        address: u64,
        comparison: Comparison,
        number: u64,
    },
    /// Ends when the test releases it or a call waits for it.
    Spin,
}

/// When a wait for a number ends: `CUstreamWaitValue_flags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    GreaterOrEqual,
    Equal,
    And,
    Nor,
}

impl Comparison {
    /// Whether a wait with this number ends once `found` is in memory.
    pub(crate) fn holds(self, found: u64, number: u64) -> bool {
        match self {
            // As the driver: a number that wraps around is greater.
            Self::GreaterOrEqual => found.wrapping_sub(number) < 1 << 63,
            Self::Equal => found == number,
            Self::And => found & number != 0,
            Self::Nor => !(found | number) != 0,
        }
    }
}

/// A queued operation.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) work: Work,
    pub(crate) context: Handle,
    /// The operations that must end first. Those that have already ended do not matter.
    pub(crate) after: Vec<OpId>,
    /// Its agent, number and clock.
    pub(crate) step: Step,
}

/// The operations that have not ended.
#[derive(Debug)]
pub(crate) struct Queue {
    pending: BTreeMap<OpId, Operation>,
    /// The operation that is running; only one runs at a time.
    pub(crate) running: Option<OpId>,
    next: OpId,
    /// The number of operations that have ended. It serves as the clock.
    pub(crate) ended: u64,
    random: u64,
}

impl Queue {
    pub(crate) fn new(seed: u64) -> Self {
        Self { pending: BTreeMap::new(), running: None, next: 0, ended: 0, random: seed }
    }

    /// Restarts the scheduler's random choices.
    pub(crate) fn seed(&mut self, seed: u64) {
        self.random = seed;
    }

    /// Returns the next number for an action.
    pub(crate) fn number(&mut self) -> OpId {
        self.next += 1;
        self.next
    }

    /// Adds an operation under the number of its step.
    pub(crate) fn push(&mut self, operation: Operation) -> OpId {
        let number = operation.step.moment.number;
        self.pending.insert(number, operation);
        number
    }

    pub(crate) fn is_pending(&self, id: OpId) -> bool {
        self.pending.contains_key(&id)
    }

    pub(crate) fn get(&self, id: OpId) -> Option<&Operation> {
        self.pending.get(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Returns the pending operations for which `wanted` is true.
    pub(crate) fn select(&self, wanted: impl Fn(&Operation) -> bool) -> Vec<OpId> {
        self.pending.iter().filter(|(_, operation)| wanted(operation)).map(|(id, _)| *id).collect()
    }

    /// Removes an operation that has ended.
    pub(crate) fn end(&mut self, id: OpId) -> Option<Operation> {
        self.ended += 1;
        self.pending.remove(&id)
    }

    /// Whether everything that an operation must come after has ended.
    pub(crate) fn is_runnable(&self, id: OpId) -> bool {
        let ready = |operation: &Operation| operation.after.iter().all(|before| !self.is_pending(*before));
        self.running != Some(id) && self.pending.get(&id).is_some_and(ready)
    }

    /// Returns the pending operations among `targets`, with all their pending predecessors.
    pub(crate) fn with_predecessors(&self, targets: &[OpId]) -> BTreeSet<OpId> {
        let mut found = BTreeSet::new();
        let mut open = targets.to_vec();
        while let Some(id) = open.pop() {
            if let Some(operation) = self.pending.get(&id).filter(|_| found.insert(id)) {
                open.extend(&operation.after);
            }
        }
        found
    }

    /// Returns one of `choices`, chosen by the seeded generator.
    pub(crate) fn choose(&mut self, choices: &[OpId]) -> Option<OpId> {
        if choices.len() < 2 {
            return choices.first().copied();
        }
        // SplitMix64: the same sequence for a seed on every machine.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let count = choices.len() as u64;
        usize::try_from(mixed % count).ok().and_then(|index| choices.get(index)).copied()
    }
}
