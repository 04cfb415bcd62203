//! Measures stream waits and checks on a GPU against bare driver calls:
//! `cargo bench --package interop-benches --bench cuda`.
//!
//! It needs a CUDA driver, and prints a message if there is none.
#![expect(unsafe_code, reason = "the floor is bare driver calls")]

use std::ffi::c_void;
use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use criterion::Criterion;
use interop_core::cuda::{self, CudaBuffer, MemoryKind, Unordered};
use interop_core::protocols::dlpack::{ManagedTensor, Versioned};
use interop_core::{CudaArray, DType, Device, FromArray, Import, LeaseMut, StreamHandle};
use libloading::{Library, Symbol};

/// Sets whether releases wait for nothing.
fn set_unordered(releases: bool) {
    // SAFETY: nothing is launched on the arrays of this benchmark.
    unsafe { cuda::set_unordered(Unordered { releases, ..Unordered::default() }) };
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, width])]
struct Grid<S> {
    #[cuda_array(data)]
    data: S,
    height: usize,
    width: usize,
    #[cuda_array(stream)]
    stream: StreamHandle,
}

/// The driver functions, called as C code would call them.
struct Bare {
    record: unsafe extern "C" fn(usize, usize) -> i32,
    wait: unsafe extern "C" fn(usize, usize, u32) -> i32,
    attributes: unsafe extern "C" fn(u32, *mut i32, *mut *mut c_void, u64) -> i32,
    context_event: Option<unsafe extern "C" fn(usize, usize) -> i32>,
    query: unsafe extern "C" fn(usize) -> i32,
    event: usize,
    context: usize,
    streams: [usize; 2],
}

/// Returns a driver function.
///
/// # Safety
///
/// `T` must be the function's type in `cuda.h`.
unsafe fn get<T: Copy>(library: &Library, name: &str) -> Option<T> {
    // SAFETY: forwarded to the caller.
    unsafe { library.get::<T>(name.as_bytes()) }.ok().map(|found: Symbol<'_, T>| *found)
}

impl Bare {
    fn open() -> Self {
        // SAFETY: the driver's library may be opened at any time.
        let library = unsafe { Library::new("libcuda.so.1") }.expect("a driver");
        let library: &'static Library = Box::leak(Box::new(library));
        macro_rules! find {
            ($name:literal) => {
                // SAFETY: the type is the function's own (`cuda.h`).
                unsafe { get(library, $name) }
            };
        }
        let push: unsafe extern "C" fn(usize) -> i32 = find!("cuCtxPushCurrent_v2").expect("old");
        let create_stream: unsafe extern "C" fn(*mut usize, u32) -> i32 =
            find!("cuStreamCreate").expect("old");
        let create_event: unsafe extern "C" fn(*mut usize, u32) -> i32 = find!("cuEventCreate").expect("old");
        let context = cuda::Context::primary(0).expect("a GPU").to_raw().get();
        let (mut event, mut streams) = (0, [0; 2]);
        // SAFETY: the driver created this context.
        assert_eq!(unsafe { push(context) }, 0);
        // SAFETY: the pointer is valid for the write of an event.
        assert_eq!(unsafe { create_event(&raw mut event, 2) }, 0);
        for stream in &mut streams {
            // SAFETY: the pointer is valid for the write of a stream.
            assert_eq!(unsafe { create_stream(stream, 1) }, 0);
        }
        Self {
            record: find!("cuEventRecord").expect("old"),
            wait: find!("cuStreamWaitEvent").expect("old"),
            attributes: find!("cuPointerGetAttributes").expect("old"),
            context_event: find!("cuCtxRecordEvent"),
            query: find!("cuEventQuery").expect("old"),
            event,
            context,
            streams,
        }
    }

    fn edge(&self) {
        // SAFETY: the event and the streams belong to one context.
        assert_eq!(unsafe { (self.record)(self.event, self.streams[0]) }, 0);
        // SAFETY: as above.
        assert_eq!(unsafe { (self.wait)(self.streams[1], self.event, 0) }, 0);
    }

    fn fence(&self) {
        let Some(record) = self.context_event else { return };
        // SAFETY: the event belongs to the context.
        assert_eq!(unsafe { record(self.context, self.event) }, 0);
        // SAFETY: the event is live.
        black_box(unsafe { (self.query)(self.event) });
    }

    fn six(&self, address: usize) -> [usize; 6] {
        let mut answers = [0_usize; 6];
        let first = (&raw mut answers).cast::<usize>();
        let mut places: [*mut c_void; 6] = std::array::from_fn(|at| first.wrapping_add(at).cast());
        let mut asked = [2, 9, 8, 1, 11, 12];
        // SAFETY: there are six attributes, and six valid pointers to a word each.
        let code = unsafe { (self.attributes)(6, asked.as_mut_ptr(), places.as_mut_ptr(), address as u64) };
        assert_eq!(code, 0);
        answers
    }
}

fn handle(stream: usize) -> StreamHandle {
    // SAFETY: the benchmark keeps its streams alive.
    unsafe { StreamHandle::from_raw(stream) }
}

/// The time until each of `threads` threads has exported, imported and dropped an array `rounds` times.
fn at_once(threads: usize, rounds: u64, share: &(impl Fn() -> ManagedTensor<Versioned> + Sync)) -> Duration {
    let start = Barrier::new(threads + 1);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                start.wait();
                for _ in 0..rounds {
                    drop(Grid::<LeaseMut<f32>>::from_dlpack(black_box(share())).expect("an import"));
                }
                start.wait();
            });
        }
        start.wait();
        let begun = Instant::now();
        start.wait();
        begun.elapsed()
    })
}

