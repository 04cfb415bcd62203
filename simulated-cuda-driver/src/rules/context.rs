//! How contexts are made and destroyed.

use crate::access::What;
use crate::context::Context;
use crate::handle::Handle;
use crate::state::{Sim, State, Thing};
use crate::stream::Stream;

impl State {
    /// Creates a context on a device.
    pub(crate) fn create_context(&mut self, device: usize, flags: u32) -> Handle {
        let (handle, id) = (self.handle(Thing::Context), self.fresh_handle() >> 4);
        // Streams of a destroyed context with the same handle must not belong to the new one.
        for stream in self.streams.values_mut().filter(|stream| stream.context == handle) {
            stream.context = 0;
        }
        let legacy = self.add_stream(Stream::legacy(handle));
        self.contexts.insert(handle, Context { device, flags, id, legacy });
        handle
    }
}

impl Sim {
    /// Waits for all work of a context and releases everything that belongs to it, but not the context itself.
    pub(crate) fn empty_context(&mut self, context: Handle) {
        let work = self.work_of(|other| other == context);
        self.wait(&work);
        self.captures.retain(|_, capture| capture.context != context);
        for stream in self.streams.values_mut().filter(|stream| stream.context == context) {
            stream.capture = None;
        }
        let State { streams, events, lost_events, reuse, .. } = &mut **self;
        let own = streams.iter_mut().filter(|(_, stream)| stream.context == context && !stream.implicit);
        for (handle, stream) in own.filter(|(_, stream)| !stream.dead) {
            stream.dead = true;
            reuse.leave(Thing::Stream, *handle);
        }
        events.retain(|lost, event| {
            let is_lost = event.context == context;
            if is_lost {
                lost_events.insert(*lost);
                reuse.leave(Thing::Event, *lost);
            }
            !is_lost
        });
        self.modules.retain(|_, module| module.context != context);
        let modules: Vec<_> = self.modules.keys().copied().collect();
        self.functions.retain(|_, function| modules.contains(&function.module));
        // Pool memory belongs to the device and outlives the context.
        let own = self.memory.live().filter(|(_, known)| known.context == context);
        let own: Vec<_> = own.map(|(first, _)| first).collect();
        let step = self.host_step();
        for first in own {
            self.note_whole(&step, What::Free, first);
            self.memory.free(first);
        }
    }

    /// Destroys a context.
    pub(crate) fn destroy_context(&mut self, context: Handle) {
        self.empty_context(context);
        self.contexts.remove(&context);
        self.reuse.leave(Thing::Context, context);
        for stream in self.streams.values_mut().filter(|stream| stream.context == context) {
            stream.dead = true;
        }
        self.per_thread.retain(|(owner, _), _| *owner != context);
    }
}
