//! Memory that an open scope writes, used through a second handle meanwhile: the work of the scope is not queued yet, so whoever
//! cannot be ordered after it is refused. Each door asks: scopes, views, copies, exports, dicts, waits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use interop_core::cuda::{CudaBuffer, MemoryKind, finish_releases};
use interop_core::kernel::{Thread, ViewMut, kernel};
use interop_core::protocols::dlpack::Versioned;
use interop_core::{
    CudaArray, DType, Device, ErrorKind, FromArray, Import, KernelModule, LaunchScope, LaunchSize, Lease,
    LeaseMut, Result, SharedBuffer, StreamHandle,
};

use crate::counted_imports::{Row, arrive, arrive_on, row as row_of, tell};
use crate::cuda_program::{Place, Stream};
use crate::exclusive_driver::{Turn, first_gpu};
use crate::support::arrays::Array;

#[kernel]
pub(crate) fn count(thread: Thread<'_>, mut to: ViewMut<'_, i16, 1>) {
    for at in thread.elements(to.shape()) {
        to.set(at, to.get(at) + 0x0101);
    }
}

const PTX: &str = ".version 7.0\n.target sm_70\n.visible .entry count(.param .b8 a[24])\n";
// SAFETY: it runs on the simulated driver, which runs the function above.
#[expect(unsafe_code, reason = "names the PTX of the kernel")]
pub(crate) static KERNELS: KernelModule = unsafe { KernelModule::new(PTX) };

pub(crate) const LEN: usize = 1000;

/// A driver that is left without a report, and streams of the primary context.
struct Scene {
    streams: [Stream; 4],
    on: [StreamHandle; 4],
    turn: Turn,
}

impl Scene {
    fn new() -> Self {
        let (turn, place) = first_gpu();
        turn.register::<count>();
        let streams = [(); 4].map(|()| place.non_blocking());
        Self { streams, on: streams.map(Stream::handle), turn }
    }

    /// Runs `act` while a scope on the second stream writes `one`, and then ends that scope. `act` may be refused, in which case
    /// the memory was in use, or finds the memory as it was before the scope or after it, but with no race.
    #[track_caller]
    fn beside<A: CudaArray, R>(&self, mut one: A, act: impl FnOnce() -> Result<R>) -> Option<R> {
        let scope = LaunchScope::on(&self.on[1]);
        queue(&scope, &mut one).unwrap();
        let found = act();
        scope.finish().unwrap();
        self.streams[1].finish();
        drop(one);
        let found = match found {
            Err(refused) => {
                assert_eq!(refused.kind(), ErrorKind::AlreadyBorrowed, "{refused}");
                None
            }
            Ok(found) => Some(found),
        };
        self.ended();
        found
    }

    #[track_caller]
    fn ended(&self) {
        self.turn.run_all();
        finish_releases();
        self.turn.assert_no_reports();
    }
}

impl Drop for Scene {
    /// The arrays of the test are dropped before the scene.
    fn drop(&mut self) {
        self.turn.run_all();
        finish_releases();
    }
}

/// Queues a kernel that adds one to all bytes.
fn queue<'a, A: CudaArray>(scope: &LaunchScope<'a>, array: &'a mut A) -> Result<()> {
    let view = scope.write(array)?;
    scope.launch(&KERNELS, LaunchSize::for_units(LEN), count::with(view))
}

fn buffer(kind: MemoryKind) -> CudaBuffer {
    CudaBuffer::zeroed(kind, 0, DType::I16, LEN).unwrap()
}

fn row<S>(data: S) -> Row<S> {
    Row { data, len: LEN }
}

/// Two handles of memory that this crate allocated.
fn two_of(kind: MemoryKind) -> [Row<Arc<CudaBuffer>>; 2] {
    let data = Arc::new(buffer(kind));
    [row(data.clone()), row(data)]
}

/// An import of an export of `shared` that is ready on a stream.
fn import(shared: &Arc<Row<CudaBuffer>>, on: Stream) -> Import {
    let tensor = shared.clone().share_dlpack_as::<Versioned>(on.handle()).unwrap();
    Import::from_dlpack(tensor).unwrap().with_stream(on.handle()).unwrap()
}

