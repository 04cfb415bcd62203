//! Copies and descriptions of arrays with pending work: what they wait for, what waits for them, and whether the host
//! waits.
#![expect(unsafe_code, reason = "streams and work of the caller's own")]

use std::sync::Arc;

use cudarc::driver::sys::CUstreamCaptureMode;
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, PinnedHostSlice, UnifiedSlice};
use cust::memory::{DeviceBuffer, LockedBuffer, UnifiedBuffer};
use cust::sys::{self, CUcontext, CUstream};
use interop_core::adapters::cust::InContext;
use interop_core::cuda::{CudaBuffer, HoldReleases, MemoryKind, finish_releases};
use interop_core::launch::AsStream;
use interop_core::storage::{FromImport, MemoryRegion};
use interop_core::{CudaArray, DType, FromArray, Import, Storage, StreamHandle};
use simulated_cuda::{Live, Policy, Sim, Spin, find};

use crate::contexts::{NON_BLOCKING, beside_a_capture, handle, in_another_context, ok, stream};
use crate::support::{
    Matrix, ReadyOn, Streamed, current_context, has_second_device, numbers, send, simulated, source, turn,
};

/// Returns an import for a stream. A long task is pending there and sets all bytes to 7 at its end.
fn written_late(sim: &Sim, stream: CUstream) -> (Spin, Import) {
    let data = CudaBuffer::zeroed(MemoryKind::Device, 0, DType::U8, 64).unwrap();
    let address = data.memory().unwrap().address as u64;
    let import = send(Matrix { data, rows: 8, columns: 8 }).ready_on(handle(stream));
    let spin = sim.spin(stream as u64);
    ok!(sys::cuMemsetD8Async(address, 7, 64, stream));
    (spin, import)
}

/// Copies to pinned memory on a stream and synchronizes only that stream.
fn read_on(stream: CUstream, address: usize, to: CudaBuffer) -> Vec<u8> {
    ok!(sys::cuMemcpyAsync(to.memory().unwrap().address as u64, address as u64, 64, stream));
    ok!(sys::cuStreamSynchronize(stream));
    Matrix { data: to, rows: 8, columns: 8 }.to_vec().unwrap()
}

fn pinned() -> CudaBuffer {
    CudaBuffer::zeroed(MemoryKind::Pinned, 0, DType::U8, 64).unwrap()
}

/// The copy is made on the default stream. The struct's stream has work before and after it.
#[test]
fn sim_only_a_slice_is_copied_in_the_order_of_the_stream_beside_it() {
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    let _context = cust::quick_init().unwrap();
    sim.set_policy(Policy::Late);
    let (user, seen) = (stream(NON_BLOCKING), pinned());
    let (spin, import) = written_late(sim, user);
    let copy: Streamed<CudaSlice<u8>, StreamHandle> = Streamed::from_import(import).unwrap();
    assert!(sim.is_pending(spin), "the host waits");
    assert_eq!(read_on(user, copy.data.memory().unwrap().address, seen), [7; 64]);
    // `cudarc` itself makes other streams wait for the copy, also those of another `CudaContext`.
    let other = CudaContext::new(0).unwrap().new_stream().unwrap();
    let (_, import) = written_late(sim, user);
    // Freeing the source would wait for the pending work.
    let held = HoldReleases::new();
    let copy: Streamed<CudaSlice<u8>, StreamHandle> = Streamed::from_import(import).unwrap();
    assert_eq!(other.clone_dtoh(&copy.data).unwrap(), [7; 64]);
    drop(held);
    ok!(sys::cuStreamDestroy_v2(user));
}

/// The host may read immediately, whatever stream the struct keeps.
#[test]
fn sim_only_memory_that_the_host_reads_is_complete() {
    fn check<S: Storage + FromImport>(sim: &Sim) {
        let user = stream(NON_BLOCKING);
        let (spin, import) = written_late(sim, user);
        // Freeing the source would wait for the pending work.
        let held = HoldReleases::new();
        let copy: Streamed<S, StreamHandle> = Streamed::from_import(import).unwrap();
        assert!(!sim.is_pending(spin), "{}", core::any::type_name::<S>());
        drop((copy, held));
        ok!(sys::cuStreamDestroy_v2(user));
    }
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    let _context = cust::quick_init().unwrap();
    sim.set_policy(Policy::Late);
    check::<LockedBuffer<u8>>(sim);
    check::<UnifiedBuffer<u8>>(sim);
    check::<InContext<UnifiedBuffer<u8>>>(sim);
    check::<PinnedHostSlice<u8>>(sim);
    check::<UnifiedSlice<u8>>(sim);
}

