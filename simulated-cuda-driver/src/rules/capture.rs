//! Stream capture: what is allowed during a capture, and what invalidates it.

use std::collections::BTreeMap;
use std::thread;

use crate::capture::{Capture, GLOBAL, RELAXED, THREAD_LOCAL, THREAD_MODE};
use crate::graph::{Frontier, Graph, Node};
use crate::handle::Handle;
use crate::queue::Work;
use crate::report::Mistake;
use crate::state::State;
use crate::status::{Answer, Status, describe};
use crate::stream::{Sort, Stream};
use crate::this_thread::calling;

impl State {
    /// Invalidates a capture and reports it. Returns `status`, the reason, as the result of the call.
    pub(crate) fn spoil(&mut self, capture: u64, status: Status) -> Status {
        if let Some(capture) = self.captures.get_mut(&capture).filter(|capture| !capture.invalid) {
            capture.invalid = true;
            let origin = capture.origin;
            self.report_capture(origin, status);
        }
        status
    }

    /// Reports that the current call invalidates a capture.
    fn report_capture(&mut self, origin: Handle, status: Status) {
        let why = describe(status.0).map_or("an error", |(_, text)| text.to_str().unwrap_or("an error"));
        let text = format!("{} spoils the capture that stream {origin:#x} began: {why}", calling());
        self.report(Mistake::Capture, text);
    }

    /// Invalidates the captures that `matches` selects. Fails if there are any.
    fn spoil_all(&mut self, status: Status, matches: impl Fn(&Self, &Capture) -> bool) -> Answer {
        let hit = self.captures.iter().filter(|(_, capture)| matches(self, capture));
        let hit: Vec<u64> = hit.map(|(id, _)| *id).collect();
        for id in &hit {
            self.spoil(*id, status);
        }
        if hit.is_empty() { Ok(()) } else { Err(status) }
    }

    /// Rejects a call that is potentially unsafe during captures.
    ///
    /// Which captures matter depends on their mode, on the mode of this thread, and on the thread that began them.
    pub(crate) fn check_capture_mode(&mut self) -> Answer {
        let thread = thread::current().id();
        let mode = THREAD_MODE.get();
        self.spoil_all(Status::CAPTURE_UNSUPPORTED, |_, capture| {
            let own = capture.thread == thread && capture.mode != RELAXED;
            match mode {
                GLOBAL => own || capture.mode == GLOBAL,
                THREAD_LOCAL => own,
                _ => false,
            }
        })
    }

    /// Rejects a call on a whole context if a stream of the context captures, in any mode.
    pub(crate) fn check_context_capture(&mut self, context: Handle) -> Answer {
        self.spoil_all(Status::CAPTURE_UNSUPPORTED, |state, capture| {
            capture.frontiers.keys().any(|stream| state.streams[stream].context == context)
        })
    }

    /// Whether a use of this stream would wait for a capturing blocking stream.
    pub(crate) fn is_implicit(&self, handle: Handle) -> bool {
        let stream = &self.streams[&handle];
        let hit = |other: &Stream| {
            other.context == stream.context && other.sort == Sort::Blocking && other.capture.is_some()
        };
        stream.sort == Sort::Legacy && self.streams.values().any(hit)
    }

    /// Rejects the legacy default stream while a blocking stream of its context captures.
    pub(crate) fn check_legacy(&mut self, handle: Handle) -> Answer {
        if !self.is_implicit(handle) {
            return Ok(());
        }
        let context = self.streams[&handle].context;
        self.spoil_all(Status::CAPTURE_IMPLICIT, |state, capture| {
            let mut streams = capture.frontiers.keys().map(|stream| &state.streams[stream]);
            streams.any(|stream| stream.context == context && stream.sort == Sort::Blocking)
        })
    }