fn imports(on: Stream) -> [Row<LeaseMut<i16>>; 2] {
    let shared = Arc::new(row(buffer(MemoryKind::Device)));
    [0; 2].map(|_| Row::from_import(import(&shared, on)).unwrap())
}

/// As `f(x, x)`: two arguments on the stream of the caller, and a scope for each.
#[test]
fn two_arguments_of_one_call_in_two_scopes() {
    let scene = Scene::new();
    let callers = scene.streams[0];
    let data = Place::primary(0).bytes(0, 2 * LEN);
    let argument = || row_of::<LeaseMut<i16>>(&data, callers).1;
    let (mut a, mut b) = (argument(), argument());
    {
        let (first, second) = (LaunchScope::on(&scene.on[1]), LaunchScope::on(&scene.on[2]));
        queue(&first, &mut a).unwrap();
        assert_eq!(queue(&second, &mut b).unwrap_err().kind(), ErrorKind::AlreadyBorrowed);
    }
    {
        // One stream orders both.
        let (first, second) = (LaunchScope::new(), LaunchScope::new());
        queue(&first, &mut a).unwrap();
        queue(&second, &mut b).unwrap();
    }
    drop((a, b));
    callers.finish();
    assert_eq!(data.value(), 3);
    scene.ended();
}

/// A call within a call gets the same array.
#[test]
fn a_scope_within_a_call_back() {
    let scene = Scene::new();
    let callers = scene.streams[0];
    let data = Place::primary(0).bytes(0, 2 * LEN);
    let call = |on: &StreamHandle, back: &dyn Fn()| {
        let mut argument = row_of::<LeaseMut<i16>>(&data, callers).1;
        let scope = LaunchScope::on(on);
        let queued = queue(&scope, &mut argument);
        back();
        queued.and_then(|()| scope.finish())
    };
    call(&scene.on[1], &|| {
        let inner = call(&scene.on[2], &|| ()).unwrap_err();
        assert_eq!(inner.kind(), ErrorKind::AlreadyBorrowed);
        call(&scene.on[1], &|| ()).unwrap();
    })
    .unwrap();
    call(&scene.on[2], &|| ()).unwrap();
    callers.finish();
    assert_eq!(data.value(), 3);
    scene.ended();
}

#[test]
fn a_copy_to_the_host() {
    let scene = Scene::new();
    for kind in [MemoryKind::Device, MemoryKind::Pool, MemoryKind::Managed, MemoryKind::Pinned] {
        let [one, two] = two_of(kind);
        assert_eq!(scene.beside(one, || two.to_vec::<i16>()), None, "{kind:?}");
        assert_eq!(two.to_vec::<i16>().unwrap(), [0x0101; LEN], "after the scope");
    }
    let [one, two] = imports(scene.streams[0]);
    assert_eq!(scene.beside(one, || two.to_vec::<i16>()), None);
    drop(two);
    scene.ended();
}

#[test]
fn a_copy_on_the_device() {
    let scene = Scene::new();
    let [one, two] = two_of(MemoryKind::Device);
    let two = Arc::new(two);
    let copy = || Row::<CudaBuffer>::from_dlpack(two.clone().share_dlpack()?);
    assert!(scene.beside(one, copy).is_none());
}

/// Also on the stream on which the array is known to be.
#[test]
fn an_export() {
    let scene = Scene::new();
    for to in [scene.streams[2], scene.streams[0]] {
        let [one, two] = imports(scene.streams[0]);
        let export = || two.into_dlpack_as::<Versioned>(to.handle()).map_err(|refused| refused.error);
        assert!(scene.beside(one, export).is_none());
        let [one, two] = two_of(MemoryKind::Device);
        let two = Arc::new(two);
        assert!(scene.beside(one, || two.share_dlpack_as::<Versioned>(to.handle())).is_none());
    }
    // The stream of the scope orders its kernels and those of the consumer.
    let [one, two] = two_of(MemoryKind::Device);
    let two = Arc::new(two);
    let on = scene.on[1];
    let exported = scene.beside(one, || {
        let tensor = two.share_dlpack_as::<Versioned>(on)?;
        let import = Import::from_dlpack(tensor)?.with_stream(on)?;
        let mut again = Row::<LeaseMut<i16>>::from_import(import)?;
        let scope = LaunchScope::on(&on);
        queue(&scope, &mut again)?;
        scope.finish()
    });
    assert!(exported.is_some());
}

