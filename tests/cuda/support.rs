//! Shared helpers: exclusive access to the driver, and sources of every kind.
#![expect(unsafe_code, reason = "states on which stream an import is ready")]

use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;

use interop_core::cuda::{CudaBuffer, MemoryKind, finish_releases};
use interop_core::protocols::dlpack::Versioned;
use interop_core::{CudaArray, Import, LeaseMut, StreamHandle};
use interop_cuda_examples::simulated::give_kernels;
use simulated_cuda::{Sim, find};

/// Exclusive access to the driver for one test. At the end the simulated driver, if present, must have reported no
/// mistake: no race, no use after free, no access without a context.
pub(crate) struct Turn(#[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl Drop for Turn {
    fn drop(&mut self) {
        let Ok(sim) = find() else { return };
        if thread::panicking() {
            sim.take_reports();
        } else {
            sim.assert_no_reports();
        }
    }
}

/// Waits for exclusive access. All tests share the driver, its contexts and its pending work.
pub(crate) fn turn() -> Turn {
    static TURN: Mutex<()> = Mutex::new(());
    static KERNELS: Once = Once::new();
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    KERNELS.call_once(give_kernels);
    // Finish what the previous test left. A release may lead to another, because an import owns the export that it
    // came from. A failed test may have left a capture, during which nothing is released.
    for _ in 0..10 {
        finish_releases();
    }
    Turn(turn)
}

/// Returns the simulated driver, for a test that needs its hooks.
pub(crate) fn simulated() -> Option<&'static Sim> {
    find().map_err(|why| println!("skipped: needs the simulated driver ({why})")).ok()
}

/// The current context of this thread, as a number.
pub(crate) fn current_context() -> usize {
    let mut context = std::ptr::null_mut();
    // SAFETY: the pointer is valid for a write of a context.
    let answer = unsafe { ::cust::sys::cuCtxGetCurrent(&raw mut context) };
    assert_eq!(answer as u32, 0, "cuCtxGetCurrent");
    context as usize
}

/// Leaves this thread without a current context.
pub(crate) fn no_context() {
    // SAFETY: null is allowed.
    let answer = unsafe { ::cust::sys::cuCtxSetCurrent(std::ptr::null_mut()) };
    assert_eq!(answer as u32, 0, "cuCtxSetCurrent");
}

pub(crate) fn numbers(count: u16) -> Vec<f32> {
    (0..count).map(f32::from).collect()
}

/// An array of any storage, with strides.
#[derive(CudaArray)]
pub(crate) struct Strided<S> {
    #[cuda_array(data)]
    pub(crate) data: S,
    #[cuda_array(shape)]
    pub(crate) shape: Vec<usize>,
    #[cuda_array(strides)]
    pub(crate) strides: Vec<isize>,
}

/// The result of each import: a matrix in a storage of our own.
#[derive(CudaArray)]
#[cuda_array(shape = [rows, columns])]
pub(crate) struct Matrix<S> {
    #[cuda_array(data)]
    pub(crate) data: S,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// The same in column-major order.
#[derive(CudaArray)]
#[cuda_array(shape = [rows, columns], order = "F")]
pub(crate) struct ColumnMajor<S> {
    #[cuda_array(data)]
    pub(crate) data: S,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// The same, with the stream on which the work is pending.
#[derive(CudaArray)]
#[cuda_array(shape = [rows, columns])]
pub(crate) struct Streamed<S, H> {
    #[cuda_array(data)]
    pub(crate) data: S,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    #[cuda_array(stream)]
    pub(crate) stream: H,
}

pub(crate) const KINDS: [MemoryKind; 4] =
    [MemoryKind::Device, MemoryKind::Pool, MemoryKind::Pinned, MemoryKind::Managed];

/// Exports an array as another library would. It is ready on the legacy default stream.
pub(crate) fn send<A: CudaArray + Send + 'static>(array: A) -> Import {
    let tensor = array.into_dlpack_as::<Versioned>(StreamHandle::LegacyDefault).unwrap();
    Import::from_dlpack(tensor).unwrap()
}

/// A matrix in memory of this kind, on the device `ordinal`.
pub(crate) fn source(kind: MemoryKind, ordinal: i32, rows: u16, columns: u16) -> Matrix<CudaBuffer> {
    let data = CudaBuffer::from_slice(kind, ordinal, &numbers(rows * columns)).unwrap();
    Matrix { data, rows: rows.into(), columns: columns.into() }
}

/// Reads the elements of an import in place.
pub(crate) fn read(import: Import) -> Vec<f32> {
    use interop_core::FromArray;
    let leased: Strided<LeaseMut<f32>> = Strided::from_import(import).unwrap();
    leased.to_vec().unwrap()
}

/// Returns whether there are two devices. If not, it prints that the test was skipped.
pub(crate) fn has_second_device() -> bool {
    let mut count = 0;
    // SAFETY: the pointer is valid for a write of a number.
    let answer = unsafe { ::cust::sys::cuDeviceGetCount(&raw mut count) };
    let found = answer as u32 == 0 && count > 1;
    if !found {
        println!("skipped: needs two devices, there are {count}");
    }
    found
}

/// Imports on a stream that the test orders itself.
pub(crate) trait ReadyOn {
    fn ready_on(self, stream: StreamHandle) -> Self;
}

impl ReadyOn for Import {
    fn ready_on(self, stream: StreamHandle) -> Self {
        // SAFETY: the tests have queued all work on this stream, or show what happens otherwise.
        unsafe { self.assume_ready_on(stream) }
    }
}
