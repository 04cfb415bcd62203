//! `LentSlice`: arrays of any owner as views of `cudarc`, without a copy.
#![expect(unsafe_code, reason = "launches, and streams and contexts of the caller's own")]

use core::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use cust::memory::DeviceBuffer;
use cust::sys;
use interop_core::adapters::cudarc::{LentSlice, LentSliceMut};
use interop_core::cuda::{CudaBuffer, MemoryKind, finish_releases};
use interop_core::launch::AsStream;
use interop_core::{CudaArray, DType, Device, ErrorKind, FromArray, Lease, LeaseMut, Storage};
use simulated_cuda::{Arguments, Live, Policy, sim};

use crate::contexts::{NON_BLOCKING, handle, in_another_context, ok, stream};
use crate::support::{
    ColumnMajor, Matrix, Streamed, Strided, current_context, has_second_device, no_context, numbers, send,
    simulated, source, turn,
};

const PTX: &str = include_str!("lent_add.ptx");

/// `lent_add(float *out, const float *other, unsigned count)`
extern "C" fn lent_add(_: *const u32, _: *const u32, _: u32, parameters: *const *const c_void) {
    // SAFETY: these are the parameters that the driver passed.
    let arguments = unsafe { Arguments::new(parameters) };
    // SAFETY: the parameters are registered below, with these types.
    let out = unsafe { arguments.get::<u64>(0) };
    // SAFETY: as above.
    let other = unsafe { arguments.get::<u64>(1) };
    // SAFETY: as above.
    let count = unsafe { arguments.get::<u32>(2) } as usize;
    let (Some(out), Some(other)) = (sim().write::<f32>(out, count), sim().read::<f32>(other, count)) else {
        return;
    };
    for at in 0..count {
        // SAFETY: the simulator allows reads of `count` elements there.
        let term = unsafe { other.wrapping_add(at).read() };
        // SAFETY: as above.
        let sum = unsafe { out.wrapping_add(at).read() };
        // SAFETY: the simulator allows writes of `count` elements there.
        unsafe { out.wrapping_add(at).write(sum + term) };
    }
}

/// Queues `out += other` on the stream of `out`.
fn add(out: &mut LentSliceMut<'_, f32>, other: &LentSlice<'_, f32>) {
    if let Some(sim) = simulated() {
        sim.register_kernel("lent_add", &[8, 8, 4], lent_add);
    }
    let stream = out.stream().clone();
    let kernel = stream.context().load_module(Ptx::from_src(PTX)).unwrap().load_function("lent_add").unwrap();
    let count = u32::try_from(other.view().len()).unwrap();
    let (mut out, other) = (out.view_mut(), other.view());
    let mut launch = stream.launch_builder(&kernel);
    launch.arg(&mut out).arg(&other).arg(&count);
    // SAFETY: the kernel takes these parameters and stays within the views.
    unsafe { launch.launch(LaunchConfig::for_num_elems(count)) }.unwrap();
    // The module is unloaded when this function returns.
    stream.synchronize().unwrap();
}

fn leased(kind: MemoryKind) -> Matrix<LeaseMut<f32>> {
    Matrix::from_import(send(source(kind, 0, 2, 3))).unwrap()
}

/// Creates a stream of a `CudaContext` that the program made.
fn own_stream() -> Arc<CudaStream> {
    CudaContext::new(0).unwrap().new_stream().unwrap()
}

#[test]
fn kernels_of_cudarc_take_imports_in_place() {
    let _turn = turn();
    for kind in [MemoryKind::Device, MemoryKind::Pool] {
        let (mut out, other, stream) = (leased(kind), leased(kind), own_stream());
        {
            let mut out = LentSliceMut::<f32>::with_stream(&mut out, &stream).unwrap();
            let other = LentSlice::<f32>::with_stream(&other, &stream).unwrap();
            assert_eq!(out.stream(), &stream);
            add(&mut out, &other);
            out.finish().unwrap();
        }
        let twice: Vec<f32> = numbers(6).iter().map(|value| 2.0 * value).collect();
        assert_eq!(out.to_vec::<f32>().unwrap(), twice, "{kind:?}");
        assert_eq!(other.to_vec::<f32>().unwrap(), numbers(6), "{kind:?}");
    }
}

