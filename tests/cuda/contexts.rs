//! Foreign contexts and captures: the current context and a capture in progress while arrays are imported and
//! exported.
#![expect(unsafe_code, reason = "contexts, streams and captures of the caller's own")]

use core::ptr::null_mut;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, PinnedHostSlice, UnifiedSlice};
use cust::memory::{DeviceBuffer, LockedBuffer, UnifiedBuffer};
use cust::sys::{self, CUcontext, CUstream, CUstreamCaptureMode as Mode};
use interop_core::adapters::cust::{Buffer, InContext};
use interop_core::cuda::{CudaBuffer, HoldReleases, MemoryKind, finish_releases, pointer_attributes};
use interop_core::protocols::dlpack::Versioned;
use interop_core::storage::{FromImport, MemoryRegion};
use interop_core::{CudaArray, DType, ErrorKind, FromArray, Import, LeaseMut, Storage, StreamHandle};
use simulated_cuda::Policy;

use crate::order_settings::Releases;
use crate::support::{
    Matrix, ReadyOn, Streamed, current_context, has_second_device, numbers, send, simulated, source, turn,
};

const BLOCKING: u32 = 0;
pub(crate) const NON_BLOCKING: u32 = 1;

macro_rules! ok {
    ($call:expr) => {
        // SAFETY: the handles are live, and the output pointers are valid for writes.
        assert_eq!(unsafe { $call } as u32, 0, stringify!($call))
    };
}

pub(crate) use ok;

/// Creates a stream in the current context.
pub(crate) fn stream(flags: u32) -> CUstream {
    let mut stream = null_mut();
    ok!(sys::cuStreamCreate(&raw mut stream, flags));
    stream
}

pub(crate) fn handle(stream: CUstream) -> StreamHandle {
    // SAFETY: the tests keep their streams alive.
    unsafe { StreamHandle::from_raw(stream as usize) }
}

/// Calls `work` while a blocking stream of the current context captures. Checks that the capture stays valid.
pub(crate) fn beside_a_capture<R>(work: impl FnOnce() -> R) -> R {
    beside(BLOCKING, Mode::CU_STREAM_CAPTURE_MODE_RELAXED, work)
}

/// Like [`beside_a_capture`], for a non-blocking stream in the global mode, which forbids unsafe calls on every
/// thread.
fn beside_a_strict_capture<R>(work: impl FnOnce() -> R) -> R {
    beside(NON_BLOCKING, Mode::CU_STREAM_CAPTURE_MODE_GLOBAL, work)
}

fn beside<R>(flags: u32, mode: Mode, work: impl FnOnce() -> R) -> R {
    let (capturing, mut graph) = (stream(flags), null_mut());
    ok!(sys::cuStreamBeginCapture_v2(capturing, mode));
    let done = work();
    ok!(sys::cuStreamEndCapture(capturing, &raw mut graph));
    ok!(sys::cuGraphDestroy(graph));
    ok!(sys::cuStreamDestroy_v2(capturing));
    done
}

macro_rules! for_each_storage {
    ($check:ident) => {
        $check::<DeviceBuffer<f32>>();
        $check::<LockedBuffer<f32>>();
        $check::<UnifiedBuffer<f32>>();
        $check::<InContext<DeviceBuffer<f32>>>();
        $check::<CudaSlice<f32>>();
        $check::<PinnedHostSlice<f32>>();
        $check::<UnifiedSlice<f32>>();
    };
}

#[test]
fn a_copy_on_the_default_stream_leaves_a_capture_beside_it_alone() {
    fn check<S: Storage + FromImport>() {
        let import = send(source(MemoryKind::Device, 0, 3, 4));
        let refused = beside_a_capture(|| Matrix::<S>::from_import(import)).err().unwrap();
        assert_eq!(refused.error.kind(), ErrorKind::StreamCapture, "{}", refused.error);
        let copy = Matrix::<S>::from_import(*refused.value).unwrap();
        assert_eq!(copy.to_vec::<f32>().unwrap(), numbers(12));
    }
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    for_each_storage!(check);
}

