//! Limits how deep calls of this crate nest on a thread, if Python code that one of them calls makes the next one.

use core::cell::Cell;

use pyo3::exceptions::PyRecursionError;
use pyo3::prelude::*;

/// A call that may run Python code of the caller's: a method of a protocol, `__index__`, a lookup in a class.
///
/// Python counts its own functions alone, at most 1000 of them by default. The calls of this crate and of the extension
/// between two of them need up to 9 KB of stack, in a debug build up to 40 KB. A thread has 8 MB of stack on most systems.
pub(crate) struct NestedCall(());

/// The most calls of a thread within each other. They fit into 2 MB of stack in a debug build.
const MOST: u32 = 32;

thread_local!(static NESTED: Cell<u32> = const { Cell::new(0) });

impl NestedCall {
    /// # Errors
    ///
    /// `RecursionError` at the limit.
    #[inline]
    pub(crate) fn enter() -> PyResult<Self> {
        let nested = NESTED.get();
        if nested == MOST {
            return Err(too_deep());
        }
        NESTED.set(nested + 1);
        Ok(Self(()))
    }
}

impl Drop for NestedCall {
    #[inline]
    fn drop(&mut self) {
        NESTED.set(NESTED.get() - 1);
    }
}

#[cold]
fn too_deep() -> PyErr {
    let text = format!(
        "maximum recursion depth exceeded while an array is imported or exported: {MOST} calls of the extension run within \
         each other on this thread, each made by Python code that the one before it has called"
    );
    PyRecursionError::new_err(text)
}
