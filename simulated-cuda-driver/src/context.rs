//! Devices, contexts, and each thread's stack of current contexts.

use std::cell::RefCell;

use crate::handle::Handle;

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
