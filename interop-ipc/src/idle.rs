//! The blocks of another process that are mapped here, and how long they stay so while no array uses them.
//!
//! Mapping memory of a GPU takes longer than all other steps together, so a block stays mapped for a while after its last array. It
//! must not be freed meanwhile: CUDA leaves that undefined. So the last array of the block *rests*: its producer keeps it until the
//! block is closed, but may use it as if it were given back. Memory of the host is kept by its mapping, and no array rests.

use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use crate::block::Mapping;
use crate::device_block::OpenedBlock;
use crate::office::ROUND;
use crate::page::Turn;
use crate::protocol::Request;

/// How long a block stays mapped. Who opens arrays less often pays for mapping them, at most 0.3 ms in 100; a producer gets its memory
/// back within this time.
const IDLE: Duration = Duration::from_millis(100);
/// How many blocks of one process stay mapped.
const MOST_IDLE: usize = 64;

/// The number of a block, and whether it is mapped for writes.
pub(crate) type Key = (u64, bool);

/// A mapped block.
pub(crate) enum Opened {
    Host(Mapping),
    Device(OpenedBlock),
}

/// A block that is to be closed, unless it is, and the array that is given back after that.
pub(crate) type Closing = (Option<Arc<Opened>>, Option<Turn>);

struct Known {
    block: Arc<Opened>,
    /// The numbers behind the work that may still use it.
    pending: Vec<Turn>,
    /// The array that is given back when the block is closed, and whether it rests. Otherwise somebody waits for it.
    last: Option<(Turn, bool)>,
    /// When the block is closed if no array uses it.
    due: Instant,
}

/// The blocks of one process.
#[derive(Default)]
pub(crate) struct Blocks {
    known: HashMap<Key, Known>,
    /// Whether the thread of the office knows when to close a block.
    is_watched: bool,
}

impl Opened {
    pub(crate) fn address(&self) -> usize {
        match self {
            Self::Host(mapping) => mapping.address(),
            Self::Device(block) => block.address,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Host(mapping) => mapping.bytes(),
            Self::Device(block) => block.bytes,
        }
    }

    pub(crate) fn is_on_device(&self) -> bool {
        matches!(self, Self::Device(_))
    }

    /// Whether no second mapping of the block may be made. This one is for writes too, whatever the message says.
    pub(crate) fn is_of_pool(&self) -> bool {
        matches!(self, Self::Device(block) if block.is_of_pool())
    }
}

impl Blocks {
    /// The block with this number, and its key.
    pub(crate) fn get(&self, key: Key) -> Option<(Key, Arc<Opened>)> {
        let is_it = |found: Key, known: &&Known| found == key || known.block.is_of_pool();
        [key, (key.0, !key.1)].into_iter().find_map(|found| {
            let known = self.known.get(&found).filter(|known| is_it(found, known));
            known.map(|known| (found, known.block.clone()))
        })
    }

    /// Adds a block, which is in use.
    pub(crate) fn insert(&mut self, key: Key, block: Arc<Opened>) {
        self.known.entry(key).or_insert(Known {
            block,
            pending: Vec::new(),
            last: None,
            due: Instant::now(),
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Ends the use of a block by an array, if that was opened. Returns what the producer hears now, and whether the thread of the office
    /// has to be woken.
    pub(crate) fn put_down(
        &mut self,
        key: Key,
        block: Arc<Opened>,
        turn: Option<Turn>,
        may_rest: bool,
    ) -> (Option<Request>, bool) {
        // Under the lock, so that the count tells who is last.
        drop(block);
        let Some(known) = self.known.get_mut(&key) else {
            return (turn.map(|turn| Request::Close(turn.place())), false);
        };
        let is_last = Arc::strong_count(&known.block) == 1;
        known.pending.retain(|turn| !turn.is_done());
        known.pending.extend(turn.iter().filter(|turn| !turn.is_done()).cloned());
        let request = turn.and_then(|turn| {
            let (place, is_kept) = (turn.place(), is_last && known.block.is_on_device());
            if !is_kept || known.last.is_some() && !may_rest {
                return Some(Request::Close(place));
            }
            let before = known.last.replace((turn, may_rest)).map(|(before, _)| before.place());
            may_rest.then_some(Request::Rest(place, before))
        });
        let is_awaited = matches!(known.last, Some((_, false)));
        known.due = Instant::now() + if is_awaited { Duration::ZERO } else { IDLE };
        let is_unknown = is_last && (is_awaited || !self.is_watched);
        self.is_watched |= is_last;
        (request, is_unknown)
    }

    /// Removes the blocks that have been idle for long enough, with the arrays that are given back after them, and returns when to look
    /// again.
    pub(crate) fn take_idle(&mut self, now: Instant) -> (Vec<Closing>, Option<Instant>) {
        let idle = self.known.iter().filter(|(_, known)| Arc::strong_count(&known.block) == 1);
        let mut idle: Vec<_> = idle.map(|(key, known)| (known.due, *key)).collect();
        idle.sort_unstable();
        let (mut taken, mut next) = (Vec::new(), None);
        for (left, (due, key)) in (0..idle.len()).rev().zip(idle) {
            let Some(known) = self.known.get_mut(&key) else { continue };
            known.pending.retain(|turn| !turn.is_done());
            if due > now && left < MOST_IDLE || !known.pending.is_empty() {
                next = next.into_iter().chain([due.max(now + ROUND)]).min();
            } else if let Some(known) = self.known.remove(&key) {
                // Under the lock, so that memory of a pool is not opened again before.
                let block = Some(known.block).filter(|block| !block.is_of_pool());
                taken.push((block, known.last.map(|(turn, _)| turn)));
            }
        }
        self.is_watched = next.is_some();
        (taken, next)
    }

    /// Lets all idle blocks be closed now. Returns whether there are any.
    pub(crate) fn make_due(&mut self) -> bool {
        let now = Instant::now();
        let idle = self.known.values_mut().filter(|known| Arc::strong_count(&known.block) == 1);
        idle.map(|known| known.due = now).count() > 0
    }
}
