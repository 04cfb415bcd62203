//! Imports into owned buffers: from each kind of memory and each layout, complete and after the pending work.

use core::ptr::null_mut;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, PinnedHostSlice, UnifiedSlice};
use cust::memory::{DeviceBox, DeviceBuffer, LockedBuffer, UnifiedBuffer};
use cust::sys::CUstreamCaptureMode as CaptureMode;
use interop_core::adapters::cust::InContext;
use interop_core::cuda::{CudaBuffer, MemoryKind, finish_releases};
use interop_core::protocols::{RawDescriptor, Strides};
use interop_core::storage::{FromImport, Mutability, Owner};
use interop_core::{
    CudaArray, DType, Device, ErrorKind, FromArray, Import, Order, SharedBuffer, Storage, StreamHandle,
};
use simulated_cuda::{Mistake, Policy, Sim, find};

use crate::contexts::{beside_a_capture, ok};
use crate::order_settings::Releases;
use crate::subprocess::run_alone;
use crate::support::{
    ColumnMajor, KINDS, Matrix, ReadyOn, Streamed, Strided, has_second_device, numbers, send, simulated,
    source, turn,
};

fn raw_stream(stream: cust::sys::CUstream) -> StreamHandle {
    // SAFETY: the tests keep their streams alive.
    unsafe { StreamHandle::from_raw(stream as usize) }
}

/// Runs a check for each storage that an import copies into.
macro_rules! for_each_storage {
    ($check:ident $(, $argument:expr)*) => {
        $check::<CudaBuffer>($($argument),*);
        for_each_typed_storage!($check $(, $argument)*);
    };
}

/// As `for_each_storage`, for the storages of one element type.
macro_rules! for_each_typed_storage {
    ($check:ident $(, $argument:expr)*) => {
        $check::<DeviceBuffer<f32>>($($argument),*);
        $check::<LockedBuffer<f32>>($($argument),*);
        $check::<UnifiedBuffer<f32>>($($argument),*);
        $check::<InContext<DeviceBuffer<f32>>>($($argument),*);
        $check::<InContext<UnifiedBuffer<f32>>>($($argument),*);
        $check::<CudaSlice<f32>>($($argument),*);
    };
}

fn context() -> cust::context::Context {
    cust::quick_init().unwrap()
}

#[test]
fn every_kind_of_memory_is_copied() {
    fn check<S: Storage + FromImport>() {
        for kind in KINDS {
            let from = source(kind, 0, 3, 4);
            let address = from.info().unwrap().address();
            let copy: Matrix<S> = Matrix::from_import(send(from)).unwrap();
            assert_eq!((copy.rows, copy.columns), (3, 4));
            assert_ne!(copy.info().unwrap().address(), address);
            assert_eq!(copy.to_vec::<f32>().unwrap(), numbers(12), "{kind:?}");
        }
        let host = Matrix { data: numbers(12), rows: 3, columns: 4 };
        let copy: Matrix<S> = Matrix::from_import(send(host)).unwrap();
        assert_eq!(copy.to_vec::<f32>().unwrap(), numbers(12));
    }
    let _turn = turn();
    let _context = context();
    for_each_storage!(check);
}

/// Returns the elements of an array with these extents and strides, in row-major order. The first element is `first`.
fn expected(shape: [usize; 2], strides: [isize; 2], first: isize) -> Vec<f32> {
    let mut values = Vec::new();
    for row in 0..shape[0] as isize {
        for column in 0..shape[1] as isize {
            let at = first + row * strides[0] + column * strides[1];
            values.push(f32::from(u16::try_from(at).unwrap()));
        }
    }
    values
}

