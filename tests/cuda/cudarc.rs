//! Features of `cudarc` only: exports of its slices, its streams, and its launch builder.

use std::sync::Arc;

use cudarc::driver::{
    CudaContext, CudaSlice, CudaStream, CudaView, CudaViewMut, LaunchConfig, PinnedHostSlice, PushKernelArg,
    UnifiedSlice,
};
use cudarc::nvrtc::Ptx;
use interop_core::cuda::MemoryKind;
use interop_core::element::ElementType;
use interop_core::launch::{AsStream, FromStream};
use interop_core::storage::{FromImport, MemoryRegion, Mutability};
use interop_core::{
    ArrayInfo, CudaArray, DType, Device, Error, ErrorKind, FromArray, Import, Order, Storage, StreamHandle,
};
use interop_demo_kernels as kernels;
use simulated_cuda::Live;

use crate::support::{
    Matrix, ReadyOn, Streamed, current_context, no_context, numbers, read, send, simulated, source, turn,
};

fn handle(stream: &CudaStream) -> StreamHandle {
    stream.as_stream()
}

/// Creates a stream in the context that imports use.
fn stream() -> Arc<CudaStream> {
    interop_core::adapters::cudarc::context(0).unwrap().new_stream().unwrap()
}

#[test]
fn every_slice_is_exported_in_place() {
    fn check<S: Storage + Send + 'static>(data: S, device: Device, mutability: Mutability) {
        let memory = data.memory().unwrap();
        assert_eq!((memory.device, memory.mutability), (device, mutability));
        let import = send(Matrix { data, rows: 2, columns: 3 });
        assert_eq!((import.info().address(), import.info().device()), (memory.address, device));
        assert_eq!(read(import), numbers(6));
    }
    let _turn = turn();
    let context = CudaContext::new(0).unwrap();
    check(context.default_stream().clone_htod(&numbers(6)).unwrap(), Device::cuda(0), Mutability::Writable);
    check(
        context.new_stream().unwrap().clone_htod(&numbers(6)).unwrap(),
        Device::cuda(0),
        Mutability::Writable,
    );
    // SAFETY: written before it is read.
    let mut pinned = unsafe { context.alloc_pinned_with_flags::<f32>(6, 0) }.unwrap();
    pinned.as_mut_slice().unwrap().copy_from_slice(&numbers(6));
    check(pinned, Device::CUDA_HOST, Mutability::UniqueOwner);
    // SAFETY: as above.
    let mut unified = unsafe { context.alloc_unified::<f32>(6, true) }.unwrap();
    unified.as_mut_slice().unwrap().copy_from_slice(&numbers(6));
    check(unified, Device::CUDA_MANAGED, Mutability::UniqueOwner);
}

/// If the struct states no stream, the export uses the stream of the slice.
#[test]
fn the_stream_of_a_slice_stands_in_for_the_field() {
    let _turn = turn();
    let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
    let data = stream.clone_htod(&numbers(6)).unwrap();
    let matrix = Matrix { data, rows: 2, columns: 3 };
    assert_eq!(matrix.info().unwrap().stream(), Some(handle(&stream)));
    let Matrix { data, .. } = matrix;
    let said = Streamed { data, rows: 2, columns: 3, stream: StreamHandle::LegacyDefault };
    assert_eq!(said.info().unwrap().stream(), Some(StreamHandle::LegacyDefault));
}

/// Describing a slice calls `cudarc`, which changes the current context for good. The library restores it.
#[test]
fn the_context_of_the_caller_is_left_alone() {
    let _turn = turn();
    let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
    let data = stream.clone_htod(&numbers(6)).unwrap();
    let matrix = Streamed { data, rows: 2, columns: 3, stream };
    no_context();
    matrix.info().unwrap();
    assert_eq!(current_context(), 0);
    let import = Import::from_dlpack(matrix.into_dlpack().unwrap()).unwrap();
    let copy: Streamed<CudaSlice<f32>, Arc<CudaStream>> = Streamed::from_import(import).unwrap();
    assert_eq!(current_context(), 0);
    assert_eq!(copy.to_vec::<f32>().unwrap(), numbers(6));
    drop(copy.into_dlpack().unwrap());
    interop_core::cuda::finish_releases();
    assert_eq!(current_context(), 0);
}