#[test]
fn a_dict_a_wait_and_an_import_on_another_stream() {
    let scene = Scene::new();
    let other = scene.on[3];
    let [one, two] = two_of(MemoryKind::Device);
    assert!(scene.beside(one, || two.to_cai()).is_none());
    let [one, two] = two_of(MemoryKind::Device);
    assert!(scene.beside(one, || two.make_stream_wait(other)).is_none());
    let [one, two] = imports(scene.streams[0]);
    assert!(scene.beside(one, || two.make_stream_wait(other)).is_none());
    let shared = Arc::new(row(buffer(MemoryKind::Device)));
    let one = Row::<LeaseMut<i16>>::from_import(import(&shared, scene.streams[0])).unwrap();
    let two = import(&shared, scene.streams[0]);
    let moved = || two.with_stream(other).map_err(|refused| refused.error);
    assert!(scene.beside(one, moved).is_none());
    drop(shared);
    scene.ended();
}

#[test]
fn a_part_of_a_shared_buffer() {
    let scene = Scene::new();
    let [one, _] = imports(scene.streams[0]);
    let tensor = one.into_dlpack_as::<Versioned>(scene.on[0]).unwrap();
    let import = Import::from_dlpack(tensor).unwrap().with_stream(scene.on[0]).unwrap();
    let shared: Row<SharedBuffer> = Row::from_import(import).unwrap();
    let half = Row { data: shared.data.byte_offset(2 * 500).unwrap(), len: 500 };
    let other = shared.data.clone();
    assert!(scene.beside(shared, || half.to_vec::<i16>()).is_none());
    // Another part is not in use.
    let first = Row { data: other, len: 500 };
    let mut second = half;
    let scope = LaunchScope::on(&scene.on[1]);
    scope.write_any(&mut second).unwrap();
    assert_eq!(first.to_vec::<i16>().unwrap()[0], 0x0101);
    scope.finish().unwrap();
    drop((first, second));
    scene.ended();
}

/// The host reads where kernels of the scope write.
#[test]
fn a_view_of_the_host() {
    let scene = Scene::new();
    let shared = Arc::new(row(buffer(MemoryKind::Pinned)));
    let on = scene.streams[0];
    let one = Row::<LeaseMut<i16>>::from_import(import(&shared, on)).unwrap();
    let two = Row::<LeaseMut<i16>>::from_import(import(&shared, on)).unwrap();
    let read = || two.view::<i16, 1>()?.host_view()?.read([0]);
    assert_eq!(scene.beside(one, read), None);
    assert_eq!(read().unwrap(), 0x0101, "after the scope");
    drop(two);
    scene.ended();
}

/// A scope that reads excludes writers only.
#[test]
fn readers_beside_a_scope_that_reads() {
    let scene = Scene::new();
    let [a, mut b] = two_of(MemoryKind::Managed);
    let scope = LaunchScope::on(&scene.on[1]);
    scope.read_any(&a).unwrap();
    assert_eq!(b.to_vec::<i16>().unwrap(), [0; LEN]);
    b.make_stream_wait(scene.on[2]).unwrap();
    b.to_cai().unwrap();
    assert_eq!(b.fill(1_i16).unwrap_err().kind(), ErrorKind::AlreadyBorrowed);
    let other = LaunchScope::on(&scene.on[2]);
    assert_eq!(other.write_any(&mut b).map(drop).unwrap_err().kind(), ErrorKind::AlreadyBorrowed);
    drop(other);
    scope.finish().unwrap();
    b.fill(1_i16).unwrap();
    drop((a, b));
    scene.ended();
}