#[test]
fn strides_are_followed() {
    fn check<S: Storage + FromImport>(
        kind: MemoryKind,
        shape: [usize; 2],
        strides: [isize; 2],
        first: isize,
    ) {
        let of = || {
            let buffer = CudaBuffer::from_slice(kind, 0, &numbers(60)).unwrap();
            let data = SharedBuffer::new(buffer).byte_offset(4 * first).unwrap();
            send(Strided { data, shape: shape.to_vec(), strides: strides.to_vec() })
        };
        let wanted = expected(shape, strides, first);
        let rows: Matrix<S> = Matrix::from_import(of()).unwrap();
        assert_eq!(rows.to_vec::<f32>().unwrap(), wanted, "{kind:?} {strides:?}");
        let columns: ColumnMajor<S> = ColumnMajor::from_import(of()).unwrap();
        assert_eq!(columns.info().unwrap().strides(), [1, shape[0] as isize]);
        assert_eq!(columns.to_vec::<f32>().unwrap(), wanted, "{kind:?} {strides:?}");
    }
    let _turn = turn();
    let _context = context();
    let cases = [
        ([6, 10], [10, 1], 0),
        ([10, 6], [1, 10], 0),
        ([3, 4], [20, 2], 5),
        ([6, 10], [-10, 1], 50),
        ([6, 10], [-10, -1], 59),
        ([4, 3], [0, 1], 7),
        ([1, 5], [99, 1], 3),
    ];
    for kind in KINDS {
        for (shape, strides, first) in cases {
            for_each_storage!(check, kind, shape, strides, first);
        }
    }
}

#[test]
fn empty_arrays_are_copied() {
    fn check<S: Storage + FromImport>() {
        let copy: Matrix<S> = Matrix::from_import(send(source(MemoryKind::Device, 0, 0, 4))).unwrap();
        assert_eq!((copy.rows, copy.columns), (0, 4));
        assert_eq!(copy.info().unwrap().address(), 0);
        let copy: Matrix<S> =
            Matrix::from_import(send(Matrix { data: Vec::<f32>::new(), rows: 3, columns: 0 })).unwrap();
        assert_eq!(copy.to_vec::<f32>().unwrap(), [0.0; 0]);
    }
    let _turn = turn();
    let _context = context();
    for_each_storage!(check);
    // An empty copy allocates nothing, so a capture that includes the default stream does not make it fail.
    let import = send(Matrix { data: Vec::<f32>::new(), rows: 0, columns: 3 });
    let copy = beside_a_capture(|| Matrix::<DeviceBuffer<f32>>::from_import(import)).unwrap();
    assert_eq!((copy.rows, copy.columns), (0, 3));
}

/// Host-accessible memory is copied directly.
#[test]
fn sim_only_memory_of_the_host_is_copied_once() {
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    let _context = context();
    let import = send(Matrix { data: numbers(6), rows: 2, columns: 3 });
    sim.reset_calls();
    let copy: Matrix<DeviceBuffer<f32>> = Matrix::from_import(import).unwrap();
    assert_eq!(sim.calls("cuMemcpyAsync"), 1);
    drop(copy);
}

/// With a stride of 0 an array can have more elements than any memory.
#[test]
fn copies_that_fit_no_address_space_are_refused() {
    fn check<S: Storage + FromImport>() {
        let data = CudaBuffer::from_slice(MemoryKind::Device, 0, &numbers(2)).unwrap();
        let array = Strided { data, shape: vec![1 << 61, 2], strides: vec![0, 1] };
        let refused = Matrix::<S>::from_import(send(array)).err().unwrap();
        assert_eq!(refused.error.kind(), ErrorKind::Overflow, "{}", refused.error);
    }
    let _turn = turn();
    let _context = context();
    for_each_storage!(check);
    check::<PinnedHostSlice<f32>>();
    check::<UnifiedSlice<f32>>();
}

/// An array of another device is copied to that device. The driver reports the ordinal.
/// A host array with gaps, so large that it is copied by pieces of pinned memory: every second row of these.
fn with_gaps(rows: usize, columns: usize) -> (Import, Vec<u8>) {
    let bytes: Vec<u8> = (0..251).cycle().take(2 * rows * columns).collect();
    let expected = bytes.chunks(columns).step_by(2).flatten().copied().collect();
    let strides = vec![2 * columns as isize, 1];
    (send(Strided { data: bytes, shape: vec![rows, columns], strides }), expected)
}

#[test]
fn elements_larger_than_a_piece_of_pinned_memory() {
    const SIZE: usize = 5 << 20;
    let _turn = turn();
    let _context = context();
    let (import, expected) = with_gaps(2, SIZE);
    let copy: Strided<DeviceBuffer<[u8; SIZE]>> = Strided::from_import(import).unwrap();
    assert!(copy.to_vec::<u8>().unwrap() == expected);
}