#[test]
fn a_copy_on_a_stream_of_its_own_leaves_a_capture_beside_it_alone() {
    fn check<S: Storage + FromImport>() {
        let stream = stream(NON_BLOCKING);
        let import = send(source(MemoryKind::Device, 0, 3, 4)).ready_on(handle(stream));
        match beside_a_capture(|| Matrix::<S>::from_import(import)) {
            Ok(copy) => assert_eq!(copy.to_vec::<f32>().unwrap(), numbers(12)),
            Err(refused) => assert_eq!(refused.error.kind(), ErrorKind::StreamCapture, "{}", refused.error),
        }
        ok!(sys::cuStreamDestroy_v2(stream));
    }
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    for_each_storage!(check);
}

/// The library allocates in the relaxed capture mode, which allows it.
#[test]
fn a_copy_beside_a_strict_capture_is_made() {
    fn check<S: Storage + FromImport>() {
        let other = stream(NON_BLOCKING);
        for stream in [handle(other), StreamHandle::LegacyDefault] {
            let import = send(source(MemoryKind::Device, 0, 3, 4)).ready_on(stream);
            let copy = beside_a_strict_capture(|| {
                // The release of the source would record all work of the context, which includes the capture.
                let _held = HoldReleases::new();
                Matrix::<S>::from_import(import).unwrap()
            });
            assert_eq!(copy.to_vec::<f32>().unwrap(), numbers(12));
        }
        ok!(sys::cuStreamDestroy_v2(other));
    }
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    for_each_storage!(check);
}

/// The buffer is freed in the relaxed capture mode, which allows it.
#[test]
fn a_buffer_in_its_context_is_freed_beside_a_strict_capture() {
    fn check<B: Buffer>(buffer: B) {
        let buffer = InContext::new(buffer);
        let address = buffer.memory().unwrap().address;
        beside_a_strict_capture(|| drop(buffer));
        assert_eq!(pointer_attributes(address).unwrap(), None, "not freed");
    }
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    check(DeviceBuffer::from_slice(&numbers(6)).unwrap());
    check(LockedBuffer::from_slice(&numbers(6)).unwrap());
    check(UnifiedBuffer::from_slice(&numbers(6)).unwrap());
}

#[test]
fn a_look_at_a_slice_leaves_a_capture_beside_it_alone() {
    fn check<S: Storage>(data: S) {
        let mut matrix = Matrix { data, rows: 2, columns: 3 };
        beside_a_capture(|| {
            matrix.info().unwrap();
            matrix.view_mut::<f32, 2>().unwrap().kernel_view_mut().unwrap();
        });
    }
    let _turn = turn();
    let context = CudaContext::new(0).unwrap();
    // SAFETY: never read.
    check(unsafe { context.alloc_pinned_with_flags::<f32>(6, 0) }.unwrap());
    // SAFETY: never read.
    check(unsafe { context.alloc_unified::<f32>(6, true) }.unwrap());
    check(context.new_stream().unwrap().clone_htod(&numbers(6)).unwrap());
    check(context.default_stream().clone_htod(&numbers(6)).unwrap());
    let imported: Matrix<CudaSlice<f32>> =
        Matrix::from_import(send(source(MemoryKind::Device, 0, 2, 3))).unwrap();
    check(imported.data);
}

/// `Releases::Unordered` covers only the user's own work. The library queues the copy, so the source still
/// outlives it.
#[test]
fn sim_only_the_source_of_a_copy_is_released_after_it_whatever_the_policy() {
    struct Policied;
    impl Drop for Policied {
        fn drop(&mut self) {
            Releases::AfterContext.set();
        }
    }
    fn check<S: Storage + FromImport>() {
        for kind in [MemoryKind::Device, MemoryKind::Pool, MemoryKind::Pinned] {
            let stream = stream(NON_BLOCKING);
            let import = send(source(kind, 0, 3, 4)).ready_on(handle(stream));
            let copy: Streamed<S, StreamHandle> = Streamed::from_import(import).unwrap();
            assert_eq!(copy.to_vec::<f32>().unwrap(), numbers(12));
            drop(copy);
            ok!(sys::cuStreamDestroy_v2(stream));
        }
    }
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    let _context = cust::quick_init().unwrap();
    sim.set_policy(Policy::Late);
    let _policied = Policied;
    Releases::Unordered.set();
    for_each_storage!(check);
}