/// What a thread does is compared with the scopes of all others.
#[test]
fn doors_on_other_threads() {
    let scene = Scene::new();
    let [one, two] = two_of(MemoryKind::Device);
    let (copied, exported) = (Arc::new(two), Arc::new(row(Arc::clone(&one.data))));
    let found = scene.beside(one, || {
        let dropped = row(Arc::clone(&copied.data));
        thread::scope(|threads| {
            let copy = threads.spawn(|| copied.to_vec::<i16>().map(drop));
            let export = threads.spawn(|| exported.share_dlpack().map(drop));
            threads.spawn(|| drop(dropped)).join().unwrap();
            let errors = [copy.join().unwrap(), export.join().unwrap()];
            assert!(errors.iter().all(Result::is_err), "{errors:?}");
            errors.into_iter().collect::<Result<()>>()
        })
    });
    assert!(found.is_none());
}

/// The scope ends with the panic, and its arrays can be used.
#[test]
fn a_panic_between_two_doors() {
    let scene = Scene::new();
    let [mut one, two] = two_of(MemoryKind::Device);
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let scope = LaunchScope::on(&scene.on[1]);
        queue(&scope, &mut one).unwrap();
        two.to_vec::<i16>().unwrap();
    }));
    assert!(panic.is_err());
    assert_eq!(two.to_vec::<i16>().unwrap(), [0x0101; LEN]);
    drop((one, two));
    scene.ended();
}

/// So many accesses are in the maps of the record.
#[test]
fn a_scope_beside_ten_thousand_views() {
    let scene = Scene::new();
    let all = SharedBuffer::new(CudaBuffer::zeroed(MemoryKind::Managed, 0, DType::I16, 10_000).unwrap());
    let many: Vec<_> = (0..10_000).map(|at| Row { data: all.byte_offset(2 * at).unwrap(), len: 1 }).collect();
    let views: Vec<_> = many.iter().map(|row| row.view::<i16, 1>().unwrap().host_view().unwrap()).collect();
    let [one, two] = two_of(MemoryKind::Managed);
    assert!(scene.beside(one, || two.to_vec::<i16>()).is_none());
    assert_eq!(two.to_vec::<i16>().unwrap(), [0x0101; LEN]);
    // Each of them counts.
    let mut last = Row { data: many[9_999].data.clone(), len: 1 };
    let scope = LaunchScope::on(&scene.on[1]);
    assert_eq!(scope.write_any(&mut last).map(drop).unwrap_err().kind(), ErrorKind::AlreadyBorrowed);
    drop(scope);
    drop(views);
    let scope = LaunchScope::on(&scene.on[1]);
    scope.write_any(&mut last).unwrap();
    scope.finish().unwrap();
    drop((many, last, all, two));
    scene.ended();
}

/// A default stream is that of its context: two contexts have two, with one handle.
#[test]
fn scopes_on_the_default_streams_of_two_contexts() {
    let scene = Scene::new();
    let foreign = Place::foreign(0);
    let data = Place::primary(0).managed(0, 2 * LEN);
    let argument = |place: Place| {
        let (_ledger, tensor) = tell(&data, Device::CUDA_MANAGED);
        place.with(|| {
            let import = Import::from_dlpack(tensor).unwrap();
            Row::<LeaseMut<i16>>::from_import(import.with_stream(StreamHandle::LegacyDefault).unwrap())
                .unwrap()
        })
    };
    let (mut a, mut b) = (argument(Place::primary(0)), argument(foreign));
    Place::primary(0).with(|| {
        let first = LaunchScope::on(&StreamHandle::LegacyDefault);
        queue(&first, &mut a).unwrap();
        foreign.with(|| {
            let second = LaunchScope::on(&StreamHandle::LegacyDefault);
            assert_eq!(queue(&second, &mut b).unwrap_err().kind(), ErrorKind::AlreadyBorrowed);
        });
        first.finish().unwrap();
    });
    drop((a, b));
    scene.ended();
    drop(data);
    foreign.destroy();
}

