//! Arrays that are passed on and on: the owner of each holds the one before.

use std::thread;

use interop_core::{CudaArray, FromArray};

/// Runs on a stack that is too small for drops one inside another, as many as a chain has links.
pub(crate) fn on_a_small_stack<R: Send + 'static>(run: impl FnOnce() -> R + Send + 'static) -> R {
    thread::Builder::new().stack_size(256 << 10).spawn(run).unwrap().join().unwrap()
}

/// The last of so many arrays, each of which was exported and imported as the next.
pub(crate) fn passed_on<T: CudaArray + FromArray + Send + 'static>(mut array: T, links: usize) -> T {
    for _ in 0..links {
        array = T::from_dlpack(array.into_dlpack().unwrap()).unwrap();
    }
    array
}