/// A reset of the primary context frees the pieces of pinned memory, and the context keeps its handle. It also destroys
/// what the libraries of other tests keep there, so the test has a process of its own.
#[test]
fn copies_after_a_reset_of_the_primary_context() {
    run_alone("imports::copies_after_a_reset_of_the_primary_context", || {
        let _turn = turn();
        let _context = context();
        for _ in 0..2 {
            let (import, expected) = with_gaps(3, 1 << 20);
            let copy: Strided<CudaSlice<u8>> = Strided::from_import(import).unwrap();
            assert!(copy.to_vec::<u8>().unwrap() == expected);
            drop(copy);
            assert_eq!(finish_releases(), 0);
            ok!(cust::sys::cuDevicePrimaryCtxReset_v2(0));
            // The driver makes the context usable again, under the same handle, for the next one that retains it.
            let mut context = core::ptr::null_mut();
            ok!(cust::sys::cuDevicePrimaryCtxRetain(&raw mut context, 0));
        }
    });
}

#[test]
fn memory_of_the_second_device() {
    fn check<S: Storage + FromImport>() {
        let copy: Matrix<S> = Matrix::from_import(send(source(MemoryKind::Device, 1, 2, 3))).unwrap();
        let device = copy.info().unwrap().device();
        assert!(device.device_id == 1 || device.device_type.is_host_accessible(), "{device}");
        assert_eq!(copy.to_vec::<f32>().unwrap(), numbers(6));
    }
    let _turn = turn();
    let _context = context();
    if !has_second_device() {
        return;
    }
    for_each_storage!(check);
    // The buffers of `cust` free their memory in the current context, here one of the first device, unless they are
    // wrapped in `InContext`.
    if let Ok(sim) = find() {
        let mistakes: Vec<_> = sim.take_reports().into_iter().map(|report| report.mistake).collect();
        assert_eq!(mistakes, [Mistake::WrongContext; 3]);
    }
}

#[test]
fn what_does_not_fit_comes_back() {
    fn check<S: Storage + FromImport>() {
        let data = CudaBuffer::from_slice(MemoryKind::Device, 0, &[1_i32, 2]).unwrap();
        let import = send(Matrix { data, rows: 1, columns: 2 });
        let address = import.info().address();
        let refused = Matrix::<S>::from_import(import).err().unwrap();
        assert_eq!(refused.error.kind(), ErrorKind::DType);
        assert_eq!(refused.value.info().address(), address);
    }
    let _turn = turn();
    let _context = context();
    for_each_typed_storage!(check);
}

/// A copy needs new memory, and the allocation would end the capture.
#[test]
#[expect(unsafe_code, reason = "a stream of the caller's own")]
fn a_stream_that_captures_goes_on_when_a_copy_on_it_is_refused() {
    fn check<S: Storage + FromImport>() {
        let (mut stream, mut graph) = (null_mut(), null_mut());
        // SAFETY: the pointer is valid for a write of a stream.
        assert_eq!(unsafe { cust::sys::cuStreamCreate(&raw mut stream, 1) } as u32, 0);
        let import = send(source(MemoryKind::Device, 0, 3, 4));
        // SAFETY: the stream is live.
        let began =
            unsafe { cust::sys::cuStreamBeginCapture_v2(stream, CaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL) };
        assert_eq!(began as u32, 0);
        let import = import.ready_on(raw_stream(stream));
        let refused = Matrix::<S>::from_import(import).err().unwrap();
        assert_eq!(refused.error.kind(), ErrorKind::StreamCapture, "{}", refused.error);
        assert!(refused.error.allowed().contains("an import in place"), "{}", refused.error);
        // SAFETY: the stream is live, and the pointer is valid for a write of a graph.
        let ended = unsafe { cust::sys::cuStreamEndCapture(stream, &raw mut graph) };
        assert_eq!(ended as u32, 0, "{}", core::any::type_name::<S>());
    }
    let _turn = turn();
    let _context = context();
    for_each_storage!(check);
    check::<PinnedHostSlice<f32>>();
    check::<UnifiedSlice<f32>>();
}