    /// Rejects a call that queries a stream or waits for it while the stream captures.
    pub(crate) fn check_not_capturing(&mut self, handle: Handle) -> Answer {
        self.check_legacy(handle)?;
        match self.streams[&handle].capture {
            Some(capture) => Err(self.spoil(capture, Status::CAPTURE_UNSUPPORTED)),
            None => Ok(()),
        }
    }

    /// Returns a capture that is not invalidated.
    pub(crate) fn active_capture(&mut self, id: u64) -> Answer<&mut Capture> {
        let capture = self.captures.get_mut(&id).filter(|capture| !capture.invalid);
        capture.ok_or(Status::CAPTURE_INVALIDATED)
    }

    /// Adds work of a stream to the graph.
    pub(crate) fn capture_work(&mut self, id: u64, stream: Handle, work: Work) -> Answer {
        let capture = self.active_capture(id)?;
        let node = capture.nodes.len();
        let after = capture.frontiers.insert(stream, vec![node]).unwrap_or_default();
        capture.nodes.push(Node { work, after, name: calling() });
        Ok(())
    }

    /// Makes a stream wait for an event of a capture. The stream takes part in the capture from now on.
    pub(crate) fn join_capture(
        &mut self,
        stream: Handle,
        own: Option<u64>,
        id: u64,
        frontier: Frontier,
    ) -> Answer {
        if !self.captures.contains_key(&id) {
            return Err(Status::CAPTURED_EVENT);
        }
        if let Some(own) = own.filter(|own| *own != id) {
            self.spoil(own, Status::CAPTURE_MERGE);
            return Err(self.spoil(id, Status::CAPTURE_MERGE));
        }
        if self.streams[&stream].sort == Sort::Legacy {
            return Err(self.spoil(id, Status::CAPTURE_IMPLICIT));
        }
        self.active_capture(id)?.frontiers.entry(stream).or_default().extend(frontier);
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.capture = Some(id);
        }
        Ok(())
    }

    /// Implements `cuStreamBeginCapture`.
    pub(crate) fn begin_capture(&mut self, stream: Handle, mode: u32) -> Answer {
        let known = &self.streams[&stream];
        if mode > RELAXED {
            return Err(Status::INVALID_VALUE);
        }
        if known.sort == Sort::Legacy {
            return Err(Status::CAPTURE_UNSUPPORTED);
        }
        if known.capture.is_some() {
            return Err(Status::ILLEGAL_STATE);
        }
        let context = known.context;
        let thread = thread::current().id();
        let frontiers = BTreeMap::from([(stream, Vec::new())]);
        let id = self.fresh_handle();
        let capture =
            Capture { context, mode, thread, origin: stream, invalid: false, nodes: Vec::new(), frontiers };
        self.captures.insert(id, capture);
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.capture = Some(id);
        }
        Ok(())
    }

    /// Implements `cuStreamEndCapture`: returns the graph, unless the capture is invalidated or incomplete.
    pub(crate) fn end_capture(&mut self, stream: Handle) -> Answer<Handle> {
        let id = self.streams[&stream].capture.ok_or(Status::ILLEGAL_STATE)?;
        let Some(capture) = self.captures.get(&id) else { return Err(Status::ILLEGAL_STATE) };
        if capture.origin != stream {
            return Err(self.spoil(id, Status::CAPTURE_UNMATCHED));
        }
        if capture.mode != RELAXED && capture.thread != thread::current().id() {
            return Err(Status::CAPTURE_WRONG_THREAD);
        }
        for stream in self.streams.values_mut().filter(|stream| stream.capture == Some(id)) {
            stream.capture = None;
        }
        let capture = self.captures.remove(&id).ok_or(Status::ILLEGAL_STATE)?;
        if capture.invalid {
            return Err(Status::CAPTURE_INVALIDATED);
        }
        if !capture.is_joined() {
            self.report_capture(stream, Status::CAPTURE_UNJOINED);
            return Err(Status::CAPTURE_UNJOINED);
        }
        let graph = self.fresh_handle();
        self.graphs.insert(graph, Graph { nodes: capture.nodes });
        Ok(graph)
    }
}
