//! Measures the exchange of an array: `cargo bench --package interop-benches`, `-- <words>` for a part of it.
//!
//! Nothing here depends on the size of the array, because nothing is copied. Everything that a producer passes to a
//! consumer goes through a [`black_box`], so that both are compiled as if they were in different libraries.
#![expect(unsafe_code, reason = "the floor is what C would do: an allocation, stores, loads, a free")]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ffi::c_void;
use std::hint::black_box;
use std::mem::{offset_of, size_of};
use std::num::NonZeroUsize;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use criterion::Criterion;
use interop_core::protocols::cai::CudaArrayInterface;
use interop_core::protocols::dlpack::{
    DLManagedTensorVersioned, DLPackVersion, DLTensor, FLAG_READ_ONLY, Legacy, MAJOR_VERSION, MINOR_VERSION,
    ManagedTensor, TensorAbi, Versioned,
};
use interop_core::storage::{MemoryRegion, Mutability};
use interop_core::{CudaArray, DType, Device, FromArray, Import, Lease, Storage, StreamHandle};

const HEIGHT: usize = 3;
const WIDTH: usize = 4;

/// Elements that nobody may write.
static CONSTANTS: [f32; HEIGHT * WIDTH] = [0.5; HEIGHT * WIDTH];
/// Elements that everybody may write.
static VARIABLES: [AtomicU32; HEIGHT * WIDTH] = [const { AtomicU32::new(0) }; HEIGHT * WIDTH];

/// An array with two axes. Its storage is static, so that no benchmark measures the allocation of elements.
#[derive(CudaArray)]
#[cuda_array(shape = [height, width])]
struct Grid<S> {
    #[cuda_array(data)]
    data: S,
    height: usize,
    width: usize,
}

impl<S> Grid<S> {
    /// Creates a grid whose values the compiler cannot know.
    fn around(data: S) -> Self {
        black_box(Self { data, height: HEIGHT, width: WIDTH })
    }
}

/// The storage of [`VARIABLES`].
struct Variables {
    device: Device,
}

// SAFETY: 1, 2: the memory is static. 3: it is host memory; a benchmark that calls it pinned starts no kernel. 4: the
// elements are atomics, and no non-atomic references to them exist.
unsafe impl Storage for Variables {
    fn memory(&self) -> interop_core::Result<MemoryRegion> {
        let address = VARIABLES.as_ptr().expose_provenance();
        Ok(MemoryRegion::new::<u32>(address, VARIABLES.len(), self.device, Mutability::Writable))
    }
}

/// Returns the tensor as a consumer receives it.
fn handed_over<A: TensorAbi>(tensor: ManagedTensor<A>) -> ManagedTensor<A> {
    black_box(tensor)
}

/// The export that most benchmarks use.
fn exported() -> ManagedTensor<Versioned> {
    handed_over(Grid::around(&CONSTANTS[..]).into_dlpack().expect("a compact array is exported"))
}

fn imported<A: TensorAbi>(tensor: ManagedTensor<A>) -> Import {
    Import::from_dlpack(tensor).expect("an export is imported")
}

/// The allocation of an export, as C would declare it.
#[repr(C)]
struct Block {
    managed: DLManagedTensorVersioned,
    ndim: usize,
    fence: Option<NonZeroUsize>,
    owner: Grid<&'static [f32]>,
    shape: [i64; 2],
    strides: [i64; 2],
}

// As large as the allocation of the export that it is compared with.
const _: () = assert!(size_of::<Block>() == 80 + 2 * size_of::<usize>() + size_of::<Grid<&[f32]>>() + 32);

/// Allocates a block and fills every field.
fn filled() -> *mut Block {
    let layout = Layout::new::<Block>();
    // SAFETY: the size of a block is not zero.
    let start = unsafe { alloc(layout) };
    #[expect(clippy::cast_ptr_alignment, reason = "allocated with the layout of a block")]
    let block = start.cast::<Block>();
    if block.is_null() {
        handle_alloc_error(layout);
    }
    let owner = Grid::around(&CONSTANTS[..]);
    let (height, width) = (owner.height as i64, owner.width as i64);
    let tensor = DLTensor {
        data: ptr::with_exposed_provenance_mut(owner.data.as_ptr().expose_provenance()),
        device: Device::CPU,
        ndim: 2,
        dtype: DType::F32,
        shape: block.wrapping_byte_add(offset_of!(Block, shape)).cast(),
        strides: block.wrapping_byte_add(offset_of!(Block, strides)).cast(),
        byte_offset: 0,
    };
    let managed = DLManagedTensorVersioned {
        version: DLPackVersion { major: MAJOR_VERSION, minor: MINOR_VERSION },
        manager_ctx: block.cast::<c_void>(),
        deleter: Some(free_managed),
        flags: FLAG_READ_ONLY,
        dl_tensor: tensor,
    };
    let content = Block { managed, ndim: 2, fence: None, owner, shape: [height, width], strides: [width, 1] };
    // SAFETY: the allocation has the layout of a block.
    unsafe { block.write(content) };
    black_box(block)
}