/// Whoever waits for all work on memory, because its stream is unknown, waits in the contexts of the memory. The work of a scope may be
/// in another one.
#[test]
fn a_scope_on_a_stream_of_another_context() {
    let (scene, other) = (Scene::new(), Place::foreign(0));
    let stream = other.non_blocking();
    let kinds = [MemoryKind::Device, MemoryKind::Pool, MemoryKind::Managed, MemoryKind::Pinned];
    for (kind, is_current) in kinds.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let [mut one, two] = two_of(kind);
        let on = stream.handle();
        let mut run = || {
            let scope = LaunchScope::on(&on);
            queue(&scope, &mut one).unwrap();
            scope.finish().unwrap();
        };
        if is_current {
            other.with(run);
        } else {
            run();
        }
        let named = LaunchScope::on(&scene.on[1]);
        queue(&named, &mut one).unwrap();
        named.finish().unwrap();
        assert_eq!(two.to_vec::<i16>().unwrap(), [0x0202; LEN], "{kind:?}");
    }
    scene.ended();
    stream.destroy();
    other.destroy();
}

/// The tensor knows the stream for which it was exported: no `unsafe` states another one.
#[test]
fn an_export_for_a_stream_that_is_imported_without_one() {
    let scene = Scene::new();
    let on = scene.on[0];
    let block = CudaBuffer::zeroed_on(on, 0, DType::I16, LEN).unwrap();
    let tensor = row(block).into_dlpack_as::<Versioned>(on).unwrap();
    let again: Row<Lease<i16>> = Row::from_dlpack(tensor).unwrap();
    assert_eq!(again.to_vec::<i16>().unwrap(), [0; LEN]);
    drop(again);
    let block = CudaBuffer::zeroed_on(on, 0, DType::I16, LEN).unwrap();
    let tensor = Arc::new(row(block)).share_dlpack_as::<Versioned>(on).unwrap();
    let copy: Row<CudaBuffer> = Row::from_dlpack(tensor).unwrap();
    assert_eq!(copy.to_vec::<i16>().unwrap(), [0; LEN]);
    drop(copy);
    scene.ended();
}

/// On a device without pools, and on the seventeenth stream, the uses of memory are not followed. A `stream` field does not state
/// that nothing else was queued: the start of the memory was, on a stream of this crate.
#[test]
fn a_stream_field_beside_memory_that_is_not_followed() {
    let scene = Scene::new();
    let streams: Vec<_> = (0..20).map(|_| Place::primary(0).non_blocking()).collect();
    let spins: Vec<_> = streams.iter().map(|stream| stream.spin()).collect();
    let arrays: Vec<_> = streams
        .iter()
        .map(|stream| {
            let data = CudaBuffer::zeroed_on(stream.handle(), 0, DType::I16, 32).unwrap();
            Array { data, shape: vec![32], strides: None, stream: scene.on[0] }
        })
        .collect();
    for spin in spins {
        scene.turn.release(spin);
    }
    for array in &arrays {
        assert_eq!(array.to_vec::<i16>().unwrap(), [0; 32]);
    }
    drop(arrays);
    scene.ended();
    streams.into_iter().for_each(Stream::destroy);
}

#[test]
fn an_argument_may_be_used_after_its_call() {
    let scene = Scene::new();
    let data = Place::primary(0).bytes(0, 64);
    let (_ledger, import) = arrive_on(&data, Device::cuda(0), scene.streams[0]);
    let mut argument = Row::<LeaseMut<i16>>::from_import(import).unwrap();
    let scope = LaunchScope::on(&scene.on[1]);
    scope.write_any(&mut argument).unwrap();
    // The same memory by another import, whose stream is not known to be that of the scope.
    let (_ledger, import) = arrive(&data, Device::cuda(0));
    let other = Row::<Lease<i16>>::from_import(import).unwrap();
    assert_eq!(other.to_vec::<i16>().unwrap_err().kind(), ErrorKind::AlreadyBorrowed);
    scope.finish().unwrap();
    drop((argument, other));
    scene.ended();
}