/// Models a library whose booleans are bytes.
#[derive(CudaArray)]
#[cuda_array(shape = [2])]
struct Flags<S> {
    #[cuda_array(data)]
    data: S,
}

/// The buffers' own copies to the host interpret each byte as a `bool`, even if a consumer wrote another value. This
/// includes the drop of a struct that an export owns.
#[test]
fn bools_are_written_by_no_consumer() {
    let _turn = turn();
    let _context = context();
    let stream = CudaContext::new(0).unwrap().default_stream();
    let buffer = || Flags { data: DeviceBuffer::from_slice(&[true, false]).unwrap() };
    let mut slice = Flags { data: stream.clone_htod(&[true, false]).unwrap() };
    assert_eq!(
        Flags { data: slice.data.slice_mut(..) }.info().unwrap().mutability(),
        Mutability::UniqueOwner
    );
    for import in [
        send(buffer()),
        send(Flags { data: stream.clone_htod(&[true, false]).unwrap() }),
        send(Flags { data: LockedBuffer::new(&true, 2).unwrap() }),
        send(Flags { data: InContext::new(buffer().data) }),
        send(Flags { data: InContext::new(UnifiedBuffer::new(&true, 2).unwrap()) }),
    ] {
        assert!(import.info().is_read_only(), "{:?}", import.info());
    }
    assert_eq!(InContext::new(buffer().data).memory().unwrap().mutability, Mutability::UniqueOwner);
    let shared = [Arc::new(buffer()).share_dlpack().unwrap(), Arc::new(slice).share_dlpack().unwrap()];
    for tensor in shared {
        assert!(Import::from_dlpack(tensor).unwrap().info().is_read_only());
    }
}

/// A byte other than 0 and 1 does not become a `bool`.
#[test]
fn bools_are_looked_at() {
    fn flags(bytes: [bool; 2]) -> Import {
        let data = CudaBuffer::from_slice(MemoryKind::Device, 0, &bytes).unwrap();
        let address = data.memory().unwrap().address as u64;
        if bytes[1] {
            // SAFETY: the address is that of the second of two bytes in the buffer.
            let answer = unsafe { cust::sys::cuMemsetD8_v2(address + 1, 7, 1) };
            assert_eq!(answer as u32, 0);
        }
        send(Flags { data })
    }

    let _turn = turn();
    let _context = context();
    let good: Flags<DeviceBuffer<bool>> = Flags::from_import(flags([true, false])).unwrap();
    assert_eq!(good.data.as_host_vec().unwrap(), [true, false]);
    for error in [
        Flags::<DeviceBuffer<bool>>::from_import(flags([true, true])).err().unwrap().error,
        Flags::<LockedBuffer<bool>>::from_import(flags([true, true])).err().unwrap().error,
        Flags::<CudaSlice<bool>>::from_import(flags([true, true])).err().unwrap().error,
    ] {
        assert_eq!(error.kind(), ErrorKind::DType, "{error}");
    }
}

/// The release of the source waits for the work of its own context, but the copy runs in another.
#[test]
#[expect(unsafe_code, reason = "a context and a stream of the caller's own")]
fn a_copy_on_a_stream_of_another_context_is_done_before_the_source_goes() {
    let turn = turn();
    let _context = cust::quick_init().unwrap();
    let (mut own, mut stream, mut popped) = (null_mut(), null_mut(), null_mut());
    // SAFETY: the pointer is valid for a write of a context. The call makes the new context current.
    assert_eq!(unsafe { cust::sys::cuCtxCreate_v2(&raw mut own, 0, 0) } as u32, 0);
    // SAFETY: the pointer is valid for a write of a stream.
    assert_eq!(unsafe { cust::sys::cuStreamCreate(&raw mut stream, 1) } as u32, 0);
    // SAFETY: the pointer is valid for a write of a context.
    assert_eq!(unsafe { cust::sys::cuCtxPopCurrent_v2(&raw mut popped) } as u32, 0);
    for kind in [MemoryKind::Pool, MemoryKind::Device, MemoryKind::Pinned, MemoryKind::Managed] {
        let import = send(source(kind, 0, 3, 4)).ready_on(raw_stream(stream));
        let copy: Streamed<InContext<DeviceBuffer<f32>>, StreamHandle> =
            Streamed::from_import(import).unwrap();
        assert_eq!(finish_releases(), 0);
        // Another allocation may reuse the memory of the source.
        let other = source(kind, 0, 3, 4);
        assert_eq!(copy.to_vec::<f32>().unwrap(), numbers(12), "{kind:?}");
        drop(other);
    }
    // SAFETY: nothing uses the context any more.
    assert_eq!(unsafe { cust::sys::cuCtxDestroy_v2(own) } as u32, 0);
    drop(turn);
}

