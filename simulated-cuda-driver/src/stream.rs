//! Streams and events.

use crate::graph::Frontier;
use crate::handle::{Handle, OpId};
use crate::happens_before::{Agent, Before, Clock};

/// `CU_STREAM_NON_BLOCKING`.
pub(crate) const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`.
pub(crate) const DISABLE_TIMING: u32 = 2;

/// How a stream and the legacy default stream of its context wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Legacy,
    Blocking,
    NonBlocking,
}

/// A stream. Its entry is kept after the stream is destroyed.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) context: Handle,
    pub(crate) sort: Sort,
    /// Whether it is a default stream, which the program neither creates nor destroys.
    pub(crate) implicit: bool,
    pub(crate) priority: i32,
    pub(crate) dead: bool,
    pub(crate) agent: Agent,
    /// The operation that was queued last.
    pub(crate) tail: Option<OpId>,
    /// What comes before its next operation.
    pub(crate) clock: Clock,
    /// The capture that the stream takes part in.
    pub(crate) capture: Option<u64>,
}

impl Stream {
    /// A stream that the program creates.
    pub(crate) fn new(context: Handle, flags: u32, priority: i32) -> Self {
        let sort = if flags & NON_BLOCKING == 0 { Sort::Blocking } else { Sort::NonBlocking };
        let (agent, clock) = (0, Clock::default());
        Self {
            context,
            sort,
            implicit: false,
            priority,
            dead: false,
            agent,
            tail: None,
            clock,
            capture: None,
        }
    }

    /// The legacy default stream of a context.
    pub(crate) fn legacy(context: Handle) -> Self {
        Self { sort: Sort::Legacy, implicit: true, ..Self::new(context, 0, 0) }
    }
}

/// An event.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) context: Handle,
    /// A number that increases with each new event.
    pub(crate) made: Handle,
    pub(crate) flags: u32,
    /// The latest record.
    pub(crate) last: Option<OpId>,
    /// What comes before the latest record.
    pub(crate) clock: Clock,
    /// When the latest record was reached.
    pub(crate) reached: Option<u64>,
    /// The capture that contains the latest record, with the nodes before the record.
    pub(crate) captured: Option<(u64, Frontier)>,
}

impl Event {
    /// An event that has not been recorded yet.
    pub(crate) fn new(context: Handle, flags: u32) -> Self {
        Self { context, made: 0, flags, last: None, clock: Clock::default(), reached: None, captured: None }
    }

    /// Returns what a wait for the latest record waits for.
    pub(crate) fn before(&self) -> Before {
        Before { operations: self.last.into_iter().collect(), clock: self.clock.clone() }
    }

    /// Replaces the latest record: with an operation and its clock, or with none.
    pub(crate) fn renew(&mut self, record: Option<(OpId, Clock)>) {
        let (last, clock) = record.unzip();
        (self.last, self.clock) = (last, clock.unwrap_or_default());
        (self.reached, self.captured) = (None, None);
    }
}

/// Aborts the process, as the real driver crashes on an invalid handle.
pub(crate) fn die(function: &str, raw: Handle, what: &str) -> ! {
    eprintln!("simulated CUDA driver: {function}({raw:#x}): {what}; the real driver crashes here");
    std::process::abort()
}