/// Creates a context on the device, runs `work` in it, and returns the result.
pub(crate) fn in_another_context<R>(ordinal: i32, work: impl FnOnce() -> R) -> R {
    let (mut own, mut popped): (CUcontext, CUcontext) = (null_mut(), null_mut());
    ok!(sys::cuCtxCreate_v2(&raw mut own, 0, ordinal));
    let done = work();
    ok!(sys::cuCtxPopCurrent_v2(&raw mut popped));
    assert_eq!(own, popped, "another context is current than was");
    finish_releases();
    ok!(sys::cuCtxDestroy_v2(own));
    done
}

/// A default stream handle refers to the current context, and `cudarc` has its own context.
#[test]
fn a_copy_comes_after_the_default_stream_of_the_context_that_is_current() {
    fn check<S: Storage + FromImport>() {
        for default in [StreamHandle::LegacyDefault, StreamHandle::PerThreadDefault] {
            in_another_context(0, || {
                let data = CudaBuffer::zeroed(MemoryKind::Device, 0, DType::U8, 64).unwrap();
                let (address, of) = (data.memory().unwrap().address as u64, default.to_raw().unwrap());
                ok!(sys::cuMemsetD8Async(address, 7, 64, of as CUstream));
                let written = Streamed { data, rows: 8, columns: 8, stream: default };
                let tensor = written.into_dlpack_as::<Versioned>(default).unwrap();
                let import = Import::from_dlpack(tensor).unwrap().ready_on(default);
                let copy: Matrix<S> = Matrix::from_import(import).unwrap();
                assert_eq!(copy.to_vec::<u8>().unwrap(), [7; 64], "{default}");
                let current = current_context();
                drop(copy);
                // When `cudarc` drops this value it leaves its own context current.
                ok!(sys::cuCtxSetCurrent(current as CUcontext));
            });
        }
    }
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    let _context = cust::quick_init().unwrap();
    sim.set_policy(Policy::Late);
    check::<InContext<DeviceBuffer<u8>>>();
    check::<InContext<LockedBuffer<u8>>>();
    check::<CudaSlice<u8>>();
    check::<PinnedHostSlice<u8>>();
    check::<UnifiedSlice<u8>>();
}

/// A default stream of `cudarc` belongs to the context of `cudarc`. It waits for the default stream of the current
/// context.
#[test]
fn a_borrowed_default_stream_comes_after_that_of_the_context_that_is_current() {
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    let _context = cust::quick_init().unwrap();
    sim.set_policy(Policy::Late);
    for default in [StreamHandle::LegacyDefault, StreamHandle::PerThreadDefault] {
        let read = CudaBuffer::zeroed(MemoryKind::Pinned, 0, DType::U8, 64).unwrap();
        in_another_context(0, || {
            let data = CudaBuffer::zeroed(MemoryKind::Device, 0, DType::U8, 64).unwrap();
            let (address, of) = (data.memory().unwrap().address as u64, default.to_raw().unwrap());
            ok!(sys::cuMemsetD8Async(address, 7, 64, of as CUstream));
            let written = Streamed { data, rows: 8, columns: 8, stream: default };
            let tensor = written.into_dlpack_as::<Versioned>(default).unwrap();
            let import = Import::from_dlpack(tensor).unwrap().ready_on(default);
            let leased: Streamed<LeaseMut<u8>, Arc<CudaStream>> = Streamed::from_import(import).unwrap();
            let current = current_context();
            leased.stream.context().bind_to_thread().unwrap();
            let stream = leased.stream.cu_stream().cast();
            ok!(sys::cuMemcpyAsync(read.memory().unwrap().address as u64, address, 64, stream));
            ok!(sys::cuStreamSynchronize(stream));
            ok!(sys::cuCtxSetCurrent(current as CUcontext));
        });
        let read = Matrix { data: read, rows: 8, columns: 8 };
        assert_eq!(read.to_vec::<u8>().unwrap(), [7; 64], "{default}");
    }
}