#[test]
fn views_have_the_address_of_the_array() {
    let _turn = turn();
    let (mut array, stream) = (leased(MemoryKind::Device), own_stream());
    let address = array.info().unwrap().address();
    let mut lent = LentSliceMut::<f32>::with_stream(&mut array, &stream).unwrap();
    assert_eq!((Storage::memory(&lent.view_mut()).unwrap().address, lent.view_mut().len()), (address, 6));
    // Parts of a view are written as those of any slice.
    stream.memcpy_htod(&[10.0_f32, 11.0], &mut lent.view_mut().slice_mut(2..4)).unwrap();
    assert_eq!(stream.clone_dtoh(&lent.view()).unwrap(), [0.0, 1.0, 10.0, 11.0, 4.0, 5.0]);
}

#[test]
fn arrays_in_fortran_order_are_lent_in_the_order_of_memory() {
    let _turn = turn();
    let data = CudaBuffer::from_slice(MemoryKind::Device, 0, &numbers(6)).unwrap();
    let array = ColumnMajor { data, rows: 2, columns: 3 };
    let (lent, stream) = (LentSlice::<f32>::new(&array).unwrap(), own_stream());
    assert_eq!(stream.clone_dtoh(&lent.view()).unwrap(), numbers(6));
}

/// A late write on the stream of the array, on which it is written again after the loan.
#[test]
fn sim_only_the_work_on_a_view_is_between_that_on_the_array() {
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    let _context = cust::quick_init().unwrap();
    sim.set_policy(Policy::Late);
    let (user, own) = (stream(NON_BLOCKING), own_stream());
    // `cudarc` has its own order among the streams of one `CudaContext`.
    let third = own.context().new_stream().unwrap();
    for named in [true, false] {
        let data = CudaBuffer::zeroed(MemoryKind::Device, 0, DType::U8, 64).unwrap();
        let address = data.memory().unwrap().address as u64;
        let mut array = Streamed { data, rows: 8, columns: 8, stream: handle(user) };
        let spin = sim.spin(user as u64);
        ok!(sys::cuMemsetD8Async(address, 7, 64, user));
        let lent = if named {
            LentSliceMut::<u8>::with_stream(&mut array, &own)
        } else {
            LentSliceMut::new(&mut array)
        };
        let mut lent = lent.unwrap();
        assert!(sim.is_pending(spin), "the host waits");
        let on = lent.stream().clone();
        assert_eq!(on.as_stream(), if named { own.as_stream() } else { handle(user) });
        let seen = third.clone_dtoh(&lent.view()).unwrap();
        on.memset_zeros(&mut lent.view_mut().slice_mut(..8)).unwrap();
        lent.finish().unwrap();
        third.synchronize().unwrap();
        assert_eq!(seen, [7; 64], "named: {named}");
        ok!(sys::cuMemsetD8Async(address + 4, 9, 60, user));
        let expected: Vec<u8> = [0; 4].into_iter().chain([9; 60]).collect();
        assert_eq!(array.to_vec::<u8>().unwrap(), expected, "named: {named}");
    }
    ok!(sys::cuStreamDestroy_v2(user));
}

/// A use on another stream of the same `CudaContext` is waited for, too.
#[test]
fn sim_only_the_array_waits_for_other_streams_of_cudarc() {
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    let _context = cust::quick_init().unwrap();
    sim.set_policy(Policy::Late);
    let (user, own) = (stream(NON_BLOCKING), own_stream());
    let other = own.context().new_stream().unwrap();
    let data = CudaBuffer::zeroed(MemoryKind::Device, 0, DType::U8, 64).unwrap();
    let mut array = Streamed { data, rows: 8, columns: 8, stream: handle(user) };
    let mut lent = LentSliceMut::<u8>::with_stream(&mut array, &own).unwrap();
    let spin = sim.spin(other.cu_stream() as u64);
    other.memcpy_htod(&[5; 64], &mut lent.view_mut()).unwrap();
    drop(lent);
    assert!(sim.is_pending(spin), "the host waits");
    assert_eq!(array.to_vec::<u8>().unwrap(), [5; 64]);
    ok!(sys::cuStreamDestroy_v2(user));
}