/// Views of a slice are borrowed: they can be described and passed to a kernel, but not exported.
#[test]
fn views_are_described() {
    let _turn = turn();
    let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
    let mut slice = stream.clone_htod(&numbers(12)).unwrap();
    let first = Storage::memory(&slice).unwrap().address;
    {
        let part: CudaView<'_, f32> = slice.slice(6..);
        let matrix = Matrix { data: part, rows: 2, columns: 3 };
        let info = matrix.info().unwrap();
        assert_eq!(
            (info.address(), info.device(), info.stream()),
            (first + 24, Device::cuda(0), Some(handle(&stream)))
        );
        assert_eq!(info.mutability(), Mutability::ReadOnly);
        assert_eq!(matrix.view::<f32, 2>().unwrap().kernel_view().unwrap().address(), first as u64 + 24);
        assert_eq!(matrix.to_vec::<f32>().unwrap(), numbers(12)[6..]);
    }
    let part: CudaViewMut<'_, f32> = slice.slice_mut(..6);
    let mut matrix = Matrix { data: part, rows: 2, columns: 3 };
    assert_eq!(matrix.view_mut::<f32, 2>().unwrap().kernel_view_mut().unwrap().address(), first as u64);
}

#[test]
fn empty_slices_have_no_address() {
    let _turn = turn();
    let import = send(Matrix { data: Vec::<f32>::new(), rows: 0, columns: 3 });
    let empty: Matrix<CudaSlice<f32>> = Matrix::from_import(import).unwrap();
    assert!(empty.data.is_empty());
    assert_eq!((empty.info().unwrap().address(), empty.info().unwrap().device()), (0, Device::cuda(0)));
    assert_eq!(read(send(empty)), [0.0; 0]);
}

/// `cudarc` panics if it cannot create the events of such a slice.
#[test]
fn sim_only_an_empty_slice_without_events_is_an_error_and_leaves_nothing() {
    const OUT_OF_MEMORY: i32 = 2;
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    let import = || send(Matrix { data: Vec::<f32>::new(), rows: 0, columns: 3 });
    let _first: Matrix<CudaSlice<f32>> = Matrix::from_import(import()).unwrap();
    let live = || [Live::Allocations, Live::Events].map(|what| sim.live(what));
    let before = live();
    // The first two calls belong to the slice that provides the memory.
    for good in [2, 3] {
        for code in [vec![0; good], vec![OUT_OF_MEMORY]].concat() {
            sim.fail_next("cuEventCreate", code);
        }
        let refused = Matrix::<CudaSlice<f32>>::from_import(import()).err().unwrap();
        assert_eq!((refused.error.kind(), refused.error.location()), (ErrorKind::Driver, "cuEventCreate"));
        assert!(refused.error.found().contains("OUT_OF_MEMORY"), "{}", refused.error);
        assert_eq!(refused.value.info().shape(), [0, 3]);
        sim.run_all();
        assert_eq!(live(), before, "after {good} events");
    }
}

#[test]
fn streams_are_borrowed_both_ways() {
    let _turn = turn();
    let stream = stream();
    assert_eq!(stream.as_stream(), handle(&stream));
    let device = Device::cuda(0);
    let back: Arc<CudaStream> = FromStream::from_stream(handle(&stream), device).unwrap();
    assert_eq!(back, stream);
    drop(back);
    stream.synchronize().unwrap();
    let names = [
        (StreamHandle::NothingPending, StreamHandle::LegacyDefault),
        (StreamHandle::LegacyDefault, StreamHandle::LegacyDefault),
        (StreamHandle::PerThreadDefault, StreamHandle::PerThreadDefault),
    ];
    for (name, read_back) in names {
        let back: Arc<CudaStream> = FromStream::from_stream(name, device).unwrap();
        assert_eq!(back.as_stream(), read_back);
    }
    let error = <Arc<CudaStream>>::from_stream(StreamHandle::LegacyDefault, Device::cuda(77)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Driver);
}