/// The storage refuses by itself, with or without a preceding check of the description.
#[test]
fn what_cannot_be_held_is_refused_by_the_storage_itself() {
    fn check<S: FromImport>(elements: u16) {
        let mut import = send(Matrix { data: numbers(elements), rows: 1, columns: elements.into() });
        let error = S::from_import(&mut import, Order::C).err().expect("no such storage");
        assert_eq!(error.kind(), ErrorKind::Shape, "{error}");
        assert_eq!(import.info().numel(), usize::from(elements));
    }
    let _turn = turn();
    let _context = context();
    for elements in [0, 3] {
        check::<DeviceBox<f32>>(elements);
        check::<InContext<DeviceBox<f32>>>(elements);
        let import = send(Matrix { data: numbers(elements), rows: 1, columns: elements.into() });
        assert!(InContext::<DeviceBox<f32>>::check(import.info()).is_err());
    }
    check::<PinnedHostSlice<f32>>(0);
    check::<UnifiedSlice<f32>>(0);
}

/// The drop of the source writes to its memory immediately.
#[test]
#[expect(unsafe_code, reason = "memory that is described by hand")]
fn sim_only_a_copy_that_fails_half_way_is_over_when_the_source_comes_back() {
    struct Reused(CudaBuffer);
    impl Drop for Reused {
        fn drop(&mut self) {
            let (mut stream, address) = (null_mut(), self.0.memory().unwrap().address as u64);
            // SAFETY: the pointer is valid for a write of a stream.
            assert_eq!(unsafe { cust::sys::cuStreamCreate(&raw mut stream, 1) } as u32, 0);
            // SAFETY: the range lies within the buffer.
            assert_eq!(unsafe { cust::sys::cuMemsetD8Async(address, 9, 48, stream) } as u32, 0);
            // SAFETY: the stream is live.
            assert_eq!(unsafe { cust::sys::cuStreamSynchronize(stream) } as u32, 0);
        }
    }
    fn check<S: Storage + FromImport>(sim: &Sim) {
        // The array has more axes than the copy kernel takes, so the copy makes four launches.
        let buffer = CudaBuffer::zeroed(MemoryKind::Device, 0, DType::F32, 1 << 16).unwrap();
        let claims = RawDescriptor {
            dtype: DType::F32,
            strides: Strides::Elements(&[1, 4, 16, 64, 256, 1024, 4096, 16384]),
            ..RawDescriptor::new(buffer.memory().unwrap().address, Device::cuda(0), &[2; 8])
        };
        let info = claims.validate().unwrap();
        // SAFETY: the owner keeps the memory alive.
        let mut import = unsafe { Import::from_parts(info, Owner::new(Reused(buffer))) };
        for code in [0, 0, 999] {
            sim.fail_next("cuLaunchKernel", code);
        }
        let error = S::from_import(&mut import, Order::C).err().unwrap();
        assert_eq!((error.kind(), error.location()), (ErrorKind::Driver, "cuLaunchKernel"));
    }
    struct Policied;
    impl Drop for Policied {
        fn drop(&mut self) {
            Releases::AfterContext.set();
        }
    }
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    let _context = context();
    let _policied = Policied;
    sim.set_policy(Policy::Late);
    // Under the second policy the release does not wait for a copy.
    for policy in [Releases::AfterContext, Releases::Unordered] {
        policy.set();
        for_each_storage!(check, sim);
        check::<PinnedHostSlice<f32>>(sim);
        check::<UnifiedSlice<f32>>(sim);
    }
}
