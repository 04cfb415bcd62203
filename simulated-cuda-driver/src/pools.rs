//! Memory pools that several processes use.

use std::sync::Arc;

use crate::handle::Handle;
use crate::shared_memory::SharedMemory;

/// A pool of device memory that other processes can use, or one of another process.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) device: usize,
    /// The process that has created it, and its handle there.
    pub(crate) origin: (u32, Handle),
    /// What its descriptor stands for, once it was exported.
    pub(crate) exported: Option<Arc<SharedMemory>>,
}

impl Pool {
    /// Whether this process has created it.
    pub(crate) fn is_own(&self) -> bool {
        self.origin.0 == std::process::id()
    }
}