#[test]
fn sim_only_a_loan_frees_nothing_and_leaks_nothing() {
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    let (mut array, stream) = (leased(MemoryKind::Device), own_stream());
    let address = array.info().unwrap().address();
    let live = || [Live::Allocations, Live::Streams].map(|what| sim.live(what));
    // The library keeps the events that it orders streams with.
    drop(LentSlice::<f32>::with_stream(&array, &stream).unwrap());
    let (before, mark) = ((live(), sim.live(Live::Events)), Arc::strong_count(&stream));
    for _ in 0..3 {
        drop(LentSlice::<f32>::with_stream(&array, &stream).unwrap());
        LentSliceMut::<f32>::with_stream(&mut array, &stream).unwrap().finish().unwrap();
    }
    assert_eq!((live(), sim.live(Live::Events)), before);
    assert_eq!(Arc::strong_count(&stream), mark);
    assert!(interop_core::cuda::pointer_attributes(address).unwrap().is_some(), "freed");
    assert_eq!(stream.context().check_err(), Ok(()));
}

#[test]
fn sim_only_a_loan_without_events_is_an_error() {
    const OUT_OF_MEMORY: i32 = 2;
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    let (array, stream) = (leased(MemoryKind::Device), own_stream());
    drop(LentSlice::<f32>::with_stream(&array, &stream).unwrap());
    let live = || [Live::Allocations, Live::Events].map(|what| sim.live(what));
    let before = live();
    for good in [0, 1] {
        for code in [vec![0; good], vec![OUT_OF_MEMORY]].concat() {
            sim.fail_next("cuEventCreate", code);
        }
        let error = LentSlice::<f32>::with_stream(&array, &stream).unwrap_err();
        assert_eq!((error.kind(), error.location()), (ErrorKind::Driver, "cuEventCreate"));
        assert_eq!(live(), before, "after {good} events");
    }
    assert_eq!(array.to_vec::<f32>().unwrap(), numbers(6));
}

#[test]
fn contexts_without_event_tracking_lend_too() {
    let _turn = turn();
    let context = CudaContext::new(0).unwrap();
    // SAFETY: this test uses one stream.
    unsafe { context.disable_event_tracking() };
    let (mut array, stream) = (leased(MemoryKind::Device), context.new_stream().unwrap());
    let mut lent = LentSliceMut::<f32>::with_stream(&mut array, &stream).unwrap();
    stream.memset_zeros(&mut lent.view_mut()).unwrap();
    lent.finish().unwrap();
    assert_eq!(array.to_vec::<f32>().unwrap(), [0.0; 6]);
}

#[test]
fn arrays_without_elements_are_lent() {
    let _turn = turn();
    let stream = own_stream();
    let data = CudaBuffer::zeroed(MemoryKind::Device, 0, DType::F32, 0).unwrap();
    let mut array = Matrix { data, rows: 0, columns: 3 };
    let mut lent = LentSliceMut::<f32>::with_stream(&mut array, &stream).unwrap();
    assert!(lent.view_mut().is_empty() && lent.view().is_empty());
    assert_eq!(stream.clone_dtoh(&lent.view()).unwrap(), [0.0; 0]);
    lent.finish().unwrap();
}

#[test]
fn a_loan_leaves_the_context_of_the_caller() {
    let _turn = turn();
    let (array, stream) = (leased(MemoryKind::Device), own_stream());
    no_context();
    let lent = LentSlice::<f32>::with_stream(&array, &stream).unwrap();
    assert_eq!(current_context(), 0);
    drop(lent);
    assert_eq!(current_context(), 0);
    drop(LentSlice::<f32>::new(&array).unwrap());
    assert_eq!(current_context(), 0);
}

/// Kind, location, what was found and what is allowed of the error for a loan.
fn refused<T: interop_core::Element>(array: &mut impl CudaArray, stream: &Arc<CudaStream>) -> [String; 4] {
    let error = LentSliceMut::<T>::with_stream(array, stream).err().expect("an error");
    let texts = [error.location(), error.found(), error.allowed()].map(ToString::to_string);
    let [location, found, allowed] = texts;
    [format!("{:?}", error.kind()), location, found, allowed]
}

