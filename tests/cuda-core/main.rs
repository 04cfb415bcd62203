//! Tests of the adapter of `cuda-core`: buffers and streams as fields, imports as its allocations.
#![expect(unsafe_code, reason = "launches, and streams and work of the caller's own")]

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use cuda_core::{Context, DeviceBuffer, Stream, sys};
use interop_core::adapters::cuda_core::{ImportedBuffer, context};
use interop_core::cuda::{CudaBuffer, HoldReleases, MemoryKind, finish_releases, pointer_attributes};
use interop_core::launch::{AsStream, FromStream};
use interop_core::storage::Mutability;
use interop_core::{
    CudaArray, DType, Device, ErrorKind, FromArray, HostVec, Import, LaunchScope, Lease, LeaseMut, Storage,
    StreamHandle,
};
use simulated_cuda::{Arguments, Live, Policy, Sim, find, sim};

const PTX: &str = include_str!("../cuda/lent_add.ptx");

#[derive(Debug, CudaArray)]
#[cuda_array(shape = [rows, columns])]
struct Matrix<S> {
    #[cuda_array(data)]
    data: S,
    rows: usize,
    columns: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [rows, columns])]
struct Streamed<S, H> {
    #[cuda_array(data)]
    data: S,
    rows: usize,
    columns: usize,
    #[cuda_array(stream)]
    stream: H,
}

#[derive(CudaArray)]
struct Strided<S> {
    #[cuda_array(data)]
    data: S,
    #[cuda_array(shape)]
    shape: Vec<usize>,
    #[cuda_array(strides)]
    strides: Vec<isize>,
}

macro_rules! ok {
    ($call:expr) => {
        // SAFETY: the handles are live, and the output pointers are valid for writes.
        assert_eq!(unsafe { $call }, 0, stringify!($call))
    };
}

/// Exclusive access to the driver for one test. At the end the simulated driver must have reported no mistake.
struct Turn(#[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

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

fn turn() -> Turn {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    finish_releases();
    // The first test asks the driver itself.
    let _ = interop_core::cuda::is_available();
    Turn(turn)
}

/// Returns the simulated driver, for a test that needs its hooks.
fn simulated() -> Option<&'static Sim> {
    find().map_err(|why| println!("skipped: needs the simulated driver ({why})")).ok()
}

fn numbers(count: u16) -> Vec<f32> {
    (0..count).map(f32::from).collect()
}

/// Creates a stream that waits for no default stream.
fn stream() -> Arc<Stream> {
    Context::new(0).unwrap().new_stream().unwrap()
}

fn send<A: CudaArray + Send + 'static>(array: A) -> Import {
    Import::from_dlpack(array.into_dlpack().unwrap()).unwrap()
}

fn source(kind: MemoryKind) -> Matrix<CudaBuffer> {
    let data = CudaBuffer::from_slice(kind, 0, &numbers(6)).unwrap();
    Matrix { data, rows: 2, columns: 3 }
}

fn imported() -> Matrix<ImportedBuffer<f32>> {
    Matrix::from_import(send(source(MemoryKind::Device))).unwrap()
}

/// Waits for what `cuda-core` does on its own thread.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        finish_releases();
        thread::sleep(Duration::from_millis(1));
    }
}

fn current_context() -> usize {
    let mut context = null_mut();
    ok!(sys::cuCtxGetCurrent(&raw mut context));
    context as usize
}

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

#[test]
fn buffers_are_exported_in_place() {
    let _turn = turn();
    let data = DeviceBuffer::from_host(&stream(), &numbers(6)).unwrap();
    let address = usize::try_from(data.cu_deviceptr()).unwrap();
    let matrix = Matrix { data, rows: 2, columns: 3 };
    let info = matrix.info().unwrap();
    assert_eq!((info.address(), info.device(), info.stream()), (address, Device::cuda(0), None));
    assert_eq!(info.mutability(), Mutability::Writable);
    let back: Matrix<LeaseMut<f32>> = Matrix::from_import(send(matrix)).unwrap();
    assert_eq!((back.info().unwrap().address(), back.to_vec::<f32>().unwrap()), (address, numbers(6)));
    drop(back);
    eventually("the buffer is freed", || pointer_attributes(address).unwrap().is_none());
}

