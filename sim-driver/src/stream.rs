//! Streams and events: which operation must come after which.

use std::thread;

use crate::capture::Frontier;
use crate::queue::{OpId, Operation, Work};
use crate::state::{Handle, State};
use crate::status::{Answer, Status};

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

/// A stream, which stays known after it was destroyed.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) context: Handle,
    pub(crate) sort: Sort,
    /// A default stream, which nobody creates or destroys.
    pub(crate) implicit: bool,
    pub(crate) priority: i32,
    pub(crate) dead: bool,
    /// The operation queued last.
    pub(crate) tail: Option<OpId>,
    /// The capture that it takes part in.
    pub(crate) capture: Option<u64>,
}

impl Stream {
    /// A stream that the program creates.
    pub(crate) fn new(context: Handle, flags: u32, priority: i32) -> Self {
        let sort = if flags & NON_BLOCKING == 0 { Sort::Blocking } else { Sort::NonBlocking };
        Self { context, sort, implicit: false, priority, dead: false, tail: None, capture: None }
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
    pub(crate) flags: u32,
    /// The latest record.
    pub(crate) last: Option<OpId>,
    /// When the latest record was reached.
    pub(crate) reached: Option<u64>,
    /// The capture that the latest record is part of, with the nodes before it.
    pub(crate) captured: Option<(u64, Frontier)>,
}

/// Ends the process as the real driver does when it follows a handle that leads nowhere.
pub(crate) fn die(function: &str, raw: Handle, what: &str) -> ! {
    eprintln!("simulated CUDA driver: {function}({raw:#x}): {what}; the real driver crashes here");
    std::process::abort()
}

impl State {
    /// Adds a stream.
    pub(crate) fn add_stream(&mut self, stream: Stream) -> Handle {
        let handle = self.fresh_handle();
        self.streams.insert(handle, stream);
        handle
    }

    /// The stream of a handle or of one of the numbers 0, 1 and 2. One that was destroyed ends the process.
    pub(crate) fn stream(&mut self, raw: Handle, function: &str) -> Answer<Handle> {
        match self.stream_or_destroyed(raw, function) {
            Err(Status::CONTEXT_IS_DESTROYED) if raw > 2 => die(function, raw, "the stream was destroyed"),
            answer => answer,
        }
    }

    /// The same for the functions that notice a destroyed stream.
    pub(crate) fn stream_or_destroyed(&mut self, raw: Handle, function: &str) -> Answer<Handle> {
        match raw {
            0 | 1 => {
                let current = self.current()?;
                Ok(self.context(current)?.legacy)
            }
            2 => {
                let key = (self.current()?, thread::current().id());
                if let Some(handle) = self.per_thread.get(&key) {
                    return Ok(*handle);
                }
                let handle = self.add_stream(Stream { implicit: true, ..Stream::new(key.0, 0, 0) });
                self.per_thread.insert(key, handle);
                Ok(handle)
            }
            _ => match self.streams.get(&raw) {
                None => die(function, raw, "this is no stream"),
                Some(stream) if stream.dead => Err(Status::CONTEXT_IS_DESTROYED),
                Some(_) => Ok(raw),
            },
        }
    }

    /// An event by its handle. One that went with its context is known to be gone; for others the real driver promises
    /// nothing, and here it is an error of the program.
    pub(crate) fn event(&mut self, handle: Handle, function: &str) -> Answer<&mut Event> {
        if self.lost_events.contains(&handle) {
            return Err(Status::CONTEXT_IS_DESTROYED);
        }
        if !self.events.contains_key(&handle) {
            self.error(format!("{function}: {handle:#x} is no event, or one that was destroyed"));
        }
        self.events.get_mut(&handle).ok_or(Status::INVALID_HANDLE)
    }

    /// What work that is queued on a stream now must come after.
    pub(crate) fn before_next(&self, handle: Handle) -> Vec<OpId> {
        let stream = &self.streams[&handle];
        let same = self.streams.values().filter(|other| other.context == stream.context);
        let tails: Vec<_> = match stream.sort {
            Sort::Legacy => same.filter(|other| other.sort != Sort::NonBlocking).map(|s| s.tail).collect(),
            Sort::Blocking => {
                same.filter(|other| other.sort == Sort::Legacy).map(|s| s.tail).chain([stream.tail]).collect()
            }
            Sort::NonBlocking => vec![stream.tail],
        };
        tails.into_iter().flatten().filter(|id| self.queue.is_pending(*id)).collect()
    }

    /// Queues work on a stream that does not capture, after what the stream demands and after `extra`.
    pub(crate) fn enqueue(&mut self, handle: Handle, work: Work, extra: &[OpId]) -> OpId {
        let mut after = self.before_next(handle);
        after.extend(extra);
        let context = self.streams[&handle].context;
        let id = self.queue.push(Operation { work, stream: handle, context, after, accesses: Vec::new() });
        if let Some(stream) = self.streams.get_mut(&handle) {
            stream.tail = Some(id);
        }
        id
    }

    /// Queues work on a stream, or adds it to the graph that the stream captures, which is answered with `None`.
    pub(crate) fn submit(&mut self, handle: Handle, work: Work) -> Answer<Option<OpId>> {
        self.check_legacy(handle)?;
        match self.streams[&handle].capture {
            Some(capture) => self.capture_work(capture, handle, work).map(|()| None),
            None => Ok(Some(self.enqueue(handle, work, &[]))),
        }
    }

    /// `cuEventRecord`.
    pub(crate) fn record(&mut self, event: Handle, stream: Handle) -> Answer {
        let context = self.streams[&stream].context;
        if self.event(event, "cuEventRecord")?.context != context {
            return Err(Status::INVALID_HANDLE);
        }
        self.check_legacy(stream)?;
        let captured = match self.streams[&stream].capture {
            Some(capture) => Some((capture, self.active_capture(capture)?.frontier(stream))),
            None => None,
        };
        let last = match captured {
            Some(_) => None,
            None => Some(self.enqueue(stream, Work::Record(event), &[])),
        };
        let event = self.event(event, "cuEventRecord")?;
        (event.captured, event.last, event.reached) = (captured, last, None);
        Ok(())
    }

    /// `cuStreamWaitEvent`.
    pub(crate) fn wait_event(&mut self, stream: Handle, event: Handle) -> Answer {
        let event = self.event(event, "cuStreamWaitEvent")?;
        let (captured, last) = (event.captured.clone(), event.last);
        self.check_legacy(stream)?;
        let own = self.streams[&stream].capture;
        match (own, captured) {
            (None, None) => {
                // An event that was never recorded holds nobody back.
                if last.is_some_and(|last| self.queue.is_pending(last)) {
                    self.enqueue(stream, Work::Nothing, last.as_slice());
                }
                Ok(())
            }
            (own, Some((capture, frontier))) => self.join_capture(stream, own, capture, frontier),
            (Some(capture), None) => Err(self.spoil(capture, Status::CAPTURE_ISOLATION)),
        }
    }
}
