//! `cudarc` while a context that another library created is current; `cudarc` itself only uses the primary context.
#![expect(unsafe_code, reason = "contexts and streams of the caller's own")]

use core::ptr::null_mut;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};
use cust::memory::DeviceBuffer;
use cust::sys::{self, CUcontext, CUstream, CUstreamCaptureMode as Mode};
use interop_core::adapters::cust::InContext;
use interop_core::cuda::{CudaBuffer, MemoryKind, finish_releases};
use interop_core::launch::{AsStream, FromStream};
use interop_core::{CudaArray, DType, Device, ErrorKind, FromArray, LeaseMut, Storage, StreamHandle};
use simulated_cuda::Policy;

use crate::contexts::{NON_BLOCKING, handle, in_another_context, ok, stream};
use crate::support::{
    Matrix, ReadyOn, Streamed, current_context, no_context, numbers, send, simulated, source, turn,
};

/// The copy is made on the default stream of the current context, while the struct keeps another stream.
#[test]
fn a_copy_is_ready_on_the_borrowed_default_stream_beside_it() {
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    let _context = cust::quick_init().unwrap();
    sim.set_policy(Policy::Late);
    for default in [StreamHandle::LegacyDefault, StreamHandle::PerThreadDefault] {
        let read = CudaBuffer::zeroed(MemoryKind::Pinned, 0, DType::F32, 6).unwrap();
        in_another_context(0, || {
            let import = send(source(MemoryKind::Pool, 0, 2, 3)).ready_on(default);
            let copy =
                Streamed::<InContext<DeviceBuffer<f32>>, Arc<CudaStream>>::from_import(import).unwrap();
            let (current, stream) = (current_context(), copy.stream.cu_stream().cast());
            copy.stream.context().bind_to_thread().unwrap();
            ok!(sys::cuMemcpyAsync(
                read.memory().unwrap().address as u64,
                copy.data.memory().unwrap().address as u64,
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

/// `cudarc` makes its own context current for good and replaces the context in which the release runs.
#[test]
fn a_release_leaves_the_context_current_that_is() {
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    let data = CudaContext::new(0).unwrap().default_stream().clone_htod(&numbers(6)).unwrap();
    no_context();
    in_another_context(0, || {
        let current = current_context();
        let tensor = Matrix { data, rows: 2, columns: 3 }.into_dlpack().unwrap();
        drop(tensor);
        assert_eq!((finish_releases(), current_context()), (0, current));
    });
    assert_eq!(current_context(), 0, "something was left below the context that was current");
}

/// `cudarc` records events only on streams of its own context, and does not report a failure to do so.
#[test]
fn a_stream_of_another_context_is_none_of_cudarc() {
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    in_another_context(0, || {
        let foreign = stream(NON_BLOCKING);
        let import = send(source(MemoryKind::Device, 0, 2, 3)).ready_on(handle(foreign));
        let refused = Streamed::<LeaseMut<f32>, Arc<CudaStream>>::from_import(import).err().unwrap();
        assert_eq!(refused.error.kind(), ErrorKind::Stream, "{}", refused.error);
        let held = Streamed::<LeaseMut<f32>, StreamHandle>::from_import(*refused.value).unwrap();
        assert_eq!(held.stream, handle(foreign));
        drop(held);
        ok!(sys::cuStreamDestroy_v2(foreign));
    });
}

/// A struct with its own stream, the default stream of the thread.
#[derive(CudaArray)]
#[cuda_array(shape = [1, columns])]
struct Own {
    #[cuda_array(data)]
    data: LeaseMut<u8>,
    columns: usize,
    #[cuda_array(stream, default = interop_core::adapters::cudarc::context(0)?.per_thread_stream())]
    stream: Arc<CudaStream>,
}

/// Pinned memory. It is allocated before work is queued, because zeroing it could wait for that work.
fn pinned() -> CudaBuffer {
    CudaBuffer::zeroed(MemoryKind::Pinned, 0, DType::U8, 64).unwrap()
}

/// Queues a copy of 64 bytes on a stream, in the context of that stream, and returns the bytes that it read.
fn found_by(stream: &CudaStream, address: usize, seen: CudaBuffer) -> Vec<u8> {
    let (current, raw) = (current_context(), stream.cu_stream().cast());
    stream.context().bind_to_thread().unwrap();
    ok!(sys::cuMemcpyAsync(seen.memory().unwrap().address as u64, address as u64, 64, raw));
    ok!(sys::cuStreamSynchronize(raw));
    ok!(sys::cuCtxSetCurrent(current as CUcontext));
    Matrix { data: seen, rows: 8, columns: 8 }.to_vec().unwrap()
}

/// In another context the handle of a default stream refers to another stream.
#[test]
fn later_work_on_a_default_stream_comes_after_what_was_joined_on_it() {
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    let _context = cust::quick_init().unwrap();
    sim.set_policy(Policy::Late);
    let context = CudaContext::new(0).unwrap();
    for default in [context.default_stream(), context.per_thread_stream(), context.new_stream().unwrap()] {
        let data = default.clone_htod(&[1_u8; 64]).unwrap();
        let array = Streamed { data, rows: 8, columns: 8, stream: default.clone() };
        let address = array.info().unwrap().address();
        in_another_context(0, || {
            let (other, seen) = (stream(NON_BLOCKING), pinned());
            array.make_stream_wait(handle(other)).unwrap();
            ok!(sys::cuMemsetD8Async(address as u64, 7, 64, other));
            array.wait_for_stream(handle(other)).unwrap();
            assert_eq!(found_by(&default, address, seen), [7; 64], "{}", default.as_stream());
            ok!(sys::cuStreamDestroy_v2(other));
        });
    }
}

/// The same for the pending work of an imported array.
#[test]
fn later_work_on_the_default_stream_of_a_struct_comes_after_what_was_pending() {
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    let _context = cust::quick_init().unwrap();
    sim.set_policy(Policy::Late);
    in_another_context(0, || {
        let (other, seen) = (stream(NON_BLOCKING), pinned());
        let data = CudaBuffer::zeroed(MemoryKind::Device, 0, DType::U8, 64).unwrap();
        let address = data.memory().unwrap().address;
        ok!(sys::cuMemsetD8Async(address as u64, 7, 64, other));
        let import = send(Matrix { data, rows: 1, columns: 64 }).ready_on(handle(other));
        let own = Own::from_import(import).unwrap();
        assert_eq!(
            (found_by(&own.stream, address, seen), own.data.memory().unwrap().address),
            (vec![7; 64], address)
        );
        drop(own);
        ok!(sys::cuStreamDestroy_v2(other));
    });
}

/// A wait between default streams with the same handle would invalidate the capture, or become part of it.
#[test]
fn a_default_stream_is_not_borrowed_while_its_namesake_captures() {
    fn beside(capturing: impl Fn(&dyn Fn())) -> Result<(), ErrorKind> {
        let per_thread = 2 as CUstream;
        capturing(&|| ok!(sys::cuStreamBeginCapture_v2(per_thread, Mode::CU_STREAM_CAPTURE_MODE_RELAXED)));
        let borrowed = <Arc<CudaStream>>::from_stream(StreamHandle::PerThreadDefault, Device::cuda(0));
        capturing(&|| {
            let mut graph = null_mut();
            ok!(sys::cuStreamEndCapture(per_thread, &raw mut graph));
            ok!(sys::cuGraphDestroy(graph));
        });
        borrowed.map(drop).map_err(|error| error.kind())
    }
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    let own = interop_core::adapters::cudarc::context(0).unwrap();
    in_another_context(0, || {
        assert_eq!(beside(|work| work()), Err(ErrorKind::StreamCapture));
        let current = current_context();
        let captured = beside(|work| {
            own.bind_to_thread().unwrap();
            work();
            ok!(sys::cuCtxSetCurrent(current as CUcontext));
        });
        assert_eq!(captured, Err(ErrorKind::StreamCapture));
    });
    // In the context of `cudarc` the handle is the stream itself, so no wait is needed.
    own.bind_to_thread().unwrap();
    assert_eq!(beside(|work| work()), Ok(()));
}