/// Runs the example of the documentation, on a slice and on an imported array.
#[test]
fn a_kernel_takes_views_of_every_kind() {
    fn scaled(stream: &CudaStream, kernel: &cudarc::driver::CudaFunction, matrix: &mut impl CudaArray) {
        let view = matrix.view_mut::<f32, 2>().unwrap().kernel_view_mut().unwrap();
        let array: kernels::Arrays<'_, 1> = kernels::Arrays::new([&view]).unwrap();
        let launch = array.launch_size();
        let config = LaunchConfig { grid_dim: launch.grid, block_dim: launch.block, shared_mem_bytes: 0 };
        // SAFETY: the kernel takes an array of any rank and a factor. The matrix lives until the stream has been
        // synchronized.
        unsafe { stream.launch_builder(kernel).arg(&array).arg(&2.0_f64).launch(config) }.unwrap();
        stream.synchronize().unwrap();
    }

    let _turn = turn();
    let stream = stream();
    let module = stream.context().load_module(Ptx::from_src(kernels::KERNELS_PTX)).unwrap();
    let kernel = module.load_function("scale_f32").unwrap();
    let twice: Vec<f32> = numbers(12).iter().map(|value| 2.0 * value).collect();
    let data = stream.clone_htod(&numbers(12)).unwrap();
    let mut matrix = Streamed { data, rows: 3, columns: 4, stream: stream.clone() };
    scaled(&stream, &kernel, &mut matrix);
    assert_eq!(stream.clone_dtoh(&matrix.data).unwrap(), twice);
    for kind in crate::support::KINDS {
        let mut matrix = source(kind, 0, 3, 4);
        scaled(&stream, &kernel, &mut matrix);
        assert_eq!(matrix.to_vec::<f32>().unwrap(), twice, "{kind:?}");
    }
}

/// `cudarc` synchronizes uses of a slice with events: an imported slice is ready on each of its streams.
#[test]
fn an_imported_slice_is_ready_on_every_stream() {
    let _turn = turn();
    // A second handle of the context that the import used.
    let context = CudaContext::new(0).unwrap();
    let module = context.load_module(Ptx::from_src(kernels::KERNELS_PTX)).unwrap();
    let kernel = module.load_function("scale_f32").unwrap();
    let (writer, reader) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    for _ in 0..20 {
        let data = writer.clone_htod(&vec![1.0_f32; 1 << 16]).unwrap();
        let mut matrix = Streamed { data, rows: 256, columns: 256, stream: writer.clone() };
        let view = matrix.view_mut::<f32, 2>().unwrap().kernel_view_mut().unwrap();
        let array: kernels::Arrays<'_, 1> = kernels::Arrays::new([&view]).unwrap();
        let config = LaunchConfig::for_num_elems(1 << 16);
        for _ in 0..4 {
            // SAFETY: as above; the export keeps the matrix alive until the work of the context has finished.
            unsafe { writer.launch_builder(&kernel).arg(&array).arg(&2.0_f64).launch(config) }.unwrap();
        }
        let copy: Matrix<CudaSlice<f32>> = Matrix::from_import(send(matrix)).unwrap();
        assert_eq!(reader.clone_dtoh(&copy.data).unwrap(), vec![16.0; 1 << 16]);
    }
}

/// Host memory is also copied to the device of the stream. The slice is freed on the default stream, so that is the
/// stream of the struct.
#[test]
fn pinned_memory_becomes_a_slice() {
    let _turn = turn();
    let stream = stream();
    let import = send(source(MemoryKind::Pinned, 0, 2, 3)).ready_on(handle(&stream));
    let copy: Streamed<CudaSlice<f32>, Arc<CudaStream>> = Streamed::from_import(import).unwrap();
    assert_eq!((copy.stream.as_stream(), copy.data.ordinal()), (StreamHandle::LegacyDefault, 0));
    assert_eq!(copy.to_vec::<f32>().unwrap(), numbers(6));
}