/// `cudarc` uses the primary context. Its default streams are not those that the struct's handle refers to.
#[test]
fn sim_only_a_copy_beside_a_default_stream_of_another_context_is_complete() {
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    let _context = cust::quick_init().unwrap();
    sim.set_policy(Policy::Late);
    for default in [StreamHandle::LegacyDefault, StreamHandle::PerThreadDefault] {
        in_another_context(0, || {
            let seen = pinned();
            let data = CudaBuffer::from_slice(MemoryKind::Device, 0, &[7_u8; 64]).unwrap();
            let import = send(Matrix { data, rows: 8, columns: 8 }).ready_on(default);
            let copy: Streamed<CudaSlice<u8>, StreamHandle> = Streamed::from_import(import).unwrap();
            let raw = default.to_raw().unwrap() as CUstream;
            assert_eq!(read_on(raw, copy.data.memory().unwrap().address, seen), [7; 64], "{default}");
            // A drop outside the library leaves the context of `cudarc` current.
            let current = current_context();
            drop(copy);
            ok!(sys::cuCtxSetCurrent(current as CUcontext));
        });
    }
}

/// The release of pinned memory waits for work in primary contexts, but the copy runs in another context.
#[test]
fn sim_only_the_source_of_a_copy_in_another_context_is_not_written_before_it() {
    struct Rewritten(CudaBuffer);
    // SAFETY: forwards to the inner buffer.
    unsafe impl Storage for Rewritten {
        fn memory(&self) -> interop_core::Result<MemoryRegion> {
            self.0.memory()
        }
    }
    impl Drop for Rewritten {
        fn drop(&mut self) {
            let (stream, address) = (stream(NON_BLOCKING), self.0.memory().unwrap().address as u64);
            ok!(sys::cuMemsetD8Async(address, 9, 24, stream));
            ok!(sys::cuStreamSynchronize(stream));
            ok!(sys::cuStreamDestroy_v2(stream));
        }
    }
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    let _context = cust::quick_init().unwrap();
    sim.set_policy(Policy::Late);
    for kind in [MemoryKind::Pinned, MemoryKind::Managed] {
        in_another_context(0, || {
            let user = stream(NON_BLOCKING);
            let Matrix { data, rows, columns } = source(kind, 0, 2, 3);
            let import = send(Matrix { data: Rewritten(data), rows, columns }).ready_on(handle(user));
            let copy: Streamed<InContext<DeviceBuffer<f32>>, StreamHandle> =
                Streamed::from_import(import).unwrap();
            assert_eq!(finish_releases(), 0);
            assert_eq!(copy.to_vec::<f32>().unwrap(), numbers(6), "{kind:?}");
            ok!(sys::cuStreamDestroy_v2(user));
        });
    }
}

/// A call of `memory()` must not count as a read for `cudarc`, which remembers only the last read.
#[test]
fn sim_only_a_slice_that_was_looked_at_is_freed_after_those_who_read_it() {
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    sim.set_policy(Policy::Late);
    let context = CudaContext::new(0).unwrap();
    let (own, reader) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let data = own.clone_htod(&numbers(6)).unwrap();
    let mut copy = reader.alloc_zeros::<f32>(6).unwrap();
    sim.spin(reader.cu_stream() as u64);
    reader.memcpy_dtod(&data, &mut copy).unwrap();
    data.memory().unwrap();
    drop(data);
    assert_eq!(reader.clone_dtoh(&copy).unwrap(), numbers(6));
}

/// The host, which reads next, must not wait for other work on the default stream.
#[test]
fn sim_only_pinned_memory_that_was_looked_at_is_read_without_a_wait() {
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    sim.set_policy(Policy::Late);
    let context = CudaContext::new(0).unwrap();
    // SAFETY: never read.
    let pinned = unsafe { context.alloc_pinned_with_flags::<f32>(6, 0) }.unwrap();
    // With a second stream `cudarc` records which stream reads.
    let _second = context.new_stream().unwrap();
    let spin = sim.spin(0);
    pinned.memory().unwrap();
    assert_eq!(pinned.as_slice().unwrap().len(), pinned.len());
    assert!(sim.is_pending(spin), "the host waits");
}