#[test]
fn parts_of_a_buffer_are_described() {
    let _turn = turn();
    let stream = stream();
    let buffer = DeviceBuffer::from_host(&stream, &numbers(12)).unwrap();
    let data = buffer.slice(6..12).unwrap();
    let matrix = Streamed { data, rows: 2, columns: 3, stream: &stream };
    let info = matrix.info().unwrap();
    assert_eq!(
        (info.address() as u64, info.mutability()),
        (buffer.cu_deviceptr() + 24, Mutability::ReadOnly)
    );
    assert_eq!(info.stream(), Some(stream.as_stream()));
    assert_eq!(matrix.to_vec::<f32>().unwrap(), numbers(12)[6..]);
}

/// Streams of `cuda-core` do not wait for the default stream, on which the copy is made.
#[test]
fn copies_of_imports_are_complete() {
    let _turn = turn();
    let before = current_context();
    let imports = [
        send(Matrix { data: numbers(6), rows: 2, columns: 3 }),
        send(source(MemoryKind::Device)),
        send(source(MemoryKind::Managed)),
    ];
    let own = stream();
    for import in imports {
        let copy: Matrix<DeviceBuffer<f32>> = Matrix::from_import(import).unwrap();
        assert_eq!(copy.data.to_host_vec(&own).unwrap(), numbers(6));
    }
    let transposed = Strided { data: numbers(6), shape: vec![3, 2], strides: vec![1, 3] };
    let copy: Matrix<DeviceBuffer<f32>> = Matrix::from_import(send(transposed)).unwrap();
    assert_eq!(copy.data.to_host_vec(&own).unwrap(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    let empty: Matrix<DeviceBuffer<f32>> =
        Matrix::from_import(send(Matrix { data: Vec::<f32>::new(), rows: 0, columns: 3 })).unwrap();
    assert_eq!((empty.data.len(), empty.info().unwrap().device()), (0, Device::cuda(0)));
    // The stream above made its context current.
    assert!(before == 0 || before == current_context());
}

/// The stream of the field waits for the copy, but other streams do not.
#[test]
fn sim_only_a_copy_beside_a_stream_is_complete() {
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    sim.set_policy(Policy::Late);
    let (user, own) = (stream(), stream());
    let data = CudaBuffer::zeroed(MemoryKind::Device, 0, DType::U8, 64).unwrap();
    let address = data.memory().unwrap().address as u64;
    let import = send(Matrix { data, rows: 8, columns: 8 }).ready_on(user.as_stream());
    ok!(sys::cuMemsetD8Async(address, 7, 64, user.cu_stream()));
    // Freeing the source would wait for the copy.
    let held = HoldReleases::new();
    let copy: Streamed<DeviceBuffer<u8>, StreamHandle> = Streamed::from_import(import).unwrap();
    assert_eq!(copy.data.to_host_vec(&own).unwrap(), [7; 64]);
    drop(held);
}

#[test]
fn imports_leave_the_context_of_the_caller() {
    let _turn = turn();
    let import = || send(source(MemoryKind::Device));
    drop(Matrix::<DeviceBuffer<f32>>::from_import(import()).unwrap());
    ok!(sys::cuCtxSetCurrent(null_mut()));
    let copy: Matrix<DeviceBuffer<f32>> = Matrix::from_import(import()).unwrap();
    assert_eq!(current_context(), 0);
    let buffer: Matrix<ImportedBuffer<f32>> = Matrix::from_import(import()).unwrap();
    drop((copy, buffer));
    assert_eq!(current_context(), 0);
}

#[test]
fn kernels_of_cuda_core_take_imports_in_place() {
    let _turn = turn();
    if let Some(sim) = simulated() {
        sim.register_kernel("lent_add", &[8, 8, 4], lent_add);
    }
    let (own, mut array) = (stream(), imported());
    let address = array.info().unwrap().address() as u64;
    let module = own.context().load_module_from_ptx_src(PTX).unwrap();
    let kernel = module.load_function("lent_add").unwrap();
    let mut buffer = array.data.on(&own).unwrap();
    buffer.copy_from_host(&[1.0; 6]).unwrap();
    // SAFETY: 1: it stays in its place. 2: the kernel is launched on the stream of the use, before its end.
    let in_place = unsafe { buffer.buffer() };
    assert_eq!((in_place.cu_deviceptr(), in_place.len()), (address, 6));
    let (mut out, mut count) = (in_place.cu_deviceptr(), 6_u32);
    let mut other = out;
    let arguments = &mut [(&raw mut out).cast(), (&raw mut other).cast(), (&raw mut count).cast()];
    // SAFETY: the kernel takes these parameters and stays within the buffer.
    unsafe { cuda_core::launch_kernel_on_stream(&kernel, (1, 1, 1), (32, 1, 1), 0, &own, arguments) }
        .unwrap();
    buffer.finish().unwrap();
    own.synchronize().unwrap();
    assert_eq!(array.to_vec::<f32>().unwrap(), [2.0; 6]);
}

/// A late write on the stream of the import, on which the memory is written again after the use.
#[test]
fn sim_only_a_use_is_between_the_work_on_the_import() {
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    sim.set_policy(Policy::Late);
    let (user, own) = (stream(), stream());
    let data = CudaBuffer::zeroed(MemoryKind::Device, 0, DType::U8, 64).unwrap();
    let address = data.memory().unwrap().address as u64;
    let import = send(Matrix { data, rows: 8, columns: 8 });
    // SAFETY: the stream lives to the end of the test, and nothing uses the memory after the release.
    let import = unsafe { import.with_callers_stream(user.as_stream()) };
    let mut array: Matrix<ImportedBuffer<u8>> = Matrix::from_import(import).unwrap();
    assert_eq!(array.info().unwrap().stream(), Some(user.as_stream()));
    let spin = sim.spin(user.cu_stream() as u64);
    ok!(sys::cuMemsetD8Async(address, 7, 64, user.cu_stream()));
    let mut buffer = array.data.on(&own).unwrap();
    assert!(sim.is_pending(spin), "the host waits");
    assert_eq!(buffer.to_host_vec().unwrap(), [7; 64]);
    buffer.zero_async().unwrap();
    buffer.finish().unwrap();
    ok!(sys::cuMemsetD8Async(address + 4, 9, 60, user.cu_stream()));
    let expected: Vec<u8> = [0; 4].into_iter().chain([9; 60]).collect();
    assert_eq!(array.to_vec::<u8>().unwrap(), expected);
}

/// The buffer does not know the field, on whose stream the work is.
#[test]
fn sim_only_a_use_is_ordered_with_a_stream_field() {
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    sim.set_policy(Policy::Late);
    let (user, own) = (stream(), stream());
    let data = CudaBuffer::zeroed(MemoryKind::Device, 0, DType::U8, 64).unwrap();
    let address = data.memory().unwrap().address as u64;
    let import = send(Matrix { data, rows: 8, columns: 8 }).ready_on(user.as_stream());
    let mut array: Streamed<ImportedBuffer<u8>, Arc<Stream>> = Streamed::from_import(import).unwrap();
    ok!(sys::cuMemsetD8Async(address, 7, 64, array.stream.cu_stream()));
    let mut buffer = array.data.on(&own).unwrap();
    assert_eq!(buffer.to_host_vec().unwrap(), [7; 64]);
    buffer.zero_async().unwrap();
    let spin = sim.spin(own.cu_stream() as u64);
    drop(buffer);
    assert!(!sim.is_pending(spin), "the host does not wait");
    ok!(sys::cuMemsetD8Async(address + 4, 9, 60, user.cu_stream()));
    let expected: Vec<u8> = [0; 4].into_iter().chain([9; 60]).collect();
    assert_eq!(array.to_vec::<u8>().unwrap(), expected);
}

#[test]
fn sim_only_an_import_lives_as_long_as_its_views() {
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    eventually("earlier arrays are released", || interop_core::live_exports() == 0);
    let (own, array) = (stream(), imported());
    let address = array.info().unwrap().address();
    // SAFETY: nobody else uses the array.
    let buffer = unsafe { array.data.into_buffer(&own) }.unwrap();
    let clone = buffer.storage().clone();
    drop(buffer);
    finish_releases();
    assert_eq!(interop_core::live_exports(), 1);
    assert!(pointer_attributes(address).unwrap().is_some());
    drop(clone);
    eventually("the import is released", || interop_core::live_exports() == 0);
    sim.run_all();
    assert_eq!(pointer_attributes(address).unwrap(), None);
}

/// Functions of another handle do not ask the record of this crate.
#[test]
fn a_buffer_is_written_by_the_only_handle_of_its_storage() {
    let _turn = turn();
    let own = stream();
    let data = DeviceBuffer::<f32>::zeroed(&own, 16).unwrap();
    let other = data.storage().clone();
    let mut array = Matrix { data, rows: 4, columns: 4 };
    let mut write = || {
        let scope = LaunchScope::on(&own);
        scope.write_any(&mut array).map(drop)?;
        scope.finish()
    };
    assert_eq!(write().unwrap_err().kind(), ErrorKind::AlreadyBorrowed);
    drop(other);
    write().unwrap();
}

#[test]
fn sim_only_buffers_leak_nothing() {
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    let use_all = || {
        let copy: Matrix<DeviceBuffer<f32>> = Matrix::from_import(send(source(MemoryKind::Device))).unwrap();
        drop(copy.into_dlpack().unwrap());
        let (own, mut array) = (stream(), imported());
        array.data.on(&own).unwrap().zero_async().unwrap();
        drop(array.into_dlpack().unwrap());
    };
    use_all();
    let settled = || {
        let (mut last, mut same) = (usize::MAX, 0);
        eventually("the allocations settle", || {
            sim.run_all();
            let live = usize::try_from(sim.live(Live::Allocations)).unwrap();
            same = if live == last { same + 1 } else { 0 };
            last = live;
            same == 20
        });
        last
    };
    let before = settled();
    for _ in 0..3 {
        use_all();
    }
    assert_eq!(settled(), before);
}

#[test]
fn arrays_that_do_not_fit_are_refused() {
    fn refused<A: CudaArray + Send + 'static>(array: A) -> (ErrorKind, String) {
        let error = Strided::<ImportedBuffer<f32>>::from_import(send(array)).err().expect("an error").error;
        (error.kind(), error.location().to_owned())
    }
    let _turn = turn();
    let host = Matrix { data: HostVec::from(numbers(6)), rows: 2, columns: 3 };
    assert_eq!(refused(host), (ErrorKind::Device, "device".into()));
    for kind in [MemoryKind::Pinned, MemoryKind::Managed] {
        assert_eq!(refused(source(kind)), (ErrorKind::Device, "device".into()), "{kind:?}");
    }
    let leased: Matrix<Lease<f32>> = Matrix::from_import(send(source(MemoryKind::Device))).unwrap();
    assert_eq!(refused(leased).0, ErrorKind::ReadOnly);
    let data = CudaBuffer::from_slice(MemoryKind::Device, 0, &numbers(6)).unwrap();
    let gaps = Strided { data, shape: vec![2, 2], strides: vec![3, 1] };
    assert_eq!(refused(gaps), (ErrorKind::Strides, "strides".into()));
    let data = CudaBuffer::zeroed(MemoryKind::Device, 0, DType::I32, 6).unwrap();
    assert_eq!(refused(Matrix { data, rows: 2, columns: 3 }).0, ErrorKind::DType);
}

#[test]
fn arrays_of_other_contexts_are_refused() {
    let _turn = turn();
    // Initializes the driver.
    drop(stream());
    let mut own = null_mut();
    ok!(sys::cuCtxCreate_v4(&raw mut own, null_mut(), 0, 0));
    let mut address = 0;
    ok!(sys::cuMemAlloc_v2(&raw mut address, 24));
    {
        // SAFETY: the context lives to the end of the test.
        let context = unsafe { Context::borrow_raw(own.cast(), 0, 0) };
        // SAFETY: the memory was allocated in the context, and is initialized below.
        let data = unsafe { DeviceBuffer::<f32>::from_raw_parts(address, 6, context) };
        ok!(sys::cuMemsetD8_v2(address, 0, 24));
        let import = send(Matrix { data, rows: 2, columns: 3 });
        let error = Matrix::<ImportedBuffer<f32>>::from_import(import).err().unwrap().error;
        assert_eq!((error.kind(), error.location()), (ErrorKind::Device, "context"), "{error}");
    }
    eventually("the buffer is freed", || {
        pointer_attributes(usize::try_from(address).unwrap()).unwrap().is_none()
    });
    ok!(sys::cuCtxDestroy_v2(own));
}

#[test]
fn arrays_without_elements_are_used() {
    let _turn = turn();
    let data = CudaBuffer::zeroed(MemoryKind::Device, 0, DType::F32, 0).unwrap();
    let import = send(Matrix { data, rows: 0, columns: 3 });
    let mut array: Matrix<ImportedBuffer<f32>> = Matrix::from_import(import).unwrap();
    let own = stream();
    assert_eq!(array.data.on(&own).unwrap().to_host_vec().unwrap(), [0.0; 0]);
    assert_eq!(array.info().unwrap().numel(), 0);
}

#[test]
fn streams_are_borrowed_both_ways() {
    let _turn = turn();
    let (own, device) = (stream(), Device::cuda(0));
    let back: Arc<Stream> = FromStream::from_stream(own.as_stream(), device).unwrap();
    assert_eq!((back.as_stream(), back.context()), (own.as_stream(), own.context()));
    drop(back);
    own.synchronize().unwrap();
    for name in [StreamHandle::LegacyDefault, StreamHandle::PerThreadDefault] {
        let back: Arc<Stream> = FromStream::from_stream(name, device).unwrap();
        assert_eq!(back.as_stream(), name);
        back.synchronize().unwrap();
    }
    let import = send(source(MemoryKind::Device)).ready_on(own.as_stream());
    let array: Streamed<ImportedBuffer<f32>, Arc<Stream>> = Streamed::from_import(import).unwrap();
    assert_eq!(array.stream.as_stream(), own.as_stream());
    let error = <Arc<Stream>>::from_stream(StreamHandle::LegacyDefault, Device::cuda(77)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Driver);
}

/// The default stream of a context is named only where the context is current.
#[test]
fn default_streams_of_other_contexts_are_not_named() {
    let _turn = turn();
    let default = context(0).unwrap().default_stream();
    let data = DeviceBuffer::from_host(&default, &numbers(6)).unwrap();
    let matrix = Streamed { data, rows: 2, columns: 3, stream: default.clone() };
    let mut array = imported();
    assert_eq!(matrix.info().unwrap().stream(), Some(StreamHandle::LegacyDefault));
    array.data.on(&default).unwrap().finish().unwrap();
    let mut own = null_mut();
    ok!(sys::cuCtxCreate_v4(&raw mut own, null_mut(), 0, 0));
    assert_eq!(matrix.info().unwrap().stream(), None);
    assert_eq!(array.data.on(&default).unwrap_err().kind(), ErrorKind::Stream);
    ok!(sys::cuCtxPopCurrent_v2(&raw mut own));
    {
        // SAFETY: the context lives longer than this handle and its stream.
        let foreign = unsafe { Context::borrow_raw(own.cast(), 0, 0) };
        assert_eq!(array.data.on(&foreign.default_stream()).unwrap_err().kind(), ErrorKind::Stream);
    }
    ok!(sys::cuCtxDestroy_v2(own));
}

#[test]
fn scopes_take_buffers_and_streams() {
    let _turn = turn();
    let own = stream();
    let data = DeviceBuffer::from_host(&own, &numbers(6)).unwrap();
    let mut matrix = Streamed { data, rows: 2, columns: 3, stream: own.clone() };
    let scope = LaunchScope::new();
    let view = scope.write::<f32, 2>(&mut matrix).unwrap();
    assert_eq!(view.shape(), [2, 3]);
    assert_eq!(scope.stream::<Arc<Stream>>().unwrap().as_stream(), own.as_stream());
    scope.finish().unwrap();
}

/// The functions of `cuda-core` on another stream come after a kernel of a scope: its leases refuse them until it is done.
#[test]
fn sim_only_a_buffer_is_leased_for_the_work_in_a_scope() {
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    let [own, second, third] = [(); 3].map(|()| stream());
    let values = DeviceBuffer::<f32>::from_host(&own, &numbers(8)).unwrap();
    own.synchronize().unwrap();
    let mut matrix = Matrix { data: values, rows: 2, columns: 4 };
    let scope = LaunchScope::on(&*second);
    let address = scope.write_any(&mut matrix).unwrap().address();
    let spin = sim.spin(second.cu_stream() as u64);
    ok!(sys::cuMemsetD8Async(address as u64, 0, 32, second.cu_stream()));
    scope.finish().unwrap();
    assert!(matrix.data.to_host_vec(&third).is_err(), "the kernel is not done");
    sim.release(spin);
    second.synchronize().unwrap();
    // A thread of `cuda-core` ends the lease.
    eventually("the lease ends", || matrix.data.to_host_vec(&third).is_ok());
    assert_eq!(matrix.data.to_host_vec(&third).unwrap(), [0.0; 8]);
}

/// Imports on a stream that the test orders itself.
trait ReadyOn {
    fn ready_on(self, stream: StreamHandle) -> Self;
}

impl ReadyOn for Import {
    fn ready_on(self, stream: StreamHandle) -> Self {
        // SAFETY: the tests have queued all work on this stream, or show what happens otherwise.
        unsafe { self.assume_ready_on(stream) }
    }
}
