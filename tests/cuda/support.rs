//! What the tests share: turns, and sources of every kind.

use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;

use interop_core::cuda::{CudaBuffer, MemoryKind, finish_releases};
use interop_core::{CudaArray, Import, LeaseMut, StreamHandle};
use interop_cuda_examples::simulated::give_kernels;
use interop_sim_client::{Sim, find};

/// A test's turn. At its end the simulated driver, if it is there, has no complaint: about memory that was used while
/// others wrote to it, or after it was freed, or in no context.
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

/// All tests share the driver, its contexts and what is pending on it: they take turns.
pub(crate) fn turn() -> Turn {
    static TURN: Mutex<()> = Mutex::new(());
    static KERNELS: Once = Once::new();
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    KERNELS.call_once(give_kernels);
    // What the last test left behind. A release may lead to another: an import's is that of the export it came from. One that
    // failed may have left a capture, under which nothing is released.
    for _ in 0..10 {
        finish_releases();
    }
    Turn(turn)
}

/// The simulated driver, for a test that is about its hooks.
pub(crate) fn simulated() -> Option<&'static Sim> {
    find().map_err(|why| println!("skipped: needs the simulated driver ({why})")).ok()
}

/// The context that is current on this thread, as a number.
pub(crate) fn current_context() -> usize {
    let mut context = std::ptr::null_mut();
    // SAFETY: a place for a context.
    let answer = unsafe { ::cust::sys::cuCtxGetCurrent(&raw mut context) };
    assert_eq!(answer as u32, 0, "cuCtxGetCurrent");
    context as usize
}

/// Makes no context current on this thread.
pub(crate) fn no_context() {
    // SAFETY: null is allowed.
    let answer = unsafe { ::cust::sys::cuCtxSetCurrent(std::ptr::null_mut()) };
    assert_eq!(answer as u32, 0, "cuCtxSetCurrent");
}

pub(crate) fn numbers(count: u16) -> Vec<f32> {
    (0..count).map(f32::from).collect()
}

/// Any memory, with strides.
#[derive(CudaArray)]
pub(crate) struct Strided<S> {
    #[cuda_array(data)]
    pub(crate) data: S,
    #[cuda_array(shape)]
    pub(crate) shape: Vec<usize>,
    #[cuda_array(strides)]
    pub(crate) strides: Vec<isize>,
}

/// What every import is: a matrix in a storage of one's own.
#[derive(CudaArray)]
#[cuda_array(shape = [rows, columns])]
pub(crate) struct Matrix<S> {
    #[cuda_array(data)]
    pub(crate) data: S,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// The same, in the other order.
#[derive(CudaArray)]
#[cuda_array(shape = [rows, columns], order = "F")]
pub(crate) struct ColumnMajor<S> {
    #[cuda_array(data)]
    pub(crate) data: S,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// The same, with the stream that the work is pending on.
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

/// Sends an array of a foreign library's on its way, ready on the legacy default stream.
pub(crate) fn send<A: CudaArray + Send + 'static>(array: A) -> Import {
    let tensor = array.into_dlpack_for_stream(StreamHandle::LegacyDefault).unwrap();
    Import::from_dlpack(tensor).unwrap()
}

/// A matrix in memory of this kind, of the device `ordinal`.
pub(crate) fn source(kind: MemoryKind, ordinal: i32, rows: u16, columns: u16) -> Matrix<CudaBuffer> {
    let data = CudaBuffer::from_slice(kind, ordinal, &numbers(rows * columns)).unwrap();
    Matrix { data, rows: rows.into(), columns: columns.into() }
}

/// The elements of an import that is used in place.
pub(crate) fn read(import: Import) -> Vec<f32> {
    use interop_core::FromArray;
    let leased: Strided<LeaseMut<f32>> = Strided::from_import(import).unwrap();
    leased.to_vec().unwrap()
}

/// How many devices there are; the message is for tests that need two.
pub(crate) fn has_second_device() -> bool {
    let mut count = 0;
    // SAFETY: a place for a number.
    let answer = unsafe { ::cust::sys::cuDeviceGetCount(&raw mut count) };
    let found = answer as u32 == 0 && count > 1;
    if !found {
        println!("skipped: needs two devices, there are {count}");
    }
    found
}