/// The default stream cannot wait for the write while a blocking stream captures.
#[test]
fn sim_only_a_look_beside_a_capture_comes_after_what_is_pending() {
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    sim.set_policy(Policy::Late);
    let context = CudaContext::new(0).unwrap();
    let writer = context.new_stream().unwrap();
    let mut data = context.default_stream().clone_htod(&numbers(6)).unwrap();
    let spin = sim.spin(writer.cu_stream() as u64);
    writer.memset_zeros(&mut data).unwrap();
    beside_a_capture(|| data.memory().unwrap());
    assert!(!sim.is_pending(spin), "nobody has waited");
}

/// A capturing stream cannot wait for earlier writes either. The kernel that receives the view becomes part of the
/// graph.
#[test]
fn a_look_on_a_stream_that_captures_leaves_the_capture_good() {
    let _turn = turn();
    let sim = find().ok();
    let context = CudaContext::new(0).unwrap();
    let (own, writer) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let data = own.clone_htod(&numbers(6)).unwrap();
    let mut matrix = Streamed { data, rows: 2, columns: 3, stream: own.clone() };
    for mode in [
        CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
        CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
    ] {
        let spin = sim.map(|sim| {
            sim.set_policy(Policy::Late);
            (sim, sim.spin(writer.cu_stream() as u64))
        });
        writer.memset_zeros(&mut matrix.data).unwrap();
        own.begin_capture(mode).unwrap();
        matrix.view::<f32, 2>().unwrap().kernel_view().unwrap();
        assert!(spin.is_none_or(|(sim, spin)| !sim.is_pending(spin)), "nobody has waited");
        end_capture(&own);
        assert_eq!(own.clone_dtoh(&matrix.data).unwrap(), [0.0; 6]);
    }
    context.check_err().unwrap();
}

/// Ends a capture, which must be valid, and destroys the graph.
fn end_capture(stream: &CudaStream) {
    let mut graph = std::ptr::null_mut();
    ok!(sys::cuStreamEndCapture(stream.cu_stream().cast(), &raw mut graph));
    ok!(sys::cuGraphDestroy(graph));
}

/// Each default stream of each context gets one substitute stream, which is created once.
#[test]
fn sim_only_default_streams_are_named_by_their_own_stand_ins() {
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    let _context = cust::quick_init().unwrap();
    let devices = if has_second_device() { 0..2 } else { 0..1 };
    let contexts: Vec<Arc<CudaContext>> = devices.map(|device| CudaContext::new(device).unwrap()).collect();
    let arrays: Vec<_> = contexts
        .iter()
        .flat_map(|context| [context.default_stream(), context.per_thread_stream()])
        .map(|stream| Matrix { data: stream.clone_htod(&numbers(6)).unwrap(), rows: 2, columns: 3 })
        .collect();
    for array in &arrays {
        let stream = CudaSlice::stream(&array.data);
        stream.context().bind_to_thread().unwrap();
        assert_eq!(array.info().unwrap().stream(), Some(stream.as_stream()), "in its own context");
    }
    let mut names = Vec::new();
    for (context, arrays) in contexts.iter().zip(arrays.chunks(2)) {
        in_another_context(i32::try_from(context.ordinal()).unwrap(), || {
            let ask =
                || arrays.iter().map(|array| array.info().unwrap().stream().unwrap()).collect::<Vec<_>>();
            let (first, streams) = (ask(), sim.live(Live::Streams));
            assert_eq!((ask(), sim.live(Live::Streams)), (first.clone(), streams));
            names.extend(first);
        });
    }
    for (at, name) in names.iter().enumerate() {
        assert!(matches!(name, StreamHandle::Raw(_)) && !names[..at].contains(name), "{names:?}");
    }
    // On a default stream `cudarc` frees memory in the current context.
    for array in arrays {
        array.data.context().bind_to_thread().unwrap();
        drop(array);
    }
}
