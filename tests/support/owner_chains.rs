//! Arrays that are passed on many times: each owner holds the previous one.

use std::thread;

use interop_core::{CudaArray, FromArray};

/// Runs on a stack that is too small for nested drops of a whole chain.
pub(crate) fn on_a_small_stack<R: Send + 'static>(run: impl FnOnce() -> R + Send + 'static) -> R {
    thread::Builder::new().stack_size(256 << 10).spawn(run).unwrap().join().unwrap()
}

/// Exports and imports an array `links` times and returns the last one.
pub(crate) fn passed_on<T: CudaArray + FromArray + Send + 'static>(mut array: T, links: usize) -> T {
    for _ in 0..links {
        array = T::from_dlpack(array.into_dlpack().unwrap()).unwrap();
    }
    array
}
