//! Captures in progress.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::thread::ThreadId;

use crate::graph::{Frontier, Node};
use crate::handle::Handle;

/// `CU_STREAM_CAPTURE_MODE_*`.
pub(crate) const GLOBAL: u32 = 0;
pub(crate) const THREAD_LOCAL: u32 = 1;
pub(crate) const RELAXED: u32 = 2;

thread_local! {
    /// The capture mode of this thread.
    pub(crate) static THREAD_MODE: Cell<u32> = const { Cell::new(GLOBAL) };
}

/// Sets the capture mode of this thread and returns the previous one.
pub(crate) fn exchange_mode(mode: u32) -> u32 {
    THREAD_MODE.replace(mode)
}

/// A capture in progress.
#[derive(Debug)]
pub(crate) struct Capture {
    pub(crate) context: Handle,
    pub(crate) mode: u32,
    pub(crate) thread: ThreadId,
    pub(crate) origin: Handle,
    pub(crate) invalid: bool,
    pub(crate) nodes: Vec<Node>,
    /// The frontier of each participating stream.
    pub(crate) frontiers: BTreeMap<Handle, Frontier>,
}

impl Capture {
    /// Returns what the next work of a stream must come after.
    pub(crate) fn frontier(&self, stream: Handle) -> Frontier {
        self.frontiers.get(&stream).cloned().unwrap_or_default()
    }

    /// Whether every node comes before the end of the stream that began the capture.
    pub(crate) fn is_joined(&self) -> bool {
        let mut reached = BTreeSet::new();
        let mut open = self.frontier(self.origin);
        while let Some(index) = open.pop() {
            if reached.insert(index) {
                open.extend(&self.nodes[index].after);
            }
        }
        // A stream without work of its own must be joined too, if it waited for an event of the capture.
        let back = |frontier: &Frontier| frontier.iter().all(|index| reached.contains(index));
        reached.len() == self.nodes.len() && self.frontiers.values().all(back)
    }
}