/// Host-accessible memory holds the values as soon as the import returns, for every kind of source memory.
#[test]
fn imports_become_memory_of_the_host() {
    fn check<S: FromImport>(elements: impl Fn(&mut S) -> Vec<f32>) {
        for (import, expected) in [
            (send(source(MemoryKind::Device, 0, 2, 3)), numbers(6)),
            (send(source(MemoryKind::Managed, 0, 2, 3)), numbers(6)),
            (send(Matrix { data: numbers(6), rows: 3, columns: 2 }), numbers(6)),
        ] {
            let mut copy: Matrix<S> = Matrix::from_import(import).unwrap();
            assert_eq!(elements(&mut copy.data), expected);
        }
        let empty = send(Matrix { data: Vec::<f32>::new(), rows: 0, columns: 3 });
        let refused = Matrix::<S>::from_import(empty).err().unwrap();
        assert_eq!(
            (refused.error.kind(), refused.error.found()),
            (ErrorKind::Shape, "[0, 3], which has no elements")
        );
        let wrong = send(Matrix { data: vec![1_u8; 6], rows: 2, columns: 3 });
        assert_eq!(Matrix::<S>::from_import(wrong).err().unwrap().error.kind(), ErrorKind::DType);
    }
    let _turn = turn();
    check::<PinnedHostSlice<f32>>(|slice| slice.as_slice().unwrap().to_vec());
    check::<UnifiedSlice<f32>>(|slice| slice.as_slice().unwrap().to_vec());
}

/// An imported slice can be dropped on any thread. It is freed after the work on streams of other contexts.
#[test]
fn an_imported_slice_is_freed_on_any_thread() {
    let _turn = turn();
    let import = || send(Matrix { data: numbers(6), rows: 2, columns: 3 });
    let copy: Matrix<CudaSlice<f32>> = Matrix::from_import(import()).unwrap();
    let address = copy.info().unwrap().address();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(copy));
    });
    let context = interop_core::adapters::cudarc::context(0).unwrap();
    context.synchronize().unwrap();
    assert_eq!(context.check_err(), Ok(()));
    assert_eq!(interop_core::cuda::pointer_attributes(address).unwrap(), None);
}

/// As on the page `cudarc` of the guide.
enum Pixels {
    Bytes(CudaSlice<u8>),
    Floats(CudaSlice<f32>),
}

// SAFETY: each rule holds as for the slice.
unsafe impl Storage for Pixels {
    fn memory(&self) -> interop_core::Result<MemoryRegion> {
        match self {
            Self::Bytes(slice) => slice.memory(),
            Self::Floats(slice) => slice.memory(),
        }
    }

    fn stream(&self) -> Option<StreamHandle> {
        match self {
            Self::Bytes(slice) => Storage::stream(slice),
            Self::Floats(slice) => Storage::stream(slice),
        }
    }
}

impl FromImport for Pixels {
    const COPIES: bool = true;

    fn element() -> Option<ElementType> {
        None
    }

    fn check(info: &ArrayInfo) -> interop_core::Result<()> {
        match info.dtype() {
            DType::U8 | DType::F32 => Ok(()),
            other => Err(Error::new(ErrorKind::DType, "dtype", other, "uint8 or float32")),
        }
    }

    fn from_import(import: &mut Import, order: Order) -> interop_core::Result<Self> {
        match import.info().dtype() {
            DType::U8 => CudaSlice::from_import(import, order).map(Self::Bytes),
            _ => CudaSlice::from_import(import, order).map(Self::Floats),
        }
    }
}

#[test]
fn enums_of_slices_go_both_ways() {
    let _turn = turn();
    let floats = Matrix { data: numbers(6), rows: 2, columns: 3 };
    let bytes = Matrix { data: vec![7_u8; 6], rows: 2, columns: 3 };
    for (import, dtype) in [(send(floats), DType::F32), (send(bytes), DType::U8)] {
        let image: Matrix<Pixels> = Matrix::from_import(import).unwrap();
        let info = image.info().unwrap();
        assert_eq!(
            (info.dtype(), info.device(), info.stream()),
            (dtype, Device::cuda(0), Some(StreamHandle::LegacyDefault))
        );
        let back = send(image);
        assert_eq!(back.info().address(), info.address(), "exported without a copy");
        if dtype == DType::F32 {
            assert_eq!(read(back), numbers(6));
        }
    }
    let refused =
        Matrix::<Pixels>::from_import(send(Matrix { data: vec![1_i64], rows: 1, columns: 1 })).err().unwrap();
    assert_eq!((refused.error.kind(), refused.error.allowed()), (ErrorKind::DType, "uint8 or float32"));
}
