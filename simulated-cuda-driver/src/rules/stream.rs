//! The order that streams, events and graphs impose on operations.

use std::thread;

use crate::access::What;
use crate::graph::Node;
use crate::handle::{Handle, OpId};
use crate::happens_before::{Before, Step, Who};
use crate::queue::{Operation, Work};
use crate::report::Mistake;
use crate::state::{State, Thing};
use crate::status::{Answer, Status};
use crate::stream::{Event, Sort, Stream, die};
use crate::this_thread::calling;

impl State {
    /// Adds a stream.
    pub(crate) fn add_stream(&mut self, stream: Stream) -> Handle {
        let handle = self.handle(Thing::Stream);
        // An old stream with this handle moves to an unused handle, because its clock and operations are still needed.
        if let Some(before) = self.streams.remove(&handle) {
            let number = self.fresh_handle();
            self.streams.insert(number, before);
        }
        let who = if stream.sort == Sort::Legacy { Who::Legacy(stream.context) } else { Who::Stream(handle) };
        let agent = self.agents.add(who);
        self.streams.insert(handle, Stream { agent, ..stream });
        handle
    }

    /// Converts a handle, or one of the numbers 0, 1 and 2, to a stream.
    ///
    /// A destroyed stream is reported. The real driver crashes, returns an error, or uses a new stream with the same
    /// handle.
    pub(crate) fn stream(&mut self, raw: Handle, function: &str) -> Answer<Handle> {
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
                None => die(function, raw, "this is not a stream"),
                Some(stream) if stream.dead => {
                    self.report(
                        Mistake::DestroyedStream,
                        format!("{function}({raw:#x}): use of a destroyed stream"),
                    );
                    Err(Status::CONTEXT_IS_DESTROYED)
                }
                Some(_) => Ok(raw),
            },
        }
    }

    /// Returns an event by its handle.
    ///
    /// An event that was destroyed with its context gives an error. For other destroyed events the real driver
    /// guarantees nothing, so their use is reported as a mistake.
    pub(crate) fn event(&mut self, handle: Handle, function: &str) -> Answer<&mut Event> {
        if self.lost_events.contains(&handle) {
            return Err(Status::CONTEXT_IS_DESTROYED);
        }
        if !self.events.contains_key(&handle) {
            let text = format!("{function}: {handle:#x} is not an event, or was destroyed");
            self.report(Mistake::DestroyedEvent, text);
        }
        self.events.get_mut(&handle).ok_or(Status::INVALID_HANDLE)
    }

    /// Returns what the next work on a stream must come after.
    pub(crate) fn before_next(&self, handle: Handle) -> Before {
        let stream = &self.streams[&handle];
        let same = self.streams.values().filter(|other| other.context == stream.context);
        match stream.sort {
            Sort::Legacy => self.after_all_of(same.filter(|other| other.sort != Sort::NonBlocking)),
            Sort::Blocking => {
                self.after_all_of(same.filter(|other| other.sort == Sort::Legacy).chain([stream]))
            }
            Sort::NonBlocking => self.after_all_of([stream]),
        }
    }

    /// Returns what must come before work that waits for everything queued on these streams.
    pub(crate) fn after_all_of<'s>(&self, streams: impl IntoIterator<Item = &'s Stream>) -> Before {
        let mut before = Before::default();
        for stream in streams {
            before.operations.extend(stream.tail.filter(|tail| self.queue.is_pending(*tail)));
            before.clock.join(&stream.clock);
        }
        before
    }

    /// Queues work on a stream that is not capturing, after what the stream requires and after `extra`.
    pub(crate) fn enqueue(&mut self, handle: Handle, work: Work, extra: &Before) -> OpId {
        let Before { operations: mut after, mut clock } = self.before_next(handle);
        after.extend(&extra.operations);
        clock.join(&extra.clock);
        let Stream { context, agent, .. } = self.streams[&handle];
        let step = self.step_after(agent, calling(), clock);
        if let Work::Alloc(first) = work {
            // No use can come before the allocation; every use must come after it.
            self.note_whole(&step, What::Allocate, first);
        }
        if let Some(stream) = self.streams.get_mut(&handle) {
            (stream.tail, stream.clock) = (Some(step.moment.number), (*step.clock).clone());
        }
        self.queue.push(Operation { work, context, after, step })
    }

    /// Queues work on a stream. If the stream is capturing, adds it to the graph instead and returns `None`.
    pub(crate) fn submit(&mut self, handle: Handle, work: Work) -> Answer<Option<OpId>> {
        self.check_legacy(handle)?;
        match self.streams[&handle].capture {
            Some(capture) => self.capture_work(capture, handle, work).map(|()| None),
            None => Ok(Some(self.enqueue(handle, work, &Before::default()))),
        }
    }

    /// Implements `cuEventRecord`.
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
        let record = if captured.is_some() {
            None
        } else {
            let last = self.enqueue(stream, Work::Record(event), &Before::default());
            Some((last, self.streams[&stream].clock.clone()))
        };
        let event = self.event(event, "cuEventRecord")?;
        event.renew(record);
        event.captured = captured;
        Ok(())
    }

    /// Implements `cuStreamWaitEvent`.
    pub(crate) fn wait_event(&mut self, stream: Handle, event: Handle) -> Answer {
        let event = self.event(event, "cuStreamWaitEvent")?;
        let (captured, before) = (event.captured.clone(), event.before());
        self.check_legacy(stream)?;
        let own = self.streams[&stream].capture;
        match (own, captured) {
            (None, None) => {
                // Nothing waits for an event that was never recorded.
                if before.operations.iter().any(|last| self.queue.is_pending(*last)) {
                    self.enqueue(stream, Work::Nothing, &before);
                } else if let Some(stream) = self.streams.get_mut(&stream) {
                    stream.clock.join(&before.clock);
                }
                Ok(())
            }
            (own, Some((capture, frontier))) => self.join_capture(stream, own, capture, frontier),
            (Some(capture), None) => Err(self.spoil(capture, Status::CAPTURE_ISOLATION)),
        }
    }

    /// Rejects a call that queries an event or waits for it if its latest record is part of a capture.
    pub(crate) fn check_not_captured(&mut self, event: Handle, function: &str) -> Answer {
        match self.event(event, function)?.captured {
            Some((capture, _)) => Err(self.spoil(capture, Status::CAPTURED_EVENT)),
            None => Ok(()),
        }
    }

    /// Queues the work of a graph on a stream.
    pub(crate) fn launch_graph(&mut self, graph: Handle, stream: Handle) -> Answer {
        let nodes = self.graphs.get(&graph).ok_or(Status::INVALID_VALUE)?.nodes.clone();
        self.check_not_capturing(stream)?;
        let context = self.streams[&stream].context;
        let first = self.before_next(stream);
        let mut queued: Vec<Step> = Vec::with_capacity(nodes.len());
        for Node { work, after: edges, name } in nodes {
            // Nodes without a dependency between them may run in any order, as if each had its own stream.
            let agent = self.agents.add(Who::Node(stream));
            let (mut after, mut clock) = (first.operations.clone(), first.clock.clone());
            for before in edges.iter().map(|index| &queued[*index]) {
                after.push(before.moment.number);
                clock.join(&before.clock);
            }
            let step = self.step_after(agent, name, clock);
            queued.push(step.clone());
            self.queue.push(Operation { work, context, after, step });
        }
        let mut all = Before::default();
        for step in &queued {
            all.operations.push(step.moment.number);
            all.clock.join(&step.clock);
        }
        self.enqueue(stream, Work::Nothing, &all);
        Ok(())
    }
}
