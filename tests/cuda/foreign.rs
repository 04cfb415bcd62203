//! A context that a library made for itself is current: what of `cudarc`, which works in the primary one alone.
#![expect(unsafe_code, reason = "contexts and streams of the caller's own")]

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};
use cust::memory::DeviceBuffer;
use cust::sys::{self, CUcontext};
use interop_core::adapters::cust::InContext;
use interop_core::cuda::{CudaBuffer, MemoryKind, finish_releases};
use interop_core::dlpack::Versioned;
use interop_core::{CudaArray, DType, ErrorKind, FromArray, LeaseMut, Storage, StreamHandle};
use interop_sim_client::Policy;

use crate::contexts::{NON_BLOCKING, handle, in_another_context, ok, stream};
use crate::support::{Matrix, Streamed, current_context, numbers, send, simulated, source, turn};

/// The copy is made on the default stream of the context that is current, and the struct keeps another.
#[test]
fn a_copy_is_ready_on_the_borrowed_default_stream_beside_it() {
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    let _context = cust::quick_init().unwrap();
    sim.set_policy(Policy::Late);
    for default in [StreamHandle::LegacyDefault, StreamHandle::PerThreadDefault] {
        let read = CudaBuffer::zeroed(MemoryKind::Pinned, 0, DType::F32, 6).unwrap();
        in_another_context(0, || {
            let import = send(source(MemoryKind::Pool, 0, 2, 3)).on_stream(default);
            let copy =
                Streamed::<InContext<DeviceBuffer<f32>>, Arc<CudaStream>>::from_import(import).unwrap();
            let (current, stream) = (current_context(), copy.stream.cu_stream().cast());
            copy.stream.context().bind_to_thread().unwrap();
            ok!(sys::cuMemcpyAsync(
                read.memory().address as u64,
                copy.data.memory().address as u64,
                24,
                stream
            ));
            ok!(sys::cuStreamSynchronize(stream));
            ok!(sys::cuCtxSetCurrent(current as CUcontext));
        });
        assert_eq!(
            Matrix { data: read, rows: 2, columns: 3 }.to_vec::<f32>().unwrap(),
            numbers(6),
            "{default}"
        );
    }
}

/// `cudarc` makes its own context current for good, in place of the one in which the memory was handed out.
#[test]
fn a_release_leaves_the_context_current_that_is() {
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    let data = CudaContext::new(0).unwrap().default_stream().clone_htod(&numbers(6)).unwrap();
    in_another_context(0, || {
        let current = current_context();
        let tensor = Matrix { data, rows: 2, columns: 3 }.into_dlpack::<Versioned>().unwrap();
        drop(tensor);
        assert_eq!((finish_releases(), current_context()), (0, current));
    });
}

/// `cudarc` records its events on the streams of its own context only, and keeps to itself that it could not.
#[test]
fn a_stream_of_another_context_is_none_of_cudarc() {
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    in_another_context(0, || {
        let foreign = stream(NON_BLOCKING);
        let import = send(source(MemoryKind::Device, 0, 2, 3)).on_stream(handle(foreign));
        let refused = Streamed::<LeaseMut<f32>, Arc<CudaStream>>::from_import(import).err().unwrap();
        assert_eq!(refused.error.kind(), ErrorKind::Stream, "{}", refused.error);
        let held = Streamed::<LeaseMut<f32>, StreamHandle>::from_import(refused.value).unwrap();
        assert_eq!(held.stream, handle(foreign));
        drop(held);
        ok!(sys::cuStreamDestroy_v2(foreign));
    });
}
