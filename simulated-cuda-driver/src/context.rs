//! Devices, contexts, and each thread's stack of current contexts.

use std::cell::RefCell;

use crate::access::What;
use crate::state::{Handle, Sim, State, Thing};
use crate::status::{Answer, Status};
use crate::stream::Stream;

thread_local! {
    /// The contexts that were pushed on this thread; the last one is current.
    static STACK: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
}

/// A device: its primary context and the number of times the context is retained.
#[derive(Debug, Default)]
pub(crate) struct Device {
    pub(crate) primary: Option<Handle>,
    pub(crate) retained: u32,
    pub(crate) flags: u32,
}

/// A context that has not been destroyed.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) device: usize,
    pub(crate) flags: u32,
    /// Unique, for `cuCtxGetId`.
    pub(crate) id: u64,
    /// Its legacy default stream.
    pub(crate) legacy: Handle,
}

/// Runs `work` on this thread's context stack.
pub(crate) fn with_stack<R>(work: impl FnOnce(&mut Vec<Handle>) -> R) -> R {
    STACK.with_borrow_mut(work)
}

/// The bit that is set in a stack entry if the context was destroyed before it was pushed.
pub(crate) const PUSHED_DEAD: Handle = 1;

/// The handle of the current context, or zero. The context may have been destroyed.
pub(crate) fn current_handle() -> Handle {
    with_stack(|stack| stack.last().copied().unwrap_or(0))
}

impl State {
    /// The current context. Fails if it has been destroyed.
    pub(crate) fn current(&self) -> Answer<Handle> {
        self.context(current_handle()).map(|_| current_handle())
    }

    /// The current context and its device.
    pub(crate) fn current_owner(&self) -> Answer<(Handle, usize)> {
        let handle = self.current()?;
        Ok((handle, self.context(handle)?.device))
    }

    /// Returns a context by its handle.
    pub(crate) fn context(&self, handle: Handle) -> Answer<&Context> {
        match self.contexts.get(&handle) {
            Some(context) => Ok(context),
            None if handle == 0 => Err(Status::INVALID_CONTEXT),
            None => Err(Status::CONTEXT_IS_DESTROYED),
        }
    }

    /// Returns a device by its ordinal.
    pub(crate) fn device(&mut self, ordinal: i32) -> Answer<(usize, &mut Device)> {
        let index = usize::try_from(ordinal).map_err(|_| Status::INVALID_DEVICE)?;
        self.devices.get_mut(index).map(|device| (index, device)).ok_or(Status::INVALID_DEVICE)
    }

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