fn main() {
    if !cuda::is_available() {
        println!("skipped: no CUDA driver on this machine");
        return;
    }
    let bare = Bare::open();
    let mut criterion = Criterion::default()
        .sample_size(50)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    let buffer = CudaBuffer::zeroed(MemoryKind::Device, 0, DType::F32, 12).expect("memory");
    let stream = handle(bare.streams[0]);
    let other = handle(bare.streams[1]);
    let grid = Arc::new(Grid { data: buffer, height: 3, width: 4, stream });
    let address = grid.info().expect("a grid").address();

    criterion.bench_function("pointer facts: six attributes, bare", |b| {
        b.iter(|| black_box(bare.six(black_box(address))));
    });
    criterion
        .bench_function("pointer facts: ours", |b| b.iter(|| cuda::pointer_attributes(black_box(address))));
    criterion.bench_function("edge: record and wait, bare", |b| b.iter(|| bare.edge()));
    criterion.bench_function("edge: ours", |b| b.iter(|| cuda::stream_wait(other, stream, Device::cuda(0))));
    criterion.bench_function("edge: ours, from the legacy default stream", |b| {
        b.iter(|| cuda::stream_wait(other, StreamHandle::LegacyDefault, Device::cuda(0)));
    });
    criterion.bench_function("edge: ours, same stream", |b| {
        b.iter(|| cuda::stream_wait(stream, stream, Device::cuda(0)));
    });
    criterion.bench_function("release: context event and query, bare", |b| b.iter(|| bare.fence()));
    let share = || {
        // To the array's own stream: no wait is in this figure.
        grid.share_dlpack_as::<Versioned>(stream).expect("an export")
    };
    criterion.bench_function("device memory: export, drop", |b| b.iter(|| drop(black_box(share()))));
    criterion.bench_function("device memory: export, import, drop", |b| {
        b.iter(|| Grid::<LeaseMut<f32>>::from_dlpack(black_box(share())).expect("an import"));
    });
    criterion.bench_function("device memory: export, trusted import, drop", |b| {
        // SAFETY: this is an export of our own.
        b.iter(|| unsafe { Import::from_dlpack_unchecked(black_box(share())) }.expect("an import"));
    });
    set_unordered(true);
    criterion.bench_function("device memory: export, import, drop, released at once", |b| {
        b.iter(|| Grid::<LeaseMut<f32>>::from_dlpack(black_box(share())).expect("an import"));
    });
    // In order it must take at most 1.5 times as long.
    for is_unordered in [true, false] {
        set_unordered(is_unordered);
        for threads in [1, 16] {
            let name =
                format!("device memory: export, import, drop, unordered: {is_unordered}, threads: {threads}");
            criterion.bench_function(&name, |b| b.iter_custom(|rounds| at_once(threads, rounds, &share)));
            cuda::finish_releases();
        }
    }
    criterion.final_summary();
}