/// Reads what a consumer needs.
///
/// # Safety
///
/// `block` comes from [`filled`] and has not been freed.
unsafe fn read(block: *const Block) -> (DLManagedTensorVersioned, [i64; 2], [i64; 2]) {
    // SAFETY: the block starts with this struct, which consists of plain numbers and pointers.
    let managed = unsafe { block.cast::<DLManagedTensorVersioned>().read() };
    // SAFETY: `shape` points to two extents.
    let shape = unsafe { managed.dl_tensor.shape.cast::<[i64; 2]>().read() };
    // SAFETY: `strides` points to two strides.
    let strides = unsafe { managed.dl_tensor.strides.cast::<[i64; 2]>().read() };
    (managed, shape, strides)
}

/// The deleter of the baseline's block. Its owner needs no drop.
///
/// # Safety
///
/// `managed` is the start of a block from [`filled`] and is not used afterwards.
unsafe extern "C" fn free_managed(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: forwarded to the caller.
    unsafe { dealloc(managed.cast(), Layout::new::<Block>()) };
}

fn round_trip(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("round trip 2-d");
    group.bench_function("floor: malloc, fill, free", |bencher| {
        bencher.iter(|| {
            // SAFETY: the block has just been filled, and nobody else has it.
            unsafe { free_managed(filled().cast()) }
        });
    });
    group.bench_function("floor: malloc, fill, read, free", |bencher| {
        bencher.iter(|| {
            let block = filled();
            // SAFETY: the block has just been filled.
            black_box(unsafe { read(block) });
            // SAFETY: nobody else has the block.
            unsafe { free_managed(block.cast()) };
        });
    });
    group.bench_function("export, import, drop", |bencher| {
        bencher.iter(|| {
            let grid = Grid::<Lease<f32>>::from_dlpack(exported()).expect("the struct takes it");
            black_box(&grid);
        });
    });
    group.bench_function("export, import as any array, drop", |bencher| {
        bencher.iter(|| {
            // Used where it is created, because the result of a function is moved.
            let import = Import::from_dlpack(exported()).expect("an export is imported");
            black_box(import.info());
        });
    });
    group.finish();
}

fn export_forms(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("export and drop 2-d");
    group.bench_function("versioned", |bencher| bencher.iter(exported));
    group.bench_function("legacy", |bencher| {
        bencher.iter(|| {
            let grid = Grid::around(Variables { device: Device::CPU });
            handed_over(
                grid.into_dlpack_as::<Legacy>(StreamHandle::LegacyDefault)
                    .expect("a writable array is exported"),
            )
        });
    });
    group.bench_function("shared: an Arc of the struct", |bencher| {
        let grid = Arc::new(Grid::around(&CONSTANTS[..]));
        bencher.iter(|| handed_over(grid.share_dlpack().expect("a compact array is exported")));
    });
    group.finish();
}

fn imports(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("export, import, drop 2-d");
    group.bench_function("as any array, then into a struct", |bencher| {
        bencher.iter(|| Grid::<Lease<f32>>::from_import(imported(exported())).expect("the struct takes it"));
    });
    group.bench_function("legacy", |bencher| {
        bencher.iter(|| {
            let grid = Grid::around(Variables { device: Device::CPU });
            imported(handed_over(
                grid.into_dlpack_as::<Legacy>(StreamHandle::LegacyDefault)
                    .expect("a writable array is exported"),
            ))
        });
    });
    group.finish();
}

fn descriptions(criterion: &mut Criterion) {
    let grid = Grid::around(&CONSTANTS[..]);
    let mut group = criterion.benchmark_group("describe 2-d");
    group.bench_function("facts", |bencher| bencher.iter(|| black_box(&grid).info()));
    group.bench_function("typed view of two axes", |bencher| {
        bencher.iter(|| black_box(&grid).view::<f32, 2>().expect("of this type and rank").shape());
    });
    group.finish();
}

fn cuda_array_interface(criterion: &mut Criterion) {
    let grid = Grid::around(Variables { device: Device::CUDA_HOST });
    let interface = grid.to_cai().expect("pinned memory has the interface");
    let mut group = criterion.benchmark_group("CUDA Array Interface 2-d");
    group.bench_function("export", |bencher| bencher.iter(|| black_box(&grid).to_cai()));
    group.bench_function("import and drop", |bencher| {
        bencher.iter(|| {
            let interface: &CudaArrayInterface = black_box(&interface);
            // SAFETY: the memory is static. It is only labelled as pinned: no kernel is started.
            unsafe { Import::from_cai_on_device(interface, Device::CUDA_HOST, ()) }
                .expect("an export is imported")
        });
    });
    group.finish();
}

fn main() {
    // One iteration takes about a hundred nanoseconds, so a few seconds are enough.
    let mut criterion = Criterion::default()
        .without_plots()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3))
        .configure_from_args();
    round_trip(&mut criterion);
    export_forms(&mut criterion);
    imports(&mut criterion);
    descriptions(&mut criterion);
    cuda_array_interface(&mut criterion);
    criterion.final_summary();
}