/// Writes on a stream of the slice's context, exports while another context is current, and reads on a stream of the
/// latter.
fn read_from<A: CudaArray + Send + 'static>(ordinal: i32, make: impl FnOnce() -> A) {
    let primary = CudaContext::new(0).unwrap();
    let to = CudaBuffer::zeroed(MemoryKind::Pinned, 0, DType::F32, 6).unwrap();
    in_another_context(ordinal, || {
        let reader = stream(NON_BLOCKING);
        let other = current_context();
        primary.bind_to_thread().unwrap();
        let array = make();
        ok!(sys::cuCtxSetCurrent(other as CUcontext));
        let tensor =
            array.into_dlpack_as::<Versioned>(handle(reader)).map_err(|refused| refused.error).unwrap();
        let from = tensor.info().unwrap().address() as u64;
        ok!(sys::cuMemcpyAsync(to.memory().unwrap().address as u64, from, 24, reader));
        ok!(sys::cuStreamSynchronize(reader));
        let to = Matrix { data: to, rows: 2, columns: 3 };
        assert_eq!(to.to_vec::<f32>().unwrap(), numbers(6));
        ok!(sys::cuStreamDestroy_v2(reader));
        drop(tensor);
    });
}

#[test]
fn a_slice_is_ordered_by_its_own_context_whatever_is_current() {
    each_slice_is_ordered(|_, data| Matrix { data, rows: 2, columns: 3 });
}

/// The same for the stream of the struct.
#[test]
fn a_stream_is_that_of_its_own_context_whatever_is_current() {
    each_slice_is_ordered(|stream, data| Streamed { data, rows: 2, columns: 3, stream: stream.clone() });
}

/// Writes each kind of storage on a stream of device 0 and reads it in another context.
fn each_slice_is_ordered<A: CudaArray + Send + 'static>(array: fn(&Arc<CudaStream>, Written) -> A) {
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    let _context = cust::quick_init().unwrap();
    sim.set_policy(Policy::Late);
    let context = CudaContext::new(0).unwrap();
    let streams = [context.new_stream().unwrap(), context.default_stream(), context.per_thread_stream()];
    let second = if has_second_device() { 2 } else { 1 };
    for (ordinal, stream) in
        (0..second).flat_map(|ordinal| streams.each_ref().map(|stream| (ordinal, stream)))
    {
        let device = stream.clone_htod(&numbers(6)).unwrap();
        read_from(ordinal, || {
            // SAFETY: written at once.
            let mut pinned = unsafe { context.alloc_pinned_with_flags::<f32>(6, 0) }.unwrap();
            stream.memcpy_dtoh(&device, &mut pinned).unwrap();
            array(stream, Written::Pinned(pinned))
        });
        read_from(ordinal, || {
            // SAFETY: written at once.
            let mut unified = unsafe { context.alloc_unified::<f32>(6, true) }.unwrap();
            stream.memcpy_dtod(&device, &mut unified).unwrap();
            array(stream, Written::Unified(unified))
        });
        read_from(ordinal, || array(stream, Written::Device(stream.clone_dtod(&device).unwrap())));
    }
}

/// Each kind of memory that `cudarc` allocates.
enum Written {
    Device(CudaSlice<f32>),
    Pinned(PinnedHostSlice<f32>),
    Unified(UnifiedSlice<f32>),
}

impl Written {
    fn storage(&self) -> &dyn Storage {
        match self {
            Self::Device(slice) => slice,
            Self::Pinned(slice) => slice,
            Self::Unified(slice) => slice,
        }
    }
}

// SAFETY: forwards to the inner storage.
unsafe impl Storage for Written {
    fn memory(&self) -> interop_core::Result<MemoryRegion> {
        self.storage().memory()
    }

    fn stream(&self) -> Option<StreamHandle> {
        self.storage().stream()
    }
}
