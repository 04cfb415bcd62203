//! Error messages of imports into a buffer that the driver refuses.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, PinnedHostSlice, UnifiedSlice};
use cust::memory::{DeviceBuffer, LockedBuffer, UnifiedBuffer};
use cust::stream::{Stream, StreamFlags};
use interop_core::adapters::cudarc::context;
use interop_core::cuda::{CudaBuffer, MemoryKind};
use interop_core::launch::{AsStream, FromStream};
use interop_core::storage::FromImport;
use interop_core::{Device, Error, ErrorKind, FromArray, StreamHandle};
use simulated_cuda::{Mistake, Sim};

use crate::contexts::beside_a_capture;
use crate::subprocess::run_alone;
use crate::support::{Matrix, ReadyOn, Streamed, Strided, numbers, send, simulated, source, turn};

/// The error names the stream and says what is required.
#[test]
fn sim_only_a_destroyed_stream_is_named_by_the_error() {
    fn check<S: FromImport>(sim: &Sim) {
        let stream = dead();
        let import = send(source(MemoryKind::Device, 0, 2, 3)).ready_on(stream);
        let refused = Streamed::<S, StreamHandle>::from_import(import).err().unwrap();
        assert_dead(sim, &refused.error, stream);
    }
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    let _context = cust::quick_init().unwrap();
    check::<DeviceBuffer<f32>>(sim);
    check::<LockedBuffer<f32>>(sim);
    check::<UnifiedBuffer<f32>>(sim);
    check::<CudaSlice<f32>>(sim);
    check::<PinnedHostSlice<f32>>(sim);
    check::<UnifiedSlice<f32>>(sim);
    let stream = dead();
    let borrowed = <Arc<CudaStream>>::from_stream(stream, Device::cuda(0));
    assert_dead(sim, &borrowed.map(drop).unwrap_err(), stream);
}

/// Returns the handle of a destroyed stream.
fn dead() -> StreamHandle {
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None).unwrap();
    stream.as_stream()
}

#[track_caller]
fn assert_dead(sim: &Sim, error: &Error, stream: StreamHandle) {
    assert_eq!((error.kind(), error.location()), (ErrorKind::Driver, "cuStreamGetCtx"));
    assert!(error.found().contains("CUDA_ERROR_CONTEXT_IS_DESTROYED (709)"), "{error}");
    assert_eq!(error.allowed(), format!("a live stream of this process, not the {stream}"));
    let reports = sim.take_reports();
    assert!(reports.iter().all(|report| report.mistake == Mistake::DestroyedStream), "{reports:#?}");
}

/// The library's second stream of the context would have to wait for the default stream, which takes part in the
/// capture. The test runs in its own process, so that nothing has used the context before.
#[test]
fn the_context_of_imports_is_not_made_beside_a_capture() {
    run_alone("failed_imports::the_context_of_imports_is_not_made_beside_a_capture", || {
        let _turn = turn();
        let _context = cust::quick_init().unwrap();
        let error = beside_a_capture(|| context(0).map(drop).unwrap_err());
        assert_eq!((error.kind(), error.location()), (ErrorKind::StreamCapture, "context"), "{error}");
        assert_eq!(context(0).unwrap().ordinal(), 0);
    });
}

/// The out-of-memory error states how many bytes were requested.
#[test]
fn a_copy_that_there_is_no_room_for_says_how_much_it_takes() {
    fn check<S: FromImport>() {
        // More elements than fit any device. They share their memory through a stride of 0.
        let data = CudaBuffer::from_slice(MemoryKind::Device, 0, &numbers(2)).unwrap();
        let array = Strided { data, shape: vec![1 << 40, 2], strides: vec![0, 1] };
        let error = Matrix::<S>::from_import(send(array)).err().unwrap().error;
        assert_eq!(error.kind(), ErrorKind::Driver, "{error}");
        assert!(error.found().contains("CUDA_ERROR_OUT_OF_MEMORY"), "{error}");
        assert_eq!(error.allowed(), "8796093022208 bytes of free memory");
    }
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    check::<DeviceBuffer<f32>>();
    check::<CudaSlice<f32>>();
}