#[test]
fn arrays_elsewhere_are_refused() {
    let _turn = turn();
    let stream = own_stream();
    let mut host = Matrix { data: interop_core::HostVec::from(numbers(6)), rows: 2, columns: 3 };
    let [kind, _, found, _] = refused::<f32>(&mut host, &stream);
    assert_eq!((&*kind, found), ("Device", Device::CPU.to_string()));
    for kind in [MemoryKind::Pinned, MemoryKind::Managed] {
        let [error, _, _, allowed] = refused::<f32>(&mut leased(kind), &stream);
        assert_eq!(error, "Device", "{kind:?}");
        assert!(allowed.contains("the device of the stream"), "{allowed}");
    }
    if has_second_device() {
        let mut array = source(MemoryKind::Device, 1, 2, 3);
        let [kind, _, found, allowed] = refused::<f32>(&mut array, &stream);
        assert_eq!((&*kind, found), ("Device", Device::cuda(1).to_string()));
        assert!(allowed.contains(&Device::cuda(0).to_string()), "{allowed}");
    }
    in_another_context(0, || {
        let data = DeviceBuffer::from_slice(&numbers(6)).unwrap();
        let mut array = Matrix { data, rows: 2, columns: 3 };
        let [kind, location, ..] = refused::<f32>(&mut array, &stream);
        assert_eq!((&*kind, &*location), ("Device", "context"));
    });
    finish_releases();
}

#[test]
fn arrays_of_other_elements_and_strides_are_refused() {
    let _turn = turn();
    let stream = own_stream();
    let array = &mut leased(MemoryKind::Device);
    assert_eq!(refused::<i32>(array, &stream)[..2], ["DType", "dtype"]);
    let data = CudaBuffer::from_slice(MemoryKind::Device, 0, &numbers(6)).unwrap();
    let mut array = Strided { data, shape: vec![2, 2], strides: vec![3, 1] };
    let [kind, location, found, _] = refused::<f32>(&mut array, &stream);
    assert_eq!((&*kind, &*location, &*found), ("Strides", "strides", "[3, 1] for shape [2, 2]"));
    let mut array: Matrix<Lease<f32>> =
        Matrix::from_import(send(source(MemoryKind::Device, 0, 2, 3))).unwrap();
    assert_eq!(refused::<f32>(&mut array, &stream)[..2], ["ReadOnly", "readonly"]);
    assert_eq!(LentSlice::<f32>::with_stream(&array, &stream).unwrap().view().len(), 6);
    let data = CudaBuffer::zeroed(MemoryKind::Device, 0, DType::BOOL, 8).unwrap();
    let mut flags = Matrix { data, rows: 2, columns: 4 };
    assert_eq!(refused::<u8>(&mut flags, &stream)[..2], ["DType", "dtype"]);
}

/// `cudarc` waits for events of a tracked slice, which were not recorded in the graph.
#[test]
fn loans_within_a_capture_need_a_context_without_events() {
    let _turn = turn();
    for tracked in [true, false] {
        let context = CudaContext::new(0).unwrap();
        if !tracked {
            // SAFETY: this test uses one stream of the context.
            unsafe { context.disable_event_tracking() };
        }
        let stream = context.new_stream().unwrap();
        let data = CudaBuffer::from_slice(MemoryKind::Device, 0, &numbers(6)).unwrap();
        let mut array = Streamed { data, rows: 2, columns: 3, stream: stream.as_stream() };
        stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
        match LentSliceMut::<f32>::with_stream(&mut array, &stream) {
            Ok(mut lent) => {
                stream.memset_zeros(&mut lent.view_mut().slice_mut(..3)).unwrap();
                lent.finish().unwrap();
            }
            Err(error) => assert_eq!((error.kind(), tracked), (ErrorKind::StreamCapture, true), "{error}"),
        }
        let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let graph = stream.end_capture(flags).unwrap().expect("a graph");
        assert_eq!(array.to_vec::<f32>().unwrap(), numbers(6));
        graph.launch().unwrap();
        let expected = if tracked { numbers(6) } else { vec![0.0, 0.0, 0.0, 3.0, 4.0, 5.0] };
        assert_eq!(array.to_vec::<f32>().unwrap(), expected, "event tracking: {tracked}");
    }
}
